"""Tests for :mod:`trioperator.client.adoption`; what it does to requests is in ``test_client.py``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.conftest import config_map, handling
from trioperator.client.adoption import HANDLED, adopt, find_handled
from trioperator.model.resource import Resource

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
