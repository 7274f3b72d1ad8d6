"""Filters of handlers: labels, annotations, fields and callbacks, and how they are matched. Pure.

All criteria of a handler must match. Callbacks get the keyword arguments of the cause, and may declare any subset of
them. The rules are Kopf's ("Filtering").
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from trioperator._handling import guard
from trioperator._handling.handlers.handler import (
    ChangeHandler,
    ResourceHandler,
    SpawningHandler,
    TimerHandler,
    signature_of,
)
from trioperator._handling.handlers.typed import wants_types
from trioperator._model.fields import resolve
from trioperator._model.jsontypes import copy_json


class MetaFilterToken(enum.Enum):
    """Marker for the presence or absence of a value."""

    ABSENT = enum.auto()
    PRESENT = enum.auto()


ABSENT: Final = MetaFilterToken.ABSENT
PRESENT: Final = MetaFilterToken.PRESENT


class Filterable(Protocol):
    """Anything that filters can be matched with: a cause of an object."""

    @property
    def raw(self) -> Mapping[str, Any]: ...
    @property
    def kwargs(self) -> Mapping[str, Any]: ...


class OldObject(NamedTuple):
    """The object before a write, to match filters with. Callbacks get the arguments of the write."""

    raw: Mapping[str, Any]
    kwargs: Mapping[str, Any]


Callback = Callable[..., bool]


@functools.lru_cache(maxsize=1024)
def _accepted_names(fn: Callback, skip: int) -> frozenset[str] | None:
    signature = signature_of(fn, skip=skip)
    return None if signature.takes_all else signature.names


def call_with(fn: Callable[..., Any], kwargs: Mapping[str, Any], *args: Any) -> Any:
    """Call a user's function with those keyword arguments that it accepts."""
    try:
        names = _accepted_names(fn, len(args))
    except TypeError:  # not hashable, so not cached
        names = _accepted_names.__wrapped__(fn, len(args))
    if names is None:
        return fn(*args, **kwargs)
    return fn(*args, **{name: kwargs[name] for name in names if name in kwargs})


