"""Kopf's queue of Kubernetes Events, as far as operators use it: how many events wait to be posted."""

from __future__ import annotations

from typing import Final

from trioperator._handling.arguments.context import Recorder, current_recorder


class EventQueue:
    """The events of an operator that wait to be posted. To add events, use ``kopf.event()``."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def qsize(self) -> int:
        """Return how many events wait."""
        return self._recorder.waiting

    def empty(self) -> bool:
        """Return whether no event waits."""
        return not self.qsize()


class EventQueueVariable:
    """Substitute for Kopf's context variable."""

    name: Final = "event_queue_var"

    def get(self) -> EventQueue:
        """Return the queue of the operator whose code runs. Raises LookupError outside of operators."""
        return EventQueue(current_recorder.get())


event_queue_var: Final = EventQueueVariable()
