"""Registry of handlers, and selection of the handlers for a cause.

Decorators add handlers to the default registry, or to their ``registry=``. An operator reads it once, when it starts.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from trioperator._handling.arguments.cause import (
    ACTIVITY_KWARGS,
    ATTEMPT_KWARGS,
    CHANGE_KWARGS,
    DAEMON_KWARGS,
    EVENT_KWARGS,
    INDEX_KWARGS,
    ChangeCause,
    ObjectCause,
)
from trioperator._handling.arguments.indexing import Index, Indices
from trioperator._handling.arguments.reconciling import OWN_KWARGS, RECONCILE_KWARGS, ReconcileHandler
from trioperator._handling.declaring.parts import PARTS, Part
from trioperator._handling.handlers.filters import OldObject, callbacks, check_untyped, field_paths, matches, prematches
from trioperator._handling.handlers.handler import (
    Activity,
    ActivityHandler,
    ChangeHandler,
    EventHandler,
    Handler,
    IndexHandler,
    Reason,
    ResourceHandler,
    SignatureError,
    SpawningHandler,
    check_callback,
    check_signature,
    signature_of,
)
from trioperator._handling.reviews.admission import (
    ADMISSION_KWARGS,
    AdmissionCause,
    AdmissionHandler,
    WebhookType,
    reviews,
)
from trioperator._handling.reviews.conversion import CONVERSION_KWARGS, ConversionHandler
from trioperator._model.custom_kind import get_kind
from trioperator._model.fields import FieldPath
from trioperator._model.resource import Selector
from trioperator.errors import ConfigError, UserCodeError

H = TypeVar("H", bound=Handler)
R = TypeVar("R", bound=ResourceHandler)


class KindHandlers(msgspec.Struct, frozen=True):
    """Handlers of one resource kind, in the order of their declaration; ``spawning`` are daemons and timers.

    If they ``keep_objects``, the newest state of each object has to be kept for them. If any ``looks_up_own``, it takes
    an index of the kind as an argument. The others are derived, as each watch event asks for them: something
    ``needs_state``, the newest one of objects, after their watch events; something in the reconciler
    ``needs_own_writes``, as they come by the watch; or it ``is_index_only``.
    """

    indices: tuple[IndexHandler, ...] = ()
    events: tuple[EventHandler, ...] = ()
    changes: tuple[ChangeHandler, ...] = ()
    spawning: tuple[SpawningHandler, ...] = ()
    extra_fields: frozenset[FieldPath] = frozenset()
    mandatory_deletes: tuple[ChangeHandler, ...] = ()
    optional_deletes: tuple[ChangeHandler, ...] = ()
    reconciles: tuple[ReconcileHandler, ...] = ()
    keep_objects: bool = False
    looks_up_own: bool = False
    needs_state: bool = False
    needs_own_writes: bool = False
    is_index_only: bool = False

    def __post_init__(self) -> None:
        state = bool(self.changes or self.spawning or self.reconciles)
        msgspec.structs.force_setattr(self, "needs_state", state)
        msgspec.structs.force_setattr(self, "needs_own_writes", bool(self.events) or self.looks_up_own)
        msgspec.structs.force_setattr(self, "is_index_only", bool(self.indices) and not (self.events or state))

    def __bool__(self) -> bool:
        return bool(self.indices or self.events or self.changes or self.spawning or self.reconciles)

    @property
    def finalizes_all(self) -> bool:
        """Whether all objects need the finalizer, until they are deleted."""
        return any(not handler.has_filters for handler in self.mandatory_deletes)

    @property
    def needs_finalizer(self) -> bool:
        """Whether any object may need the finalizer."""
        return bool(self.mandatory_deletes) or any(handler.finalizer for handler in self.spawning)

    @classmethod
    def of(cls, handlers: Iterable[ResourceHandler]) -> KindHandlers:
        """Group the handlers of a kind by their classes."""
        handlers = tuple(handlers)
        changes = tuple(h for h in handlers if isinstance(h, ChangeHandler))
        optional_deletes = tuple(h for h in changes if h.is_optional_delete)
        reconciles = tuple(h for h in handlers if isinstance(h, ReconcileHandler))
        indices = tuple(h for h in handlers if isinstance(h, IndexHandler))
        return cls(
            indices=indices,
            events=tuple(h for h in handlers if isinstance(h, EventHandler)),
            changes=changes,
            spawning=tuple(h for h in handlers if isinstance(h, SpawningHandler)),
            extra_fields=field_paths(handlers),
            mandatory_deletes=tuple(h for h in changes if h.needs_finalizer),
            optional_deletes=optional_deletes,
            reconciles=reconciles,
            keep_objects=bool(optional_deletes or reconciles),
            looks_up_own=_declares_any((*changes, *reconciles), frozenset(h.id for h in indices)),
        )


class OperatorRegistry:
    """Handlers of one operator, as added by the decorators.

    Use a registry for each operator if several of them run in one process. ``indices`` are those of the operator that
    was started last, by the ids of their handlers, as long as it runs.
    """

    def __init__(self) -> None:
        self._handlers: list[Handler] = []
        self._kinds: dict[tuple[str, str, str], type] = {}
        self.indices: Indices = {}

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._handlers)

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Part:
            """Return some of the handlers by Kopf's name for them, such as ``_changing``."""
            if name not in PARTS:
                raise AttributeError(f"OperatorRegistry has no attribute {name!r}", name=name, obj=self)
            return Part(name, self._handlers)

    def append(self, handler: Handler) -> None:
        """Append a handler. Raises TypeError for filters with typed arguments."""
        if isinstance(handler, ResourceHandler):
            check_untyped(handler)
        self._handlers.append(handler)

    def add_kind(self, cls: type) -> None:
        """Add a class that declares a version of a kind; it replaces an earlier one, as when a module is reloaded."""
        self._kinds[get_kind(cls).key] = cls

    def kinds(self) -> tuple[type, ...]:
        """Return the classes that declare kinds: those that were added, and those that handlers select."""
        selected = (handler.model for handler in self._handlers if isinstance(handler, ResourceHandler))
        found = {get_kind(cls).key: cls for cls in selected if cls is not None}
        return tuple({**found, **self._kinds}.values())

    def declared_kinds(self) -> frozenset[tuple[str, str]]:
        """Return the groups and the plurals of the kinds that classes declare."""
        return frozenset((info.group, info.plural) for info in map(get_kind, self.kinds()))

    def activities(self, activity: Activity) -> tuple[ActivityHandler, ...]:
        """Return the handlers of an activity, in the order of their declaration."""
        found = (h for h in self._handlers if isinstance(h, ActivityHandler) and h.activity is activity)
        return _deduplicated(found)

    def resource_handlers(self) -> tuple[ResourceHandler, ...]:
        """Return all handlers of objects that are watched."""
        called = (AdmissionHandler, ConversionHandler)
        return tuple(h for h in self._handlers if isinstance(h, ResourceHandler) and not isinstance(h, called))

    def admission_handlers(self) -> tuple[AdmissionHandler, ...]:
        """Return the handlers of admission reviews, in the order of their declaration."""
        return tuple(h for h in self._handlers if isinstance(h, AdmissionHandler))

    def conversion_handlers(self) -> tuple[ConversionHandler, ...]:
        """Return the handlers of conversion reviews, in the order of their declaration."""
        return tuple(h for h in self._handlers if isinstance(h, ConversionHandler))

    def webhook_handlers(self) -> tuple[AdmissionHandler | ConversionHandler, ...]:
        """Return all handlers that the API server calls through webhooks."""
        return (*self.admission_handlers(), *self.conversion_handlers())

    def selectors(self) -> frozenset[Selector]:
        """Return the selectors of all handlers of objects."""
        return frozenset(h.selector for h in self.resource_handlers())

    def make_indices(self) -> Indices:
        """Return new, empty indices for all index handlers, for an operator that is started."""
        made: Indices = {handler.id: Index() for handler in self._handlers if isinstance(handler, IndexHandler)}
        self.indices = weakref.WeakValueDictionary(made)
        return made

    def check(self) -> None:
        """Check that all handlers and filters can be called with the available keyword arguments.

        Raises ConfigError that names those that cannot, with their unknown arguments; also if a validating and a
        mutating handler have the same id, or several conversions have the same versions.
        """
        errors = [str(error) for _, error in self.find_errors()]
        if errors:
            raise ConfigError(" ".join(errors))

    def find_errors(self) -> Iterator[tuple[Handler, ConfigError]]:
        """Yield the errors that :meth:`check` raises as one, each with its handler."""
        indices = frozenset(handler.id for handler in self._handlers if isinstance(handler, IndexHandler))
        for handler in self._handlers:
            yield from ((handler, error) for error in _find_signature_errors(handler, indices))
        yield from _find_shared_ids(self.admission_handlers())
        yield from _find_shared_versions(self.conversion_handlers())


