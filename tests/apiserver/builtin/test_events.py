"""Tests for :mod:`trioperator.apiserver.builtin.events`: Events have the field names of each of their two groups."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apiserver.conftest import Target
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
