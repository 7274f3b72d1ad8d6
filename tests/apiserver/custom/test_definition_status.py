"""Tests for :mod:`trioperator.apiserver.custom.definition_status`: accepted names, stored versions and conditions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import definition
from trioperator.apiserver import Cluster
from trioperator.apiserver.custom.definition_status import initial_status, is_established, updated_status
from trioperator.apiserver.custom.definitions import kinds_of
from trioperator.apiserver.model.kinds import Catalog

Object = dict[str, Any]
EARLY = "2024-01-01T00:00:00Z"
LATE = "2024-01-02T00:00:00Z"


async def test_definitions_are_always_established_immediately(cluster: Cluster) -> None:
    cluster.is_prompt = False
    names_of = {"kind": "Toy", "plural": "toys", "singular": "toy"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    definition: Object = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "toys.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names_of, "versions": [version]},
    }
    await cluster.create(definition)
    await cluster.create({"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "t"}})
    assert [obj["metadata"]["name"] for obj in await cluster.list("toys", "default")] == ["t"]


def toys(**names: Any) -> Object:
    """Return a definition; the names override those of toys."""
    obj = definition("toys", "Toy", group="example.com")
    obj["spec"]["names"] = {"kind": "Toy", "listKind": "ToyList", "plural": "toys", "singular": "toy", **names}
    return obj


def catalog_with(*definitions: Object) -> Catalog:
    """Return the kinds that are served with these definitions."""
    catalog = Catalog()
    for obj in definitions:
        for kind in kinds_of(obj):
            catalog.add(kind)
    return catalog


def found_conditions(status: Object) -> dict[str, tuple[str, str, str]]:
    """Return statuses, reasons and transition times of the conditions."""
    return {item["type"]: (item["status"], item["reason"], item["lastTransitionTime"]) for item in status["conditions"]}


def test_the_names_of_a_new_definition_are_accepted_and_established() -> None:
    obj = toys()
    status = initial_status(obj)
    assert not is_established(status)
    assert status["storedVersions"] == ["v1"]
    status = updated_status({**obj, "status": status}, Catalog(), now=EARLY)
    assert status["acceptedNames"] == obj["spec"]["names"]
    assert found_conditions(status) == {
        "NamesAccepted": ("True", "NoConflicts", EARLY),
        "Established": ("True", "InitialNamesAccepted", EARLY),
    }
    assert is_established(status)


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        ({"singular": "toy"}, "toy"),
        ({"singular": "ty", "shortNames": ["a", "t"]}, "t"),
        ({"singular": "ty", "kind": "Toy"}, "Toy"),
        ({"singular": "ty", "kind": "Doll", "listKind": "ToyList"}, "ToyList"),
    ],
)
def test_a_name_of_another_kind_of_the_group_is_not_accepted(names: Object, taken: str) -> None:
    others = catalog_with(toys(shortNames=["t"]))
    obj = toys(plural="dolls", **names)
    status = updated_status({**obj, "status": initial_status(obj)}, others, now=EARLY)
    assert found_conditions(status) == {
        "NamesAccepted": ("False", "NamesConflict", EARLY),
        "Established": ("False", "NotAccepted", EARLY),
    }
    names_accepted, _ = status["conditions"]
    assert names_accepted["message"] == f'"{taken}" is already in use'
    assert status["acceptedNames"] == {"plural": "", "kind": ""}


def test_names_of_other_groups_and_of_itself_do_not_conflict() -> None:
    obj, other = toys(), toys()
    other["spec"]["group"] = "example.org"
    assert is_established(updated_status(obj, catalog_with(obj, other), now=EARLY))


def test_an_established_definition_stays_established_with_a_conflict() -> None:
    accepted = updated_status(toys(), Catalog(), now=EARLY)
    others = catalog_with(toys(plural="others", singular="other", kind="Other", listKind="OtherList", shortNames=["t"]))
    status = updated_status({**toys(shortNames=["t"]), "status": accepted}, others, now=LATE)
    assert found_conditions(status) == {
        "NamesAccepted": ("False", "NamesConflict", LATE),
        "Established": ("True", "InitialNamesAccepted", EARLY),
    }
    assert status["acceptedNames"] == accepted["acceptedNames"]


def test_versions_that_were_stored_stay_listed() -> None:
    obj = toys()
    obj["spec"]["versions"] = [{"name": "v1", "storage": False}, {"name": "v2", "storage": True}]
    status = updated_status({**obj, "status": {"storedVersions": ["v1"]}}, Catalog(), now=EARLY)
    assert status["storedVersions"] == ["v1", "v2"]
    assert updated_status({**obj, "status": status}, Catalog(), now=LATE) == status


def test_a_definition_that_is_deleted_is_terminating() -> None:
    obj = toys()
    obj["metadata"]["deletionTimestamp"] = LATE
    found = found_conditions(updated_status(obj, Catalog(), now=LATE))
    assert found["Terminating"] == ("True", "InstanceDeletionInProgress", LATE)
