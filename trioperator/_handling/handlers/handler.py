"""Handlers: users' functions with the options of their decorators.

Frozen data, created by the decorators of :mod:`trioperator.on`. Nothing here calls a handler.
"""

from __future__ import annotations

import datetime
import enum
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

import msgspec

from trioperator._handling.handlers.schedule import Schedule
from trioperator._model.fields import FieldPath
from trioperator._model.resource import Selector
from trioperator._model.rights import Rule
from trioperator._model.signatures import read_signature
from trioperator._model.similar_names import suggest
from trioperator.errors import ConfigError

HandlerId: TypeAlias = str
HandlerFn: TypeAlias = Callable[..., Any]


class ErrorsMode(enum.Enum):
    """How an arbitrary exception of a handler is treated (Kopf, "Error handling")."""

    IGNORED = enum.auto()
    """It is logged, and the handler counts as succeeded."""

    TEMPORARY = enum.auto()
    """The handler is retried after its backoff."""

    PERMANENT = enum.auto()
    """The handler has failed, and is not retried."""


class Reason(enum.StrEnum):
    """Why an object is handled.

    There are handlers for the first four; the others are detected and need no handlers.
    """

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    RESUME = "resume"
    NOOP = "noop"
    FREE = "free"
    GONE = "gone"


class Activity(enum.StrEnum):
    """Activities of an operator besides handling objects."""

    STARTUP = "startup"
    AUTHENTICATION = "authentication"
    CLEANUP = "cleanup"
    PROBE = "probe"


class SignatureError(ConfigError):
    """Raised when a function requires arguments that do not exist. ``summary`` is the message without its location."""

    def __init__(self, title: str, problem: str, fn: HandlerFn) -> None:
        code = getattr(unwrap(fn), "__code__", None)
        where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        super().__init__(f"{title}{where} {problem}")
        self.summary = f"{title} {problem}"
        self.fn = fn


class Signature(msgspec.Struct, frozen=True):
    """Keyword arguments that a function accepts; ``takes_all`` is for ``**kwargs``."""

    names: frozenset[str]
    required: frozenset[str]
    takes_all: bool

    def pick(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the *kwargs* that the function accepts."""
        if self.takes_all:
            return kwargs
        return {name: kwargs[name] for name in self.names if name in kwargs}


def signature_of(fn: HandlerFn, *, skip: int = 0) -> Signature:
    """Return the keyword arguments that *fn* accepts, except its first *skip* positional ones.

    If a wrapper accepts ``**kwargs``, the signature of the wrapped function counts too. Functions without a readable
    signature are assumed to accept everything.
    """
    try:
        parameters = list(read_signature(fn).parameters.values())
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
    """Return whether *fn* is an async function, looking through partials and decorators."""
    while True:
        if inspect.iscoroutinefunction(fn):
            return True
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        else:
            return not isinstance(fn, type) and inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004 -- is it async?


def unwrap(fn: HandlerFn) -> HandlerFn:
    """Return the function inside all partials and decorators."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        else:
            return fn


def derive_id(fn: HandlerFn) -> HandlerId:
    """Return the default id of a handler: the name of its function, by Kopf's rules.

    Raises TypeError for a callable without a name: its decorator needs ``id=``.
    """
    fn = unwrap(fn)
    if getattr(fn, "__name__", None) == "<lambda>":
        return f"lambda:{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}"
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None)
    if not name:
        raise TypeError(f"{fn!r} has no name to derive a handler id from: pass id=... to the decorator.")
    return str(name)


