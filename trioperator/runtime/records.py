"""Records: what is kept on objects of their handling, and what they tell of it after a restart."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from trioperator.clock import wall_now
from trioperator.handling.diffbase import AnnotationsDiffBaseStorage, DiffBaseStorage, encode_essence, is_digested
from trioperator.handling.handler_state import HandlerState
from trioperator.handling.progress import (
    AnnotationsProgressStorage,
    ProgressStorage,
    SmartProgressStorage,
    annotations_of,
    purge_annotations,
)
from trioperator.model.body import Body
from trioperator.model.patch import Patch
from trioperator.runtime.table import Known
from trioperator.runtime.unfinished import Unfinished

__all__ = ["Records"]

# Beside the records of handlers, while some have ended and others have not.
_SEEN_KEY = "seen-configuration"


class Records:
    """Keep on objects how far their handlers have come, and what was handled last.

    While some handlers have ended and others have not, the essence that the first one has seen is kept, too, where
    the progress is in annotations: a change since then has to be handled by all, also if the operator is restarted in
    between.
    """

    def __init__(self, *, progress: ProgressStorage, diffbase: DiffBaseStorage) -> None:
        self._progress = progress
        self._diffbase = diffbase
        prefix = _prefix_of(progress)
        self._seen = None if prefix is None else AnnotationsDiffBaseStorage(prefix=prefix, key=_SEEN_KEY, v1=False)

    def recall(self, known: Known, body: Body) -> tuple[dict[str, HandlerState], bytes | None]:
        """Read how far the handlers have come, and what the first one to end has seen."""
        states: dict[str, HandlerState] = {}
        for handler in known.table.kind.handlers.changes:
            states.update(self._recall_with_subhandlers(handler.id, body))
        seen = None
        if self._seen is not None and any(state.success for state in states.values()):
            essence = self._seen.fetch(body=body)
            seen = None if essence is None else encode_essence(essence)
        return states, seen

    def _recall_with_subhandlers(self, handler_id: str, body: Body) -> dict[str, HandlerState]:
        record = self._progress.fetch(key=handler_id, body=body)
        if record is None:
            return {}
        now = wall_now()
        state = HandlerState.from_record(record, now=now)
        # Only what can be a sub-handler's: nobody can make us remove other annotations.
        subrefs = tuple(ref for ref in state.subrefs if ref.startswith(f"{handler_id}/"))
        states = {handler_id: dataclasses.replace(state, subrefs=subrefs)}
        for ref in subrefs:
            record = self._progress.fetch(key=ref, body=body)
            if record is not None:
                states[ref] = HandlerState.from_record(record, now=now)
        return states

    def store(self, unfinished: Unfinished, *, body: Body, patch: Patch) -> None:
        """Have stored how far the handlers have come."""
        for handler_id, state in unfinished.states.items():
            self._progress.store(key=handler_id, record=state.to_record(), body=body, patch=patch)
        self._progress.flush()
        if self._seen is not None and unfinished.seen is not None:
            self._seen.store(body=body, patch=patch, essence=msgspec.json.decode(unfinished.seen))

    def purge(self, known: Known, *, body: Body, patch: Patch) -> None:
        """Have removed what is stored of the progress."""
        ids = [handler.id for handler in known.table.kind.handlers.changes]
        states = [state for key in ids for state in self._recall_with_subhandlers(key, body).values()]
        if known.unfinished is not None:
            states += known.unfinished.states.values()
        for key in dict.fromkeys((*ids, *(ref for state in states for ref in state.subrefs))):
            self._progress.purge(key=key, body=body, patch=patch)
        self._progress.flush()
        if self._seen is not None and annotations_of(body):
            purge_annotations([f"{self._seen.prefix}/{_SEEN_KEY}"], body=body, patch=patch)

    def conclude(self, encoded: bytes, *, body: Body, patch: Patch) -> bool:
        """Have stored that the essence which was *encoded* is handled, unless it is stored already.

        Tells whether it is kept as digests from now on, because it is too big.
        """
        if self._diffbase.is_current(body=body, encoded=encoded):
            return False
        essence: dict[str, Any] = msgspec.json.decode(encoded)
        self._diffbase.store(body=body, patch=patch, essence=essence)
        return is_digested(patch) and not is_digested(body)


def _prefix_of(progress: ProgressStorage) -> str | None:
    if isinstance(progress, SmartProgressStorage):
        return progress.prefix
    return progress.prefix if isinstance(progress, AnnotationsProgressStorage) else None
