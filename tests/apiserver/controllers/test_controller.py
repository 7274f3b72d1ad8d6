"""Tests for :mod:`trioperator.apiserver.controllers.controller`: which objects are reconciled after changes."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers import Client, Controller, Pace
from trioperator.apiserver.controllers.client import Object, Resource

SETS: Resource = ("apps", "replicasets")
PODS: Resource = ("", "pods")


class Sets(Controller):
    """Controller of ReplicaSets that does nothing."""

    resource: ClassVar[Resource] = SETS
    owns: ClassVar[tuple[Resource, ...]] = (PODS,)

    async def reconcile(self, obj: Object) -> float | None:
        return None


@pytest.fixture
def controller(cluster: Cluster) -> Sets:
    api = cluster.api
    return Sets(Client(api.state, writer=api.writer, deleter=api.deleter, tidy=cluster.tidy), Pace())


def owned_by(*owners: dict[str, Any]) -> Object:
    """Return an object with references to the owners, by default ReplicaSets that are not its controller."""
    references = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "u", **owner} for owner in owners]
    return {"metadata": {"name": "p", "namespace": "n", "ownerReferences": references}}


def test_a_changed_object_is_reconciled(controller: Sets) -> None:
    assert list(controller.keys_for(SETS, {"metadata": {"name": "a", "namespace": "n"}})) == ["n/a"]
    assert list(controller.keys_for(SETS, {"metadata": {"name": "a"}})) == ["a"]


def test_the_controlling_owner_of_a_changed_object_is_reconciled(controller: Sets) -> None:
    obj = owned_by({"name": "other"}, {"name": "w", "controller": True})
    assert list(controller.keys_for(PODS, obj)) == ["n/w"]


@pytest.mark.parametrize(
    ("resource", "obj"),
    [
        (PODS, {"metadata": {"name": "p", "namespace": "n"}}),
        (PODS, {"metadata": {"name": "p", "namespace": "n", "ownerReferences": None}}),
        (PODS, owned_by({"name": "w", "controller": False})),
        (PODS, owned_by({"name": "w", "controller": True, "apiVersion": "batch/v1"})),
        (("", "secrets"), owned_by({"name": "w", "controller": True})),
    ],
)
def test_changes_of_unrelated_objects_are_ignored(controller: Sets, resource: Resource, obj: Object) -> None:
    assert list(controller.keys_for(resource, obj)) == []


async def test_preparing_and_forgetting_are_optional(cluster: Cluster, controller: Sets) -> None:
    revision = cluster.revision
    await controller.prepare()
    await controller.forget("n/w")
    assert cluster.revision == revision
