"""Causes: made here and nowhere else, from the states of objects and from what is stored and remembered of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Final, TypeVar

import msgspec

from trioperator._concurrency.clock import steady_now
from trioperator._handling.arguments.cause import ChangeCause, ObjectCause, detect_reason
from trioperator._handling.calls.handler_state import HandlerState
from trioperator._handling.handlers.handler import Reason
from trioperator._handling.storages.diffbase import AnnotationsDiffBaseStorage, DiffBaseStorage, encode_essence
from trioperator._handling.storages.progress import (
    AnnotationsProgressStorage,
    ProgressStorage,
    SmartProgressStorage,
    annotations_of,
    without_annotations,
)
from trioperator._model.body import Body, BodyEssence
from trioperator._model.finalizer import has_finalizer
from trioperator._model.keyed_digest import FieldDigests, reveal
from trioperator._model.lazy_object import are_equal, conserve, conserve_part, is_outlined, outline_of, rest_huge
from trioperator._runtime.cache.object_state import ObjectState

TITLES: Final[Mapping[Reason, str]] = {
    Reason.CREATE: "creation",
    Reason.UPDATE: "updating",
    Reason.DELETE: "deletion",
    Reason.RESUME: "resuming",
}

#: Function that returns the last-handled configuration of an object, given the stored one and the encoded current one.
Recall = Callable[[ObjectState, Mapping[str, Any] | None, bytes], Mapping[str, Any] | None]


AnyCause = TypeVar("AnyCause", bound=ObjectCause)


class Change(msgspec.Struct, frozen=True, eq=False):
    """The newest state of an object, with the cause that was detected in it.

    ``revision`` is the state's: the cause is out of date once the object has another. ``encoded`` is its essence,
    ``current`` whether that is stored on it as the last-handled configuration, ``finalized`` whether it has our
    finalizer.
    """

    cause: ChangeCause
    revision: int
    encoded: bytes
    current: bool
    finalized: bool


class Essences:
    """Essences of objects: what counts as a change of them, without what operators store on them."""

    def __init__(
        self, *, progress: ProgressStorage, diffbase: DiffBaseStorage, ignored: Set[str] = frozenset()
    ) -> None:
        self._progress = progress
        self._diffbase = diffbase
        self._ignored = ignored  # annotations that are no change of an object
        self._takes_outlines = type(diffbase) is AnnotationsDiffBaseStorage and (
            type(progress) in (AnnotationsProgressStorage, SmartProgressStorage) and not diffbase.has_ignored_fields
        )

    def view(self, state: ObjectState, body: Mapping[str, Any]) -> Body:
        """Return what the essence of an object can be told from: the outline of a huge one, if that is enough."""
        fields = state.cache.kind.handlers.extra_fields
        if is_outlined(body) and self._takes_outlines and all(path[:1] != ("status",) for path in fields):
            return Body(outline_of(body))
        return Body(body)

    def reduce(self, state: ObjectState, body: Body) -> BodyEssence:
        """Return the essence of an object, with the fields that handlers of its kind use."""
        fields = state.cache.kind.handlers.extra_fields
        essence = self._progress.clear(essence=self._diffbase.build(body=body, extra_fields=fields))
        return (
            without_annotations(essence, self._ignored & annotations_of(essence).keys()) if self._ignored else essence
        )

    def encode(self, state: ObjectState, body: Mapping[str, Any]) -> bytes:
        """Return the essence of an object, encoded: equal essences have equal bytes."""
        return encode_essence(self.reduce(state, self.view(state, body)))

    def find_other(self, state: ObjectState, body: Mapping[str, Any], *, expected: Mapping[str, Any]) -> bytes | None:
        """Return the encoded essence of an object if it is not as *expected* after a write: others have changed it."""
        found = self.encode(state, body)
        return None if found == self.encode(state, expected) else found

    def digest(self, state: ObjectState, body: Mapping[str, Any]) -> int:
        """Return a hash of the essence of an object, for this process."""
        return hash(self.encode(state, body))


class CauseFactory:
    """Makes the causes of change handlers, from the newest state of an object and the last-handled one."""

    def __init__(
        self,
        essences: Essences,
        *,
        diffbase: DiffBaseStorage,
        finalizer: str | None,
        digests: FieldDigests | None = None,
    ) -> None:
        self._essences = essences
        self._diffbase = diffbase
        self._finalizer = finalizer
        self._digests = digests or FieldDigests()

    def detect_change(self, state: ObjectState, recall: Recall, *, withheld: bool = False) -> Change:
        """Detect what has happened to an object, by its newest state and the last-handled one.

        The stored one is older than that while a newer one is *withheld*: the object may have been changed back to it.
        """
        body = state.body
        assert body is not None
        digested = state.cache.kind.digested_fields
        view = Body(body) if digested else self._essences.view(state, body)
        essence = self._essences.reduce(state, view)
        encoded = encode_essence(essence)
        finalized = has_finalizer(body, self._finalizer)
        if digested:
            is_stored, stored = self._compare_digested(state, essence)
        else:
            is_stored, stored = self._diffbase.compare(body=view, encoded=encoded)
        current = is_stored and not withheld
        old = essence if current else recall(state, essence if is_stored else stored, encoded)
        reason = detect_reason(
            body,
            finalized=finalized,
            handled=old is not None,
            changed=not current and not (are_equal(old, essence) if is_outlined(body) else old == essence),
            initial=state.initial,
        )
        initial = state.initial and reason is not Reason.CREATE
        new = conserve_part(essence, like=body, raw=encoded)
        old = new if old is essence else conserve(old, like=body) if old else old
        rest_huge(body, old, new)
        detected = {"reason": reason, "initial": initial, "old": old, "new": new, "encoded": encoded}
        cause = make_cause(ChangeCause, state, body, local=False, **detected)
        return Change(cause, state.revision, encoded, current, finalized)

    def _compare_digested(self, state: ObjectState, essence: BodyEssence) -> tuple[bool, Mapping[str, Any] | None]:
        """Return whether the last-handled configuration is the current one, and what it is unless it is.

        Values are only known of fields that have not changed since. One that was stored without digests is not current.
        """
        body, fields = state.body, state.cache.kind.digested_fields
        assert body is not None
        hidden = self._digests.hide(body, fields, uid=state.uid)
        encoded = encode_essence(self._digests.hide(essence, fields, uid=state.uid))
        is_current, stored = self._diffbase.compare(body=Body(hidden), encoded=encoded)
        return is_current, None if stored is None else reveal(stored, fields, present=body, hidden=hidden)

    def make_deletion_cause(self, state: ObjectState) -> ChangeCause:
        """Return the cause of the optional delete handlers of an object that is gone, from its last state."""
        body = state.body
        assert body is not None
        essence = conserve(self._essences.reduce(state, self._essences.view(state, body)), like=body)
        found = {"reason": Reason.DELETE, "initial": False, "old": essence, "new": essence}
        return make_cause(ChangeCause, state, body, local=False, **found)


def make_cause(
    cls: type[AnyCause], state: ObjectState, body: Mapping[str, Any], *, local: bool = True, **own: Any
) -> AnyCause:
    """Return the cause of handlers of an object, whose logs are no Kubernetes Events if they are *local*.

    *own* is what only this class of causes has.
    """
    return cls(
        resource=state.cache.kind.resource,
        raw=body,
        get_memo=state.get_memo,
        logger=state.make_logger(local=local),
        indices=state.cache.shared.indices,
        **own,
    )


def report_begin(cause: ChangeCause, states: Iterable[HandlerState]) -> None:
    """Log that a cause is handled, if any of its handlers is due."""
    now = steady_now()
    if any(state.is_due(now) for state in states):
        version = (cause.raw.get("metadata") or {}).get("resourceVersion")
        cause.logger.debug("%s is in progress: version %s.", TITLES[cause.reason].capitalize(), version)
