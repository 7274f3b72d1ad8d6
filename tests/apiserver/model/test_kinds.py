"""Tests for :mod:`trioperator.apiserver.model.kinds`: kinds are found by group, version, object and any name."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.model.kinds import VERBS, Catalog, Kind, kind_of, version_priority


def sheep(version: str, group: str = "farm.dev", plural: str = "sheep") -> Kind:
    """Return a version of a custom kind."""
    return Kind(
        group=group,
        version=version,
        plural=plural,
        kind="Sheep",
        singular="sheep",
        list_kind="SheepList",
        namespaced=True,
        short_names=("sh",),
    )


@pytest.fixture
def catalog() -> Catalog:
    return Catalog()


def builtin(catalog: Catalog, group: str, version: str, plural: str) -> Kind:
    """Return a built-in kind that is served."""
    kind = catalog.get(group, version, plural)
    assert kind is not None
    return kind


@pytest.mark.parametrize(
    ("group", "version", "plural", "api_version", "qualified", "resource", "stored"),
    [
        ("", "v1", "pods", "v1", "pods", ("", "pods"), "v1"),
        ("apps", "v1", "deployments", "apps/v1", "deployments.apps", ("apps", "deployments"), "apps/v1"),
        ("events.k8s.io", "v1", "events", "events.k8s.io/v1", "events.events.k8s.io", ("", "events"), "v1"),
    ],
)
def test_a_kind_knows_its_names(
    catalog: Catalog,
    group: str,
    version: str,
    plural: str,
    api_version: str,
    qualified: str,
    resource: tuple[str, str],
    stored: str,
) -> None:
    kind = builtin(catalog, group, version, plural)
    assert (kind.api_version, kind.qualified, kind.resource) == (api_version, qualified, resource)
    assert kind.stored_api_version == stored
    assert kind.head == f'{{"kind":"{kind.kind}","apiVersion":"{api_version}",'.encode()


def test_only_objects_in_namespaces_have_the_namespace_in_their_keys(catalog: Catalog) -> None:
    assert builtin(catalog, "", "v1", "pods").key("ns", "a") == "ns/a"
    assert builtin(catalog, "", "v1", "nodes").key("", "a") == "a"


def test_traits_of_built_in_kinds_are_parsed(catalog: Catalog) -> None:
    pods, namespaces = builtin(catalog, "", "v1", "pods"), builtin(catalog, "", "v1", "namespaces")
    assert pods.namespaced
    assert pods.has_generation
    assert pods.shows_deleted
    assert pods.subresources == {"binding", "ephemeralcontainers", "eviction", "log", "status"}
    assert (pods.short_names, pods.categories) == (("po",), ("all",))
    assert not namespaces.namespaced
    assert namespaces.subresources == {"status", "finalize"}
    assert set(VERBS) - set(namespaces.verbs) == {"deletecollection"}
    assert builtin(catalog, "apps", "v1", "deployments").subresources == {"status", "scale"}
    assert builtin(catalog, "", "v1", "serviceaccounts").subresources == {"token"}
    assert builtin(catalog, "coordination.k8s.io", "v1", "leases").needs_version
    assert builtin(catalog, "coordination.k8s.io", "v1", "leases").creates_on_update
    review = builtin(catalog, "authentication.k8s.io", "v1", "tokenreviews")
    assert (review.is_virtual, review.verbs) == (True, ("create",))


@pytest.mark.parametrize(
    ("name", "qualified"),
    [
        ("pods", "pods"),
        ("po", "pods"),
        ("Pod", "pods"),
        ("pods.v1", "pods"),
        ("deploy.apps", "deployments.apps"),
        ("deployments.v1.apps", "deployments.apps"),
        ("events", "events"),
        ("events.events.k8s.io", "events.events.k8s.io"),
        ("pods.apps", None),
        ("deployments.v2.apps", None),
        ("cows", None),
        ("", None),
    ],
)
def test_a_kind_is_found_by_any_name_of_kubectl(catalog: Catalog, name: str, qualified: str | None) -> None:
    found = catalog.find(name)
    assert (found and found.qualified) == qualified


def test_an_object_names_its_kind(catalog: Catalog) -> None:
    found = catalog.by_object("apps/v1", "Deployment")
    assert found is builtin(catalog, "apps", "v1", "deployments")
    assert catalog.by_object("v1", "Deployment") is None
    assert catalog.by_object("apps/v2", "Deployment") is None


def test_the_preferred_version_of_a_resource_is_the_most_stable(catalog: Catalog) -> None:
    for version in ("v1beta1", "v1", "v2alpha1", "v2"):
        catalog.add(sheep(version))
    assert catalog.versions("farm.dev") == ["v2", "v1", "v1beta1", "v2alpha1"]
    found = catalog.by_resource(("farm.dev", "sheep"))
    assert found is not None
    assert found.version == "v2"
    catalog.add(sheep("v3", plural="rams"))
    assert catalog.by_resource(("farm.dev", "sheep")) is found
    assert catalog.by_resource(("farm.dev", "cows")) is None


def test_a_changed_kind_replaces_the_earlier_one(catalog: Catalog) -> None:
    catalog.add(sheep("v1"))
    assert catalog.find("sh") is not None
    changed = dataclasses.replace(sheep("v1"), short_names=("s",))
    catalog.add(changed)
    assert catalog.kinds("farm.dev", "v1") == [changed]
    assert catalog.find("sh") is None
    assert catalog.find("s") is changed


def test_a_discarded_resource_is_no_longer_served(catalog: Catalog) -> None:
    before = list(catalog)
    for kind in (sheep("v1"), sheep("v2"), sheep("v1", plural="rams")):
        catalog.add(kind)
    assert catalog.find("rams") is not None
    catalog.discard(("farm.dev", "sheep"))
    assert catalog.versions("farm.dev") == ["v1"]
    assert [kind.plural for kind in catalog.kinds("farm.dev", "v1")] == ["rams"]
    catalog.discard(("farm.dev", "rams"))
    assert catalog.find("rams") is None
    assert "farm.dev" not in catalog.groups()
    assert list(catalog) == before
    catalog.discard(("farm.dev", "rams"))


def test_the_core_group_is_the_first(catalog: Catalog) -> None:
    assert catalog.groups()[0] == ""


@given(st.permutations(["v10", "v2", "v1", "v11beta2", "v3beta2", "v3beta1", "v1alpha1", "v0", "vx", "x1"]))
def test_versions_are_sorted_as_kubernetes_sorts_them(versions: list[str]) -> None:
    expected = ["v10", "v2", "v1", "v11beta2", "v3beta2", "v3beta1", "v1alpha1", "v0", "vx", "x1"]
    assert sorted(versions, key=version_priority) == expected


def test_incomplete_objects_have_no_kind() -> None:
    assert kind_of({"apiVersion": "v1", "kind": "Pod"}) == ("v1", "Pod")
    assert kind_of({"apiVersion": None}) == ("", "")
