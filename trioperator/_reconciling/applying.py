"""Applying of desired children."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import trio

from trioperator._handling.arguments.reconciling import ReconcileCause, ReconcileHandler
from trioperator._handling.handlers.children import Child, Desired
from trioperator._kube.api_client import ApiClient, Params
from trioperator._kube.objects import parse_object
from trioperator._model.contention import UNKNOWN, Verdict
from trioperator._model.field_managers import Attribution, format_field
from trioperator._model.patch import find_unmet
from trioperator._reconciling.claims import claim_of
from trioperator._reconciling.failures import ChildrenError, LoopError, UnservedNamespaceError
from trioperator._reconciling.manifests import Manifest, is_as_desired, is_ready
from trioperator._reconciling.preparing import Preparer
from trioperator._reconciling.pruning import Check, Pruner
from trioperator._reconciling.recreating import make_room
from trioperator._reconciling.related import RelatedRecord, read_record
from trioperator._reconciling.rollouts import Rollout
from trioperator._reconciling.schedules import Applied, ChildKey, HandlerSchedule
from trioperator._reconciling.watches import RelatedWatches
from trioperator._runtime.ledger import Ledger
from trioperator._runtime.patching.requests import is_about_uid
from trioperator.client.adoption import CREATE_ONLY
from trioperator.errors import (
    ConflictError,
    ForeignChildError,
    InvalidError,
    NotFoundError,
    PausedError,
    TrioperatorError,
)

_APPLY_PATCH: Final = "application/apply-patch+yaml"
# Number of fields of a child that an error names, and the fields that only identify the object.
_MAX_NAMED: Final = 5
_IDENTITY: Final = ("apiVersion", "kind")
# Seconds after which the watches of a new namespace should have begun.
_NAMESPACE_DELAY: Final = 5.0


class Applier:
    """Makes the children of objects what reconcile handlers desire. A child that is as it was applied costs nothing.

    *handled* are the uids of the objects that are handled here: a missing child that one of them has is on its way.
    """

    def __init__(self, client: ApiClient, watches: RelatedWatches, ledger: Ledger, *, handled: Container[str]) -> None:
        self._client = client
        self._ledger = ledger
        self._handled = handled
        self._preparer = Preparer(client, watches)
        self.pruner = Pruner(client, watches)

    async def apply(
        self,
        desired: Desired,
        handler: ReconcileHandler,
        *,
        cause: ReconcileCause,
        schedule: HandlerSchedule,
        check: Check,
    ) -> None:
        """Apply the desired children of an object, each after those that it depends on.

        A child that fails does not hold up others that are independent of it. Raises ChildrenError at the end;
        ConfigError, TypeError or ValueError before anything is applied, for a child that can never be.

        *check* is called before each child: it raises PausedError as soon as no more children are to be written.
        """
        manifests = self._preparer.prepare(desired, handler, cause)
        expected = self._desire([manifest.key for manifest in manifests.values()], handler, cause, schedule)
        present, ready, ending = set[Child](), set[Child](), set[str]()
        problems: list[tuple[str, TrioperatorError]] = []
        for child in Rollout(manifests, schedule).order(_sort(list(manifests))):
            manifest = manifests[child]
            if manifest.key.namespace in ending or not ready.issuperset(child.depends_on):
                continue  # what it waits for calls the handler again
            check()
            try:
                record = await self._apply_one(manifest, cause, schedule)
                if record is not None:
                    present.add(child)
                    if is_ready(record, manifest):
                        ready.add(child)
                elif manifest.key.resource.plural == "namespaces":
                    ending.add(manifest.key.name)
            except PausedError:
                raise
            except TrioperatorError as error:
                if _is_problem(error, manifest, schedule, expected):
                    problems.append((f"{manifest.key} cannot be applied", error))
        missing = [manifest for child, manifest in manifests.items() if child not in present]
        self._settle(missing, schedule)
        schedule.children.unready = tuple(manifests[child].key for child in manifests if child in present - ready)
        if problems:
            if len(problems) == len(missing):  # none waits
                schedule.children.release(await self.pruner.find_independent(handler, missing, cause, schedule))
            raise ChildrenError(problems)

    def _desire(
        self, keys: Sequence[ChildKey], handler: ReconcileHandler, cause: ReconcileCause, schedule: HandlerSchedule
    ) -> frozenset[str]:
        """Note what is desired; return the namespaces among it that should be served soon."""
        if schedule.children.unclaimed is None:
            schedule.children.unclaimed = self.pruner.find_unclaimed(handler, cause)
        namespaces = frozenset(key.name for key in keys if key.resource.plural == "namespaces")
        expected = namespaces - schedule.children.unserved
        schedule.children.desire(frozenset(keys))
        return expected

    def _settle(self, missing: Sequence[Manifest], schedule: HandlerSchedule) -> None:
        moving = [manifest.key for manifest in missing if self._is_moving(manifest)]
        schedule.children.settle(tuple(manifest.key for manifest in missing), moving=moving)

    def _is_moving(self, manifest: Manifest) -> bool:
        """Check whether a child belongs to another object of the same handler, which is going to delete it there."""
        record, writer, manager = manifest.find(), manifest.writer, self._client.settings.persistence.field_manager
        if record is None or writer.uid in record.owners or not any(uid in self._handled for uid in record.owners):
            return False
        return record.claim == claim_of(writer.handler, manager)

    async def _apply_one(
        self, manifest: Manifest, cause: ReconcileCause, schedule: HandlerSchedule
    ) -> RelatedRecord | None:
        """Apply a child, if it is not as it was applied. Returns None while it is deleted first."""
        key, record, applied = manifest.key, manifest.find(), schedule.children.applied.get(manifest.key)
        if record is not None:
            if record.deleting:  # perhaps with a former owner of this name
                schedule.children.blocked.add((key.namespace, key.name))
                return None  # the handler is called again when it is gone
            _check_owner(record, manifest, cause, applied)
        if is_as_desired(record, manifest, applied):
            return record
        is_repair = applied is not None and applied.desired == hash(manifest.body)
        if is_repair:
            await self._check_loop(manifest, record, schedule)
        try:
            written = await self._send(manifest, record)
        except (ConflictError, InvalidError) as error:
            unseen = await self._resolve(error, manifest, record, cause=cause, applied=applied)
            if unseen is None:
                return None  # the handler is called again when it is gone
            if manifest.strategy == "on_delete":
                return None if unseen.deleting else unseen
            written = await self._send(manifest, unseen)
        schedule.children.applied[key] = Applied(written.uid, hash(manifest.body), written.fields)
        if is_repair:
            schedule.children.repairs.done(key, trio.current_time())
        cause.logger.info("%s is applied.", key)
        return written

    async def _check_loop(self, manifest: Manifest, record: RelatedRecord | None, schedule: HandlerSchedule) -> None:
        """Raise LoopError if a child must wait, as others repeatedly undo what is applied."""
        due = schedule.children.repairs.next(manifest.key)
        if due <= trio.current_time():
            return
        count = schedule.children.repairs.count(manifest.key) + 1
        contended = [] if record is None else await self._find_contended(manifest)
        who = ", ".join(f"{format_field(each.path)} by {each.manager}" for each in contended)
        raise LoopError(
            f"others have {'deleted' if record is None else 'changed'} it {count} times, each time soon after it was"
            f" applied{f': {who}' if who else ''}. Two programs want it to be different things: let only one of them"
            " apply it",
            due=due,
            contended=contended,
        )

    async def _find_contended(self, manifest: Manifest) -> list[Verdict]:
        """Return which fields of a child are not as desired, and who has changed them; none if that cannot be read."""
        try:
            found = parse_object(await self._client.request("GET", manifest.path)).decode()
        except TrioperatorError:
            return []
        desired = {key: value for key, value in msgspec.json.decode(manifest.body).items() if key not in _IDENTITY}
        fields = [path for path in find_unmet(desired, found) if path[:2] != ("metadata", "ownerReferences")]
        own = self._ledger.find_own_managers(self._client.settings.persistence.field_manager)
        attribution = Attribution({}, found, own=own)
        managers = {path: attribution.find(path) or UNKNOWN for path in fields[:_MAX_NAMED]}
        return [
            Verdict(path=path, reason="ChangedByOthers", manager=manager, child=str(manifest.key))
            for path, manager in managers.items()
            if manager not in own
        ]

    async def _resolve(
        self,
        error: ConflictError | InvalidError,
        manifest: Manifest,
        record: RelatedRecord | None,
        *,
        cause: ReconcileCause,
        applied: Applied | None,
    ) -> RelatedRecord | None:
        """Return the child that was in the way of its creation, as the watch has not shown it.

        Returns None if the known child is gone, or has to make room. Raises ForeignChildError if what is in the way
        belongs to somebody else; otherwise, the error itself.
        """
        if record is None:
            found = await self._find_unseen(manifest, cause, applied) if isinstance(error, ConflictError) else None
            if found is None:
                raise error
            return found
        if is_about_uid(error):
            return None
        if manifest.strategy != "recreate" or not isinstance(error, InvalidError):
            raise error
        await make_room(self._client, manifest, record, cause)
        return None

    async def _find_unseen(
        self, manifest: Manifest, cause: ReconcileCause, applied: Applied | None
    ) -> RelatedRecord | None:
        """Return a child that the watch has not shown: it lacks the labels that are watched, or the watch is late."""
        try:
            found = parse_object(await self._client.request("GET", manifest.path))
        except NotFoundError:
            return None
        manager = self._client.settings.persistence.field_manager
        record = read_record(found, manager=manager, whole=manifest.kind.whole)
        _check_owner(record, manifest, cause, applied)
        return record

    async def _send(self, manifest: Manifest, known: RelatedRecord | None) -> RelatedRecord:
        """Apply a child server-side: to the *known* object, whose fields are taken over from others; or create it."""
        manager = self._client.settings.persistence.field_manager
        params: Params = {"fieldManager": manager, "force": known is not None}
        cache = manifest.cache
        if cache is None:
            raise UnservedNamespaceError(f"the operator does not serve the namespace {manifest.key.namespace}")
        body = msgspec.json.decode(manifest.body)
        body["metadata"] |= CREATE_ONLY if known is None else known.identity
        encoded = msgspec.json.encode(body)
        with cache.writing(manifest.writer) as write:
            data = await self._client.request(
                "PATCH", manifest.path, params=params, body=encoded, content_type=_APPLY_PATCH
            )
            return cache.take_written(data, write)


def _is_problem(
    error: TrioperatorError, manifest: Manifest, schedule: HandlerSchedule, expected: Container[str]
) -> bool:
    """Note what calls the handler again as soon as an error is over.

    Returns False if that is about to happen: the namespaces *expected* are children themselves.
    """
    namespace = manifest.key.namespace
    if isinstance(error, ForeignChildError):
        schedule.children.blocked.add((namespace, manifest.key.name))
    elif isinstance(error, UnservedNamespaceError):
        schedule.children.unserved |= {namespace}
        if namespace in expected:  # it is a child, about to be served
            schedule.recheck = trio.current_time() + _NAMESPACE_DELAY
            return False
    return True


def _check_owner(record: RelatedRecord, manifest: Manifest, cause: ReconcileCause, applied: Applied | None) -> None:
    """Raise ForeignChildError if an object of the child's name belongs to somebody else."""
    uid = cause.raw["metadata"]["uid"]
    if uid in record.owners or (applied is not None and applied.uid == record.uid):
        return
    raise ForeignChildError(
        f"it exists, and is not owned by {cause.raw.get('kind')} {cause.raw['metadata']['name']}: it is left as it is."
        " Delete it, or give the child another name"
    )


