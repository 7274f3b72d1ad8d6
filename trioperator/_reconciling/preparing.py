"""Preparing of what a handler has returned: complete manifests of the children, ready to be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trioperator._handling.arguments.reconciling import ReconcileCause, ReconcileHandler
from trioperator._handling.handlers.children import Child, Desired
from trioperator._kube.api_client import ApiClient
from trioperator._model.jsontypes import check_numbers
from trioperator._model.resource import Resource
from trioperator._reconciling.claims import CLAIM, claim_of
from trioperator._reconciling.manifests import Manifest
from trioperator._reconciling.related import Target, Writer
from trioperator._reconciling.schedules import ChildKey
from trioperator._reconciling.watches import RelatedKind, RelatedWatches
from trioperator.client.adoption import adopt
from trioperator.client.kinds import to_dict
from trioperator.errors import ConfigError

# Metadata that the server sets, and that objects have when they were read: not a desired state, or preconditions.
_SERVERS: Final = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation")


class Preparer:
    """Completes the manifests of children."""

    def __init__(self, client: ApiClient, watches: RelatedWatches) -> None:
        self._client = client
        self._watches = watches

    def prepare(self, desired: Desired, handler: ReconcileHandler, cause: ReconcileCause) -> dict[Child, Manifest]:
        """Return the children, complete: with their names, their namespaces and the object as their owner."""
        if desired.children and not cause.raw["metadata"].get("uid"):
            raise ConfigError(
                f"{handler} has returned children, but its object has no metadata.uid, as its API server sets none:"
                " such objects cannot own others. Apply them with the argument client, and owner=None"
            )
        manifests: dict[Child, Manifest] = {}
        places: set[tuple[str, str, str, str]] = set()
        for child in desired.children:
            manifests[child] = manifest = self._complete(child, handler, cause)
            if manifest.key.place in places:
                raise ConfigError(f"{handler} has returned {manifest.key} twice: give the children different names")
            places.add(manifest.key.place)
        for child in manifests:
            if not manifests.keys() >= set(child.depends_on):
                raise ConfigError(f"{manifests[child].key} depends on a child that {handler} has not returned")
        return manifests

    def _complete(self, child: Child, handler: ReconcileHandler, cause: ReconcileCause) -> Manifest:
        body = to_dict(child.manifest)
        api_version, name = str(body.get("apiVersion") or ""), str(body.get("kind") or "")
        kind = self._find_kind(handler, body)
        metadata = _check_metadata(body, name)
        if child.ready is not None and not kind.whole:
            raise ConfigError(f"{name} has ready=, which needs its body: pass owns=[Owned(..., bodies=True)]")
        metadata.setdefault("name", cause.raw["metadata"]["name"])
        for field in _SERVERS:
            metadata.pop(field, None)
        if kind.labels:
            metadata["labels"] = {**(metadata.get("labels") or {}), **dict(kind.labels)}
        persistence = self._client.settings.persistence
        claim = claim_of(handler, persistence.field_manager)
        metadata["annotations"] = {**(metadata.get("annotations") or {}), CLAIM: claim}
        adopt(body, cause.raw, resource=kind.resource, labels=persistence.owner_labels)
        if kind.resource.namespaced is False:
            metadata.pop("namespace", None)
        elif not metadata.get("namespace"):
            raise ConfigError(f"{name} {metadata['name']} needs a metadata.namespace, as its owner has none")
        namespace = metadata.get("namespace") or ""
        version = api_version.rpartition("/")[2]
        resource = Resource(kind.resource.group, version, kind.resource.plural, kind=name)
        encoded = msgspec.json.encode(body, order="deterministic")
        check_numbers(body, encoded)
        key = ChildKey(resource, namespace, metadata["name"])
        strategy = child.strategy or kind.owners[handler].strategy
        if strategy == "rolling" and child.ready is None:
            raise ConfigError(f"{key} has the strategy 'rolling', which needs ready=: pass a Child with it")
        return Manifest(child, kind, key, encoded, strategy, _make_writer(handler, cause))

    def _find_kind(self, handler: ReconcileHandler, body: dict[str, Any]) -> RelatedKind:
        """Return the kind of a child: if it is owned several times, the one whose labels the child has."""
        api_version, name = str(body.get("apiVersion") or ""), str(body.get("kind") or "")
        if not (api_version and name):
            raise ConfigError(f"{handler} has returned a child without apiVersion or kind: set both")
        found = (api_version.rpartition("/")[0], name)
        kinds = [kind for kind in self._watches.kinds_of(handler) if (kind.resource.group, kind.resource.kind) == found]
        if not kinds:
            text = f"{handler} has returned a {name} ({api_version}), which is not in owns=: it is not watched"
            raise ConfigError(text)
        labels = _check_metadata(body, name).get("labels") or {}
        return next((kind for kind in kinds if labels.items() >= dict(kind.labels).items()), kinds[0])


def _make_writer(handler: ReconcileHandler, cause: ReconcileCause) -> Writer:
    metadata = cause.raw["metadata"]
    return Writer(handler, metadata["uid"], Target(metadata.get("namespace") or "", metadata["name"]))


def _check_metadata(body: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the metadata of a child, which may be missing. Raises ConfigError if they are not dicts."""
    if body.get("metadata") is None:
        body["metadata"] = {}
    metadata: dict[str, Any] = body["metadata"]
    maps: dict[str, object] = {"metadata": metadata}
    if isinstance(metadata, Mapping):
        maps |= {f"metadata.{field}": metadata.get(field) or {} for field in ("labels", "annotations")}
    for field, value in maps.items():
        if not isinstance(value, Mapping):
            raise ConfigError(f"A {kind} has {field}: {value!r}, which must be a dict")
    return metadata
