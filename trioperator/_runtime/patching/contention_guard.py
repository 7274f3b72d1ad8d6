"""Guard against contention: which writes of an object have to wait, as others undo them or they change nothing.

Deciding is up to :class:`Contention <trioperator._model.contention.Contention>`. Only objects that are written to
several times in a minute are watched for it; all others cost a count.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import trio

from trioperator._handling.arguments.conditions import Conditions
from trioperator._handling.arguments.context import current_recorder
from trioperator._kube.status_schemas import StatusSchemas, is_custom
from trioperator._model.contention import UNKNOWN, WINDOW, Contention, FieldSet, Limits, Verdict, list_leaves
from trioperator._model.field_managers import Attribution, find_changed_fields
from trioperator._model.fields import FieldPath, ensure, resolve
from trioperator._model.finalizer import is_deleting
from trioperator._model.patch import Patch, PatchFn, merge_patches, preview
from trioperator._model.references import build_object_reference
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.ledger import Ledger
from trioperator._runtime.patching.pending import GUARD, Contribution, PendingPatch, PendingPatches
from trioperator._runtime.result import Again, RequeueAt, Result, earlier
from trioperator.errors import TrioperatorError
from trioperator.settings import OperatorSettings

# Number of writes within a minute after which an object is watched.
_SEVERAL: Final = 3
# Limits of the objects that are watched, and whose writes are counted. More are watched if all of them have held
# writes.
_MAX_WATCHED: Final = 1000
_MAX_COUNTED: Final = 10_000
# Limit of the changed fields that are examined if functions may have changed them.
_MAX_CHANGED: Final = 1000
# Limit of the held functions of one contributor: each refers to an object, and is applied repeatedly.
_MAX_HELD: Final = 20
_CONDITION: Final = "Contended"
# Our reasons for the condition. With another reason, it belongs to somebody else.
_OURS: Final = ("ChangedByOthers", "NoEffect", "TooManyWrites")
_SETTLED: Final = "Settled"
_CALLED_BY_TIME: Final = ("Timer ", "Daemon ")


class HeldError(TrioperatorError):
    """Raised where records are not stored, as what they belong to has to wait until ``due``, on Trio's clock."""

    def __init__(self, due: float) -> None:
        super().__init__("others undo what is to be written: it is written later")
        self.due = due


class _Watched:
    """An object that is watched: its fields, and its newest state. *announces* is whether its condition is pending.

    It ``was_asked_for`` if a reconcile at once was asked for, and nothing has changed since.
    """

    __slots__ = ("announces", "body", "contention", "was_asked_for")

    def __init__(self, body: Mapping[str, Any], contention: Contention) -> None:
        self.body = body
        self.contention = contention
        self.announces = self.was_asked_for = False


