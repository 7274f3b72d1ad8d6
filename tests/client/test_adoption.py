"""Tests for :mod:`trioperator.client.adoption`; what it does to requests is in ``test_client.py``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.conftest import config_map, handling
from trioperator._model.resource import Resource
from trioperator.client.adoption import HANDLED, adopt, find_handled
from trioperator.errors import ConfigError
from trioperator.settings import OperatorSettings

CONFIG_MAPS = Resource("", "v1", "configmaps", kind="ConfigMap")
NODE: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "uid": "u"}}


def test_outside_of_handlers_nothing_is_handled() -> None:
    child = config_map("child")
    adopt(child, HANDLED, resource=CONFIG_MAPS)
    assert child == config_map("child")
    assert find_handled() is None
    assert repr(HANDLED) == "HANDLED"


@pytest.mark.parametrize("namespace", ["default", "kube-system"])
def test_a_cluster_scoped_owner_has_children_anywhere(namespace: str) -> None:
    child = config_map("child")
    child["metadata"]["namespace"] = namespace
    with handling(NODE):
        adopt(child, HANDLED, resource=CONFIG_MAPS)
    assert child["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert child["metadata"]["namespace"] == namespace


def test_an_object_of_the_same_name_and_another_group_is_a_child() -> None:
    child: dict[str, Any] = {"apiVersion": "x.org/v1", "kind": "Node", "metadata": {"name": "node-1"}}
    with handling(NODE):
        adopt(child, HANDLED, resource=Resource("x.org", "v1", "nodes", kind="Node", namespaced=False))
    assert child["metadata"]["ownerReferences"][0]["uid"] == "u"


def test_an_owner_that_is_not_in_the_cluster_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"metadata\.uid"):
        adopt(config_map("child"), config_map("owner"), resource=CONFIG_MAPS)


OWNER: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1", "uid": "u", "labels": {"team": "a", "app": "bank"}},
}


def test_children_get_only_those_labels_of_their_owner_that_are_listed() -> None:
    plain, listed = config_map("child"), config_map("child")
    listed["metadata"]["labels"] = {"own": "1"}
    with handling(OWNER):
        adopt(plain, HANDLED, resource=CONFIG_MAPS)
        adopt(listed, HANDLED, resource=CONFIG_MAPS, labels=["team", "absent"])
    assert "labels" not in plain["metadata"]
    assert listed["metadata"]["labels"] == {"own": "1", "team": "a"}


def test_namespaces_get_no_labels() -> None:
    child: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}}
    with handling(OWNER):
        adopt(child, HANDLED, resource=Resource("", "v1", "namespaces", kind="Namespace"), labels=["team"])
    assert "labels" not in child["metadata"]


@pytest.mark.parametrize("name", ["app.kubernetes.io/name", "kubernetes.io/hostname", "x.k8s.io/a"])
def test_labels_of_kubernetes_cannot_be_listed(name: str) -> None:
    with pytest.raises(ConfigError, match="owner_labels"):
        OperatorSettings().persistence.owner_labels = ["team", name]
