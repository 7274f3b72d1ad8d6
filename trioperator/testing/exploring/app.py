"""The operator that is explored: its handlers, which are loaded again for each start, as a new process would."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry, set_default_registry
from trioperator.cli.loading import load_all
from trioperator.cli.project import find_roots, is_in_project
from trioperator.cli.project_metrics import ProjectMetrics


def find_kopf() -> Any:
    """Return the module that runs operators for Kopf, if that is what is explored; otherwise None."""
    imports = sys.modules.get("trioperator.kopf.imports")
    return (
        importlib.import_module("trioperator.kopf.running") if imports is not None and imports.is_installed() else None
    )


class App:
    """Where the handlers of an operator come from."""

    #: How to name it on the command line.
    arguments: Sequence[str] = ()

    def load(self) -> OperatorRegistry:
        """Return the handlers, for one start of the operator. Raises ConfigError if they cannot be loaded."""
        raise NotImplementedError


class RegistryApp(App):
    """Handlers that are declared, and keep what their modules keep. *declare* declares others at each start."""

    def __init__(self, registry: OperatorRegistry, *, declare: Callable[[], object] | None = None) -> None:
        self._registry = registry
        self._declare = declare

    def load(self) -> OperatorRegistry:
        """See :meth:`App.load`."""
        if self._declare is None:
            return self._registry
        with _replaced_registry() as registry:
            for handler in self._registry:
                registry.append(handler)
            self._declare()
        return registry


class FilesApp(App):
    """Files and modules, which are imported at each start: what they keep in memory is lost with each stop."""

    def __init__(self, files: Sequence[str], modules: Sequence[str] = ()) -> None:
        self._files, self._modules = tuple(files), tuple(modules)
        self._metrics = ProjectMetrics()
        self._kept = set(sys.modules)
        self._path = tuple(sys.path)
        self.arguments = (*self._files, *(part for name in self._modules for part in ("-m", name)))

    def load(self) -> OperatorRegistry:
        """See :meth:`App.load`."""
        roots = find_roots(self._files, self._modules)
        for name in set(sys.modules) - self._kept:
            path = getattr(sys.modules[name], "__file__", None)
            if path is not None and is_in_project(path, roots):
                del sys.modules[name]
            else:
                self._kept.add(name)
        self._metrics.forget(roots)
        sys.path[:] = self._path
        importlib.invalidate_caches()
        with self._metrics.recording(), _replaced_registry() as registry:
            load_all(self._files, self._modules)
        return registry


@contextlib.contextmanager
def _replaced_registry() -> Iterator[OperatorRegistry]:
    """Replace the default registry in the context by an empty one, and yield that."""
    before, registry = get_default_registry(), OperatorRegistry()
    set_default_registry(registry)
    try:
        yield registry
    finally:
        set_default_registry(before)