def _find_signature_errors(handler: Handler, indices: frozenset[str]) -> Iterator[SignatureError]:
    """Yield reasons why the function or the filters of a handler cannot be called."""
    known = _available_kwargs(handler) | indices
    checks = [functools.partial(check_signature, handler, known)]
    if isinstance(handler, ResourceHandler):
        own = (known - ATTEMPT_KWARGS - OWN_KWARGS - {"stopped"}) | indices
        checks += [functools.partial(check_callback, handler, option, fn, own) for option, fn in callbacks(handler)]
        checks += [functools.partial(check_callback, handler, "watches", fn, own) for fn in _mappers(handler)]
    for check in checks:
        try:
            check()
        except SignatureError as error:
            yield error


def _mappers(handler: ResourceHandler) -> Iterator[Callable[..., Any]]:
    if isinstance(handler, ReconcileHandler):
        yield from (mapper.fn for mapper in handler.mappers)


def _available_kwargs(handler: Handler) -> frozenset[str]:
    """Return the keyword arguments of a handler, except indices."""
    if isinstance(handler, ReconcileHandler):
        return RECONCILE_KWARGS
    if isinstance(handler, ChangeHandler):
        return CHANGE_KWARGS
    if isinstance(handler, EventHandler):
        return EVENT_KWARGS
    if isinstance(handler, IndexHandler):
        return INDEX_KWARGS
    if isinstance(handler, AdmissionHandler):
        return ADMISSION_KWARGS
    if isinstance(handler, ConversionHandler):
        return CONVERSION_KWARGS
    if isinstance(handler, ActivityHandler) and handler.activity is Activity.AUTHENTICATION:
        return ACTIVITY_KWARGS - {"client"}  # which waits for the login
    return DAEMON_KWARGS if isinstance(handler, SpawningHandler) else ACTIVITY_KWARGS