def _sort(children: Sequence[Child]) -> Iterator[Child]:
    """Yield the children in their order, but each after its dependencies. There are no cycles."""
    done: set[Child] = set()
    for child in children:
        stack = [child]
        while stack:  # not by recursion: chains may be longer than the stack
            missing = [other for other in stack[-1].depends_on if other not in done]
            if missing:
                stack.extend(reversed(missing))
                continue
            current = stack.pop()
            if current not in done:
                done.add(current)
                yield current


def collect_children(watches: RelatedWatches, handler: ReconcileHandler, cause: ReconcileCause) -> dict[str, Any]:
    """Return the children of an object that are kept as a whole: by the plurals of their kinds, then by their names."""
    metadata = cause.raw["metadata"]
    found: dict[str, dict[str, Any]] = {}
    for kind in watches.kinds_of(handler):
        if kind.whole:
            bodies = found.setdefault(kind.resource.plural, {})
            for record in kind.owned_by(metadata):
                name = _name(record, metadata)
                if not (record.deleting and name in bodies):  # it replaces nothing
                    bodies[name] = record.decode()
    return found


def _name(record: RelatedRecord, owner: Mapping[str, Any]) -> str:
    return record.name if owner.get("namespace") or not record.namespace else f"{record.namespace}/{record.name}"
