"""``import kopf`` during an installation: a finder of our modules, in front of all others.

A Kopf that is installed is hidden by it, and is found again afterwards.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Final, Self

from trioperator.kopf.loggers import follow_loggers
from trioperator.kopf.private_modules import find_module, warn_of_import

_NAME: Final = "kopf"


class Installation:
    """Meaning of ``import kopf`` in this process, until :meth:`uninstall` or the end of the ``with`` block."""

    def __init__(self, modules: Mapping[str, types.ModuleType]) -> None:
        self._finder: _Finder | None = _Finder(modules)
        self._hidden = _take_out()
        sys.meta_path.insert(0, self._finder)
        self._restore_loggers = follow_loggers()

    def uninstall(self) -> None:
        """Restore the previous meaning of ``import kopf``. Modules that have imported ours keep it."""
        if self._finder is None:
            return
        sys.meta_path.remove(self._finder)
        self._finder = None
        self._restore_loggers()
        _take_out()
        sys.modules.update(self._hidden)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.uninstall()


def install() -> Installation:
    """Make ``import kopf`` mean trioperator from now on: for the files of an operator, and for its tests.

    ::

        with trioperator.kopf.install():
            import app  # which imports kopf

    Call it before anything imports ``kopf``, such as at the top of ``conftest.py``. A Kopf that is installed is hidden,
    not changed, until ``uninstall()`` of the result.
    """
    from trioperator.kopf.names import make_modules

    return Installation(make_modules())


def is_installed() -> bool:
    """Return whether ``import kopf`` means trioperator now."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def _take_out() -> dict[str, types.ModuleType]:
    """Remove all modules named ``kopf``, ours or Kopf's own, from those that are loaded, and return them."""
    names = [name for name in sys.modules if name == _NAME or name.startswith(f"{_NAME}.")]
    return {name: sys.modules.pop(name) for name in names}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder and loader of modules that exist already."""

    def __init__(self, modules: Mapping[str, types.ModuleType]) -> None:
        self._modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _NAME and not name.startswith(f"{_NAME}."):
            return None
        is_package = name == _NAME or hasattr(self._find(name), "__path__")
        return importlib.machinery.ModuleSpec(name, self, is_package=is_package)

    def _find(self, name: str) -> types.ModuleType:
        """Return a module. Raises ModuleNotFoundError, which names the replacement, if there is none."""
        return self._modules.get(name) or find_module(name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._find(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Execute nothing, as the module is complete; but warn about a module that is private in Kopf."""
        if module.__name__ not in self._modules:
            warn_of_import(module.__name__)