def declares_any(handlers: KindHandlers, names: frozenset[str]) -> bool:
    """Return whether a handler of objects, or one of its filters, declares any of these arguments by name."""
    return _declares_any((*handlers.events, *handlers.changes, *handlers.spawning, *handlers.reconciles), names)


def _declares_any(handlers: Iterable[ResourceHandler], names: frozenset[str]) -> bool:
    return any(find_declared(handler, names) for handler in handlers)


def find_declared(handler: ResourceHandler, names: frozenset[str]) -> frozenset[str]:
    """Return those of the names that a handler, or one of its filters, declares as arguments."""
    filters = (signature_of(fn).names for _, fn in callbacks(handler))
    return names & handler.signature.names.union(*filters)


def select_matching(handlers: tuple[R, ...], cause: ObjectCause) -> tuple[R, ...]:
    """Return the *handlers* whose filters match the object, in their order, each function once for an id.

    A filter that raises is logged, and does not match: other handlers are still called.
    """
    if len(handlers) == 1:
        return handlers if not handlers[0].has_filters or _safely_matches(handlers[0], cause) else ()
    return _deduplicated([h for h in handlers if not h.has_filters or _safely_matches(h, cause)])


def select_admission_handlers(
    handlers: Iterable[AdmissionHandler], cause: AdmissionCause
) -> tuple[AdmissionHandler, ...]:
    """Return the *handlers* that review a write, each function once for an id. Raises UserCodeError.

    A validating handler also reviews an update after which the object no longer matches its filters: the update must
    not be a way around it. API servers, too, call a webhook if the old or the new object matches its selector.
    """
    chosen = [h for h in handlers if reviews(h, cause.operation, cause.subresource)]
    return _deduplicated([h for h in chosen if not h.has_filters or matches(h, cause) or _matched_before(h, cause)])


