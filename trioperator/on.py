"""The decorators by which functions become handlers.

::

    @trioperator.on.create("example.com", "v1", "widgets", labels={"tier": "gold"})
    def created(spec, name, **_): ...

Every decorator gives the function back unchanged, so they can be stacked. The positional arguments of the resource
decorators select resource kinds (see :class:`trioperator.model.resource.Selector`); the options are those of Kopf.
"""

from __future__ import annotations

import datetime
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

from trioperator.handling.handler import (
    Activity,
    ActivityHandler,
    ChangeHandler,
    DaemonHandler,
    ErrorsMode,
    EventHandler,
    IndexHandler,
    Reason,
    TimerHandler,
    derive_id,
    is_async,
)
from trioperator.handling.registry import OperatorRegistry, get_default_registry
from trioperator.handling.schedule import parse_schedule
from trioperator.model.fields import FieldSpec, parse_field
from trioperator.model.resource import Selector

__all__ = [
    "cleanup",
    "create",
    "daemon",
    "delete",
    "event",
    "field",
    "index",
    "probe",
    "resume",
    "startup",
    "timer",
    "update",
]

F = TypeVar("F", bound=Callable[..., Any])


class Decorator(Protocol):
    """Be a decorator that gives the function back as it was."""

    def __call__(self, fn: F, /) -> F:
        """Register the function."""
        ...


class IdentityOptions(TypedDict, total=False):
    """Options of every decorator.

    ``id`` names the handler in logs and stored state (default: the function's name); ``param`` is passed on to the
    function; ``registry`` takes the handler instead of the default one.
    """

    id: str | None
    param: Any
    registry: OperatorRegistry | None


class RetryOptions(TypedDict, total=False):
    """Options of handlers that are tried again.

    ``errors`` says what arbitrary exceptions mean; ``timeout`` is in seconds since the first attempt, and also
    interrupts an async attempt; ``retries`` is the number of attempts; ``backoff`` is the delay in seconds after an
    arbitrary exception.
    """

    errors: ErrorsMode | None
    timeout: float | None
    retries: int | None
    backoff: float | None


class ActivityOptions(IdentityOptions, RetryOptions, total=False):
    """Options of ``startup``, ``cleanup`` and ``probe``."""


class SelectorOptions(TypedDict, total=False):
    """Options that select resource kinds by one attribute."""

    group: str | None
    version: str | None
    kind: str | None
    plural: str | None
    singular: str | None
    shortcut: str | None
    category: str | None


class FilterOptions(TypedDict, total=False):
    """Options that restrict the objects; all given ones must be satisfied."""

    labels: Mapping[str, Any] | None
    annotations: Mapping[str, Any] | None
    when: Callable[..., bool] | None
    field: FieldSpec
    value: Any


class EventOptions(IdentityOptions, SelectorOptions, FilterOptions, total=False):
    """Options of ``event``."""


class CreateOptions(EventOptions, RetryOptions, total=False):
    """Options of ``create``."""


class IndexOptions(EventOptions, RetryOptions, total=False):
    """Options of ``index``: ``timeout`` and ``retries`` count from the first error of an object."""


class ResumeOptions(CreateOptions, total=False):
    """Options of ``resume``: with ``deleted=True`` it is also called for objects that are being deleted."""

    deleted: bool | None


class UpdateOptions(CreateOptions, total=False):
    """Options of ``update`` and ``field``: ``old`` and ``new`` restrict the two sides of the change of ``field``."""

    old: Any
    new: Any


class DeleteOptions(CreateOptions, total=False):
    """Options of ``delete``: with ``optional=True`` no finalizer is put on the object for it."""

    optional: bool | None


class BackgroundOptions(CreateOptions, total=False):
    """Options of ``daemon`` and ``timer``.

    ``initial_delay`` is in seconds, or a function that tells it; with ``finalizer=False`` no finalizer is put on the
    object, which may vanish then while they run.
    """

    initial_delay: float | Callable[..., float] | None
    finalizer: bool | None


class DaemonOptions(BackgroundOptions, total=False):
    """Options of ``daemon``, in seconds.

    ``cancellation_backoff`` is the time from ``stopped`` to the cancellation, ``cancellation_timeout`` the time from
    there until the daemon is abandoned; without the latter it is not cancelled, and a reminder that it still runs is
    logged each ``cancellation_polling``.
    """

    cancellation_backoff: float | None
    cancellation_timeout: float | None
    cancellation_polling: float | None


