"""Pauses of single objects, as an annotation has them: ``true``, or until when and why. Pure."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

# "until=2026-12-01T00:00Z reason=DBA at work": either part alone, too. The reason is the rest, whatever is in it.
_PARTS: Final = re.compile(r"(?:until=(?P<until>\S+))?(?:(?:^|\s+)reason=(?P<reason>.*))?", re.DOTALL)
# Characters of a reason: whoever may set the annotation writes it into the log, and into Events and conditions.
_MAX_REASON: Final = 1000
_MAX_QUOTED: Final = 100


class Pause(msgspec.Struct, frozen=True):
    """The pause of an object: until when, None for no end; why; and the ``problem`` if the annotation is unreadable."""

    until: datetime.datetime | None = None
    reason: str = ""
    problem: str = ""

    def is_over(self, now: datetime.datetime) -> bool:
        """Check whether the pause has ended by itself."""
        return self.until is not None and self.until <= now

    def mute(self) -> Pause:
        """Return the pause without what people have written."""
        return Pause(self.until)

    def __str__(self) -> str:
        until = "" if self.until is None else f" until {format_time(self.until)}"
        why = self.problem or self.reason
        return f"paused{until}{f': {why}' if why else ''}"


def format_time(moment: datetime.datetime) -> str:
    """Return a moment in UTC, to the second."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_pause(pause: Pause) -> str:
    """Return the value of the annotation for a pause: :func:`parse_pause` gives the same pause, to the second."""
    until = [] if pause.until is None else [f"until={format_time(pause.until)}"]
    reason = [f"reason={pause.reason}"] if pause.reason else []
    return " ".join([*until, *reason]) or "true"


def parse_pause(value: str) -> Pause | None:
    """Return the pause that the value of an annotation means; None for ``false``.

    A value that cannot be read is a pause without an end: whoever has written it wanted one.
    """
    text = value.strip()
    if text.lower() in ("true", "false"):
        return Pause() if text.lower() == "true" else None
    found = _PARTS.fullmatch(text) if text else None
    if found is None:
        return Pause(problem=_describe(value, "it must be 'true', or 'until=2026-12-01T00:00Z reason=why'"))
    reason = _shorten((found["reason"] or "").strip(), _MAX_REASON)
    if found["until"] is None:
        return Pause(reason=reason)
    try:
        until = datetime.datetime.fromisoformat(found["until"])
        return Pause(until.astimezone(datetime.UTC) if until.tzinfo else None, reason, _check_zone(value, until))
    except (ValueError, OverflowError):
        return Pause(problem=_describe(value, "its time must be one such as 2026-12-01T00:00Z"))


def find_annotation(body: Mapping[str, Any], annotation: str | None) -> str | None:
    """Return the value of an annotation of an object; None if it has none, or *annotation* is None."""
    if annotation is None:
        return None
    value = ((body.get("metadata") or {}).get("annotations") or {}).get(annotation)
    return value if isinstance(value, str) else None


def _check_zone(value: str, until: datetime.datetime) -> str:
    return "" if until.tzinfo else _describe(value, "its time needs a time zone, such as Z for UTC")


def _describe(value: str, how: str) -> str:
    return f"the annotation is {_shorten(value, _MAX_QUOTED)!r}, but {how}"


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
