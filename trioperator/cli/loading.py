"""Loading the files and modules of users, so that their decorators register their handlers."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable

from trioperator.errors import ConfigError
from trioperator.logs import trim_traceback

__all__ = ["LoadingError", "load_all", "load_file", "load_module"]


class LoadingError(ConfigError):
    """Say that a user's code has failed. Its cause is the user's error, with a traceback that begins in that code."""


def load_all(files: Iterable[str], modules: Iterable[str]) -> None:
    """Load the files, then the modules, each in the order in which they are given.

    Raises ConfigError for what is not there, LoadingError for what is wrong in it.
    """
    for index, path in enumerate(files):
        load_file(path, index=index)
    for name in modules:
        load_module(name)


def load_file(path: str, *, index: int = 0) -> None:
    """Load a Python file as a module of its own; its folder becomes the first where modules are looked for.

    The module is called as Kopf calls it, so that it is seen in ``sys.modules`` which one it is. Raises as
    :func:`load_all` does.
    """
    full = os.path.abspath(path)
    try:
        with open(full, "rb"):  # whatever the reason is, it is told better here than by the import system
            pass
    except IsADirectoryError:
        raise ConfigError(f"The file {path} is a folder: give the files in it, or a package by -m.") from None
    except OSError as error:
        raise ConfigError(f"The file {path} cannot be read: {error.strerror}.") from None
    sys.path.insert(0, os.path.dirname(full))
    name = f"__trioperator_script_{index}__{path}"
    loader = importlib.machinery.SourceFileLoader(name, full)
    spec = importlib.util.spec_from_file_location(name, full, loader=loader)
    assert spec is not None  # there is a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        _begin_in_user_code(error)
        raise LoadingError(f"The file {path} cannot be loaded: {_describe(error)}") from error


def load_module(name: str) -> None:
    """Import a module by its name, looked for in the current folder too, as ``python -m`` does it.

    Raises as :func:`load_all` does.
    """
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(f"There is no module {name}: {error.msg}.") from None
        if not _begin_in_user_code(error) and not isinstance(error, SyntaxError):
            raise ConfigError(f"The module {name} cannot be imported: {_describe(error)}.") from None
        raise LoadingError(f"The module {name} cannot be imported: {_describe(error)}") from error


def _begin_in_user_code(error: Exception) -> bool:
    """Cut this module and the import system off the beginning of the traceback; tell whether anything is left."""
    traceback = error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file != __file__ and not file.startswith("<frozen importlib") and file != importlib.__file__:
            return trim_traceback(error, file)
        traceback = traceback.tb_next
    error.__traceback__ = None
    return False


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
