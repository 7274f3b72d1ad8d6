"""Tests for :mod:`trioperator.client.locating`."""

from __future__ import annotations

import pytest

from tests.client.conftest import config_map, handling
from trioperator._model.resource import Resource
from trioperator.apiserver import Cluster
from trioperator.client import Client
from trioperator.client.locating import Target, choose_namespace

PODS = Resource("", "v1", "pods", kind="Pod", singular="pod")
NODES = Resource("", "v1", "nodes", kind="Node", singular="node", namespaced=False)


async def test_the_namespace_is_the_chosen_one_else_of_the_handled_object_else_of_the_connection(
    client: Client, cluster: Cluster
) -> None:
    kube = await client._connect()
    assert choose_namespace(kube, PODS, "chosen") == "chosen"
    assert choose_namespace(kube, PODS, None) == "default"
    with handling({"metadata": {"namespace": "its"}}):
        assert choose_namespace(kube, PODS, None) == "its"
        assert choose_namespace(kube, PODS, None, everywhere=True) is None
        assert choose_namespace(kube, NODES, None) is None
    with pytest.raises(TypeError, match="not both"):
        choose_namespace(kube, PODS, "chosen", everywhere=True)


async def test_targets_are_named_in_errors_by_kind_and_name(client: Client) -> None:
    kube = await client._connect()
    assert str(Target(kube, PODS, "default", "web")).endswith(" default/web")
    assert str(Target(kube, NODES, None, "one")).endswith(" one")
    with pytest.raises(TimeoutError, match=r"configmaps.* default/one is not deleted after 0 seconds"):
        await client.create(config_map("one"))
        await client.wait_deleted("configmaps", "one", timeout=0)
