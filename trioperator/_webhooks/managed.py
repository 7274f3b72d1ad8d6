"""Managed objects of an operator's webhooks in the cluster: written when they change, with retries."""

from __future__ import annotations

import abc
from typing import Final

import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._concurrency.pulse import Pulse
from trioperator._kube.api_client import ApiClient
from trioperator._logs import get_logger
from trioperator.errors import ApiError, ConnectionLostError

_BACKOFF: Final = Backoff(initial=5.0, maximum=300.0)


class ManagedObjects(abc.ABC):
    """Objects in the cluster that are written whenever something has changed; *title* names them in logs.

    ``tried`` is set when they have been written once, or could not be. ``problem`` is a sentence if they are not up to
    date.
    """

    def __init__(self, client: ApiClient, title: str) -> None:
        self._client = client
        self._title = title
        self._logger = get_logger("trioperator.webhooks")
        self._changed = Pulse()
        self._awaited: list[trio.Event] = []
        self._writing = trio.Lock()
        self._released = False
        self.tried = trio.Event()
        self.problem: str | None = None

    async def serve(self) -> None:
        """Write the objects whenever something has changed, until cancelled."""
        failures = 0
        while True:
            with trio.move_on_after(_BACKOFF.delay(failures)) if failures else trio.CancelScope():
                await self._changed.wait()
            awaited = len(self._awaited)  # changes during the write are written next
            try:
                async with self._writing:
                    await self._write()
            except (ApiError, ConnectionLostError) as error:
                failures += 1
                self.problem = f"The {self._title} are not up to date."
                delay = _BACKOFF.delay(failures)
                self._logger.error("The %s cannot be written; retrying in %g s: %s", self._title, delay, error)
            else:
                failures, self.problem = 0, None
                for event in self._awaited[:awaited]:
                    event.set()
                del self._awaited[:awaited]
            self.tried.set()

    async def release(self) -> None:
        """Write nothing more, and undo what must not outlive the operator, when the write in progress has ended.

        It can be called again, if it or the write is cancelled: what may be stored by then is undone, too.
        """
        self._released = True
        async with self._writing:
            await self._undo()

    def expect_written(self) -> trio.Event:
        """Return an event that is set when a change is written that was made just now, without a checkpoint between."""
        event = trio.Event()
        self._awaited.append(event)
        return event

    @abc.abstractmethod
    async def _write(self) -> None:
        """Write what differs from what is stored, until released. Raises ApiError and ConnectionLostError."""

    @abc.abstractmethod
    async def _undo(self) -> None:
        """Undo what must not outlive the operator, as far as it may be stored. Logs errors of requests."""
