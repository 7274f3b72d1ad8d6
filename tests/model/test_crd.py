"""Resource kinds of CustomResourceDefinitions."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator._model.crd import is_established, name_of_crd, resources_of_crd, version_rank
from trioperator._model.resource import Selector


def crd(*versions: dict[str, Any], established: str | None = "True", **names: Any) -> dict[str, Any]:
    return {
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", **names},
            "versions": list(versions),
        },
        "status": {"conditions": [{"type": "Established", "status": established}]} if established else {},
    }


def version(name: str, *, served: bool = True, **options: Any) -> dict[str, Any]:
    return {"name": name, "served": served, **options}


def test_versions_are_ranked_as_by_kubernetes() -> None:
    best_first = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    assert sorted(sorted(best_first), key=version_rank) == best_first


def test_each_served_version_is_a_kind_and_the_best_one_is_preferred() -> None:
    kinds = resources_of_crd(crd(version("v1"), version("v2", served=False), version("v2beta1"), version("v1alpha1")))
    assert {kind.version: kind.preferred for kind in kinds} == {"v1": True, "v2beta1": False, "v1alpha1": False}


def test_all_names_and_subresources_are_included() -> None:
    (kind,) = resources_of_crd(
        crd(version("v1", subresources={"status": {}}), singular="wi", shortNames=["wd"], categories=["all"])
    )
    assert tuple(kind) == ("example.com", "v1", "widgets")
    assert (kind.kind, kind.singular, kind.namespaced) == ("Widget", "wi", True)
    assert kind.shortcuts == frozenset({"wd"})
    assert kind.categories == frozenset({"all"})
    assert kind.subresources == frozenset({"status"})
    assert Selector.parse("wd").matches(kind)
    assert {"list", "watch", "patch"} <= kind.verbs


def test_a_missing_singular_is_the_kind_in_lower_case() -> None:
    (kind,) = resources_of_crd(crd(version("v1")))
    assert kind.singular == "widget"


def test_a_kind_may_be_cluster_scoped() -> None:
    definition = crd(version("v1"))
    definition["spec"]["scope"] = "Cluster"
    (kind,) = resources_of_crd(definition)
    assert kind.namespaced is False


@pytest.mark.parametrize("established", ["False", "Unknown", None])
def test_nothing_is_served_until_the_definition_is_established(established: str | None) -> None:
    definition = crd(version("v1"), established=established)
    assert not is_established(definition)
    assert resources_of_crd(definition) == frozenset()


@pytest.mark.parametrize("definition", [{}, {"status": None}, {"status": {"conditions": None}}])
def test_a_definition_without_conditions_is_not_established(definition: dict[str, Any]) -> None:
    assert not is_established(definition)


def test_a_definition_is_named_by_its_group_and_plural_established_or_not() -> None:
    assert name_of_crd(crd(version("v1"), established="False")) == name_of_crd(crd(version("v1")))
    assert name_of_crd(crd(version("v1"))) == (crd()["spec"]["group"], crd()["spec"]["names"]["plural"])
