"""The operator that the live view shows."""

from __future__ import annotations

import trio

from trioperator._telemetry.changes import Changes
from trioperator._telemetry.inspector import Inspector


class ShownOperator:
    """An operator that the live view shows: its parts, the task below which all of its tasks are, and its changes."""

    def __init__(self, parts: Inspector, root: trio.lowlevel.Task) -> None:
        self.parts = parts
        self.root = root
        live = None if parts.instruments is None else parts.instruments.live
        self.failures = () if live is None else live.failures
        self.changes = Changes() if live is None else live.changes
        self.ended = trio.Event()

    def end(self) -> None:
        """Wake all that wait for something to change: there is nothing more to show."""
        self.ended.set()
        self.changes.announce()
