"""Loading of the user's files and modules, whose decorators register handlers."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator

from trioperator._handling.arguments.context import loaded_source
from trioperator._handling.declaring.registry import get_default_registry
from trioperator._logs import trim_traceback
from trioperator._model.similar_names import find_similar
from trioperator.cli.scripts import make_spec, name_script
from trioperator.errors import ConfigError


class LoadingError(ConfigError):
    """Raised when the user's code fails. Its cause is the user's error, with a traceback that starts in that code."""


def load_all(files: Iterable[str], modules: Iterable[str]) -> None:
    """Load the files, then the modules, each in the given order; a file that is passed twice, as by a pattern, once.

    Raises ConfigError for files and modules that do not exist, and if they declare their handlers with Kopf itself;
    LoadingError for errors in them.
    """
    unique: dict[str, str] = {}
    for path in files:
        unique.setdefault(os.path.realpath(path), path)
    for index, path in enumerate(unique.values()):
        load_file(path, index=index)
    for name in modules:
        load_module(name)
    _check_import_of_kopf()


def _check_import_of_kopf() -> None:
    """Raise ConfigError if there are no handlers, and Kopf itself is imported: they are in its registry."""
    kopf, registry = sys.modules.get("kopf"), get_default_registry()
    file = None if kopf is None else vars(kopf).get("__file__")  # trioperator under that name has none
    if file is not None and not any(registry) and not registry.kinds():
        raise ConfigError(
            f"No handlers are declared with trioperator, but kopf is imported from {file}. Run the operator by"
            f" `trioperator-kopf run`, where kopf means trioperator, or write `import trioperator as kopf`."
        )


def load_file(path: str, *, index: int = 0) -> None:
    """Load a Python file as a separate module; its directory becomes the first one on ``sys.path``.

    The module is named as Kopf names it, so that it can be recognized in ``sys.modules``, and can be imported in worker
    processes by that name. Raises the same errors as :func:`load_all`.
    """
    full = os.path.abspath(path)
    try:
        with open(full, "rb"):  # the errors are clearer than the import system's
            pass
    except IsADirectoryError:
        raise ConfigError(
            f"Cannot read the file {path}: it is a directory. Pass the files in it, or a package with -m."
        ) from None
    except OSError as error:
        raise ConfigError(f"Cannot read the file {path}: {error.strerror}.") from None
    sys.path.insert(0, os.path.dirname(full))
    name = name_script(path, index=index)
    spec = make_spec(name, path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _loading(path):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        _start_in_user_code(error)
        if isinstance(error, ImportError) and str(error).startswith("attempted relative import"):
            raise LoadingError(f"Cannot load the file {path}: {_advise_against_relative_imports(full)}") from error
        raise LoadingError(f"Cannot load the file {path}: {_describe(error)}") from error


def load_module(name: str) -> None:
    """Import a module by its name, also from the current directory, as ``python -m`` does.

    Raises the same errors as :func:`load_all`.
    """
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        with _loading(name):
            importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(f"Cannot import the module {name}: {error.msg}.") from None
        if not _start_in_user_code(error) and not isinstance(error, SyntaxError):
            raise ConfigError(f"Cannot import the module {name}: {_describe(error)}.") from None
        raise LoadingError(f"Cannot import the module {name}: {_describe(error)}") from error


@contextlib.contextmanager
def _loading(source: str) -> Iterator[None]:
    """Forbid running operators in the block."""
    token = loaded_source.set(source)
    try:
        yield
    finally:
        loaded_source.reset(token)


def _start_in_user_code(error: BaseException) -> bool:
    """Remove this module and the import system from the start of the traceback; return whether anything is left."""
    traceback = error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file != __file__ and not file.startswith("<frozen importlib") and file != importlib.__file__:
            return trim_traceback(error, file)
        traceback = traceback.tb_next
    error.__traceback__ = None
    return False


def _advise_against_relative_imports(full: str) -> str:
    """Return what to write in place of a file with relative imports."""
    directory, file = os.path.split(full)
    parts = [os.path.splitext(file)[0]]
    while os.path.exists(os.path.join(directory, "__init__.py")) or len(parts) == 1:
        directory, package = os.path.split(directory)
        parts.insert(0, package)
    module = ".".join(parts)
    return (
        "relative imports do not work in a file, which has no package. Pass it as a module,"
        f" -m {module} in the directory {directory}, or import its neighbours by their names alone."
    )


def _describe(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it ends the program, with SystemExit({error.code!r})"
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    near = find_similar(error.name, dir(error.obj)) if isinstance(error, AttributeError) and error.name else None
    return f"{text} (did you mean {near}?)" if near else text
