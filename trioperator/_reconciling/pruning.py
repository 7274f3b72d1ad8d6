"""Pruning: deletion of the children that no handler desires.

Only children of the object are deleted that were applied by this operator's field manager, and of these only those that
a handler of this operator claims which matches the object, and whose desired children are all there. What cannot be
applied, but exists as it was before, holds up only the children that it names: nothing else can need them. Those that
an earlier release has applied have no claim: they count as the handler's when it is called for the first time, unless
other children of the object have its claim already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import trio

from trioperator._handling.arguments.reconciling import ReconcileCause, ReconcileHandler
from trioperator._kube.api_client import ApiClient
from trioperator._kube.objects import parse_object
from trioperator._logs import Logger
from trioperator._reconciling.claims import claim_of, is_named
from trioperator._reconciling.failures import ChildrenError
from trioperator._reconciling.loop_guard import LoopGuard
from trioperator._reconciling.manifests import Manifest
from trioperator._reconciling.related import RelatedRecord
from trioperator._reconciling.schedules import ChildKey, HandlerSchedule, ObjectSchedule, Place
from trioperator._reconciling.watches import RelatedKind, RelatedWatches
from trioperator._runtime.patching.requests import is_about_uid
from trioperator.errors import ConflictError, NotFoundError, PausedError, TrioperatorError


async def delete_child(
    client: ApiClient, kind: RelatedKind, record: RelatedRecord, *, logger: Logger, why: str
) -> None:
    """Delete a child, unless another object has its name by now. Raises TrioperatorError if that is refused."""
    path = kind.resource.get_path(record.namespace or None, record.name)
    body = {"preconditions": record.identity, "propagationPolicy": "Background"}
    try:
        await client.delete(path, body=body)
    except NotFoundError as error:
        if not error.details:  # its kind is not served just now
            raise
    except ConflictError as error:
        if not is_about_uid(error):
            raise
    kind.note_deletion(record)
    logger.info("%s is deleted: %s.", _key_of(kind, record), why)


_RETURNED: Final = (
    "%s was deleted, as it is no longer desired, and has come back: another program applies it, also with the field"
    " manager %r (%s). Give each operator its own settings.persistence.field_manager. The child is %s."
)


#: Function that raises PausedError if the children of an object must no longer be changed.
Check: TypeAlias = Callable[[], None]


class Pruner:
    """Deletes the children of objects that no handler desires."""

    def __init__(self, client: ApiClient, watches: RelatedWatches) -> None:
        self._client = client
        self._watches = watches

    def find_unclaimed(self, handler: ReconcileHandler, cause: ReconcileCause) -> frozenset[str]:
        """Return the uids of the children without a claim, if the handler has claimed none of the object's yet."""
        owner, claim = cause.raw["metadata"], self._claim_of(handler)
        records = [record for kind in self._watches.kinds_of(handler) for record in kind.owned_by(owner)]
        if any(record.claim == claim for record in records):
            return frozenset()
        return frozenset(record.uid for record in records if record.claim is None)

    async def find_independent(
        self,
        handler: ReconcileHandler,
        failed: Sequence[Manifest],
        cause: ReconcileCause,
        schedule: HandlerSchedule,
    ) -> frozenset[Place]:
        """Return the undesired children that the *failed* ones, which are as they were before, do not name.

        There are none if one of the failed is not there yet: others may have to stay in its place.
        """
        owner = cause.raw["metadata"]
        desired = {key.place for key in schedule.children.desired or ()}
        kinds = self._watches.kinds_of(handler)
        keys = [_key_of(kind, record) for kind in kinds for record in kind.owned_by(owner)]
        undesired = [key for key in keys if key.place not in desired]
        if not undesired or not all(_is_there(manifest, owner["uid"]) for manifest in failed):
            return frozenset()
        try:
            bodies = [parse_object(await self._client.request("GET", each.path)).decode() for each in failed]
        except PausedError:
            raise
        except TrioperatorError:
            return frozenset()  # what they name is not known
        return frozenset(key.place for key in undesired if not any(_names(body, key) for body in bodies))

    async def prune(
        self,
        handlers: Sequence[ReconcileHandler],
        *,
        cause: ReconcileCause,
        schedule: ObjectSchedule,
        own: HandlerSchedule,
        check: Check,
    ) -> None:
        """Delete what no handler desires. *handlers* are all of the object's kind, also those that do not match.

        *check* is called before each deletion: it raises PausedError as soon as no more children are to be written.
        Raises ChildrenError when all has been tried. *own* is due again when what has come back may be deleted.
        """
        problems: list[tuple[str, TrioperatorError]] = []
        for kind, record in self._find(handlers, cause, schedule):
            key = _key_of(kind, record)
            if not self._may_repeat(key, record, cause=cause, deletions=schedule.deletions, own=own):
                continue
            check()
            try:
                why = "it is no longer desired"
                await delete_child(self._client, kind, record, logger=cause.logger, why=why)
            except PausedError:
                raise
            except TrioperatorError as error:
                problems.append((f"{key} cannot be deleted, though it is no longer desired", error))
            else:
                schedule.deletions.done(key.place, trio.current_time())
        if problems:
            raise ChildrenError(problems)

    def _find(
        self, handlers: Sequence[ReconcileHandler], cause: ReconcileCause, schedule: ObjectSchedule
    ) -> Iterator[tuple[RelatedKind, RelatedRecord]]:
        kept = {key.place for key in schedule.find_kept()}
        schedule.deletions.forget(kept)
        kinds = {kind: None for handler in schedule.handlers for kind in self._watches.kinds_of(handler)}
        for kind in kinds:
            for record in list(kind.owned_by(cause.raw["metadata"])):
                if record.fields is None or record.deleting or _key_of(kind, record).place in kept:
                    continue
                if self._is_abandoned(record, kind, handlers=handlers, schedule=schedule):
                    yield kind, record

    def _is_abandoned(
        self,
        record: RelatedRecord,
        kind: RelatedKind,
        *,
        handlers: Sequence[ReconcileHandler],
        schedule: ObjectSchedule,
    ) -> bool:
        """Check whether a child that no handler desires was applied by one that has settled without it."""
        owners = [own for handler in kind.owners if (own := schedule.get(handler)) is not None]
        if any(own.children.desired is None for own in owners):
            return False  # they may desire it, too
        matching = schedule.handlers
        same = {(handler.fn, handler.id) for handler in matching}  # a handler that is declared twice is one
        absent = {self._claim_of(each) for each in handlers if (each.fn, each.id) not in same and each in kind.owners}
        if record.claim in absent:
            return False  # children of handlers that do not match stay
        place = _key_of(kind, record).place
        claimants = [schedule.get(handler) for handler in matching if self._claim_of(handler) == record.claim]
        if claimants:
            return all(own is not None and own.children.has_settled_without(place) for own in claimants)
        if absent or not all(own.children.has_settled_without(place) for own in owners):
            return False
        if record.claim is None:
            return any(record.uid in (own.children.unclaimed or ()) for own in owners)
        return self._is_of_former_handler(record.claim, kind)

    def _is_of_former_handler(self, claim: str, kind: RelatedKind) -> bool:
        """Check whether a claim is of a handler that this operator has had, before it was renamed or removed."""
        manager = self._client.settings.persistence.field_manager
        if not (is_named(manager) and claim.startswith(f"{manager}/")):
            return False
        return all(self._claim_of(handler) != claim for handler in kind.owners)  # one may be for another version

    def _claim_of(self, handler: ReconcileHandler) -> str:
        return claim_of(handler, self._client.settings.persistence.field_manager)

    def _may_repeat(
        self, key: ChildKey, record: RelatedRecord, *, cause: ReconcileCause, deletions: LoopGuard, own: HandlerSchedule
    ) -> bool:
        """Check whether a child that was deleted before, and has come back, may be deleted again now; warn of it."""
        now, due = trio.current_time(), deletions.next(key.place)
        if due <= now:
            return True
        if due < math.inf:
            own.recheck = due if own.recheck is None else min(own.recheck, due)
        if deletions.report(key.place):
            fate = f"deleted again in {due - now:.0f} seconds" if due < math.inf else "left until the operator restarts"
            cause.logger.warning(_RETURNED, key, self._client.settings.persistence.field_manager, record.claim, fate)
        return False


def _is_there(manifest: Manifest, uid: str) -> bool:
    """Check whether a child of the object with this uid exists, as it was applied before."""
    record = manifest.find()
    return record is not None and not record.deleting and record.fields is not None and uid in record.owners


def _names(value: Any, key: ChildKey) -> bool:
    """Check whether a body has the name of a child anywhere but in its metadata and in references to other kinds."""
    if isinstance(value, Mapping):
        kind = value.get("kind")
        if isinstance(kind, str) and value.get("name") == key.name and "metadata" not in value:
            return kind == key.resource.kind
        return any(_names(item, key) for field, item in value.items() if field != "metadata")
    if isinstance(value, list):
        return any(_names(item, key) for item in value)
    return bool(value == key.name)


def _key_of(kind: RelatedKind, record: RelatedRecord) -> ChildKey:
    return ChildKey(kind.resource, record.namespace, record.name)
