"""Records that are stored on objects: the progress of handlers, and the last-handled configuration."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from trioperator._concurrency.clock import find_wall_shift, steady_now, wall_now
from trioperator._handling.calls.handler_state import MAX_ID, MAX_SUBREFS, HandlerState
from trioperator._handling.guard import unguarded
from trioperator._handling.storages.diffbase import (
    AnnotationsDiffBaseStorage,
    DiffBaseStorage,
    encode_essence,
    has_digests,
)
from trioperator._handling.storages.progress import (
    ProgressRecord,
    ProgressStorage,
)
from trioperator._handling.storages.seen import make_seen_storages, purge_seen
from trioperator._model.body import Body
from trioperator._model.keyed_digest import FieldDigests, reveal
from trioperator._model.lazy_object import decode_json, outline_of_json
from trioperator._model.patch import Patch
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.pokes import Pokes


class RecordStore:
    """Records on objects, read from bodies and written into patches by the storages of the operator.

    While some handlers have ended and others have not, the configuration that the first one has seen is stored, too: a
    change since then must be handled by all of them, also after a restart.

    Records also say after which last-handled configuration their cause began. Another version of the operator may have
    handled that cause without a handler, and left its records. They say nothing of the next cause. So they are removed
    when another configuration is recorded: if it was taken back later, they would count again.
    """

    def __init__(
        self,
        *,
        progress: ProgressStorage,
        diffbase: DiffBaseStorage,
        digests: FieldDigests | None = None,
        pokes: Pokes | None = None,
    ) -> None:
        self._progress = progress
        self._diffbase = diffbase
        self._digests = digests or FieldDigests()
        self._pokes = pokes or Pokes(None)
        self._is_own = unguarded(progress) is progress
        self._texts = diffbase if type(diffbase) is AnnotationsDiffBaseStorage else None
        self._seen = make_seen_storages(unguarded(progress), unguarded(diffbase))

    def may_exist(self, body: Body) -> bool:
        """Check whether there may be records on an object: mostly there are none, which is known at a glance."""
        return not self._is_own or self._progress.has_records(body=body)

    def are_left(self, body: Body) -> bool:
        """Check whether there are records on an object, as far as that is known at a glance."""
        return self._is_own and self._progress.has_records(body=body)

    def fetch(self, state: ObjectState, body: Body) -> tuple[dict[str, HandlerState], tuple[bytes, ...]]:
        """Read the states of handlers, and the configurations that those have seen that have ended: two at most.

        Where one is alone, the record of that end was held when the last process ended, or it is what some handler has
        seen last although another configuration was recorded. Then no handler may have ended since.
        """
        states: dict[str, HandlerState] = {}
        base = self._find_base(body)
        for handler in state.cache.kind.handlers.changes:
            states.update(self._fetch_with_subhandlers(state, handler.id, body, base=base))
        if states and not any(found.finished or found.retries or found.attempted for found in states.values()):
            return states, ()
        seen = (self._fetch_seen(storage, state, body) for storage in self._seen)
        return states, tuple(found for found in seen if found is not None)

    def _fetch_seen(self, storage: DiffBaseStorage, state: ObjectState, body: Body) -> bytes | None:
        fields = state.cache.kind.digested_fields
        hidden = self._digests.hide(body, fields, uid=state.uid) if fields else body
        essence = storage.fetch(body=Body(hidden) if fields else body)
        if essence is None:
            return None
        try:
            return encode_essence(reveal(essence, fields, present=body, hidden=hidden))
        except RecursionError:  # somebody else has written it
            return None

    def _find_base(self, body: Body) -> str:
        """Return a digest of the last-handled configuration that is stored on an object; empty if there is none."""
        if self._texts is not None:
            stored = self._texts.fetch_text(body=body).encode()
        else:
            try:
                stored = encode_essence(self._diffbase.fetch(body=body) or {})
            except RecursionError:  # somebody else has written it
                stored = b""
        return hashlib.blake2b(stored, digest_size=4).hexdigest() if stored.strip(b"{}") else ""

    def _fetch_with_subhandlers(
        self, state: ObjectState, handler_id: str, body: Body, *, base: str | None = None
    ) -> dict[str, HandlerState]:
        """Return the stored states of a handler and its sub-handlers.

        With the *base* of a cause, those of a former one only say which sub-handlers have records.
        """
        record = self._progress.fetch(key=handler_id, body=body)
        if record is None:
            return {}
        now, shift = wall_now(), -find_wall_shift()
        found = HandlerState.from_record(record, now=now).shift(shift)
        # Only ids of the handler's own sub-handlers: a forged record must not remove other annotations.
        subrefs = dict.fromkeys(ref for ref in found.subrefs if ref.startswith(f"{handler_id}/"))
        if base is not None and record.get("base") not in (None, base):
            return {handler_id: HandlerState(started=steady_now(), purpose=found.purpose, subrefs=tuple(subrefs))}
        states = {handler_id: _with_subrefs(found, subrefs)}
        if len(subrefs) < len(record.get("subrefs") or ()):
            text = (
                "The stored progress of the handler %r names sub-handlers that are ignored: only %d count, whose ids"
                " begin with its own and have at most %d characters."
            )
            state.make_logger().warning(text, handler_id, MAX_SUBREFS, MAX_ID)
        for ref in subrefs:
            record = self._progress.fetch(key=ref, body=body)
            if record is not None:
                states[ref] = _with_subrefs(HandlerState.from_record(record, now=now).shift(shift), subrefs)
        return states

    def store(
        self,
        state: ObjectState,
        states: Mapping[str, HandlerState],
        *,
        seen: Sequence[bytes],
        body: Body,
        patch: Patch,
    ) -> None:
        """Write the states of handlers, and what those have seen that have ended, into a patch."""
        shift, base = find_wall_shift(), self._find_base(body)
        for handler_id, handler_state in states.items():
            record: ProgressRecord = {**handler_state.shift(shift).to_record(), "base": base}
            self._progress.store(key=handler_id, record=record, body=body, patch=patch)
        self._progress.flush()
        self._pokes.store(state, body, patch)
        self.store_seen(state, seen, body=body, patch=patch)

    def store_seen(self, state: ObjectState, seen: Sequence[bytes], *, body: Body, patch: Patch) -> None:
        """Write what handlers have seen that have ended into a patch, if any has."""
        if not seen:
            return
        for storage, found in itertools.zip_longest(self._seen, seen[: len(self._seen)]):
            if found is None:
                purge_seen(storage, body=body, patch=patch)
            else:
                outlines = isinstance(storage, AnnotationsDiffBaseStorage)
                storage.store(body=body, patch=patch, essence=self._decode(state, found, outlines=outlines))

    def make_mark(self, state: ObjectState, seen: Sequence[bytes], *, body: Body) -> Patch:
        """Return a patch that says what handlers have seen, though no record of their end may be stored yet."""
        patch = Patch()
        if self._seen and self._seen[0].fetch(body=body) is None:
            self.store_seen(state, seen, body=body, patch=patch)
        return patch

    def purge(self, state: ObjectState, states: Mapping[str, HandlerState], *, body: Body, patch: Patch) -> None:
        """Remove the states of the handlers of a kind, and of those with known *states*, by a patch."""
        if not patch and not self.may_exist(body):
            return
        ids = [handler.id for handler in state.cache.kind.last_handlers.changes]
        stored = [found for key in ids for found in self._fetch_with_subhandlers(state, key, body).values()]
        subrefs = (ref for known in (*stored, *states.values()) for ref in known.subrefs)
        for key in dict.fromkeys((*ids, *subrefs)):
            self._progress.purge(key=key, body=body, patch=patch)
        self._progress.flush()
        self._pokes.purge(body, patch)
        for storage in self._seen:
            purge_seen(storage, body=body, patch=patch)

    def record_handled(
        self,
        state: ObjectState,
        configuration: bytes,
        *,
        body: Body,
        patch: Patch,
        essence: dict[str, Any] | None = None,
    ) -> bool:
        """Write a configuration into a patch as the last-handled one, unless it is stored as such already.

        *essence* is the configuration, decoded, where it is known not to be stored. Returns whether it is stored as
        digests from now on, because it is too big for annotations.
        """
        if essence is None or self._texts is None or state.cache.kind.digested_fields:
            if state.cache.kind.digested_fields:  # one that was stored without digests is not the same
                configuration = encode_essence(self._decode(state, configuration, outlines=self._texts is not None))
            if self._diffbase.is_current(body=body, encoded=configuration):
                return False
            essence = self._decode(state, configuration, outlines=self._texts is not None)
        if self.may_exist(body):
            self._progress.purge_based(body=body, patch=patch)
        self._diffbase.store(body=body, patch=patch, essence=essence)
        return has_digests(patch) and not has_digests(body)

    def _decode(self, state: ObjectState, configuration: bytes, *, outlines: bool) -> dict[str, Any]:
        """Decode a configuration to be stored: without the values of fields of which only digests are."""
        fields = state.cache.kind.digested_fields
        if not fields and outlines:
            return outline_of_json(configuration)
        essence: dict[str, Any] = decode_json(configuration)
        return dict(self._digests.hide(essence, fields, uid=state.uid)) if fields else essence


def _with_subrefs(state: HandlerState, known: Collection[str]) -> HandlerState:
    """Return the state with the known states of its sub-handlers."""
    if not state.subrefs:
        return state
    return msgspec.structs.replace(state, subrefs=tuple(ref for ref in state.subrefs if ref in known))
