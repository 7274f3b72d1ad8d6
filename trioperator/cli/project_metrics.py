"""Metrics that a project registers with Prometheus' client: forgotten when its modules are imported again."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from trioperator.cli.project import is_in_project

if TYPE_CHECKING:
    from types import FrameType

    from prometheus_client.registry import Collector, CollectorRegistry


class ProjectMetrics:
    """Collectors in the default registry, with the files of the code that has registered them.

    Metrics of libraries are kept, as libraries are not imported again. The client does not know which code has
    registered a metric, so this is recorded here.
    """

    def __init__(self) -> None:
        self._registry = _find_registry()
        self._files: dict[Collector, Collection[str]] = {}

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is registered in the block."""
        registry = self._registry
        if registry is None:
            yield
            return
        register = registry.register

        def record(collector: Collector) -> None:
            register(collector)
            self._files[collector] = _list_files()

        with _replaced(registry, record):
            yield

    def forget(self, roots: Collection[str]) -> Callable[[], None]:
        """Unregister the metrics of the project in these directories; return a function that registers them again."""
        registry = self._registry
        own = {
            collector: files
            for collector, files in self._files.items()
            if any(is_in_project(file, roots) for file in files)
        }

        def restore() -> None:
            for collector, files in own.items():
                assert registry is not None
                registry.register(collector)
                self._files[collector] = files

        for collector in own:
            del self._files[collector]
            with contextlib.suppress(KeyError):  # the project has done that itself
                assert registry is not None
                registry.unregister(collector)
        return restore


def _find_registry() -> CollectorRegistry | None:
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return None
    return REGISTRY


@contextlib.contextmanager
def _replaced(registry: CollectorRegistry, register: Callable[[Collector], None]) -> Iterator[None]:
    """Replace the method of the registry in the block."""
    registry.register = register  # type: ignore[method-assign, assignment]  # of one instance
    try:
        yield
    finally:
        del registry.register


def _list_files() -> Collection[str]:
    """Return the files of the calls that have led here, from the innermost to the module being imported."""
    files: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        files.append(frame.f_code.co_filename)
        if frame.f_code.co_name == "<module>":
            break
        frame = frame.f_back
    return files