def _call(fn: Callback, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return bool(call_with(fn, kwargs, *args))


class _Combined:
    """Combination of several filters."""

    __slots__ = ("_join", "fns")

    def __init__(self, join: Callable[[Iterable[bool]], bool], fns: Iterable[Callback]) -> None:
        self._join = join
        self.fns = tuple(fns)
        for fn in self.fns:
            if not callable(fn):
                raise TypeError(f"Only functions can be combined to a filter, not {fn!r}.")

    def __call__(self, *args: Any, **kwargs: Any) -> bool:
        return self._join(_call(fn, args, kwargs) for fn in self.fns)


def not_(fn: Callback) -> Callback:
    """Return a filter that matches if *fn* does not."""
    return none_([fn])


def all_(fns: Iterable[Callback]) -> Callback:
    """Return a filter that matches if all of *fns* do."""
    return _Combined(all, fns)


def any_(fns: Iterable[Callback]) -> Callback:
    """Return a filter that matches if at least one of *fns* does."""
    return _Combined(any, fns)


def none_(fns: Iterable[Callback]) -> Callback:
    """Return a filter that matches if none of *fns* does."""
    return _Combined(lambda results: not any(results), fns)


def callbacks(handler: ResourceHandler) -> Iterator[tuple[str, Callback]]:
    """Yield the functions in *handler*'s options that get the cause's arguments, each with the name of its option."""
    wanted: list[tuple[str, Any]] = [("when", handler.when), ("value", handler.value)]
    wanted += [("labels", value) for value in (handler.labels or {}).values()]
    wanted += [("annotations", value) for value in (handler.annotations or {}).values()]
    if isinstance(handler, ChangeHandler):
        wanted += [("old", handler.old), ("new", handler.new)]
    if isinstance(handler, SpawningHandler):
        wanted.append(("initial_delay", handler.initial_delay))
    if isinstance(handler, TimerHandler):
        wanted += [("interval", handler.interval_of), ("cron", handler.cron_of), ("timezone", handler.timezone_of)]
    for option, value in wanted:
        yield from ((option, fn) for fn in _parts(value))


def check_untyped(handler: ResourceHandler) -> None:
    """Raise TypeError for functions that want typed arguments: a filter that fails would hold up the whole object."""
    if handler.model is None:
        return
    for option, fn in callbacks(handler):
        if wants_types(fn):
            raise TypeError(
                f"{handler} has {option}=... with typed arguments, which handlers alone can have: objects that do not"
                " fit must be filtered, too. Take the view, such as spec: trioperator.Spec."
            )


def _parts(value: Any) -> Iterator[Callback]:
    if isinstance(value, _Combined):
        for fn in value.fns:
            yield from _parts(fn)
    elif callable(value):
        yield value


def matches(handler: ResourceHandler, cause: Filterable) -> bool:
    """Return whether all filters of *handler* match the object and, for update handlers, the change."""
    return _matches(handler, cause, change=True)


def prematches(handler: ResourceHandler, cause: Filterable, *, needs_fields: bool = False) -> bool:
    """Return whether the filters of *handler* match the object, whatever has changed in it.

    Finalizers are added, and the last-handled configuration is stored, only for objects that prematch a handler. If it
    *needs_fields*, it does not prematch an object that neither has nor had its field.
    """
    if needs_fields and handler.field and handler.value is None and _old_and_new(handler.field, cause) == (None, None):
        return False
    return _matches(handler, cause, change=False)


def _matches(handler: ResourceHandler, cause: Filterable, *, change: bool) -> bool:
    if not handler.has_filters:
        return True  # that something has changed at all is what makes the reason an update
    return guard.call("A filter of {}", handler, _pass, handler, cause, change=change)


def _pass(handler: ResourceHandler, cause: Filterable, *, change: bool) -> bool:
    metadata = cause.raw.get("metadata") or {}
    return (
        (not handler.labels or _match_metadata(handler.labels, metadata.get("labels"), cause))
        and (not handler.annotations or _match_metadata(handler.annotations, metadata.get("annotations"), cause))
        and (not handler.field or _match_field(handler, cause, change=change))
        and (handler.when is None or _call(handler.when, (), cause.kwargs))
    )


def _match_metadata(pattern: Mapping[str, Any], content: Mapping[str, str] | None, cause: Filterable) -> bool:
    content = content or {}
    return all(_match_value(wanted, content.get(key), cause) for key, wanted in pattern.items())


def _match_value(wanted: Any, value: Any, cause: Filterable) -> bool:
    # Kubernetes treats None as absence.
    if wanted is PRESENT:
        return value is not None
    if wanted is ABSENT:
        return value is None
    if callable(wanted):
        return _call(wanted, (copy_json(value) if isinstance(value, dict | list) else value,), cause.kwargs)
    return bool(wanted == value)


def _match_field(handler: ResourceHandler, cause: Filterable, *, change: bool) -> bool:
    assert handler.field
    if not isinstance(handler, ChangeHandler):
        return _match_value(_expected(handler), resolve(cause.raw, handler.field), cause)
    old, new = _old_and_new(handler.field, cause)
    if not handler.needs_change:
        return _match_value(_expected(handler), new, cause)
    if old is None and new is None and _is_filtered_field_handler(handler):
        return False  # of a field that is added later, it is told as of one in a new object
    if handler.old is not None or handler.new is not None:
        return not change or (
            old != new
            and (handler.old is None or _match_value(handler.old, old, cause))
            and (handler.new is None or _match_value(handler.new, new, cause))
        )
    if handler.value is None:  # any change of the field, its addition included
        return not change or old != new
    return (not change or old != new) and (
        _match_value(handler.value, new, cause) or _match_value(handler.value, old, cause)
    )


def _is_filtered_field_handler(handler: ChangeHandler) -> bool:
    """Return whether this is an ``on.field`` with other filters: one without keeps all objects in scope, as in Kopf."""
    is_plain = (handler.value, handler.old, handler.new) == (None, None, None)
    return handler.reason is None and is_plain and bool(handler.labels or handler.annotations or handler.when)


def _expected(handler: ResourceHandler) -> Any:
    return PRESENT if handler.value is None else handler.value


def _old_and_new(path: tuple[str, ...], cause: Any) -> tuple[Any, Any]:
    return resolve(cause.old or {}, path), resolve(cause.new or {}, path)


def field_paths(handlers: Iterable[ResourceHandler]) -> frozenset[tuple[str, ...]]:
    """Return the ``field=`` options of *handlers*."""
    return frozenset(handler.field for handler in handlers if handler.field)


def describe_split_name(handler: ResourceHandler) -> str | None:
    """Return what is wrong with a field that can never exist, as the name of a label or annotation was split at dots.

    Return None for any other field.
    """
    path = handler.field or ()
    if len(path) <= 3 or path[0] != "metadata" or path[1] not in ("labels", "annotations"):
        return None
    meant = (*path[:2], ".".join(path[2:]).replace("\\.", "."))
    return (
        f"{handler} has the field {'.'.join(path)!r}, which no object can have: the values of {path[1]} are"
        f" strings, and a dotted field is split at each dot. If you mean one key, pass field={meant!r}."
    )
