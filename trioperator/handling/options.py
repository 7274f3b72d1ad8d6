"""What decorators are given: the options that there are, and checks of their values. Pure.

The checks raise TypeError or ValueError, where the decorator is written, and say what is meant instead.
"""

from __future__ import annotations

import datetime
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from trioperator.handling.handler import ErrorsMode, is_async
from trioperator.handling.registry import OperatorRegistry
from trioperator.model.fields import FieldSpec, parse_field
from trioperator.model.resource import Selector

__all__ = [
    "ActivityOptions",
    "ChangeOptions",
    "CreateOptions",
    "DaemonOptions",
    "DeleteOptions",
    "EventOptions",
    "FilterOptions",
    "IdentityOptions",
    "IndexOptions",
    "RegisterOptions",
    "ResumeOptions",
    "RetryOptions",
    "SelectorOptions",
    "SpawningOptions",
    "SubhandlerOptions",
    "TimerOptions",
    "UpdateOptions",
    "check_not_async",
    "check_options",
    "parse_durations",
    "parse_filters",
    "parse_on_change",
    "parse_retry_options",
    "parse_selection",
    "parse_spawning_options",
]


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


class ChangeOptions(EventOptions, RetryOptions, total=False):
    """Options of all handlers of objects that are tried again."""


class CreateOptions(ChangeOptions, total=False):
    """Options of ``create``.

    ``on_change`` says what becomes of a call in progress when the object is changed or deleted: ``"finish"`` lets it
    end, ``"cancel"`` cancels it at its next checkpoint and calls the handler anew.
    """

    on_change: Literal["finish", "cancel"] | None


class IndexOptions(EventOptions, RetryOptions, total=False):
    """Options of ``index``: ``timeout`` and ``retries`` count from the first error of an object."""


class ResumeOptions(CreateOptions, total=False):
    """Options of ``resume``: with ``deleted=True`` it is also called for objects that are being deleted."""

    deleted: bool | None


class UpdateOptions(CreateOptions, total=False):
    """Options of ``update`` and ``field``: ``old`` and ``new`` restrict the two sides of the change of ``field``."""

    old: Any
    new: Any


class DeleteOptions(ChangeOptions, total=False):
    """Options of ``delete``: with ``optional=True`` no finalizer is put on the object for it."""

    optional: bool | None


class SpawningOptions(ChangeOptions, total=False):
    """Options of ``daemon`` and ``timer``.

    ``initial_delay`` is in seconds, or a function that tells it; with ``finalizer=False`` no finalizer is put on the
    object, which may vanish then while they run.
    """

    initial_delay: float | Callable[..., float] | None
    finalizer: bool | None


class DaemonOptions(SpawningOptions, total=False):
    """Options of ``daemon``, in seconds.

    ``cancellation_backoff`` is the time from ``stopped`` to the cancellation, ``cancellation_timeout`` the time from
    there until the daemon is abandoned; without the latter it is not cancelled, and a reminder that it still runs is
    logged each ``cancellation_polling``.
    """

    cancellation_backoff: float | None
    cancellation_timeout: float | None
    cancellation_polling: float | None


class TimerOptions(SpawningOptions, total=False):
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


class RegisterOptions(RetryOptions, total=False):
    """Options of ``register``: those that every sub-handler has."""

    id: object
    param: Any
    labels: Mapping[str, Any] | None
    annotations: Mapping[str, Any] | None
    when: Callable[..., bool] | None


class SubhandlerOptions(RegisterOptions, total=False):
    """Options of ``subhandler``; ``old`` and ``new`` are for sub-handlers of ``update`` and ``field``."""

    field: FieldSpec
    value: Any
    old: Any
    new: Any


def check_options(name: str, options: Mapping[str, Any], known: type) -> Mapping[str, Any]:
    """Make sure that only *known* options are given: those of a TypedDict."""
    unknown = sorted(set(options) - set(known.__annotations__))
    if unknown:
        raise TypeError(
            f"{name} has no option {', '.join(unknown)}; there are: {', '.join(sorted(known.__annotations__))}."
        )
    return options


def parse_retry_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Take the options that say how a handler is tried again."""
    given = {key: options[key] for key in ("errors", "timeout", "retries", "backoff") if options.get(key) is not None}
    if not isinstance(given.get("errors", ErrorsMode.TEMPORARY), ErrorsMode):
        raise TypeError(f"{name} has errors={given['errors']!r}: it has to be one of ErrorsMode.")
    for key in ("timeout", "retries", "backoff"):
        value, kinds = given.get(key, 0), (int,) if key == "retries" else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not value >= 0:
            raise ValueError(f"{name} has {key}={value!r}: it has to be a number, and not a negative one.")
    return given


def parse_on_change(name: str, options: Mapping[str, Any]) -> bool:
    """Take the option that says whether a change of the object cancels a call in progress."""
    wanted = options.get("on_change")
    if wanted not in (None, "finish", "cancel"):
        raise ValueError(f"{name} has on_change={wanted!r}: it has to be 'finish' or 'cancel'.")
    return wanted == "cancel"


def parse_selection(name: str, selector: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Take what says for which resource kinds, and for which objects of them, a handler is called."""
    if selector and callable(selector[-1]):
        _check_selecting(name, selector[-1])
    keywords = {key: options[key] for key in SelectorOptions.__annotations__ if key in options}
    return {"selector": Selector.parse(*selector, **keywords), **parse_filters(name, options)}


def parse_filters(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Take the options that say which objects a handler is called for."""
    sides = [key for key in ("value", "old", "new") if options.get(key) is not None]
    if sides and not options.get("field"):
        raise TypeError(f"{name} has {', '.join(sides)}=... without field=..., the field that is meant.")
    if "value" in sides and len(sides) > 1:
        raise TypeError(f"{name} has value=... together with old=... or new=...: either the one or the others.")
    if options.get("when") is not None and not callable(options["when"]):
        raise TypeError(f"{name} has when={options['when']!r}: it has to be a function.")
    check_not_async(name, "when", options.get("when"))
    for key in sides:
        check_not_async(name, key, options[key])
    for kind in ("labels", "annotations"):
        _check_metadata(name, kind, options.get(kind))
    return {
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
        check_not_async(name, kind, value)


def check_not_async(name: str, option: str, fn: Any) -> None:
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


def parse_spawning_options(name: str, selector: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Take the options that daemons and timers have in common."""
    delay = options.get("initial_delay")
    check_not_async(name, "initial_delay", delay)
    delays = {"initial_delay": delay} if callable(delay) else parse_durations(name, options, "initial_delay")
    finalizer = options.get("finalizer")
    if not isinstance(finalizer, bool | None):
        raise TypeError(f"{name} has finalizer={finalizer!r}: it has to be True or False.")
    finalizer = finalizer is not False
    return {
        **parse_selection(name, selector, options),
        **parse_retry_options(name, options),
        **delays,
        "finalizer": finalizer,
    }


def parse_durations(name: str, options: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Take the options that are numbers of seconds; what is done again and again takes more than none."""
    given = {key: options[key] for key in keys if options.get(key) is not None}
    for key, value in given.items():
        positive = key in ("interval", "cancellation_polling")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not (value > 0 if positive else value >= 0) or math.isinf(value):
            expected = "more than 0" if positive else "0 or more"
            raise ValueError(f"{name} has {key}={value!r}: it has to be a number of seconds, {expected}.")
    return given
