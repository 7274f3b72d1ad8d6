"""Tests for :mod:`trioperator.crds.metadata`."""

from __future__ import annotations

from trioperator.apiserver import Cluster
from trioperator.crds import ObjectMeta, decode


async def test_metadata_of_objects_are_typed(cluster: Cluster) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    metadata = {"name": "x", "namespace": "default", "labels": {"a": "b"}, "ownerReferences": [owner]}
    created = await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    found = decode(ObjectMeta, created["metadata"])
    assert (found.name, found.namespace, found.labels, found.generation) == ("x", "default", {"a": "b"}, 0)
    assert found.creation_timestamp is not None
    assert found.creation_timestamp.tzinfo is not None
    assert found.owner_references[0].controller
    assert not found.owner_references[0].block_owner_deletion
