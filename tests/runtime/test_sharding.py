"""Tests for :mod:`trioperator._runtime.sharding`: which objects are handled here, and what is known of the others."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget


@pytest.fixture
def alone(bench: Bench) -> Bench:
    """Return a bench whose operator is the only member: it owns all shards, but only after a while."""
    bench.settings.leadership.shards = 4
    bench.settings.posting.enabled = False
    return bench


@pytest.fixture
async def rival(bench: Bench) -> None:
    """Own all shards for another operator."""
    for number in range(4):
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": f"trioperator-{number}", "namespace": "default"},
            "spec": {"holderIdentity": "rival", "leaseDurationSeconds": 15},
        }
        await bench.cluster.create(lease)


async def test_objects_of_others_are_known_in_their_newest_state_and_handled_when_their_shards_are_owned(
    alone: Bench, rival: None, autojump_clock: MockClock
) -> None:
    seen: dict[str, list[Any]] = collections.defaultdict(list)

    @trioperator.on.event("widgets", registry=alone.registry)
    async def event(name: str, spec: trioperator.Spec, type: str | None, **_: Any) -> None:
        seen[name].append((type, spec["size"]))

    for name in ("a", "b", "c"):
        await alone.cluster.create(widget(name))
    async with alone.running():
        await settle(5)
        await alone.cluster.create(widget("d"))
        await alone.cluster.patch("widgets", "a", {"spec": {"size": 2}})
        await alone.cluster.patch("widgets", "a", {"spec": {"size": 3}})
        await alone.cluster.delete("widgets", "b")
        await settle(5)
        assert not seen
        await settle(15)
        assert seen == {"a": [(None, 3)], "c": [(None, 1)], "d": [(None, 1)]}
        await alone.cluster.patch("widgets", "c", {"spec": {"size": 4}})
        await settle(1)
        assert seen["c"] == [(None, 1), ("MODIFIED", 4)]


async def test_objects_of_others_are_indexed_as_they_change_and_again_after_errors(
    alone: Bench, rival: None, autojump_clock: MockClock
) -> None:
    failures = ["c"]

    @trioperator.index("widgets", registry=alone.registry)
    async def sizes(name: str, spec: trioperator.Spec, **_: Any) -> dict[str, int]:
        if name in failures:
            failures.remove(name)
            raise trioperator.TemporaryError("not yet", delay=2)
        await trio.sleep(0.1)
        return {name: spec["size"]}

    seen: dict[str, int] = {}

    @trioperator.on.create("gadgets", registry=alone.registry)
    async def look(sizes: trioperator.Index[str, int], **_: Any) -> None:
        seen.update({name: size for name, found in sizes.items() for size in found})

    for name in ("a", "b"):
        await alone.cluster.create(widget(name))
    await alone.cluster.create(widget("g", kind="Gadget"))
    async with alone.running():
        await settle(5)
        await alone.cluster.create(widget("c"))
        await alone.cluster.patch("widgets", "a", {"spec": {"size": 2}})
        await alone.cluster.delete("widgets", "b")
        await settle(20)
        assert not failures
        assert seen == {"a": 2, "c": 1}


async def test_a_kind_that_vanishes_and_comes_back_is_handled_again(alone: Bench, autojump_clock: MockClock) -> None:
    created: list[str] = []

    @trioperator.on.create("widgets", registry=alone.registry)
    async def create(name: str, **_: Any) -> None:
        created.append(name)

    async with alone.running():
        await settle(5)
        await alone.cluster.create(widget("a"))
        await settle(1)
        await alone.cluster.delete("customresourcedefinitions", "widgets.example.com")
        await settle(5)
        await alone.cluster.create(CRD)
        await settle(5)
        await alone.cluster.create(widget("b"))
        await settle(5)
        assert created == ["a", "b"]
