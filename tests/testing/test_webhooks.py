"""Tests for :mod:`trioperator.testing.webhooks`: the webhooks of an operator under test, in virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, widget
from tests.web.conversions import add_handlers, definition
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError, ServerError
from trioperator.testing import OperatorRunner
from trioperator.testing.webhooks import MemoryWebhookServer, serve_in_virtual_time

on = trioperator.on


def declare(registry: trioperator.OperatorRegistry) -> None:
    """Declare the settings of webhooks."""

    @on.startup(registry=registry)
    async def configure(settings: trioperator.OperatorSettings) -> None:
        settings.admission.server = trioperator.WebhookServer(port=1)  # which nobody may listen on
        settings.admission.managed = "hooks.example.com"
        settings.admission.managed_conversions = True


async def test_reviews_reach_the_operator_while_time_is_virtual(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    registry = trioperator.OperatorRegistry()
    declare(registry)

    @on.validate("widgets", id="check", registry=registry)
    async def check(spec: trioperator.Spec) -> None:
        await trio.sleep(5)
        if spec.get("size") == "9x9":
            raise trioperator.AdmissionError("too large", code=400)

    operator.expect_failures("check")
    await cluster.apply(CRD)
    await operator.start(registry=registry)
    await cluster.create(widget("small", size="1x1"))
    assert trio.current_time() >= 5
    with pytest.raises(ApiError, match="too large"):
        await cluster.create(widget("large", size="9x9"))


async def test_objects_are_converted_by_the_operator_while_it_runs(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    registry = trioperator.OperatorRegistry()
    declare(registry)
    add_handlers(registry, "v1_to_v2", "v2_to_v1")
    await cluster.apply(definition("v1", "v2"))
    await operator.start(registry=registry)
    await cluster.create(widget("small", size="3x4"))
    found = await cluster.get("widgets.v2.example.com", "small")
    assert found["spec"] == {"width": 3, "height": 4}
    changed = {**found, "spec": {"width": 5, "height": 6}}
    await cluster.apply(changed)  # in the version of the manifest, which is not the one that is stored
    assert (await cluster.get("widgets.v1.example.com", "small"))["spec"] == {"size": "5x6"}
    await cluster.create(widget("other", size="1x1"))
    await operator.crash()
    with pytest.raises(ServerError, match="The operator does not run"):
        await cluster.get("widgets.v2.example.com", "other")


async def test_real_time_has_real_sockets_and_other_servers_are_left_alone(cluster: Cluster) -> None:
    server = trioperator.WebhookServer()
    assert serve_in_virtual_time(cluster, server) is server
    assert cluster.webhooks == {}


async def test_servers_of_users_are_left_alone(cluster: Cluster, mock_clock: MockClock) -> None:
    tunnel = trioperator.WebhookNgrokTunnel()
    assert serve_in_virtual_time(cluster, tunnel) is tunnel
    assert isinstance(serve_in_virtual_time(cluster, trioperator.WebhookServer()), MemoryWebhookServer)