class ContentionGuard:
    """Watches what is written to objects and what others do then, holds writes, and reports contention.

    Nothing needs to be asked about objects that are not ``watched``.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        pending: PendingPatches,
        ledger: Ledger,
        *,
        stopping: trio.Event,
        schemas: StatusSchemas | None = None,
    ) -> None:
        self._settings = settings
        self._pending = pending
        self.ledger = ledger
        self._stopping = stopping
        self._schemas = schemas
        self._counts: dict[ObjectState, tuple[float, int]] = {}
        self.watched: dict[ObjectState, _Watched] = {}
        self._noted: set[str] = set()  # what is in the ledger as contended

    @property
    def _own(self) -> Collection[str]:
        """The names under which this operator writes, in whatever version and by whatever replica."""
        return self.ledger.find_own_managers(self._settings.persistence.field_manager)

    # Holding.

    def split(
        self, state: ObjectState, pending: PendingPatch, body: Mapping[str, Any]
    ) -> tuple[PendingPatch, PendingPatch]:
        """Split a pending patch into what is to be stored now, and what is held. Stored values are in neither."""
        watched = self.watched[state]
        watched.contention.release()
        if not pending or pending.sent is not None or not watched.contention.contended:
            return pending, PendingPatch()
        if is_deleting(body) or state.cache.kind.retired or self._stopping.is_set():
            return pending, PendingPatch()
        now, held = list[Contribution](), dict[str, Contribution]()
        for number, contribution in enumerate(pending.contributions):
            later = FieldSet(path for other in pending.contributions[number + 1 :] for path in list_leaves(other.patch))
            rest, kept = self._split(watched.contention, contribution, body, later)
            # The functions may get the object as it is now, or with the held changes.
            held_before = PendingPatch((*held.values(), kept))
            bases = (body, preview(body, held_before)) if held_before and rest.fns else (body,)
            may_wait = contribution.by != GUARD and 0 < len(rest.fns) <= _MAX_HELD
            if may_wait and self._must_wait(watched.contention, rest.fns, bases):
                rest, kept = Contribution(rest.by, rest.patch), Contribution(kept.by, kept.patch, rest.fns)
            if rest.patch or rest.fns:
                now.append(rest)
            if kept.patch or kept.fns:
                before = held.get(kept.by, Contribution(kept.by, {}))
                merged = merge_patches(before.patch, kept.patch, onto=body)
                held[kept.by] = Contribution(kept.by, merged, (*before.fns, *kept.fns))
        return PendingPatch(now, onto=body), PendingPatch(held.values(), onto=body)

    def _split(
        self, contention: Contention, contribution: Contribution, body: Mapping[str, Any], later: FieldSet
    ) -> tuple[Contribution, Contribution]:
        """Split a contribution. Fields of *later* ones are theirs: a value that was held for long may be outdated."""
        now = trio.current_time()
        rest: dict[str, Any] = {}
        kept: dict[str, Any] = {}
        for path, value in list_leaves(contribution.patch).items():
            if not contention.is_contended(path):
                ensure(rest, path, value)
            elif later.is_related(path):
                continue
            elif resolve(body, path) == value:
                if not contention.omit(path, now):
                    ensure(rest, path, value)
            else:
                ensure(kept if contention.hold(path, now) else rest, path, value)
        return Contribution(contribution.by, rest, contribution.fns), Contribution(contribution.by, kept)

    def _must_wait(self, contention: Contention, fns: Sequence[PatchFn], bodies: Collection[Mapping[str, Any]]) -> bool:
        """Check whether functions change a contended field of any of the bodies for which it is too early."""
        changed = FieldSet(path for body in bodies for path in find_changed_fields(body, preview(body, Patch(fns=fns))))
        concerned = [verdict.path for verdict in contention.contended if changed.is_related(verdict.path)]
        return any([contention.hold(path, trio.current_time()) for path in concerned])  # noqa: C419 -- note all of them

    def due(self, state: ObjectState) -> float:
        """When an object is to be reconciled, as a write was held, or contention may be over; infinite if never."""
        watched = self.watched.get(state)  # perhaps there are too many others by now
        if watched is None:
            return math.inf
        return trio.current_time() if watched.announces else watched.contention.due

    def join(self, state: ObjectState, result: Result) -> Result:
        """Return the result of a reconcile, at the latest when a write that is held may be made.

        For what is due already, one reconcile is asked for: nothing comes of it while the object is paused.
        """
        watched = self.watched[state]
        if type(result) is Again or (due := self.due(state)) == math.inf:
            return result
        if due <= trio.current_time():
            if watched.was_asked_for:
                return result
            watched.was_asked_for = True
        return earlier(result, RequeueAt(due))

    def find_body(self, state: ObjectState) -> Mapping[str, Any] | None:
        """Return the newest state of an object for which a write is held, or contention is to be announced."""
        watched = self.watched.get(state)
        return None if watched is None or self._pending.get(state) is None else watched.body

    # Watching.

    async def prepare(self, state: ObjectState) -> None:
        """Find out whether objects of a kind have conditions, before there is something to say of them.

        Of kinds without handlers of changes or of reconciles, nothing but what handlers want is written to the status.
        """
        handlers, resource = state.cache.kind.handlers, state.cache.kind.resource
        if self._schemas is not None and (handlers.changes or handlers.reconciles):
            with contextlib.suppress(TrioperatorError):  # it is asked for again
                await self._schemas.has_conditions(resource)

    def note_stored(
        self, state: ObjectState, sent: PendingPatch, *, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> None:
        """Note what was stored on an object. It is watched from now on if that happens repeatedly."""
        watched = self.watched.get(state)
        if watched is None:
            if not sent.contributions or not self._is_busy(state):
                return
            watched = self._watch(state, before)
        now, fields = trio.current_time(), self._list_written(sent, watched.body, after)
        others = self._find_edits(watched, after, without=fields)
        watched.contention.changed(others, now)
        watched.body, watched.was_asked_for = after, False
        if watched.announces and any(item.by == GUARD for item in sent.contributions):
            watched.announces = False
        changed = _version(before) != _version(after)
        counts = not all(item.by.startswith(_CALLED_BY_TIME) for item in sent.contributions)
        if fields:
            self._report(state, watched, watched.contention.wrote(fields, now, changed=changed, counts=counts))

    def _is_busy(self, state: ObjectState) -> bool:
        """Count a write, and check whether there were several lately."""
        if not self._settings.contention.enabled:
            return False
        now = self.ledger.now()
        since, count = self._counts.get(state, (now, 0))
        if now - since > WINDOW:
            since, count = now, 0
        if len(self._counts) >= _MAX_COUNTED:
            self._counts.clear()
        self._counts[state] = since, count + 1
        return count + 1 >= _SEVERAL

    def _watch(self, state: ObjectState, body: Mapping[str, Any]) -> _Watched:
        if len(self.watched) >= _MAX_WATCHED:
            others = (each for each in self.watched if not self._pending.get(each))  # else what is held would be lost
            if (oldest := next(others, None)) is not None:
                self.forget(oldest)
        given = self._settings.contention
        writes = math.inf if given.writes is None else given.writes
        limits = Limits(flips=given.flips, unchanged=given.unchanged_writes, writes=writes, interval=given.interval)
        self._counts.pop(state, None)
        watched = self.watched[state] = _Watched(body, Contention(limits))
        return watched

    def _list_written(
        self, sent: PendingPatch, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> dict[FieldPath, None]:
        """Return the fields that handlers have written, without those that the guard itself has written."""
        fields = dict.fromkeys(path for item in sent.contributions for path in list_leaves(item.patch))
        if any(item.fns and item.by != GUARD for item in sent.contributions):
            attribution = Attribution(before, after, own=self._own)
            changed = itertools.islice(find_changed_fields(before, after), _MAX_CHANGED)
            own = self._own
            # A removed field has no manager: it was this write that has removed it.
            fields |= dict.fromkeys(
                path for path in changed if (manager := attribution.find(path)) is None or manager in own
            )
        return fields

    def observe(self, state: ObjectState) -> None:
        """Note what others have changed, as the newest state of an object has it, and what is over."""
        watched = self.watched.get(state)
        if watched is None:
            return
        if state.body is not None and state.body is not watched.body:
            watched.contention.changed(self._find_edits(watched, state.body), trio.current_time())
            watched.body, watched.was_asked_for = state.body, False
        if not self._pending.get(state):
            watched.contention.release()
        self._report(state, watched, watched.contention.calm_down(trio.current_time()))
        # Held changes are still pending: the reconcile that stores them needs the body that is kept here.
        if watched.contention.is_over and not watched.announces and not self._pending.get(state):
            del self.watched[state]

    def _find_edits(
        self, watched: _Watched, after: Mapping[str, Any], *, without: Collection[FieldPath] = ()
    ) -> Iterator[tuple[FieldPath, str]]:
        """Yield the fields that others have changed since the last known state, with their managers.

        Who has removed a field may be unknown. It was not the operator, whose own writes are known by their responses.
        """
        own, written = self._own, FieldSet(without)
        attribution = Attribution(watched.body, after, own=own)
        changed = (path for path in find_changed_fields(watched.body, after) if not written.is_related(path))
        for path in watched.contention.choose(changed):
            manager = attribution.find(path)
            if manager not in own:
                yield path, manager or UNKNOWN

    def forget(self, state: ObjectState) -> None:
        """Forget an object that is gone, or is no longer handled."""
        self._counts.pop(state, None)
        if self.watched.pop(state, None) is not None:
            self._forget(state.uid)

    # Reporting.

    def _report(self, state: ObjectState, watched: _Watched, verdicts: Collection[Verdict]) -> None:
        """Report where contention has begun or ended: in the log, as an Event, as a condition, and for metrics."""
        for verdict in verdicts:
            text = f"{verdict}."
            if not verdict.ended:
                text += f" It is written at most every {self._settings.contention.interval:g} seconds until that ends."
            log = state.make_logger().info if verdict.ended else state.make_logger().warning
            log("%s", text)
            self._post(watched.body, text, verdict)
        if verdicts:
            self._note(state, state.uid, watched.contention.contended)
            watched.announces = self._announce(state, watched.body)

    async def note_children(self, state: ObjectState, contended: Collection[Verdict]) -> None:
        """Note which fields of an object's children others change repeatedly, and set the object's condition."""
        key = _key_of_children(state)
        if contended or key in self.ledger.contended:
            await self.prepare(state)
            self._note(state, key, contended)
            self._announce(state, state.body or {})

    def forget_children(self, state: ObjectState) -> None:
        """Forget the children of an object that is gone, or is no longer handled."""
        self._forget(_key_of_children(state))

    def _note(self, state: ObjectState, key: str, contended: Collection[Verdict]) -> None:
        if contended:
            self.ledger.contended[key] = state.subject, tuple(contended)
            self._noted.add(key)
        else:
            self._forget(key)

    def _forget(self, key: str) -> None:
        self.ledger.contended.pop(key, None)
        self._noted.discard(key)

    def close(self) -> None:
        """Forget what is contended, as nothing is written here any longer. The next writer notices it again."""
        for key in tuple(self._noted):
            self._forget(key)

    def settle(self, state: ObjectState) -> None:
        """End the condition of an object that is not contended as far as is known: an earlier process has left it."""
        assert state.body is not None
        if _find_condition(state.body).get("status") == "True" and not self._find_contended(state):
            self._announce(state, state.body)

    def _post(self, body: Mapping[str, Any], text: str, verdict: Verdict) -> None:
        recorder = current_recorder.get(None)
        if recorder is None or not recorder.posting.enabled:
            return
        kind, reason = ("Normal", "ContentionEnded") if verdict.ended else ("Warning", "Contended")
        with contextlib.suppress(KeyError, ValueError):  # a body without a name
            recorder.record(build_object_reference(body), type=kind, reason=reason, message=text, backoffs=None)

    def _find_contended(self, state: ObjectState) -> list[Verdict]:
        """Return which fields of an object and of its children are contended."""
        found = (self.ledger.contended.get(key) for key in (state.uid, _key_of_children(state)))
        return [verdict for entry in found if entry is not None for verdict in entry[1]]

    def _announce(self, state: ObjectState, body: Mapping[str, Any]) -> bool:
        """Let the condition of an object be set, if its kind has conditions. Returns whether it is to be stored."""
        resource, contended = state.cache.kind.resource, self._find_contended(state)
        is_present = isinstance((body.get("status") or {}).get("conditions"), list | tuple)
        is_known = self._schemas is not None and self._schemas.is_known(resource)
        if not (is_custom(resource) and (is_present or is_known)):
            return False  # conditions of built-in kinds belong to their controllers
        if _find_condition(body).get("reason") not in (None, *_OURS, _SETTLED):
            return False
        patch = Patch()
        conditions = Conditions(body, patch)
        if contended:
            message = "; ".join(map(str, contended))
            conditions.set(_CONDITION, True, reason=contended[0].reason, message=message)
        else:
            conditions.set(_CONDITION, False, reason=_SETTLED, message="")
        return self._pending.contribute(state, {}, patch.fns, by=GUARD, logger=state.make_logger())


def _key_of_children(state: ObjectState) -> str:
    """Return under which key the ledger has the contended fields of an object's children."""
    return f"{state.uid}/children"


def _find_condition(body: Mapping[str, Any]) -> Mapping[str, Any]:
    found = (body.get("status") or {}).get("conditions")
    for each in found if isinstance(found, list | tuple) else ():
        if isinstance(each, Mapping) and each.get("type") == _CONDITION:
            return each
    return {}


def _version(body: Mapping[str, Any]) -> Any:
    return (body.get("metadata") or {}).get("resourceVersion")
