"""Handlers: users' functions together with everything that was declared about them.

Plain frozen data, made by the decorators of :mod:`trioperator.on`. Nothing here calls a function.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from trioperator.errors import ConfigError
from trioperator.handling.schedule import Schedule
from trioperator.model.fields import FieldPath
from trioperator.model.resource import Selector

__all__ = [
    "Activity",
    "ActivityHandler",
    "ChangeHandler",
    "DaemonHandler",
    "ErrorsMode",
    "EventHandler",
    "Handler",
    "HandlerFn",
    "HandlerId",
    "IndexHandler",
    "Reason",
    "ResourceHandler",
    "Signature",
    "SpawningHandler",
    "TimerHandler",
    "check_callback",
    "check_signature",
    "derive_id",
    "is_async",
    "signature_of",
    "unwrap",
]

HandlerId: TypeAlias = str
HandlerFn: TypeAlias = Callable[..., Any]


class ErrorsMode(enum.Enum):
    """Say what an arbitrary exception of a handler means (Kopf, "Error handling")."""

    IGNORED = enum.auto()
    TEMPORARY = enum.auto()
    PERMANENT = enum.auto()


class Reason(enum.StrEnum):
    """Name what has happened to an object.

    The first four are handled; the others are what else can be detected.
    """

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    RESUME = "resume"
    NOOP = "noop"
    FREE = "free"
    GONE = "gone"


class Activity(enum.StrEnum):
    """Name what an operator does besides handling objects."""

    STARTUP = "startup"
    CLEANUP = "cleanup"
    PROBE = "probe"


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """Tell which keyword arguments a function takes: by name, and whether any others too."""

    names: frozenset[str]
    required: frozenset[str]
    takes_all: bool

    def pick(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Select from *kwargs* those which the function takes."""
        if self.takes_all:
            return kwargs
        return {name: kwargs[name] for name in self.names if name in kwargs}


def signature_of(fn: HandlerFn, *, skip: int = 0) -> Signature:
    """Read which keyword arguments *fn* takes, but for its first *skip* positional ones.

    What a wrapper takes by ``**kwargs`` goes on to the function that it wraps, and that one may take less. Functions
    without a readable signature are taken to accept everything.
    """
    try:
        parameters = list(inspect.signature(fn, follow_wrapped=False).parameters.values())
    except (TypeError, ValueError):
        return Signature(frozenset(), frozenset(), takes_all=True)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [p for index, p in enumerate(parameters) if index >= skip or p.kind not in positional]
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    names = frozenset(p.name for p in named if p.kind is not p.POSITIONAL_ONLY)
    required = frozenset(p.name for p in named if p.default is p.empty)
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        return Signature(names, required, takes_all=False)
    while isinstance(fn, functools.partial):
        skip += len(fn.args)
        fn = fn.func
    wrapped = getattr(fn, "__wrapped__", None)
    if wrapped is None:
        return Signature(names, required, takes_all=True)
    inner = signature_of(wrapped, skip=skip + inspect.ismethod(fn))
    return Signature(names | inner.names, required, takes_all=inner.takes_all)


