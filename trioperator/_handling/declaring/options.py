"""Options of decorators: their types, and functions that validate them. Pure.

Invalid options raise TypeError or ValueError where the decorator is applied.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypedDict

from trioperator._handling.arguments.cause import (
    ACTIVITY_KWARGS,
    CHANGE_KWARGS,
    DAEMON_KWARGS,
    EVENT_KWARGS,
    INDEX_KWARGS,
)
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.handlers.children import Owned
from trioperator._handling.handlers.filters import MetaFilterToken
from trioperator._handling.handlers.handler import ErrorsMode, is_async
from trioperator._handling.handlers.schedule import parse_schedule, parse_timezone
from trioperator._handling.reviews.admission import ADMISSION_KWARGS
from trioperator._handling.reviews.conversion import CONVERSION_KWARGS
from trioperator._model.custom_kind import find_kind
from trioperator._model.fields import FieldPath, FieldSpec, parse_field
from trioperator._model.resource import Selector
from trioperator._model.rights import Rule, parse_rule
from trioperator._model.signatures import read_signature
from trioperator._model.similar_names import suggest


class IdentityOptions(TypedDict, total=False):
    """Options of every decorator."""

    id: str | None
    param: Any
    registry: OperatorRegistry | None
    rights: Iterable[str | tuple[str, type]] | None


class RetryOptions(TypedDict, total=False):
    """Options of handlers that are retried."""

    errors: ErrorsMode | None
    timeout: float | None
    retries: int | None
    backoff: float | None


class ActivityOptions(IdentityOptions, RetryOptions, total=False):
    """Options of ``startup``, ``cleanup`` and ``probe``."""


class SelectorOptions(TypedDict, total=False):
    """Selectors of resource kinds by one attribute."""

    group: str | None
    version: str | None
    kind: str | None
    plural: str | None
    singular: str | None
    shortcut: str | None
    category: str | None


class FilterOptions(TypedDict, total=False):
    """Filters of objects, all of which must match."""

    labels: Mapping[str, Any] | None
    annotations: Mapping[str, Any] | None
    when: Callable[..., bool] | None
    field: FieldSpec
    value: Any


class EventOptions(IdentityOptions, SelectorOptions, FilterOptions, total=False):
    """Options of ``event``."""


class ChangeOptions(EventOptions, RetryOptions, total=False):
    """Options of all resource handlers that are retried."""


class CreateOptions(ChangeOptions, total=False):
    """Options of ``create``."""

    on_change: Literal["finish", "cancel"] | None


class IndexOptions(EventOptions, RetryOptions, total=False):
    """Options of ``index``: ``timeout`` and ``retries`` count from the first error of an object."""


class ResumeOptions(CreateOptions, total=False):
    """Options of ``resume``: with ``deleted=True`` it is also called for objects that are being deleted."""

    deleted: bool | None


class UpdateOptions(CreateOptions, total=False):
    """Options of ``update`` and ``field``: ``old`` and ``new`` filter the values of ``field`` before and after."""

    old: Any
    new: Any


class DeleteOptions(ChangeOptions, total=False):
    """Options of ``delete``: with ``optional=True`` no finalizer is added for it."""

    optional: bool | None


class SpawningOptions(ChangeOptions, total=False):
    """Options of ``daemon`` and ``timer``."""

    initial_delay: float | Callable[..., float] | None
    finalizer: bool | None


class DaemonOptions(SpawningOptions, total=False):
    """Options of ``daemon``, in seconds."""

    cancellation_backoff: float | None
    cancellation_timeout: float | None
    cancellation_polling: float | None


class TimerOptions(SpawningOptions, total=False):
    """Options of ``timer``, in seconds."""

    interval: float | Callable[..., float | None] | None
    sharp: bool | None
    idle: float | None
    cron: str | Callable[..., str | None] | None
    timezone: str | datetime.tzinfo | Callable[..., str | datetime.tzinfo | None] | None


class ReconcileOptions(ChangeOptions, total=False):
    """Options of ``reconcile``."""

    owns: Iterable[str | tuple[str, ...] | type | Owned] | None
    watches: Mapping[str | tuple[str, ...] | type, Callable[..., Any]] | None
    resync: float | None
    condition: str | None
    kstatus: bool | None


class RegisterOptions(RetryOptions, total=False):
    """Options of ``register``."""

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
    """Return the options, with the ``rights`` parsed; raise TypeError if any is not in the TypedDict *known*."""
    unknown = sorted(set(options) - set(known.__annotations__))
    if unknown:
        available = ", ".join(sorted(known.__annotations__))
        wrong = suggest(unknown, known.__annotations__)
        raise TypeError(f"{name} has no option {wrong}. Available options: {available}.")
    return {**options, "rights": _parse_rights(name, options["rights"])} if "rights" in options else options


def _parse_rights(name: str, rights: Any) -> tuple[Rule, ...]:
    """Return rights as rules. Raises TypeError and ValueError."""
    if rights is None:
        return ()
    if isinstance(rights, str | Mapping) or not isinstance(rights, Iterable):
        raise TypeError(f"{name} has rights={rights!r}: it must be a list such as ['create,patch:jobs.batch'].")
    return tuple(rule for right in rights for rule in _parse_right(name, right))


def _parse_right(name: str, right: Any) -> Iterable[Rule]:
    text = right
    if isinstance(right, tuple) and len(right) == 2 and (info := find_kind(right[1])) is not None:
        text = f"{right[0]}:{info.plural}.{info.group}"
    if not isinstance(text, str):
        raise TypeError(
            f"{name} has {right!r} in rights=: a right is 'create,patch:jobs.batch', or ('create,patch', Job) with a"
            " class of crds.kind()."
        )
    try:
        return parse_rule(text)
    except ValueError as error:
        raise ValueError(f"{name} has {right!r} in rights=: {error}.") from None


def parse_retry_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate and return the options of retries."""
    given = {key: options[key] for key in ("errors", "timeout", "retries", "backoff") if options.get(key) is not None}
    if not isinstance(given.get("errors", ErrorsMode.TEMPORARY), ErrorsMode):
        raise TypeError(f"{name} has errors={given['errors']!r}: it must be a member of ErrorsMode.")
    for key in ("timeout", "retries", "backoff"):
        value, kinds = given.get(key, 0), (int,) if key == "retries" else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not value >= 0:
            raise ValueError(f"{name} has {key}={value!r}: it must be a number, 0 or more.")
    return given


