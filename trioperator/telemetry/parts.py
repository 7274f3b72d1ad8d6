"""The parts of a running operator, for those who only look at them: metrics and the live view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Protocol

from trioperator.coordination.pauses import Pauses
from trioperator.handling.invoke import Attempt, RunningCall
from trioperator.runtime.cache import ObjectState
from trioperator.runtime.watches import WatchManager
from trioperator.runtime.workqueue import QueuedItem
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    from trioperator.telemetry.instruments import Instruments

__all__ = ["Parts"]


class Queued(Protocol):
    """A work queue, or several."""

    def items(self) -> Iterator[QueuedItem[ObjectState]]: ...


class Parts:
    """Parts of one operator. The queue, the watches and the daemons are others after a pause, and None on start."""

    def __init__(
        self,
        settings: OperatorSettings,
        pauses: Pauses,
        running: Mapping[Attempt, RunningCall],
        instruments: Instruments | None = None,
    ) -> None:
        self.settings = settings
        self.pauses = pauses
        self.running = running
        self.instruments = instruments
        self.queue: Queued | None = None
        self.watches: WatchManager | None = None
        self.daemons: Sized | None = None
        self.ready = False

    def replace(self, queue: Queued, watches: WatchManager, daemons: Sized) -> None:
        """Take new parts."""
        self.queue, self.watches, self.daemons = queue, watches, daemons

    def announce(self) -> None:
        """Record that the operator is ready."""
        self.ready = True