class Handler(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Base class of handlers: a function, and the options that all kinds of handlers have.

    ``timeout`` and ``backoff`` are in seconds, ``retries`` is a number of attempts. None means no limit, or the
    default. ``rights`` are what the function's own requests need. ``default_errors`` is how arbitrary exceptions are
    treated if ``errors`` is not given. Successes of ``is_routine`` handlers are logged at the DEBUG level, as there are
    many, unless they come after errors.
    """

    title: ClassVar[str] = "Handler"
    default_errors: ClassVar[ErrorsMode] = ErrorsMode.TEMPORARY
    is_routine: ClassVar[bool] = False

    fn: HandlerFn
    id: HandlerId
    param: Any = None
    rights: tuple[Rule, ...] = ()
    errors: ErrorsMode | None = None
    timeout: float | None = None
    retries: int | None = None
    backoff: float | None = None
    signature: Signature = Signature(frozenset(), frozenset(), takes_all=True)  # this one and the next: derived
    is_async: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "signature", signature_of(self.fn))
        msgspec.structs.force_setattr(self, "is_async", is_async(self.fn))

    def __str__(self) -> str:
        return f"{self.title} {self.id!r}"


class ActivityHandler(Handler, frozen=True, kw_only=True, eq=False):
    """Handler that is called when the operator starts, logs in or ends, or for a probe."""

    title: ClassVar[str] = "Activity"

    activity: Activity


class ResourceHandler(Handler, frozen=True, kw_only=True, eq=False):
    """Handler that is called for objects of the selected kinds that match the filters.

    ``model`` is the class that declares the selected kind, if it was selected by that. Without filters, it matches all
    objects.
    """

    selector: Selector
    model: type | None = None
    labels: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] | None = None
    when: Callable[..., bool] | None = None
    field: FieldPath | None = None
    value: Any = None
    has_filters: bool = False  # derived

    def __post_init__(self) -> None:
        super().__post_init__()
        filtered = self.labels or self.annotations or self.when is not None or self.field
        msgspec.structs.force_setattr(self, "has_filters", bool(filtered))

    def without_finalizer(self) -> ResourceHandler:
        """Return the handler as it is for an operator that has no finalizer."""
        return self


class EventHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """Handler that is called for each watch event; its errors are logged and ignored."""

    default_errors: ClassVar[ErrorsMode] = ErrorsMode.IGNORED


class IndexHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """Handler that is called for each state of an object, and returns the object's values in the index named ``id``."""

    title: ClassVar[str] = "Index"
    default_errors: ClassVar[ErrorsMode] = ErrorsMode.IGNORED
    is_routine: ClassVar[bool] = True


class ChangeHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """Handler that is called for a detected change, with retries; its progress is stored until it has finished.

    ``reason=None`` means any change (``on.field``, and ``on.resume`` together with ``initial``). A call of an
    ``interruptible`` handler is cancelled when the object is changed or deleted.
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
        """Whether objects need the finalizer until this handler has finished."""
        return self.reason is Reason.DELETE and not self.optional

    @property
    def is_optional_delete(self) -> bool:
        """Whether this is a delete handler that adds no finalizer."""
        return self.reason is Reason.DELETE and self.optional

    def without_finalizer(self) -> ChangeHandler:
        return msgspec.structs.replace(self, optional=True) if self.needs_finalizer else self


class SpawningHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """Base class of daemons and timers, which run for as long as their object exists and matches the filters.

    ``initial_delay`` is in seconds, or a function that returns seconds. With ``finalizer`` the object is not deleted
    while the daemon or timer runs.
    """

    initial_delay: float | Callable[..., float] | None = None
    finalizer: bool = True

    def without_finalizer(self) -> SpawningHandler:
        return msgspec.structs.replace(self, finalizer=False)


class DaemonHandler(SpawningHandler, frozen=True, kw_only=True, eq=False):
    """Handler that is called once for an object, and runs until it is stopped.

    The times are in seconds: from setting ``stopped`` to the cancellation, from there until the daemon is abandoned,
    and between reminders in the log that it still runs.
    """

    title: ClassVar[str] = "Daemon"

    cancellation_backoff: float | None = None
    cancellation_timeout: float | None = None
    cancellation_polling: float | None = None


class TimerHandler(SpawningHandler, frozen=True, kw_only=True, eq=False):
    """Handler that is called repeatedly for an object.

    ``interval`` is in seconds from the end of a call to the next one, or with ``sharp`` from start to start. ``idle``
    is for how long the object must be unchanged. ``schedule`` replaces both. ``interval_of`` and ``cron_of`` are
    functions of the object in place of these, the latter with a ``timezone``; ``timezone_of`` is one for that.
    """

    title: ClassVar[str] = "Timer"
    is_routine: ClassVar[bool] = True

    interval: float | None = None
    sharp: bool = False
    idle: float | None = None
    schedule: Schedule | None = None
    interval_of: Callable[..., float | None] | None = None
    cron_of: Callable[..., str | None] | None = None
    timezone: datetime.tzinfo | None = None
    timezone_of: Callable[..., str | datetime.tzinfo | None] | None = None

    @property
    def is_variable(self) -> bool:
        """Whether it depends on the object when it is due."""
        return any(fn is not None for fn in (self.interval_of, self.cron_of, self.timezone_of))


def check_signature(handler: Handler, known: frozenset[str]) -> None:
    """Check that the function can be called with the *known* keyword arguments.

    Raises SignatureError with the function, its unknown arguments, and the available ones.
    """
    _check_required(str(handler), handler.fn, handler.signature, known)


def check_callback(handler: Handler, option: str, fn: HandlerFn, known: frozenset[str]) -> None:
    """Check that a callback of the handler can be called with the *known* keyword arguments.

    Filters except ``when=`` get the value as their first, positional argument. Raises SignatureError.
    """
    is_filter = option not in ("watches", "initial_delay", "interval", "cron")
    signature = signature_of(fn, skip=1 if is_filter and option != "when" else 0)
    title = "The filter" if is_filter else "The function"
    _check_required(f"{title} {option}= of {handler}", fn, signature, known)


def _check_required(title: str, fn: HandlerFn, signature: Signature, known: frozenset[str]) -> None:
    unknown = signature.required - (signature.names & known)  # positional-only arguments cannot be passed by name
    if unknown:
        available = f"Available arguments: {', '.join(sorted(known))}."
        raise SignatureError(title, f"requires arguments that do not exist: {suggest(unknown, known)}. {available}", fn)


def check_function(title: str, fn: object, *, generator: bool = False) -> None:
    """Check that a handler is a function that does something when it is called: no class, and no *generator* either.

    Raises TypeError.
    """
    if not callable(fn):
        raise TypeError(f"{title} must be a function, not {fn!r}: use the decorator with parentheses.")
    inner = unwrap(fn)
    if isinstance(inner, type):
        raise TypeError(f"{title} must be a function, not the class {inner.__qualname__}: decorate a function.")
    if not generator and (inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn)):
        raise TypeError(f"{title} must not contain yield: calling {inner.__qualname__} would do nothing.")
