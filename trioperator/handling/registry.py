"""The registry: which handlers there are, and which of them belong to a resource kind.

The decorators fill the default registry, or the one that they are given. An operator reads it once, at its start.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

from trioperator.errors import UserCodeError
from trioperator.handling.cause import (
    ACTIVITY_KWARGS,
    ATTEMPT_KWARGS,
    CHANGE_KWARGS,
    DAEMON_KWARGS,
    EVENT_KWARGS,
    INDEX_KWARGS,
    ChangeCause,
    EventCause,
    ObjectCause,
)
from trioperator.handling.filters import callbacks, field_paths, matches, prematches
from trioperator.handling.handler import (
    Activity,
    ActivityHandler,
    ChangeHandler,
    EventHandler,
    Handler,
    IndexHandler,
    Reason,
    ResourceHandler,
    SpawningHandler,
    check_callback,
    check_signature,
)
from trioperator.handling.indexing import Index, Indices
from trioperator.model.fields import FieldPath
from trioperator.model.resource import Selector

__all__ = [
    "KindHandlers",
    "OperatorRegistry",
    "get_default_registry",
    "handler_identity",
    "prematches_any",
    "requires_finalizer",
    "select_event_handlers",
    "select_handlers",
    "select_index_handlers",
    "set_default_registry",
]

H = TypeVar("H", bound=Handler)


@dataclasses.dataclass(frozen=True, slots=True)
class KindHandlers:
    """Hold the handlers of one resource kind, in the order of their declaration."""

    indices: tuple[IndexHandler, ...] = ()
    events: tuple[EventHandler, ...] = ()
    changes: tuple[ChangeHandler, ...] = ()
    spawning: tuple[SpawningHandler, ...] = ()
    extra_fields: frozenset[FieldPath] = frozenset()
    mandatory_deletes: tuple[ChangeHandler, ...] = ()
    optional_deletes: tuple[ChangeHandler, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.indices or self.events or self.changes or self.spawning)

    @property
    def needs_own_writes(self) -> bool:
        """Tell whether what the stream says of own writes is news for anybody."""
        return bool(self.indices or self.events)

    @property
    def is_index_only(self) -> bool:
        """Tell whether the objects are there to be indexed, and for nothing else."""
        return bool(self.indices) and not (self.events or self.changes or self.spawning)

    @classmethod
    def of(cls, handlers: Iterable[ResourceHandler]) -> KindHandlers:
        """Sort the handlers of a kind by what they are for."""
        handlers = tuple(handlers)
        changes = tuple(h for h in handlers if isinstance(h, ChangeHandler))
        return cls(
            indices=tuple(h for h in handlers if isinstance(h, IndexHandler)),
            events=tuple(h for h in handlers if isinstance(h, EventHandler)),
            changes=changes,
            spawning=tuple(h for h in handlers if isinstance(h, SpawningHandler)),
            extra_fields=field_paths(handlers),
            mandatory_deletes=tuple(h for h in changes if h.needs_finalizer),
            optional_deletes=tuple(h for h in changes if h.is_optional_delete),
        )


class OperatorRegistry:
    """Keep the handlers of one operator.

    Adding is for the decorators. Several operators in one process have a registry each.
    """

    def __init__(self) -> None:
        self._handlers: list[Handler] = []

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._handlers)

    def append(self, handler: Handler) -> None:
        """Add a handler, as the last one."""
        self._handlers.append(handler)

    def activities(self, activity: Activity) -> tuple[ActivityHandler, ...]:
        """Give the handlers of an activity, in the order of their declaration."""
        found = (h for h in self._handlers if isinstance(h, ActivityHandler) and h.activity is activity)
        return _deduplicated(found)

    def resource_handlers(self) -> tuple[ResourceHandler, ...]:
        """Give all handlers of objects."""
        return tuple(h for h in self._handlers if isinstance(h, ResourceHandler))

    def selectors(self) -> frozenset[Selector]:
        """Give the selectors of all handlers of objects."""
        return frozenset(h.selector for h in self.resource_handlers())

    def make_indices(self) -> Indices:
        """Make the indices that the handlers fill: they are there, and empty, before anything is indexed."""
        return {handler.id: Index() for handler in self._handlers if isinstance(handler, IndexHandler)}

    def check(self) -> None:
        """Make sure that every handler and every filter can be called with what there is.

        Raises ConfigError that names the handler and the argument.
        """
        indices = frozenset(self.make_indices())
        for handler in self._handlers:
            if isinstance(handler, ChangeHandler):
                known = CHANGE_KWARGS
            elif isinstance(handler, EventHandler):
                known = EVENT_KWARGS
            elif isinstance(handler, IndexHandler):
                known = INDEX_KWARGS
            elif isinstance(handler, SpawningHandler):
                known = DAEMON_KWARGS
            else:
                known = ACTIVITY_KWARGS
            check_signature(handler, known | indices)
            if isinstance(handler, ResourceHandler):
                for option, fn in callbacks(handler):
                    check_callback(handler, option, fn, (known - ATTEMPT_KWARGS - {"stopped"}) | indices)


def select_index_handlers(handlers: KindHandlers, cause: ObjectCause) -> tuple[IndexHandler, ...]:
    """Choose the index handlers whose filters the object satisfies, each function once for an index.

    A filter that fails is logged, and is not satisfied.
    """
    return _deduplicated(h for h in handlers.indices if _safely_matches(h, cause))


def select_event_handlers(handlers: KindHandlers, cause: EventCause) -> tuple[EventHandler, ...]:
    """Choose the handlers of an event, each function once for an id, in the order of their declaration.

    A handler whose filter fails is not called, and the error is logged, as those of event handlers are: the event is
    not lost for others.
    """
    return _deduplicated(h for h in handlers.events if _safely_matches(h, cause))


def select_handlers(handlers: KindHandlers, cause: ChangeCause) -> tuple[ChangeHandler, ...]:
    """Choose the handlers which a change calls for, in the order of their declaration.

    A function is chosen once for an id, however many of its decorators match.
    """
    return select_change_handlers(handlers.changes, cause)


def select_change_handlers(handlers: Iterable[ChangeHandler], cause: ChangeCause) -> tuple[ChangeHandler, ...]:
    """Choose from *handlers* those which a change calls for, in their order, each function once for an id."""
    return _deduplicated(h for h in handlers if _matches_reason(h, cause) and matches(h, cause))


def prematches_any(handlers: KindHandlers, cause: ChangeCause) -> bool:
    """Tell whether any change handler could ever be called for the object as it is."""
    return any(prematches(h, cause) for h in handlers.changes)


def requires_finalizer(handlers: KindHandlers, cause: ChangeCause) -> bool:
    """Tell whether the object must not vanish before its delete handlers have ended."""
    return any(prematches(h, cause) for h in handlers.mandatory_deletes)


def _safely_matches(handler: ResourceHandler, cause: ObjectCause) -> bool:
    try:
        return matches(handler, cause)
    except UserCodeError as error:
        cause.logger.error("%s. It is not called.", error, exc_info=error.__cause__)
        return False


def _matches_reason(handler: ChangeHandler, cause: ChangeCause) -> bool:
    if handler.initial:
        return cause.initial and (handler.deleted or cause.reason is not Reason.DELETE)
    return handler.reason is None or handler.reason is cause.reason


def handler_identity(handler: Handler) -> Hashable:
    """Give what handlers of the same function with the same id have in common."""
    fn = handler.fn
    if inspect.ismethod(fn):  # bound methods are made anew at each access
        return (id(fn.__func__), id(fn.__self__), handler.id)
    return (id(fn), 0, handler.id)


def _deduplicated(handlers: Iterable[H]) -> tuple[H, ...]:
    seen: set[Hashable] = set()
    unique: list[H] = []
    for handler in handlers:
        key = handler_identity(handler)
        if key not in seen:
            seen.add(key)
            unique.append(handler)
    return tuple(unique)


class _Default:
    """Hold the registry that decorators fill when they are not given another."""

    registry = OperatorRegistry()


def get_default_registry() -> OperatorRegistry:
    """Give the registry that the decorators fill where they are given no other."""
    return _Default.registry


def set_default_registry(registry: OperatorRegistry) -> None:
    """Replace the registry that the decorators fill where they are given no other."""
    _Default.registry = registry
