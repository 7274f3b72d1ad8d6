"""Where the handlers of an operator under test come from: a file, a module, a registry, or the test itself."""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry, set_default_registry
from trioperator._handling.handlers.handler import Handler, unwrap
from trioperator._model.custom_kind import get_kind
from trioperator.cli.loading import load_file, load_module
from trioperator.errors import ConfigError

#: A file, a module or its name, a registry, or a decorated function.
Source: TypeAlias = str | os.PathLike[str] | types.ModuleType | OperatorRegistry | Callable[..., Any]

# The handlers that these have declared, by file or name: they are imported once, as all modules are.
_imported: Final[dict[str, OperatorRegistry]] = {}


class _TestRegistry(OperatorRegistry):
    """The default registry during a test. *imported* is the one that modules were imported with before."""

    def __init__(self, imported: OperatorRegistry) -> None:
        super().__init__()
        self.imported = imported


@contextlib.contextmanager
def fresh_registry(module: str | None = None) -> Iterator[OperatorRegistry]:
    """Replace the default registry in the context, so that what is declared in it ends with it.

    It begins with the handlers that *module* declares. Within such a context, another one begins with the handlers that
    were declared so far.
    """
    before = get_default_registry()
    outer = before.imported if isinstance(before, _TestRegistry) else None
    registry = _TestRegistry(before if outer is None else outer)
    for handler in before:
        if outer is not None or _is_at_top_of(module, handler):
            registry.append(handler)
    for cls in before.kinds():
        if outer is not None or (cls.__module__ == module and "<locals>" not in cls.__qualname__):
            registry.add_kind(cls)
    set_default_registry(registry)
    try:
        yield registry
    finally:
        set_default_registry(before)


def _is_at_top_of(module: str | None, handler: Handler) -> bool:
    """Return whether a handler is declared by a module itself, not in one of its functions, such as another test."""
    fn = unwrap(handler.fn)
    return fn.__module__ == module and "<locals>" not in getattr(fn, "__qualname__", "")


def gather_handlers(sources: tuple[Source, ...], registry: OperatorRegistry) -> OperatorRegistry:
    """Return a registry with the handlers of the sources, and those that were declared in the test.

    Raises LoadingError for errors in files and modules, ConfigError if they cannot be found, or have no handlers.
    """
    gathered = OperatorRegistry()
    for source in sources:
        found = tuple(_find_handlers(source, registry))
        if not found:
            raise ConfigError(f"There are no handlers in {source!r}.")
        for handler in found:
            gathered.append(handler)
    for handler in registry:
        if handler not in tuple(gathered):
            gathered.append(handler)
    for cls in _find_kinds(gathered, sources, registry):
        gathered.add_kind(cls)
    if not tuple(gathered):
        raise ConfigError(
            "The operator has no handlers. Declare them in the test, or pass what has them: a file, a module, a"
            " registry, or decorated functions."
        )
    return gathered


def _find_kinds(gathered: OperatorRegistry, sources: tuple[Source, ...], registry: OperatorRegistry) -> Iterator[type]:
    """Yield the classes that declare kinds: of the test and the sources, and other versions of these, wherever."""
    own = [registry, *(source for source in sources if isinstance(source, OperatorRegistry))]
    own += [_imported[key] for source in sources if isinstance(source, str | os.PathLike) for key in _keys_of(source)]
    chosen = [cls for each in (gathered, *own) for cls in each.kinds()]
    names = {get_kind(cls).key[:2] for cls in chosen}
    earlier = [registry.imported] if isinstance(registry, _TestRegistry) else []
    for each in (*earlier, *_imported.values()):
        yield from (cls for cls in each.kinds() if get_kind(cls).key[:2] in names)
    yield from chosen


def _keys_of(source: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the key of a file or module that was imported for a test."""
    yield from (key for key in (str(source), str(Path(source).resolve())) if key in _imported)


def _find_handlers(source: Source, registry: OperatorRegistry) -> Iterator[Handler]:
    if isinstance(source, OperatorRegistry):
        yield from source
    elif isinstance(source, types.ModuleType):
        yield from _of_module(source.__name__, registry)
    elif isinstance(source, str) and not source.endswith(".py") and os.sep not in source:
        yield from _of_module(source, registry)
    elif isinstance(source, str | os.PathLike):
        path = str(Path(source).resolve())
        yield from _of_import(path, lambda: load_file(path))
    elif callable(source):
        yield from (handler for handler in _declared(registry) if unwrap(handler.fn) is unwrap(source))
    else:
        raise TypeError(f"Pass a file, a module, a registry or a decorated function, not {source!r}.")


def _declared(registry: OperatorRegistry) -> tuple[Handler, ...]:
    """Return all handlers that were declared so far, in the test and before it."""
    earlier = registry.imported if isinstance(registry, _TestRegistry) else ()
    return (*earlier, *registry, *(handler for own in _imported.values() for handler in own))


def _of_module(name: str, registry: OperatorRegistry) -> Iterator[Handler]:
    if name in _imported or name not in sys.modules:
        yield from _of_import(name, lambda: load_module(name))
        return
    for handler in _declared(registry):
        if f"{unwrap(handler.fn).__module__}.".startswith(f"{name}."):
            yield handler


def _of_import(key: str, load: Callable[[], object]) -> OperatorRegistry:
    """Return the handlers that are declared while something is imported, which happens once.

    It finds the kinds that were declared before, as modules that it imports may have been imported then.
    """
    if key not in _imported:
        before, found, own = get_default_registry(), OperatorRegistry(), OperatorRegistry()
        known = tuple(_known_kinds(before))
        for cls in known:
            found.add_kind(cls)
        set_default_registry(found)
        try:
            load()
        finally:
            set_default_registry(before)
        for handler in found:
            own.append(handler)
        for cls in found.kinds():
            if cls not in known:
                own.add_kind(cls)
        _imported[key] = own
    return _imported[key]


def _known_kinds(registry: OperatorRegistry) -> Iterator[type]:
    """Yield the classes that were declared so far, in the test and before it."""
    if isinstance(registry, _TestRegistry):
        yield from registry.imported.kinds()
    for each in (*_imported.values(), registry):
        yield from each.kinds()
