"""Detection: what has happened to an object, told from its newest state and the last-handled one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

from trioperator.handling.cause import ChangeCause, detect_reason
from trioperator.handling.diffbase import DiffBaseStorage, encode_essence
from trioperator.handling.handler import Reason
from trioperator.handling.progress import ProgressStorage
from trioperator.model.body import Body, BodyEssence
from trioperator.model.finalizer import has_finalizer
from trioperator.runtime.table import Known

__all__ = ["Change", "Detector"]


@dataclasses.dataclass(slots=True, eq=False)
class Change:
    """Be the newest state of an object, with the cause that was detected in it."""

    cause: ChangeCause
    encoded: bytes
    finalized: bool


class Detector:
    """Detect causes, with the help of what is stored on objects and of what is remembered."""

    def __init__(self, *, progress: ProgressStorage, diffbase: DiffBaseStorage, finalizer: str) -> None:
        self._progress = progress
        self._diffbase = diffbase
        self._finalizer = finalizer

    def detect(self, known: Known) -> Change:
        """Detect what has happened to an object that has a newest state."""
        body = known.body
        assert body is not None
        view = Body(body)
        essence = self.reduce(known, view)
        encoded = encode_essence(essence)
        finalized = has_finalizer(body, self._finalizer)
        current = self._diffbase.is_current(body=view, encoded=encoded)
        if current:
            known.stripped = None
        old = essence if current else self._recall_essence(known, view, essence, encoded)
        reason = detect_reason(
            body,
            finalized=finalized,
            handled=old is not None,
            changed=not current and old != essence,
            initial=known.initial,
        )
        cause = ChangeCause(
            resource=known.table.kind.resource,
            raw=body,
            get_memo=lambda: known.memo,
            logger=known.make_logger(),
            indices=known.table.indices,
            reason=reason,
            initial=known.initial and reason is not Reason.CREATE,
            old=old,
            new=essence,
        )
        return Change(cause=cause, encoded=encoded, finalized=finalized)

    def encode(self, known: Known, body: Mapping[str, Any]) -> bytes:
        """Encode the essence of an object."""
        return encode_essence(self.reduce(known, Body(body)))

    def reduce(self, known: Known, body: Body) -> BodyEssence:
        """Reduce an object to its essence, with the fields that handlers of its kind look at."""
        fields = known.table.kind.handlers.extra_fields
        return self._progress.clear(essence=self._diffbase.build(body=body, extra_fields=fields))

    def fingerprint(self, known: Known, raw: Mapping[str, Any]) -> int:
        """Give what tells one essence of an object from another, in this process."""
        return hash(encode_essence(self.reduce(known, Body(raw))))

    def _recall_essence(
        self, known: Known, body: Body, essence: dict[str, Any], encoded: bytes
    ) -> Mapping[str, Any] | None:
        """Give the last-handled essence: from the object, or from memory where somebody has taken it off the object."""
        old = self._diffbase.fetch(body=body)
        if old is not None or known.handled is None:
            return old
        if known.stripped is None and known.handled == hash(encoded):
            known.stripped = encoded
        if known.stripped is not None:
            remembered: dict[str, Any] = msgspec.json.decode(known.stripped)
            return essence if known.stripped == encoded else remembered
        return {}
