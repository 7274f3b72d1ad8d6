"""The decorators by which functions become handlers.

::

    @trioperator.on.create("example.com", "v1", "widgets", labels={"tier": "gold"})
    def created(spec, name, **_): ...

Every decorator gives the function back unchanged, so they can be stacked. The positional arguments of the resource
decorators select resource kinds (see :class:`trioperator.model.resource.Selector`); the options are those of Kopf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, Unpack

from trioperator.handling.handler import (
    Activity,
    ActivityHandler,
    ChangeHandler,
    DaemonHandler,
    EventHandler,
    IndexHandler,
    Reason,
    TimerHandler,
    derive_id,
)
from trioperator.handling.options import (
    ActivityOptions,
    CreateOptions,
    DaemonOptions,
    DeleteOptions,
    EventOptions,
    IndexOptions,
    RegisterOptions,
    ResumeOptions,
    SubhandlerOptions,
    TimerOptions,
    UpdateOptions,
    check_options,
    parse_durations,
    parse_filters,
    parse_on_change,
    parse_retry_options,
    parse_selection,
    parse_spawning_options,
)
from trioperator.handling.registry import OperatorRegistry, get_default_registry
from trioperator.handling.schedule import parse_schedule
from trioperator.handling.subhandlers import running_subhandlers
from trioperator.model.fields import parse_field

__all__ = [
    "cleanup",
    "create",
    "daemon",
    "delete",
    "event",
    "field",
    "index",
    "probe",
    "register",
    "resume",
    "startup",
    "subhandler",
    "this",
    "timer",
    "update",
]

F = TypeVar("F", bound=Callable[..., Any])


class Decorator(Protocol):
    """Be a decorator that gives the function back as it was."""

    def __call__(self, fn: F, /) -> F:
        """Register the function."""
        ...


def startup(**options: Unpack[ActivityOptions]) -> Decorator:
    """Call the function before anything else: the operator does not start until it has succeeded."""
    return _activity(Activity.STARTUP, "startup", options)


def cleanup(**options: Unpack[ActivityOptions]) -> Decorator:
    """Call the function when the operator ends, after all else has stopped."""
    return _activity(Activity.CLEANUP, "cleanup", options)


def probe(**options: Unpack[ActivityOptions]) -> Decorator:
    """Call the function when the operator's health is asked for; what it returns is part of the answer."""
    return _activity(Activity.PROBE, "probe", options)


def event(*selector: Any, **options: Unpack[EventOptions]) -> Decorator:
    """Call the function for each event of the watch stream. Errors are logged and ignored."""

    known = check_options("on.event", options, EventOptions)
    restrictions = parse_selection("on.event", selector, known)

    def register(fn: F) -> F:
        _registry(known).append(EventHandler(fn=fn, **_identity(fn, known), **restrictions))
        return fn

    return register


def index(*selector: Any, **options: Unpack[IndexOptions]) -> Decorator:
    """Keep what the function returns for each object in an index, which all handlers get as an argument.

    The argument has the name of the function, or that given by ``id=``. A dict that is returned holds values by
    keys; anything else is kept under the key None; None itself changes nothing. By default errors are ignored, and what
    was known is kept.
    """
    known = check_options("on.index", options, IndexOptions)
    restrictions = parse_selection("on.index", selector, known)
    retrying = parse_retry_options("on.index", known)

    def register(fn: F) -> F:
        identity = _identity(fn, {**known, "field": None})
        identity["id"] = known.get("id") or identity["id"].rpartition(".")[2]
        _registry(known).append(IndexHandler(fn=fn, **identity, **retrying, **restrictions))
        return fn

    return register


def create(*selector: Any, **options: Unpack[CreateOptions]) -> Decorator:
    """Call the function when an object has been created, or comes into view for the first time."""
    return _change("on.create", selector, check_options("on.create", options, CreateOptions), reason=Reason.CREATE)


def resume(*selector: Any, **options: Unpack[ResumeOptions]) -> Decorator:
    """Call the function once in the operator's life for each object that was there when it started."""
    return _change("on.resume", selector, check_options("on.resume", options, ResumeOptions), reason=None, initial=True)


def update(*selector: Any, **options: Unpack[UpdateOptions]) -> Decorator:
    """Call the function when an object, or the ``field=`` of it, has changed."""
    known = check_options("on.update", options, UpdateOptions)
    return _change("on.update", selector, known, reason=Reason.UPDATE, needs_change=True)


def delete(*selector: Any, **options: Unpack[DeleteOptions]) -> Decorator:
    """Call the function when an object is being deleted; the object waits for it, unless ``optional=True``."""
    return _change("on.delete", selector, check_options("on.delete", options, DeleteOptions), reason=Reason.DELETE)


def field(*selector: Any, **options: Unpack[UpdateOptions]) -> Decorator:
    """Call the function when the ``field=`` has changed, been added or been removed, at creation too."""
    known = check_options("on.field", options, UpdateOptions)
    if not known.get("field"):
        raise TypeError("on.field needs field=..., the field to look at.")
    return _change("on.field", selector, known, reason=None, needs_change=True)


