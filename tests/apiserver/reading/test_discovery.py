"""Tests for :mod:`trioperator.apiserver.reading.discovery`: clients find groups, versions, resources and paths."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from trioperator.apiserver.model.kinds import Catalog, Kind
from trioperator.apiserver.reading import discovery


def thing(version: str, **more: Any) -> Kind:
    return Kind(
        group="example.com",
        version=version,
        plural="things",
        kind="Thing",
        singular="thing",
        list_kind="ThingList",
        namespaced=True,
        **more,
    )


@pytest.fixture
def catalog() -> Catalog:
    """Return the built-in kinds, and a custom one in three versions."""
    catalog = Catalog()
    for version in ("v1beta1", "v1", "v2alpha1"):
        catalog.add(thing(version, subresources=frozenset({"status", "scale"}), categories=("all",)))
    return catalog


def test_the_preferred_version_of_a_group_is_its_most_stable_one(catalog: Catalog) -> None:
    group = discovery.api_group(catalog, "example.com")
    assert [version["version"] for version in group["versions"]] == ["v1", "v1beta1", "v2alpha1"]
    assert group["preferredVersion"] == {"groupVersion": "example.com/v1", "version": "v1"}


def test_the_core_group_is_not_among_the_named_groups(catalog: Catalog) -> None:
    names = [group["name"] for group in discovery.api_groups(catalog)["groups"]]
    assert "" not in names
    assert {"apps", "example.com"} <= set(names)
    aggregated = discovery.aggregated(catalog, core=False)["items"]
    assert [item["metadata"]["name"] for item in aggregated] == names
    (core,) = discovery.aggregated(catalog, core=True)["items"]
    assert (core["metadata"], [version["version"] for version in core["versions"]]) == ({}, ["v1"])


def test_a_resource_is_listed_with_its_subresources(catalog: Catalog) -> None:
    document = discovery.api_resources(catalog, "example.com", "v1")
    assert document["groupVersion"] == "example.com/v1"
    found = {item["name"]: item for item in document["resources"]}
    assert found.keys() == {"things", "things/scale", "things/status"}
    assert (found["things"]["kind"], found["things"]["categories"]) == ("Thing", ["all"])
    assert "shortNames" not in found["things"]
    scale = {key: found["things/scale"][key] for key in ("group", "version", "kind")}
    assert scale == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert (found["things/status"]["kind"], found["things/status"]["verbs"]) == ("Thing", ["get", "patch", "update"])


def test_the_core_group_version_has_no_slash(catalog: Catalog) -> None:
    document = discovery.api_resources(catalog, "", "v1")
    assert document["groupVersion"] == "v1"
    found = {item["name"]: item for item in document["resources"]}
    assert found["pods"]["shortNames"] == ["po"]
    assert not found["nodes"]["namespaced"]
    assert found["namespaces/finalize"]["verbs"] == ["update"]


def test_aggregated_and_plain_discovery_agree(catalog: Catalog) -> None:
    for item in discovery.aggregated(catalog, core=False)["items"]:
        for version in item["versions"]:
            group = item["metadata"]["name"]
            plain = discovery.api_resources(catalog, group, version["version"])["resources"]
            names = []
            for resource in version["resources"]:
                names.append((resource["resource"], resource["verbs"], resource["scope"] == "Namespaced"))
                for sub in resource.get("subresources", ()):
                    name = f"{resource['resource']}/{sub['subresource']}"
                    names.append((name, sub["verbs"], resource["scope"] == "Namespaced"))
            assert names == [(each["name"], each["verbs"], each["namespaced"]) for each in plain]


def test_a_cluster_scoped_kind_has_the_scope_cluster(catalog: Catalog) -> None:
    catalog.add(dataclasses.replace(thing("v1"), namespaced=False))
    (group,) = (
        item for item in discovery.aggregated(catalog, core=False)["items"] if item["metadata"]["name"] == "example.com"
    )
    assert group["versions"][0]["resources"][0]["scope"] == "Cluster"


def test_paths_appear_and_vanish_with_their_kinds(catalog: Catalog) -> None:
    paths = discovery.root_paths(catalog)["paths"]
    assert paths == sorted(paths)
    assert {"/api/v1", "/apis/apps/v1", "/apis/example.com", "/apis/example.com/v1beta1", "/version"} <= set(paths)
    catalog.discard(("example.com", "things"))
    assert not [path for path in discovery.root_paths(catalog)["paths"] if "example.com" in path]