class TimerOptions(BackgroundOptions, total=False):
    """Options of ``timer``, in seconds.

    ``interval`` is the time from the end of a call to the next one; with ``sharp=True`` the calls are on a grid of that
    width. ``idle`` is how long the object must have been left unchanged before a call. ``cron`` is a cron expression in
    place of these; it is read in the time zone ``timezone`` (default: UTC).
    """

    interval: float | None
    sharp: bool | None
    idle: float | None
    cron: str | None
    timezone: str | datetime.tzinfo | None


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

    known = _check("on.event", options, EventOptions)
    restrictions = _restrictions("on.event", selector, known)

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
    known = _check("on.index", options, IndexOptions)
    restrictions = _restrictions("on.index", selector, known)
    retrying = _retrying("on.index", known)

    def register(fn: F) -> F:
        identity = _identity(fn, {**known, "field": None})
        identity["id"] = known.get("id") or identity["id"].rpartition(".")[2]
        _registry(known).append(IndexHandler(fn=fn, **identity, **retrying, **restrictions))
        return fn

    return register


def create(*selector: Any, **options: Unpack[CreateOptions]) -> Decorator:
    """Call the function when an object has been created, or comes into view for the first time."""
    return _change("on.create", selector, _check("on.create", options, CreateOptions), reason=Reason.CREATE)


def resume(*selector: Any, **options: Unpack[ResumeOptions]) -> Decorator:
    """Call the function once in the operator's life for each object that was there when it started."""
    return _change("on.resume", selector, _check("on.resume", options, ResumeOptions), reason=None, initial=True)


def update(*selector: Any, **options: Unpack[UpdateOptions]) -> Decorator:
    """Call the function when an object, or the ``field=`` of it, has changed."""
    known = _check("on.update", options, UpdateOptions)
    return _change("on.update", selector, known, reason=Reason.UPDATE, needs_change=True)


def delete(*selector: Any, **options: Unpack[DeleteOptions]) -> Decorator:
    """Call the function when an object is being deleted; the object waits for it, unless ``optional=True``."""
    return _change("on.delete", selector, _check("on.delete", options, DeleteOptions), reason=Reason.DELETE)


def field(*selector: Any, **options: Unpack[UpdateOptions]) -> Decorator:
    """Call the function when the ``field=`` has changed, been added or been removed, at creation too."""
    known = _check("on.field", options, UpdateOptions)
    if not known.get("field"):
        raise TypeError("on.field needs field=..., the field to look at.")
    return _change("on.field", selector, known, reason=None, needs_change=True)


def daemon(*selector: Any, **options: Unpack[DaemonOptions]) -> Decorator:
    """Call the function once for each object, for as long as the object is there: it ends when told by ``stopped``."""
    known = _check("on.daemon", options, DaemonOptions)
    times = _durations("on.daemon", known, "cancellation_backoff", "cancellation_timeout", "cancellation_polling")
    common = _background("on.daemon", selector, known)

    def register(fn: F) -> F:
        _registry(known).append(DaemonHandler(fn=fn, **_identity(fn, known), **common, **times))
        return fn

    return register


def timer(*selector: Any, **options: Unpack[TimerOptions]) -> Decorator:
    """Call the function for each object again and again, for as long as the object is there."""
    known = _check("on.timer", options, TimerOptions)
    times = _durations("on.timer", known, "interval", "idle")
    common = _background("on.timer", selector, known)
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