def daemon(*selector: Any, **options: Unpack[DaemonOptions]) -> Decorator:
    """Call the function once for each object, for as long as the object is there: it ends when told by ``stopped``."""
    known = check_options("on.daemon", options, DaemonOptions)
    times = parse_durations("on.daemon", known, "cancellation_backoff", "cancellation_timeout", "cancellation_polling")
    common = parse_spawning_options("on.daemon", selector, known)

    def register(fn: F) -> F:
        _registry(known).append(DaemonHandler(fn=fn, **_identity(fn, known), **common, **times))
        return fn

    return register


def timer(*selector: Any, **options: Unpack[TimerOptions]) -> Decorator:
    """Call the function for each object again and again, for as long as the object is there."""
    known = check_options("on.timer", options, TimerOptions)
    times = parse_durations("on.timer", known, "interval", "idle")
    common = parse_spawning_options("on.timer", selector, known)
    cron = known.get("cron")
    if cron is not None:
        if times or known.get("sharp"):
            raise TypeError(
                "on.timer has cron=... together with interval, sharp or idle: either the one or the others."
            )
        if not isinstance(cron, str):
            raise TypeError(f"on.timer has cron={cron!r}: it has to be a text such as '*/5 * * * *'.")
        times["schedule"] = parse_schedule(cron, known.get("timezone"))
    elif known.get("timezone") is not None:
        raise TypeError("on.timer has timezone=... without cron=..., which is what it is for.")
    if known.get("sharp") and "interval" not in times:
        raise TypeError("on.timer has sharp=True without interval=..., the width of the grid.")

    def register(fn: F) -> F:
        sharp = bool(known.get("sharp"))
        _registry(known).append(TimerHandler(fn=fn, **_identity(fn, known), **common, **times, sharp=sharp))
        return fn

    return register


def subhandler(**options: Unpack[SubhandlerOptions]) -> Decorator:
    """Have the running handler call the function as a part of itself, with retries and a progress of its own.

    Works inside of a handler of changes only. The sub-handler's id is ``parent/id``; it is called when the parent has
    returned, or when it awaits ``execute()``. The parent is called again until all its sub-handlers have ended.

    Raises RuntimeError anywhere else.
    """
    known = check_options("subhandler", options, SubhandlerOptions)

    def declare(fn: F) -> F:
        _declare("subhandler", fn, known)
        return fn

    return declare


this = subhandler  # as it was called in the first versions of Kopf


def register(fn: F, **options: Unpack[RegisterOptions]) -> F:
    """Have the running handler call *fn* as a part of itself: the same as ``subhandler``, without a decorator."""
    _declare("register", fn, check_options("register", options, RegisterOptions))
    return fn


def _declare(name: str, fn: Callable[..., Any], options: Mapping[str, Any]) -> None:
    running = running_subhandlers(name)
    if not callable(fn):
        raise TypeError(f"A sub-handler has to be a function, not {fn!r}: decorators are used with parentheses.")
    sides = {key: options[key] for key in ("old", "new") if options.get(key) is not None}
    if sides and not running.parent.needs_change:
        raise TypeError(
            f"{name} has {', '.join(sides)}=...: only sub-handlers of on.update and on.field can have that."
        )
    running.declare(
        running.make(
            fn,
            id=options.get("id"),
            param=options.get("param"),
            **parse_retry_options(name, options),
            **parse_filters(name, options),
            **sides,
        )
    )


def _activity(activity: Activity, name: str, options: Mapping[str, Any]) -> Decorator:
    known = check_options(f"on.{name}", options, ActivityOptions)
    retrying = parse_retry_options(f"on.{name}", known)

    def register(fn: F) -> F:
        _registry(known).append(ActivityHandler(fn=fn, activity=activity, **_identity(fn, known), **retrying))
        return fn

    return register


def _change(
    name: str,
    selector: tuple[Any, ...],
    options: Mapping[str, Any],
    *,
    reason: Reason | None,
    initial: bool = False,
    needs_change: bool = False,
) -> Decorator:
    restrictions = parse_selection(name, selector, options)
    retrying = parse_retry_options(name, options)
    interruptible = parse_on_change(name, options)
    extras = {key: options[key] for key in ("old", "new") if options.get(key) is not None}

    def register(fn: F) -> F:
        handler = ChangeHandler(
            fn=fn,
            reason=reason,
            initial=initial,
            needs_change=needs_change,
            **_identity(fn, options),
            **retrying,
            **restrictions,
            deleted=bool(options.get("deleted")),
            optional=bool(options.get("optional")),
            interruptible=interruptible,
            **extras,
        )
        _registry(options).append(handler)
        return fn

    return register


def _registry(options: Mapping[str, Any]) -> OperatorRegistry:
    given: OperatorRegistry | None = options.get("registry")
    return get_default_registry() if given is None else given


def _identity(fn: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    if not callable(fn):
        raise TypeError(f"A handler has to be a function, not {fn!r}: decorators are used with parentheses.")
    if not isinstance(options.get("id"), str | None):
        raise TypeError(f"A handler has id={options['id']!r}: it has to be a text.")
    name = options.get("id") or derive_id(fn)
    path = parse_field(options.get("field"))
    return {"id": f"{name}/{'.'.join(path)}" if path else name, "param": options.get("param")}
