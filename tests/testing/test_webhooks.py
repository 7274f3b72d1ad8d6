"""Tests for :mod:`trioperator.testing.webhooks`: the webhooks of an operator under test, in virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, widget
from tests.webhooks.conversions import add_handlers, definition
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError, ServerError
from trioperator.testing import OperatorRunner, crash_at_every_write
from trioperator.testing.webhooks import MemoryWebhooks, MemoryWebhookServer

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
    assert MemoryWebhooks(cluster).replace(server) is server
    assert cluster.webhooks == {}


async def test_servers_of_users_are_left_alone(cluster: Cluster, mock_clock: MockClock) -> None:
    tunnel = trioperator.WebhookNgrokTunnel()
    webhooks = MemoryWebhooks(cluster)
    assert webhooks.replace(tunnel) is tunnel
    assert isinstance(webhooks.replace(trioperator.WebhookServer()), MemoryWebhookServer)


async def test_an_operator_keeps_its_address_and_two_have_their_own(cluster: Cluster, mock_clock: MockClock) -> None:
    for webhooks in (MemoryWebhooks(cluster), MemoryWebhooks(cluster)):
        webhooks.replace(trioperator.WebhookServer())
        webhooks.replace(trioperator.WebhookServer())
    assert list(cluster.webhooks) == ["operator0.webhooks.test", "operator1.webhooks.test"]


async def test_a_denial_is_no_failure_but_may_be_expected(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    registry = trioperator.OperatorRegistry()
    declare(registry)

    @on.validate("widgets", id="check", registry=registry)
    async def check() -> None:
        raise trioperator.AdmissionError("never", code=400)

    await cluster.apply(CRD)
    await operator.start(registry=registry)
    with pytest.raises(ApiError, match="never"):
        await cluster.create(widget("small", size="1x1"))
    (call,) = operator.calls.select(handler="check")
    assert (call.denied, call.failed, call.is_review) == (True, False, True)
    operator.check()
    operator.expect_failures("check")
    operator.check()


async def test_other_errors_of_webhooks_are_failures(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    registry = trioperator.OperatorRegistry()
    declare(registry)

    @on.validate("widgets", id="check", registry=registry)
    async def check() -> None:
        raise KeyError("size")

    await cluster.apply(CRD)
    await operator.start(registry=registry)
    with pytest.raises(ApiError, match="The webhook has failed"):
        await cluster.create(widget("small", size="1x1"))
    with pytest.raises(AssertionError, match="check for Widget default/small has failed"):
        operator.check()
    operator.expect_failures("check")


@pytest.mark.parametrize("persistent", [True, False])
async def test_managed_webhooks_are_idempotent(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock, persistent: bool
) -> None:
    registry = trioperator.OperatorRegistry()
    declare(registry)
    add_handlers(registry, "v1_to_v2", "v2_to_v1")

    @on.validate("widgets", persistent=persistent, registry=registry)
    async def check() -> None: ...

    await cluster.apply(definition("v1", "v2"))
    await operator.start(registry=registry)
    await operator.assert_converged()
    await operator.assert_idempotent()


async def test_webhooks_that_change_with_each_start_are_not_idempotent(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @on.startup()
    async def configure(settings: trioperator.OperatorSettings) -> None:
        settings.admission.server = trioperator.WebhookServer()
        settings.admission.managed = f"hooks{len(operator.calls)}.example.com"

    @on.validate("widgets")
    async def check() -> None: ...

    await cluster.apply(CRD)
    await operator.start()
    with pytest.raises(AssertionError, match="not idempotent"):
        await operator.assert_idempotent()


async def test_managed_webhooks_survive_crashes(autojump_clock: MockClock) -> None:
    """See the scenario in docs/testing.md."""
    denied: list[str] = []
    registry = trioperator.OperatorRegistry()
    declare(registry)

    @on.validate("widgets", registry=registry)
    async def check() -> None: ...

    @on.create("widgets", registry=registry)
    async def create_fn(patch: trioperator.Patch) -> None:
        patch.status["phase"] = "Ready"

    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None:
        await cluster.apply(CRD)
        await operator.start(registry)
        while True:
            try:
                await cluster.create(widget("small", size="1x1"))
                break
            except ServerError as error:
                denied.append(str(error))
                await trio.sleep(1)
        await cluster.wait_for("widgets", "small", lambda found: found["status"]["phase"] == "Ready")

    assert await crash_at_every_write(scenario) >= 4
    assert any("The operator does not run" in text for text in denied)
