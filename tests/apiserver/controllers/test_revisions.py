"""Tests for :mod:`trioperator.apiserver.controllers.revisions`: the history of templates is stored, and limited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.controllers.objects import Object, template, workload
from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers import Client
from trioperator.apiserver.controllers.revisions import clean_revisions, ensure_revision
from trioperator.apiserver.controllers.templates import owner_reference

LABEL = "controller-revision-hash"


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    api = cluster.api
    client = Client(api.state, writer=api.writer, deleter=api.deleter, tidy=cluster.tidy)
    with client.following(lambda table, change: None):
        yield client


async def stored(cluster: Cluster) -> dict[str, int]:
    """Return the images of the stored revisions, with their numbers."""
    items = await cluster.list("controllerrevisions")
    images = [item["data"]["spec"]["template"]["spec"]["containers"][0]["image"] for item in items]
    return {image: item["revision"] for image, item in zip(images, items, strict=True)}


async def revise(client: Client, owner: Object, *images: str) -> list[str]:
    """Store templates with the images one after the other; return the names of the revisions."""
    owners: list[Object] = []
    for image in images:
        made = template({"app": "w"}, image=image)
        owners.append({**owner, "spec": {**owner["spec"], "template": made}})
    return [f"w-{await ensure_revision(client, each, label=LABEL)}" for each in owners]


async def test_a_revision_belongs_to_its_owner(cluster: Cluster, client: Client) -> None:
    owner = await cluster.create(workload("StatefulSet"))
    mark = await ensure_revision(client, owner, label=LABEL)
    (item,) = await cluster.list("controllerrevisions")
    meta: Any = item["metadata"]
    assert (meta["name"], meta["labels"]) == (f"w-{mark}", {"app": "w", LABEL: mark})
    assert meta["ownerReferences"] == [owner_reference(owner)]
    assert item["data"] == {"spec": {"template": {"$patch": "replace", **owner["spec"]["template"]}}}


async def test_a_new_template_is_the_newest_revision(cluster: Cluster, client: Client) -> None:
    owner = await cluster.create(workload("StatefulSet"))
    await revise(client, owner, "a", "b", "b", "c")
    assert await stored(cluster) == {"a": 1, "b": 2, "c": 3}


async def test_a_rollback_makes_the_old_revision_the_newest(cluster: Cluster, client: Client) -> None:
    owner = await cluster.create(workload("StatefulSet"))
    first, _, again = await revise(client, owner, "a", "b", "a")
    assert first == again
    assert await stored(cluster) == {"a": 3, "b": 2}


@pytest.mark.parametrize(("limit", "expected"), [(0, {"b"}), (1, {"b", "d"}), (2, {"b", "c", "d"}), (9, set("abcd"))])
async def test_the_oldest_unused_revisions_are_deleted(
    cluster: Cluster, client: Client, limit: int, expected: set[str]
) -> None:
    owner = await cluster.create(workload("StatefulSet", revisionHistoryLimit=limit))
    revisions = await revise(client, owner, "a", "b", "c", "d")
    await clean_revisions(client, owner, used={revisions[1]: None})
    assert set(await stored(cluster)) == expected
