"""Tests for :mod:`trioperator.apiserver.controllers.nodes`: the simulated node, and which Pods fit a node."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from tests.apiserver.controllers.objects import Object, conditions
from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers.nodes import fits


async def test_there_is_one_ready_node(cluster: Cluster, autojump_clock: MockClock) -> None:
    for _ in range(2):
        async with cluster.open_controllers("pods"):
            (node,) = await cluster.list("nodes")
    assert conditions(node)["Ready"] == "True"
    assert node["status"]["allocatable"]["pods"]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NODE: Object = {"metadata": {"name": "n", "labels": {"disk": "ssd", "zone": "a"}}}


def affinity(*terms: Object) -> Object:
    """Return a Pod's spec that requires one of the terms."""
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def expression(key: str, *values: str, operator: str = "In") -> Object:
    """Return one requirement of a term."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, True),
        ({}, True),
        ({"disk": "ssd"}, True),
        ({"disk": "ssd", "zone": "b"}, False),
        ({"disk": "ssd", "rack": "1"}, False),
    ],
)
def test_a_node_must_have_all_labels_of_the_node_selector(selector: Any, expected: bool) -> None:
    assert fits({"nodeSelector": selector}, NODE) is expected


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([{"matchExpressions": [expression("zone", "a", "b")]}], True),
        ([{"matchExpressions": [expression("zone", "a"), expression("disk", "hdd")]}], False),
        ([{"matchExpressions": [expression("disk", "hdd")]}, {"matchExpressions": [expression("zone", "a")]}], True),
        ([{"matchFields": [expression("metadata.name", "n")]}], True),
        ([{"matchFields": [expression("metadata.name", "m")]}], False),
        (
            [
                {
                    "matchFields": [expression("metadata.name", "n")],
                    "matchExpressions": [expression("disk", operator="DoesNotExist")],
                }
            ],
            False,
        ),
    ],
)
def test_a_node_must_meet_all_requirements_of_one_term(terms: list[Object], expected: bool) -> None:
    assert fits(affinity(*terms), NODE) is expected


def test_the_node_selector_and_the_affinity_must_both_match() -> None:
    required = affinity({"matchExpressions": [expression("zone", "a")]})
    assert fits({**required, "nodeSelector": {"disk": "ssd"}}, NODE)
    assert not fits({**required, "nodeSelector": {"disk": "hdd"}}, NODE)


def test_a_preferred_affinity_excludes_no_node() -> None:
    preferred = {"weight": 1, "preference": {"matchExpressions": [expression("zone", "b")]}}
    spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}}
    assert fits(spec, NODE)
    assert fits(spec, {"metadata": {"name": "without labels"}})
