"""Pauses of single objects, and requests to reconcile them, as commands set them: by the annotations of operators."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trioperator._model.pause import Pause, find_annotation, format_pause, parse_pause
from trioperator.errors import ConfigError

if TYPE_CHECKING:
    from trioperator.client import Client

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION: Final = re.compile(r"(\d{1,6})([smhd])")


class Target(msgspec.Struct, frozen=True):
    """One object, as a command names it: its kind and its name, and its namespace, by default the connection's."""

    kind: str
    name: str
    namespace: str | None = None

    @classmethod
    def parse(cls, text: str, namespace: str | None) -> Target:
        """Return the object that ``KIND/NAME`` names. Raises ConfigError."""
        kind, _, name = text.partition("/")
        if not kind or not name or "/" in name:
            raise ConfigError(
                f"{text!r} does not name an object: pass KIND/NAME, such as databases.example.com/orders."
            )
        return cls(kind, name, namespace)

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def parse_until(text: str, now: datetime.datetime) -> datetime.datetime:
    """Return the end of a pause: a duration such as ``2h`` from *now* on, or a time with a time zone.

    Raises ConfigError for anything else, and for a time that is over.
    """
    if found := _DURATION.fullmatch(text):
        return now + datetime.timedelta(**{_UNITS[found[2]]: int(found[1])})
    pause = parse_pause(f"until={text}")
    if pause is None or pause.until is None or " " in text:
        raise ConfigError(
            f"{text!r} is not the end of a pause: pass a duration such as 2h, or a time such as 2026-12-01T00:00Z."
        )
    if pause.is_over(now):
        raise ConfigError(f"The end of the pause, {text!r}, is in the past: pass a later time.")
    return pause.until


async def pause_object(client: Client, target: Target, pause: Pause, annotation: str) -> str:
    """Pause an object, or change its pause. Returns what was done, in a line."""
    body = await _annotate(client, target, annotation, format_pause(pause))
    return f"{_name(target, body)}: {pause}"


async def unpause_object(client: Client, target: Target, annotation: str) -> str:
    """End the pause of an object. Returns what was done, in a line."""
    body = await client.get(target.kind, target.name, namespace=target.namespace)
    if find_annotation(body, annotation) is None:
        return f"{_name(target, body)}: not paused"
    await _annotate(client, target, annotation, None)
    return f"{_name(target, body)}: no longer paused"


async def poke_object(client: Client, target: Target, annotation: str, now: datetime.datetime) -> str:
    """Request that an object is reconciled now. Returns what was done, in a line."""
    body = await _annotate(client, target, annotation, now.isoformat())
    return f"{_name(target, body)}: requested at {now.isoformat(timespec='seconds')}"


async def _annotate(client: Client, target: Target, annotation: str, value: str | None) -> dict[str, Any]:
    """Set or remove an annotation. Raises NotFoundError if there is no such object."""
    patch = {"metadata": {"annotations": {annotation: value}}}
    return await client.patch(target.kind, target.name, merge=patch, namespace=target.namespace)


def _name(target: Target, body: dict[str, Any]) -> str:
    namespace = body["metadata"].get("namespace")
    return f"{target.kind}/{namespace}/{target.name}" if namespace else str(target)
