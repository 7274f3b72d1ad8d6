"""Tests for :mod:`trioperator.apiserver.controllers.templates`: Pods from templates, and conditions."""

from __future__ import annotations

import datetime
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apiserver.controllers.objects import Object, template
from trioperator.apiserver.controllers.templates import (
    condition_of,
    has_selector,
    is_active,
    is_ready,
    make_pod,
    owner_reference,
    parse_time,
    set_condition,
    template_hash,
    until_available,
)

OWNER: Object = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "w", "namespace": "n", "uid": "u"}}
EARLY = "2024-01-01T00:00:00Z"
LATE = "2024-01-01T00:01:00Z"


def pod(phase: str = "Running", *, ready: str = "True", since: str = EARLY, **meta: Any) -> Object:
    """Return a Pod with a condition Ready."""
    ready_condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    return {"metadata": {"name": "p", **meta}, "status": {"phase": phase, "conditions": [ready_condition]}}


@given(st.dictionaries(st.text(max_size=3), st.integers(), max_size=4), st.randoms(use_true_random=False))
def test_the_hash_of_a_template_ignores_the_order_of_its_fields(fields: dict[str, int], random: Any) -> None:
    items = list(fields.items())
    random.shuffle(items)
    assert template_hash(dict(items)) == template_hash(fields) != template_hash({**fields, "other": "x"})
    assert re.fullmatch("[a-z0-9]{10}", template_hash(fields))


def test_a_pod_takes_its_metadata_from_the_template_and_its_owner() -> None:
    made = template({"app": "w", "track": "a"}, hostname="h")
    made["metadata"] |= {"name": "ignored", "annotations": {"note": "x"}, "finalizers": ["f/f"]}
    assert make_pod(OWNER, made, labels={"track": "b"}) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "w-",
            "namespace": "n",
            "labels": {"app": "w", "track": "b"},
            "annotations": {"note": "x"},
            "finalizers": ["f/f"],
            "ownerReferences": [owner_reference(OWNER)],
        },
        "spec": made["spec"],
    }


def test_a_pod_with_a_name_has_no_generated_one() -> None:
    meta = make_pod(OWNER, {"spec": {}}, name="w-0", labels={})["metadata"]
    assert (meta["name"], meta["labels"], "generateName" in meta) == ("w-0", {}, False)


def test_the_owner_of_a_pod_is_its_controller() -> None:
    expected = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "u"}
    assert owner_reference(OWNER) == {**expected, "controller": True, "blockOwnerDeletion": True}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (pod("Pending"), True),
        (pod("Running"), True),
        (pod("Succeeded"), False),
        (pod("Failed"), False),
        (pod("Running", deletionTimestamp=LATE), False),
        ({"metadata": {"name": "new"}}, True),
    ],
)
def test_a_pod_is_active_until_it_ends_or_is_deleted(obj: Object, expected: bool) -> None:
    assert is_active(obj) is expected


def test_a_pod_is_ready_by_its_condition() -> None:
    assert is_ready(pod())
    assert not is_ready(pod(ready="False"))
    assert not is_ready({"metadata": {"name": "new"}})


@pytest.mark.parametrize(
    ("obj", "seconds", "expected"),
    [
        (pod(), 90, 30),
        (pod(), 60, 0),
        (pod(), 0, -60),
        (pod(ready="False"), 0, math.inf),
        (pod(since=""), 0, 0),
        (pod(since=""), 1, math.inf),
        ({"metadata": {"name": "new"}}, 0, math.inf),
    ],
)
def test_a_pod_is_available_after_it_was_ready_for_some_time(obj: Object, seconds: float, expected: float) -> None:
    assert until_available(obj, seconds, now=parse_time(LATE)) == expected


@pytest.mark.parametrize("text", ["2024-01-01T00:01:00Z", "2024-01-01T00:01:00.000000Z", "2024-01-01T01:01:00+01:00"])
def test_timestamps_are_aware(text: str) -> None:
    assert parse_time(text) == datetime.datetime(2024, 1, 1, 0, 1, tzinfo=datetime.UTC)


def test_the_transition_time_changes_only_with_the_status_of_a_condition() -> None:
    status: Object = {"replicas": 1}
    status = set_condition(status, {"type": "Available", "status": "True", "reason": "a"}, now=EARLY)
    status = set_condition(status, {"type": "Progressing", "status": "True", "reason": "a"}, now=EARLY)
    before = repr(status)
    same = set_condition(status, {"type": "Available", "status": "True", "reason": "b"}, now=LATE)
    other = set_condition(status, {"type": "Available", "status": "False", "reason": "b"}, now=LATE)
    expected = {"type": "Available", "status": "True", "reason": "b", "lastTransitionTime": EARLY}
    assert same == {"replicas": 1, "conditions": [expected, status["conditions"][1]]}
    assert other["conditions"][0] == {**expected, "status": "False", "lastTransitionTime": LATE}
    assert repr(status) == before  # nothing is changed in place


def test_a_missing_condition_is_none() -> None:
    assert condition_of(pod()["status"], "Available") is None
    assert condition_of({"conditions": None}, "Available") is None


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"app": "w"}}, True),
        ({"matchLabels": {"app": "v"}}, False),
        ({"matchLabels": {"app": "w"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["v"]}]}, True),
        ({}, True),
        (None, True),
    ],
)
def test_a_selector_needs_all_of_its_labels_and_expressions(selector: Any, expected: bool) -> None:
    assert has_selector(selector, {"app": "w"}) is expected