def is_async(fn: HandlerFn) -> bool:
    """Tell whether calling *fn* gives a coroutine, looking through partials and decorators."""
    while True:
        if inspect.iscoroutinefunction(fn):
            return True
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        else:
            return not isinstance(fn, type) and inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def unwrap(fn: HandlerFn) -> HandlerFn:
    """Give what is called in the end, inside of all partials and decorators."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        else:
            return fn


def derive_id(fn: HandlerFn) -> HandlerId:
    """Name the handler after its function, by Kopf's rules.

    Raises TypeError for a callable that has no name: it needs ``id=``.
    """
    fn = unwrap(fn)
    if getattr(fn, "__name__", None) == "<lambda>":
        return f"lambda:{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}"
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None)
    if not name:
        raise TypeError(f"{fn!r} has no name to derive a handler id from: pass id=... to the decorator.")
    return str(name)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Handler:
    """Hold a function and what holds for every kind of handler.

    ``timeout`` and ``backoff`` are in seconds; ``retries`` counts attempts. None means: no limit, or the default.
    """

    fn: HandlerFn
    id: HandlerId
    param: Any = None
    errors: ErrorsMode | None = None
    timeout: float | None = None
    retries: int | None = None
    backoff: float | None = None
    signature: Signature = dataclasses.field(init=False)
    is_async: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "signature", signature_of(self.fn))
        object.__setattr__(self, "is_async", is_async(self.fn))

    def __str__(self) -> str:
        return f"Handler {self.id!r}"

    @property
    def default_errors(self) -> ErrorsMode:
        """Say what arbitrary exceptions mean where ``errors`` is not given."""
        return ErrorsMode.TEMPORARY

    @property
    def is_routine(self) -> bool:
        """Tell whether its successes are too many to be told of, but for those after errors."""
        return False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActivityHandler(Handler):
    """Be called at the start or the end of the operator, or by a probe."""

    activity: Activity

    def __str__(self) -> str:
        return f"Activity {self.id!r}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResourceHandler(Handler):
    """Be called for objects of the selected kinds that pass the filters."""

    selector: Selector
    labels: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] | None = None
    when: Callable[..., bool] | None = None
    field: FieldPath | None = None
    value: Any = None

    @property
    def has_filters(self) -> bool:
        """Tell whether any filter restricts the objects."""
        return bool(self.labels or self.annotations or self.when is not None or self.field)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EventHandler(ResourceHandler):
    """Be called for each event of the watch stream; its errors are logged and ignored."""

    @property
    def default_errors(self) -> ErrorsMode:
        return ErrorsMode.IGNORED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IndexHandler(ResourceHandler):
    """Be called for each state of an object, and say what the index named ``id`` holds of it."""

    def __str__(self) -> str:
        return f"Index {self.id!r}"

    @property
    def default_errors(self) -> ErrorsMode:
        return ErrorsMode.IGNORED

    @property
    def is_routine(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangeHandler(ResourceHandler):
    """Be called when a change is detected, with its progress stored until it has ended.

    ``reason=None`` stands for any change (``on.field``, and ``on.resume`` together with ``initial``). A call of an
    ``interruptible`` one is cancelled when the object is changed or deleted.
    """

    reason: Reason | None = None
    initial: bool = False
    deleted: bool = False
    optional: bool = False
    needs_change: bool = False
    interruptible: bool = False
    old: Any = None
    new: Any = None

    @property
    def needs_finalizer(self) -> bool:
        """Tell whether objects must not vanish before this handler has ended."""
        return self.reason is Reason.DELETE and not self.optional

    @property
    def is_optional_delete(self) -> bool:
        """Tell whether the handler wants to hear of a deletion, without a finalizer for it."""
        return self.reason is Reason.DELETE and self.optional


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpawningHandler(ResourceHandler):
    """Run beside an object for as long as it passes the filters: what daemons and timers have in common.

    ``initial_delay`` is in seconds, or a function that tells it; ``finalizer`` says whether the object must not vanish
    while it runs.
    """

    initial_delay: float | Callable[..., float] | None = None
    finalizer: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DaemonHandler(SpawningHandler):
    """Be called once for an object, and go on until told to stop.

    Times are in seconds: from the flag to the cancellation, from there until it is abandoned, and between reminders
    where it is not.
    """

    cancellation_backoff: float | None = None
    cancellation_timeout: float | None = None
    cancellation_polling: float | None = None

    def __str__(self) -> str:
        return f"Daemon {self.id!r}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimerHandler(SpawningHandler):
    """Be called again and again for an object.

    ``interval`` is in seconds since the end of the last call, or with ``sharp`` between the points of a grid; ``idle``
    is how long the object must have been left unchanged; ``schedule`` takes the place of both.
    """

    interval: float | None = None
    sharp: bool = False
    idle: float | None = None
    schedule: Schedule | None = None

    def __str__(self) -> str:
        return f"Timer {self.id!r}"

    @property
    def is_routine(self) -> bool:
        return True


def check_signature(handler: Handler, known: frozenset[str]) -> None:
    """Make sure that the function can be called with the *known* keyword arguments.

    Raises ConfigError that names the function, the unknown arguments, and what there is instead.
    """
    _check_required(str(handler), handler.fn, handler.signature, known)


def check_callback(handler: Handler, option: str, fn: HandlerFn, known: frozenset[str]) -> None:
    """Make sure that a filter of the handler can be called with the *known* keyword arguments.

    The value that it checks comes before them where the filter is not ``when=``. Raises ConfigError.
    """
    signature = signature_of(fn, skip=0 if option in ("when", "initial_delay") else 1)
    title = "The function" if option == "initial_delay" else "The filter"
    _check_required(f"{title} {option}= of {handler}", fn, signature, known)


def _check_required(title: str, fn: HandlerFn, signature: Signature, known: frozenset[str]) -> None:
    unknown = signature.required - (signature.names & known)  # what is positional only cannot be given by name
    if unknown:
        code = getattr(unwrap(fn), "__code__", None)
        where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        raise ConfigError(
            f"{title}{where} asks for arguments that it cannot get: {', '.join(sorted(unknown))}."
            f" There are: {', '.join(sorted(known))}."
        )