def _matched_before(handler: AdmissionHandler, cause: AdmissionCause) -> bool:
    if handler.type is not WebhookType.VALIDATING or cause.operation != "UPDATE" or cause.old is None:
        return False
    return matches(handler, OldObject(cause.old, cause.kwargs))


def select_change_handlers(handlers: Iterable[ChangeHandler], cause: ChangeCause) -> tuple[ChangeHandler, ...]:
    """Return the *handlers* that match a detected change, in their order, each function once for an id."""
    return _deduplicated(
        [h for h in handlers if _matches_reason(h, cause) and (not h.has_filters or matches(h, cause))]
    )


def any_prematches(handlers: tuple[ChangeHandler, ...], cause: ChangeCause, *, needs_fields: bool = False) -> bool:
    """Return whether any of the *handlers* prematches the object, so that it might be called for some change.

    If it *needs_fields*, none does for a field that the object neither has nor had.
    """
    for handler in handlers:  # noqa: SIM110 -- any() takes several times longer, and this is asked of each state
        if not handler.has_filters or prematches(handler, cause, needs_fields=needs_fields):
            return True
    return False


def _find_shared_ids(handlers: Iterable[AdmissionHandler]) -> Iterator[tuple[Handler, ConfigError]]:
    """Yield ids of validating and of mutating handlers: an id is the address of one webhook."""
    types: dict[str, AdmissionHandler] = {}
    for handler in handlers:
        if types.setdefault(handler.id, handler).type is not handler.type:
            text = (
                f"There are on.validate and on.mutate handlers with the id {handler.id!r}, which is the address of the"
                " webhook: pass id=... to one of the decorators."
            )
            yield handler, ConfigError(text)


def _find_shared_versions(handlers: Iterable[ConversionHandler]) -> Iterator[tuple[Handler, ConfigError]]:
    """Yield conversions of which only the first one would ever be used."""
    steps: dict[tuple[Selector, str, str], ConversionHandler] = {}
    for handler in handlers:
        first = steps.setdefault((handler.selector, handler.from_version, handler.to_version), handler)
        if first is not handler:
            text = (
                f"{first} and {handler} both convert {handler.selector} from {handler.from_version} to"
                f" {handler.to_version}: one of them is too many."
            )
            yield handler, ConfigError(text)


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


def handler_identity(handler: Handler, *, by_id: bool = False) -> Hashable:
    """Return a key that is the same for handlers with the same function and id, or with the same id."""
    if by_id:
        return handler.id
    fn = handler.fn
    if isinstance(fn, types.MethodType):  # each access creates a new bound method
        return (id(fn.__func__), id(fn.__self__), handler.id)
    return (id(fn), 0, handler.id)


def _deduplicated(handlers: Iterable[H]) -> tuple[H, ...]:
    found = tuple(handlers)
    if len(found) < 2:
        return found
    unique: dict[Hashable, H] = {}
    for handler in found:
        unique.setdefault(handler_identity(handler), handler)
    return tuple(unique.values())


class _Default:
    """Holder of the registry that decorators use by default."""

    registry = OperatorRegistry()


def get_default_registry() -> OperatorRegistry:
    """Return the registry that decorators and operators use by default."""
    return _Default.registry


def set_default_registry(registry: OperatorRegistry) -> None:
    """Replace the registry that decorators and operators use by default."""
    _Default.registry = registry