def parse_on_change(name: str, options: Mapping[str, Any]) -> bool:
    """Return whether a change of the object cancels a call in progress."""
    wanted = options.get("on_change")
    if wanted not in (None, "finish", "cancel"):
        raise ValueError(f"{name} has on_change={wanted!r}: it must be 'finish' or 'cancel'.")
    return wanted == "cancel"


def parse_selection(name: str, selector: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate and return the selector of resource kinds and the filters of objects."""
    if len(selector) == 1 and (info := find_kind(selector[0])) is not None:
        chosen = Selector(group=info.group, version=info.version, plural=info.plural)
        return {"selector": chosen, "model": selector[0], **parse_filters(name, options)}
    if selector and callable(selector[-1]):
        _check_selecting(name, selector[-1])
    keywords = {key: options[key] for key in SelectorOptions.__annotations__ if key in options}
    return {"selector": Selector.parse(*selector, **keywords), **parse_filters(name, options)}


def parse_filters(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate and return the filters of objects."""
    sides = [key for key in ("value", "old", "new") if options.get(key) is not None]
    if sides and not options.get("field"):
        raise TypeError(f"{name} has {', '.join(sides)}=... without field=..., the field that has the value.")
    if "value" in sides and len(sides) > 1:
        raise TypeError(f"{name} has value=... together with old=... or new=...: use one or the other.")
    if options.get("when") is not None and not callable(options["when"]):
        raise TypeError(f"{name} has when={options['when']!r}: it must be a function.")
    check_not_async(name, "when", options.get("when"))
    for key in sides:
        check_not_async(name, key, options[key])
    for kind in ("labels", "annotations"):
        _check_metadata(name, kind, options.get(kind))
    return {
        "labels": options.get("labels"),
        "annotations": options.get("annotations"),
        "when": options.get("when"),
        "field": _parse_field(name, options.get("field")) or None,
        "value": options.get("value"),
    }


def _parse_field(name: str, field: Any) -> FieldPath:
    try:
        return parse_field(field)
    except ValueError:
        raise ValueError(
            f"{name} has field={field!r}: it must be a dotted string without empty parts, such as 'spec.size', or a"
            " list of keys."
        ) from None


def _check_metadata(name: str, kind: str, wanted: Any) -> None:
    if wanted is None:
        return
    if not isinstance(wanted, Mapping):
        raise TypeError(f"{name} has {kind}={wanted!r}: it must be a mapping.")
    for key, value in wanted.items():
        where = f"{name} has {kind}={{{key!r}: {value!r}}}"
        if not isinstance(key, str):
            raise TypeError(f"{where}: the key must be a string.")
        if value is None:
            raise ValueError(f"{where}: use PRESENT or ABSENT instead of None.")
        check_not_async(name, kind, value)
        if not (isinstance(value, str | MetaFilterToken) or callable(value)):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            raise TypeError(f"{where}: the value must be a string such as {text!r}, PRESENT, ABSENT or a function.")


def check_not_async(name: str, option: str, fn: Any) -> None:
    """Raise TypeError for an async function."""
    if callable(fn) and is_async(fn):
        raise TypeError(f"{name} has an async function in {option}=...: it must be a sync function.")


# Arguments that only handlers declare: the one argument of a selector function has another name.
_HANDLER_KWARGS: Final = (
    ACTIVITY_KWARGS | CHANGE_KWARGS | DAEMON_KWARGS | EVENT_KWARGS | INDEX_KWARGS | ADMISSION_KWARGS | CONVERSION_KWARGS
) - {"resource"}


def _check_selecting(name: str, fn: Callable[..., Any]) -> None:
    """Raise TypeError for a handler passed as a selector, as the decorator is used without parentheses."""
    try:
        signature = read_signature(fn, follow_wrapped=True)
        signature.bind(None)
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
        first = next(iter(signature.parameters.values()))
        ambiguous = takes_all and first.name != "resource" and "Resource" not in str(first.annotation)
        suits = not (ambiguous or is_async(fn) or isinstance(fn, type) or first.name in _HANDLER_KWARGS)
    except TypeError:
        suits = False
    except ValueError:  # no readable signature
        suits = True
    if isinstance(fn, type):
        raise TypeError(
            f"{name} got {fn.__qualname__} as a selector: a class that declares a kind is decorated with"
            " trioperator.crds.kind(). Use the decorator of handlers with parentheses."
        )
    if not suits:
        raise TypeError(
            f"{name} got {getattr(fn, '__qualname__', fn)!s} as a selector: it must be a sync function of a resource."
            " Use the decorator with parentheses, and pass a selector of resources."
        )


def check_parentheses(name: str, fns: tuple[object, ...]) -> None:
    """Raise TypeError for functions passed to a decorator without a selector, as it is used without parentheses."""
    if fns:
        raise TypeError(f"{name} takes no positional arguments: use the decorator with parentheses, @{name}().")


def parse_spawning_options(name: str, selector: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate and return the options that daemons and timers have in common, selector and filters included."""
    delay = options.get("initial_delay")
    check_not_async(name, "initial_delay", delay)
    delays = {"initial_delay": delay} if callable(delay) else parse_durations(name, options, "initial_delay")
    finalizer = options.get("finalizer")
    if not isinstance(finalizer, bool | None):
        raise TypeError(f"{name} has finalizer={finalizer!r}: it must be True or False.")
    finalizer = finalizer is not False
    return {
        **parse_selection(name, selector, options),
        **parse_retry_options(name, options),
        **delays,
        "finalizer": finalizer,
    }


def parse_durations(name: str, options: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Validate and return options in seconds: intervals must be more than 0, delays 0 or more."""
    given = {key: options[key] for key in keys if options.get(key) is not None}
    for key, value in given.items():
        positive = key in ("interval", "resync", "cancellation_polling")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not (value > 0 if positive else value >= 0) or math.isinf(value):
            expected = "more than 0" if positive else "0 or more"
            raise ValueError(f"{name} has {key}={value!r}: it must be a number of seconds, {expected}.")
    return given


def parse_timer_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate and return the options that say when a timer is due."""
    for key in ("interval", "cron", "timezone"):
        check_not_async(name, key, options.get(key))
    is_function = callable(options.get("interval"))
    times = parse_durations(name, options, *(("idle",) if is_function else ("interval", "idle")))
    if is_function:
        times["interval_of"] = options["interval"]
    if options.get("cron") is not None:
        if times or options.get("sharp"):
            raise TypeError(f"{name} has cron=... together with interval, sharp or idle: use one or the other.")
        times |= _parse_cron(name, options["cron"], options.get("timezone"))
    elif options.get("timezone") is not None:
        raise TypeError(f"{name} has timezone=... without cron=....")
    if options.get("sharp") and not times.keys() & {"interval", "interval_of"}:
        raise TypeError(f"{name} has sharp=True without interval=....")
    return {**times, "sharp": bool(options.get("sharp"))}


def _parse_cron(name: str, cron: Any, timezone: Any) -> dict[str, Any]:
    zone = {"timezone_of": timezone} if callable(timezone) else {"timezone": parse_timezone(timezone)}
    if callable(cron):
        return {"cron_of": cron, **zone}
    if not isinstance(cron, str):
        raise TypeError(f"{name} has cron={cron!r}: it must be a string such as '*/5 * * * *', or a function.")
    return {"schedule": parse_schedule(cron, zone.get("timezone")), **zone}
