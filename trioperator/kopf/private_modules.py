"""Kopf's private modules, as far as operators import them: mostly types, which are public names of other modules.

A module is made when it is imported, with a DeprecationWarning. Names that it lacks raise an ImportError that tells the
replacement. Modules that Kopf had until 1.28 (``kopf.structs`` and others) are aliases of those that replaced them.
"""

from __future__ import annotations

import functools
import importlib
import types
import warnings
from typing import Any

from trioperator._model.kopf_names import describe_missing, find_place, has_module, is_package


@functools.cache
def find_module(name: str) -> types.ModuleType:
    """Return the module with a full name such as ``kopf._cogs.structs.bodies``, always the same one.

    Raises ModuleNotFoundError for a module that does not exist here.
    """
    if not has_module(name):
        raise ModuleNotFoundError(f"The module {describe_missing(name)}", name=name)
    module = types.ModuleType(name, f"Names of Kopf's module {name}.")
    vars(module)["__getattr__"] = functools.partial(_find, name)
    if is_package(name):
        module.__path__ = []
    return module


def warn_of_import(name: str) -> None:
    """Issue a DeprecationWarning for the import of a private module, if it has any names."""
    if not is_package(name):
        text = f"{name} is private to Kopf: import its names from kopf itself, where they are public."
        warnings.warn(text, DeprecationWarning, stacklevel=3)


def _find(module: str, name: str) -> Any:
    """Return the value of a name in a module. Raises ImportError, which explains it, if there is none."""
    place = find_place(module, name)
    if place is None and name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    if is_package(module):
        return importlib.import_module(f"{module}.{name}")
    if place is None:
        raise ImportError(describe_missing(f"{module}.{name}"), name=module)
    home, _, attribute = place.partition(":")
    if home != "kopf":
        return getattr(importlib.import_module(home), attribute)
    from trioperator.kopf.names import make_modules

    return getattr(make_modules()["kopf"], attribute)