def _background(name: str, selector: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    delay = options.get("initial_delay")
    _check_plain(name, "initial_delay", delay)
    delays = {"initial_delay": delay} if callable(delay) else _durations(name, options, "initial_delay")
    finalizer = options.get("finalizer") is not False
    return {**_restrictions(name, selector, options), **_retrying(name, options), **delays, "finalizer": finalizer}


def _durations(name: str, options: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Take the options that are numbers of seconds; what is done again and again takes more than none."""
    given = {key: options[key] for key in keys if options.get(key) is not None}
    for key, value in given.items():
        positive = key in ("interval", "cancellation_polling")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not (value > 0 if positive else value >= 0) or math.isinf(value):
            expected = "more than 0" if positive else "0 or more"
            raise ValueError(f"{name} has {key}={value!r}: it has to be a number of seconds, {expected}.")
    return given


def _activity(activity: Activity, name: str, options: Mapping[str, Any]) -> Decorator:
    known = _check(f"on.{name}", options, ActivityOptions)
    retrying = _retrying(f"on.{name}", known)

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
    restrictions = _restrictions(name, selector, options)
    retrying = _retrying(name, options)
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
            **extras,
        )
        _registry(options).append(handler)
        return fn

    return register


def _check(name: str, options: Mapping[str, Any], known: type) -> Mapping[str, Any]:
    unknown = sorted(set(options) - set(known.__annotations__))
    if unknown:
        raise TypeError(
            f"{name} has no option {', '.join(unknown)}; there are: {', '.join(sorted(known.__annotations__))}."
        )
    return options


def _registry(options: Mapping[str, Any]) -> OperatorRegistry:
    given: OperatorRegistry | None = options.get("registry")
    return get_default_registry() if given is None else given


def _identity(fn: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    if not callable(fn):
        raise TypeError(f"A handler has to be a function, not {fn!r}: decorators are used with parentheses.")
    name = options.get("id") or derive_id(fn)
    path = parse_field(options.get("field"))
    return {"id": f"{name}/{'.'.join(path)}" if path else name, "param": options.get("param")}


def _retrying(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: options[key] for key in ("errors", "timeout", "retries", "backoff") if options.get(key) is not None}
    if not isinstance(given.get("errors", ErrorsMode.TEMPORARY), ErrorsMode):
        raise TypeError(f"{name} has errors={given['errors']!r}: it has to be one of ErrorsMode.")
    for key in ("timeout", "retries", "backoff"):
        value, kinds = given.get(key, 0), (int,) if key == "retries" else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not value >= 0:
            raise ValueError(f"{name} has {key}={value!r}: it has to be a number, and not a negative one.")
    return given


def _restrictions(name: str, selector: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    sides = [key for key in ("value", "old", "new") if options.get(key) is not None]
    if sides and not options.get("field"):
        raise TypeError(f"{name} has {', '.join(sides)}=... without field=..., the field that is meant.")
    if "value" in sides and len(sides) > 1:
        raise TypeError(f"{name} has value=... together with old=... or new=...: either the one or the others.")
    if options.get("when") is not None and not callable(options["when"]):
        raise TypeError(f"{name} has when={options['when']!r}: it has to be a function.")
    _check_plain(name, "when", options.get("when"))
    for key in sides:
        _check_plain(name, key, options[key])
    for kind in ("labels", "annotations"):
        _check_metadata(name, kind, options.get(kind))
    if selector and callable(selector[-1]):
        _check_selecting(name, selector[-1])
    return {
        "selector": Selector.parse(
            *selector, **{key: options[key] for key in SelectorOptions.__annotations__ if key in options}
        ),
        "labels": options.get("labels"),
        "annotations": options.get("annotations"),
        "when": options.get("when"),
        "field": parse_field(options.get("field")) or None,
        "value": options.get("value"),
    }


def _check_metadata(name: str, kind: str, wanted: Any) -> None:
    if wanted is None:
        return
    if not isinstance(wanted, Mapping):
        raise TypeError(f"{name} has {kind}={wanted!r}: it has to be a mapping.")
    for key, value in wanted.items():
        if value is None:
            raise ValueError(f"{name} has {kind}={{{key!r}: None}}: use PRESENT or ABSENT instead of None.")
        _check_plain(name, kind, value)


def _check_plain(name: str, option: str, fn: Any) -> None:
    if callable(fn) and is_async(fn):
        raise TypeError(f"{name} has an async function in {option}=...: such functions have to be plain.")


def _check_selecting(name: str, fn: Callable[..., Any]) -> None:
    """Tell a function that selects resources from a handler whose decorator was forgotten its parentheses."""
    try:
        inspect.signature(fn).bind(None)
        suits = not is_async(fn)
    except TypeError:
        suits = False
    except ValueError:  # no signature to be read
        suits = True
    if not suits:
        raise TypeError(
            f"{name} got {getattr(fn, '__qualname__', fn)!s} to select resources, and it does not take just a resource."
            " A decorator is used with parentheses, and with the resources that are meant."
        )
