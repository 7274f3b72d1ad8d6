"""Settings of contention: fields that are written repeatedly."""

from __future__ import annotations

from typing import ClassVar

from trioperator.settings.rules import BOOLEAN, COUNT, TIMEOUT, Section, section, setting


@section
class ContentionSettings(Section):
    """Settings of contention, where others undo what the operator writes: see docs/settings.md."""

    _path: ClassVar[str] = "settings.contention"

    enabled: bool = setting(True, BOOLEAN)
    """Whether writes of contended fields are held; default: True."""

    flips: int = setting(3, COUNT)
    """Number of times that others change a field and the operator writes it again, each within a minute of the last,
    after which the field is contended; default: 3."""

    unchanged_writes: int = setting(10, COUNT)
    """Number of writes in a minute that change nothing, after which their fields are contended; default: 10."""

    writes: int | None = setting(120, COUNT.or_none())
    """Number of writes of an object in a minute, not counting daemons and timers, after which its fields are contended;
    default: 120. None: no limit."""

    interval: float = setting(60.0, TIMEOUT)
    """Seconds from one write of a contended field to the next one, at least; and seconds for which a field must stay
    unchanged until it is no longer contended; default: 60."""
