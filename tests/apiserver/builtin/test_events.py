"""Tests for :mod:`trioperator.apiserver.builtin.events`: Events have the field names of each of their two groups."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apiserver.conftest import MERGE, Target
from trioperator.apiserver.builtin.events import as_served, to_core
from trioperator.apiserver.model.kinds import Catalog, Kind

NAMES: Final = [
    ("deprecatedCount", "count"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedSource", "source"),
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
]


def kind_of(group: str, version: str, plural: str) -> Kind:
    kind = Catalog().get(group, version, plural)
    assert kind is not None
    return kind


OWN: Final = kind_of("events.k8s.io", "v1", "events")
CORE: Final = kind_of("", "v1", "events")
FIELDS: Final = st.sampled_from([own for own, _ in NAMES] + ["apiVersion", "kind", "metadata", "reason", "eventTime"])


@pytest.mark.parametrize(("own", "core"), NAMES)
def test_a_renamed_field_has_the_name_of_the_group(own: str, core: str) -> None:
    assert to_core({own: 1}) == {core: 1}
    assert as_served(OWN, {core: 1, "apiVersion": "v1"}) == {own: 1, "apiVersion": "events.k8s.io/v1"}


def test_fields_with_the_same_name_in_both_groups_are_kept() -> None:
    event = {"reason": "Done", "type": "Normal", "metadata": {"name": "a"}}
    assert to_core(event) == event


@given(st.dictionaries(FIELDS, st.integers()))
def test_conversion_round_trips(event: dict[str, Any]) -> None:
    assert as_served(OWN, {**to_core(event), "apiVersion": "v1"}) == {**event, "apiVersion": "events.k8s.io/v1"}


def test_an_object_in_the_requested_version_is_not_copied() -> None:
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "message": "hello"}
    assert as_served(CORE, event) is event


def test_another_version_with_the_same_fields_changes_only_the_api_version() -> None:
    deployment = {"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {}, "spec": {"replicas": 1}}
    served = as_served(kind_of("apps", "v1", "deployments"), deployment)
    assert served == {**deployment, "apiVersion": "apps/v1"}
    assert deployment["apiVersion"] == "apps/v1beta1"


async def test_an_event_is_readable_in_both_groups(target: Target) -> None:
    regarding = {"kind": "Pod", "name": "p", "namespace": target.namespace}
    event = {"metadata": {"name": "a"}, "involvedObject": regarding, "message": "hello", "reason": "Done"}
    assert (await target.request("POST", target.path("events"), event)).code == 201
    other = await target.get(f"/apis/events.k8s.io/v1/namespaces/{target.namespace}/events/a")
    assert (other.content["apiVersion"], other.content["note"]) == ("events.k8s.io/v1", "hello")
    assert other.content["regarding"] == regarding
    assert not {"message", "involvedObject"} & set(other.content)


def whole_event(target: Target, name: str = "a", **changes: Any) -> dict[str, Any]:
    """Return an Event of the group events.k8s.io, with everything that is required."""
    event = {
        "metadata": {"name": name},
        "eventTime": "2024-01-01T00:00:00.000000Z",
        "type": "Normal",
        "reason": "Done",
        "action": "Doing",
        "reportingController": "example.com/controller",
        "reportingInstance": "controller-1",
        "regarding": {"namespace": target.namespace},
    }
    return {field: value for field, value in {**event, **changes}.items() if value is not None}


def events_path(target: Target, name: str = "") -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{target.namespace}/events{name and '/'}{name}"


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"eventTime": None}, ["eventTime: Required value"]),
        ({"type": None}, ['type: Invalid value: "": has invalid value: ']),
        ({"type": "Odd"}, ['type: Invalid value: "": has invalid value: Odd']),
        ({"reason": None}, ["reason: Required value"]),
        ({"action": None}, ["action: Required value"]),
        ({"reportingInstance": None}, ["reportingInstance: Required value"]),
        ({"reason": "r" * 129}, ['reason: Invalid value: "": can have at most 128 characters']),
        ({"note": "n" * 1025}, ['message: Invalid value: "": can have at most 1024 characters']),
        ({"reportingController": "/x"}, ['reportingController: Invalid value: "/x": prefix part must be non-empty']),
        ({"deprecatedCount": 1}, ['count: Invalid value: "": needs to be unset']),
        ({"series": {"count": 1, "lastObservedTime": "2024-01-01T00:00:00.000000Z"}}, ["series.count: "]),
        ({"series": {"count": 2}}, ["series.lastObservedTime: Required value"]),
        ({"eventTime": None, "type": None}, ["eventTime: Required value", "type: "]),
    ],
)
async def test_an_event_of_the_new_group_must_be_complete(
    target: Target, changes: dict[str, Any], causes: list[str]
) -> None:
    answer = await target.request("POST", events_path(target), whole_event(target, **changes))
    assert (answer.code, answer.content["details"]["kind"]) == (422, "Event")
    assert "group" not in answer.content["details"]
    found = [f"{cause['field']}: {cause['message']}" for cause in answer.content["details"]["causes"]]
    assert len(found) == len(causes)
    assert all(text.startswith(cause) for text, cause in zip(found, causes, strict=True))


async def test_of_a_stored_event_only_the_series_changes_through_the_new_group(target: Target) -> None:
    assert (await target.request("POST", events_path(target), whole_event(target))).code == 201
    patch = {"note": "other", "action": "Other"}
    answer = await target.request("PATCH", events_path(target, "a"), patch, MERGE)
    assert answer.code == 422
    assert {cause["field"] for cause in answer.content["details"]["causes"]} == {"message", "action"}
    series = {"count": 2, "lastObservedTime": "2024-01-01T00:00:01.000000Z"}
    assert (await target.request("PATCH", events_path(target, "a"), {"series": series}, MERGE)).code == 200
    assert (await target.request("PATCH", target.path("events", "a"), {"message": "other"}, MERGE)).code == 200
