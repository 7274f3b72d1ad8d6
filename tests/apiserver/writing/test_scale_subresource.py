"""Tests for :mod:`trioperator.apiserver.writing.scale_subresource`: a ``Scale`` shows and sets replicas."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from trioperator.apiserver.model.kinds import Catalog, CustomTraits, Kind
from trioperator.apiserver.store.storage import Stored
from trioperator.apiserver.writing.scale_subresource import read_scale, replicas_path, require_replicas, with_scale
from trioperator.errors import InvalidError, ServerError

META = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "3", "labels": {"a": "b"}}
PATHS = {
    "specReplicasPath": ".spec.size.wanted",
    "statusReplicasPath": ".status.size",
    "labelSelectorPath": ".status.selector",
}
catalog = Catalog()


def builtin(name: str) -> Kind:
    kind = catalog.find(name)
    assert kind is not None
    return kind


CUSTOM = dataclasses.replace(builtin("deployments"), custom=CustomTraits(scale=PATHS))


def stored(**content: Any) -> Stored:
    return Stored("ns/a", {"metadata": META, **content}, 3)


def test_the_scale_of_a_builtin_object_has_its_replicas_and_selector() -> None:
    selector = {"matchLabels": {"b": "2", "a": "1"}}
    obj = stored(spec={"replicas": 2, "selector": selector}, status={"replicas": 1})
    assert read_scale(builtin("deployments"), obj) == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: value for key, value in META.items() if key != "labels"},
        "spec": {"replicas": 2},
        "status": {"replicas": 1, "selector": "a=1,b=2"},
    }


def test_the_selector_of_a_scale_has_its_expressions_too() -> None:
    expressions = [
        {"key": "d", "operator": "NotIn", "values": ["y", "x"]},
        {"key": "b", "operator": "In", "values": ["z", "y"]},
        {"key": "c", "operator": "Exists"},
        {"key": "e", "operator": "DoesNotExist"},
    ]
    selector = {"matchLabels": {"a": "1", "f": "2"}, "matchExpressions": expressions}
    scale = read_scale(builtin("deployments"), stored(spec={"selector": selector}))
    assert scale["status"]["selector"] == "a=1,b in (y,z),c,d notin (x,y),!e,f=2"


@pytest.mark.parametrize(("plural", "shown"), [("replicationcontrollers", "a=1"), ("deployments", None)])
def test_only_selectors_of_replication_controllers_are_plain_labels(plural: str, shown: str | None) -> None:
    scale = read_scale(builtin(plural), stored(spec={"selector": {"a": "1"}}))
    assert scale["status"].get("selector") == shown


def test_the_scale_of_a_custom_object_follows_the_paths_of_its_definition() -> None:
    obj = stored(spec={"size": {"wanted": 2}}, status={"size": 1, "selector": "a=b"})
    scale = read_scale(CUSTOM, obj)
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "a=b"})
    assert replicas_path(CUSTOM) == ".spec.size.wanted"
    changed = with_scale(CUSTOM, obj, {"spec": {"replicas": 5}})
    assert changed == {**obj.obj, "spec": {"size": {"wanted": 5}}}
    assert obj.obj["spec"] == {"size": {"wanted": 2}}


def test_zero_replicas_are_omitted_and_set() -> None:
    obj = stored(spec={"replicas": 0})
    assert read_scale(builtin("deployments"), obj)["spec"] == {}
    assert with_scale(builtin("deployments"), stored(spec={"replicas": 3}), {})["spec"] == {"replicas": 0}


def test_only_custom_objects_must_have_replicas() -> None:
    require_replicas(builtin("deployments"), stored(spec={}))
    require_replicas(CUSTOM, stored(spec={"size": {"wanted": 0}}))
    with pytest.raises(ServerError, match=r'the spec replicas field ".spec.size.wanted" does not exist'):
        require_replicas(CUSTOM, stored(spec={"size": {}}))


@pytest.mark.parametrize("replicas", [-1, "1", 1.5, True])
def test_replicas_are_natural_numbers(replicas: Any) -> None:
    with pytest.raises(InvalidError, match=r'Scale.autoscaling "a" is invalid: spec.replicas: Invalid value'):
        with_scale(builtin("deployments"), stored(spec={}), {"spec": {"replicas": replicas}})


def test_the_version_of_the_scale_is_that_of_the_object() -> None:
    kind, obj = builtin("deployments"), stored(spec={})
    assert with_scale(kind, obj, {"metadata": {"resourceVersion": "2"}})["metadata"]["resourceVersion"] == "2"
    assert with_scale(kind, obj, {"metadata": {}})["metadata"] == META
