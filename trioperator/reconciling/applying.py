"""Applying of desired children, and pruning of those that are not desired any more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from trioperator.client.adoption import adopt
from trioperator.client.kinds import to_dict
from trioperator.errors import ConfigError, ConflictError, InvalidError, NotFoundError, PausedError, TrioperatorError
from trioperator.handling.children import Child, Desired
from trioperator.handling.reconciling import ReconcileCause, ReconcileHandler
from trioperator.kube.client import Client, Params
from trioperator.kube.objects import parse_object
from trioperator.model.resource import Resource
from trioperator.reconciling.manifests import Manifest, is_as_desired, is_ready
from trioperator.reconciling.related import RelatedRecord, read_record
from trioperator.reconciling.rollouts import Rollout
from trioperator.reconciling.schedules import Applied, ChildKey, HandlerSchedule, ObjectSchedule
from trioperator.reconciling.watches import RelatedKind, RelatedWatches

__all__ = ["Applier", "ForeignChildError"]

_APPLY_PATCH: Final = "application/apply-patch+yaml"
# Of a name, so much leaves room for what makes it unique: the shortest limit of names is 63.
_MAX_PREFIX: Final = 50
# The server's own, as objects have them that were read: they are no desired state, or are preconditions.
_SERVERS: Final = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation")


class ForeignChildError(TrioperatorError):
    """Raised where a desired child exists, and is not owned by the object."""


class Applier:
    """Makes the children of objects what reconcile handlers desire. A child that is as it was applied costs nothing."""

    def __init__(self, client: Client, watches: RelatedWatches) -> None:
        self._client = client
        self._watches = watches

    async def apply(
        self, desired: Desired, handler: ReconcileHandler, *, cause: ReconcileCause, schedule: HandlerSchedule
    ) -> None:
        """Apply the desired children of an object, each after those that it depends on.

        What fails does not hold up children that do not depend on it. Raises the first error at the end: ConfigError,
        TypeError or ValueError for a child that can never be applied, else another TrioperatorError.
        """
        manifests = self._prepare(desired, handler, cause)
        schedule.desired = frozenset(manifest.key for manifest in manifests.values())
        schedule.applied = {key: applied for key, applied in schedule.applied.items() if key in schedule.desired}
        schedule.blocked.clear()
        ready: set[Child] = set()
        errors: list[Exception] = []
        for child in Rollout(manifests, schedule).order(_sort(list(manifests))):
            if not ready.issuperset(child.depends_on):
                continue  # what it waits for calls the handler again
            manifest = manifests[child]
            try:
                if await self._apply_one(manifest, cause, schedule):
                    ready.add(child)
            except PausedError:
                raise
            except TrioperatorError as error:
                errors.append(error)
                if isinstance(error, ForeignChildError):
                    schedule.blocked.add((manifest.key.namespace, manifest.key.name))
                cause.logger.error("%s of %s cannot be applied: %s", manifest.key, handler, error)
        if errors:
            raise errors[0]

    async def prune(self, handler: ReconcileHandler, *, cause: ReconcileCause, schedule: ObjectSchedule) -> None:
        """Delete the children that are the object's and were applied by the operator, and that no handler desires."""
        kept = schedule.find_kept()
        if kept is None:
            return
        kept_names = {(key.resource.group, key.resource.plural, key.namespace, key.name) for key in kept}
        for kind in self._watches.kinds_of(handler):
            where = kind.resource.group, kind.resource.plural
            for record in list(kind.owned_by(cause.raw["metadata"]["uid"])):
                foreign = record.fields is None or record.deleting
                if not foreign and (*where, record.namespace, record.name) not in kept_names:
                    await self._delete(kind, record, cause, why="it is not desired any more")

    async def _delete(self, kind: RelatedKind, record: RelatedRecord, cause: ReconcileCause, *, why: str) -> None:
        path = kind.resource.get_path(record.namespace or None, record.name)
        body = {"preconditions": {"uid": record.uid}, "propagationPolicy": "Background"}
        with contextlib.suppress(NotFoundError, ConflictError):  # it is gone, and perhaps another one has its name
            await self._client.delete(path, body=body)
        record.deleting = True
        key = ChildKey(kind.resource, record.namespace, record.name)
        cause.logger.info("%s is deleted: %s.", key, why)

    def _prepare(self, desired: Desired, handler: ReconcileHandler, cause: ReconcileCause) -> dict[Child, Manifest]:
        """Return the children, complete: with their names, their namespaces and the object as their owner."""
        manifests: dict[Child, Manifest] = {}
        keys: set[ChildKey] = set()
        for child in desired.children:
            manifests[child] = manifest = self._complete(child, handler, cause)
            if manifest.key in keys:
                raise ConfigError(f"{handler} has returned {manifest.key} twice: give the children names of their own")
            keys.add(manifest.key)
        for child in manifests:
            if not manifests.keys() >= set(child.depends_on):
                raise ConfigError(f"{manifests[child].key} depends on a child that {handler} has not returned")
        return manifests

    def _complete(self, child: Child, handler: ReconcileHandler, cause: ReconcileCause) -> Manifest:
        body = to_dict(child.manifest)
        api_version, name = str(body.get("apiVersion") or ""), str(body.get("kind") or "")
        kind = self._find_kind(handler, body)
        if child.ready is not None and not kind.whole:
            raise ConfigError(f"{name} has ready=, which needs its body: pass owns=[Owned(..., bodies=True)]")
        metadata = body.setdefault("metadata", {})
        metadata.setdefault("name", cause.raw["metadata"]["name"])
        for field in _SERVERS:
            metadata.pop(field, None)
        if kind.labels:
            metadata["labels"] = {**(metadata.get("labels") or {}), **dict(kind.labels)}
        adopt(body, cause.raw, resource=kind.resource)
        if kind.resource.namespaced is False:
            metadata.pop("namespace", None)
        elif not metadata.get("namespace"):
            raise ConfigError(f"{name} {metadata['name']} needs a metadata.namespace, as its owner has none")
        namespace = metadata.get("namespace") or ""
        if kind.find_cache(namespace) is None:
            raise ConfigError(
                f"{name} {namespace}/{metadata['name']} is in a namespace that the operator does not serve"
            )
        version = api_version.rpartition("/")[2]
        resource = Resource(kind.resource.group, version, kind.resource.plural, kind=name)
        encoded = msgspec.json.encode(body, order="deterministic")
        key = ChildKey(resource, namespace, metadata["name"])
        strategy = child.strategy or kind.owners[handler].strategy
        if strategy == "rolling" and child.ready is None:
            raise ConfigError(f"{key} has the strategy 'rolling', which needs ready=: pass a Child with it")
        return Manifest(child, kind, key, encoded, strategy)

    def _find_kind(self, handler: ReconcileHandler, body: Mapping[str, Any]) -> RelatedKind:
        """Return the kind of a child: if it is owned several times, the one whose labels the child has."""
        api_version, name = str(body.get("apiVersion") or ""), str(body.get("kind") or "")
        if not (api_version and name):
            raise ConfigError(f"{handler} has returned a child without apiVersion and kind, which say what it is")
        found = (api_version.rpartition("/")[0], name)
        kinds = [kind for kind in self._watches.kinds_of(handler) if (kind.resource.group, kind.resource.kind) == found]
        if not kinds:
            text = f"{handler} has returned a {name} ({api_version}), which is not in owns=: it is not watched"
            raise ConfigError(text)
        labels = (body.get("metadata") or {}).get("labels") or {}
        return next((kind for kind in kinds if labels.items() >= dict(kind.labels).items()), kinds[0])

    async def _apply_one(self, manifest: Manifest, cause: ReconcileCause, schedule: HandlerSchedule) -> bool:
        """Apply a child, if it is not as it was applied. Returns whether it is ready for those that depend on it."""
        key, record, applied = manifest.key, manifest.find(), schedule.applied.get(manifest.key)
        if record is not None:
            _check_owner(record, manifest, cause, applied)
            if record.deleting:
                return False  # the handler is called again when it is gone
        if not is_as_desired(record, manifest, applied):
            is_ours = record is not None or await self._find_unseen(manifest, cause, applied)
            try:
                record = await self._send(manifest, force=is_ours)
            except InvalidError:
                if record is None or manifest.strategy != "recreate":
                    raise
                await self._make_room(manifest, record, cause)
                return False  # the handler is called again when it is gone
            schedule.applied[key] = Applied(record.uid, hash(manifest.body), record.fields)
            cause.logger.info("%s is applied.", key)
        assert record is not None
        return is_ready(record, manifest)

    async def _find_unseen(self, manifest: Manifest, cause: ReconcileCause, applied: Applied | None) -> bool:
        """Check whether a child exists without the labels that are watched. Raises ForeignChildError as for others."""
        if not manifest.kind.labels:
            return False
        try:
            found = parse_object(await self._client.request("GET", manifest.path))
        except NotFoundError:
            return False
        record = read_record(found, manager=self._client.settings.persistence.field_manager, whole=False)
        _check_owner(record, manifest, cause, applied)
        return True

    async def _make_room(self, manifest: Manifest, record: RelatedRecord, cause: ReconcileCause) -> None:
        """Delete a child that cannot be changed, to be created anew. Raises InvalidError if it could not be, either."""
        body = msgspec.json.decode(manifest.body)
        body["metadata"]["generateName"] = f"{body['metadata'].pop('name')[:_MAX_PREFIX]}-"
        path = manifest.key.resource.get_path(manifest.key.namespace or None)
        await self._client.post(path, body, params={"dryRun": "All"})
        await self._delete(manifest.kind, record, cause, why="its fields cannot be changed, and it is created anew")

    async def _send(self, manifest: Manifest, *, force: bool) -> RelatedRecord:
        """Apply a child server-side. Fields of others are taken over by *force*, if it is known to be the object's."""
        manager = self._client.settings.persistence.field_manager
        params: Params = {"fieldManager": manager, "force": force}
        data = await self._client.request(
            "PATCH", manifest.path, params=params, body=manifest.body, content_type=_APPLY_PATCH
        )
        return manifest.cache.take_written(data)


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
    """Yield the children in their order, but each after those that it depends on. There are no circles."""
    done: set[Child] = set()

    def visit(child: Child) -> Iterator[Child]:
        if child not in done:
            done.add(child)
            for other in child.depends_on:
                yield from visit(other)
            yield child

    for child in children:
        yield from visit(child)


def collect_children(watches: RelatedWatches, handler: ReconcileHandler, cause: ReconcileCause) -> dict[str, Any]:
    """Return the children of an object that are kept as a whole: by the plurals of their kinds, then by their names."""
    metadata = cause.raw["metadata"]
    found: dict[str, dict[str, Any]] = {}
    for kind in watches.kinds_of(handler):
        if kind.whole:
            records = kind.owned_by(metadata["uid"])
            bodies = found.setdefault(kind.resource.plural, {})
            bodies.update((_name(record, metadata), record.decode()) for record in records)
    return found


def _name(record: RelatedRecord, owner: Mapping[str, Any]) -> str:
    return record.name if owner.get("namespace") or not record.namespace else f"{record.namespace}/{record.name}"
