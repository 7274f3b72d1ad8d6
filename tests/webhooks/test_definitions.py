"""Tests for :mod:`trioperator._webhooks.definitions`: what an operator writes to CRDs, in memory."""

from __future__ import annotations

import base64
import functools
import logging
from typing import Any

import pytest
import trio

import trioperator
from tests.webhooks.admission import operate_for, operating, server_with, sleeping_server
from tests.webhooks.conversions import URL, Hooks, add_handlers, converting, definition
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

NAME = "widgets.example.com"
WANTED = {
    "strategy": "Webhook",
    "webhook": {"clientConfig": {"url": f"{URL}/convert"}, "conversionReviewVersions": ["v1"]},
}

REMOVAL = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}


@pytest.fixture
def registry() -> trioperator.OperatorRegistry:
    registry = trioperator.OperatorRegistry()
    add_handlers(registry, "v1_to_v2", "v2_to_v1")
    return registry


def count_writes(cluster: Cluster) -> int:
    return len([r for r in cluster.requests if r.method == "PATCH" and r.path.endswith(NAME)])


async def find_trusted(cluster: Cluster) -> list[str]:
    """Return the names of the CAs that the conversion trusts."""
    conversion = (await cluster.get("crd", NAME))["spec"]["conversion"]
    lines = base64.b64decode(conversion["webhook"]["clientConfig"]["caBundle"]).decode().splitlines()
    return [line for line in lines if "-----" not in line]


async def test_the_conversion_of_the_crd_is_written_and_stays(
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    await cluster.apply(definition("v1", "v2"))
    async with converting(cluster, registry, Hooks()):
        assert (await cluster.get("crd", NAME))["spec"]["conversion"] == WANTED
    assert (await cluster.get("crd", NAME))["spec"]["conversion"] == WANTED
    assert f"The URL of this operator stays in the CRD {NAME}: " in caplog.text


async def test_it_is_not_written_again_when_it_is_stored_already(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    await cluster.apply(definition("v1", "v2"))
    for _ in range(2):
        async with converting(cluster, registry, Hooks()):
            pass
        assert count_writes(cluster) == 1


async def test_an_earlier_address_is_replaced_as_a_whole(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    service = {"namespace": "default", "name": "hooks", "port": 443, "path": "/x"}
    webhook = {"clientConfig": {"service": service, "caBundle": "eA=="}, "conversionReviewVersions": ["v1beta1", "v1"]}
    await cluster.apply(definition("v1", "v2", conversion={"strategy": "Webhook", "webhook": webhook}))
    async with converting(cluster, registry, Hooks()):
        assert (await cluster.get("crd", NAME))["spec"]["conversion"] == WANTED


async def test_a_service_is_put_back_when_an_operator_at_a_url_stops(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    service = {"namespace": "default", "name": "hooks", "port": 443, "path": "/x"}
    webhook = {"clientConfig": {"service": service, "caBundle": "eA=="}, "conversionReviewVersions": ["v1beta1", "v1"]}
    before = {"strategy": "Webhook", "webhook": webhook}
    await cluster.apply(definition("v1", "v2", conversion=before))
    async with converting(cluster, registry, Hooks()):
        assert (await cluster.get("crd", NAME))["spec"]["conversion"] == WANTED
    assert (await cluster.get("crd", NAME))["spec"]["conversion"] == before


@pytest.mark.parametrize("annotated", [True, False])
@pytest.mark.parametrize("url", [f"{URL}/convert", "https://before.test/convert"])
async def test_the_ca_that_a_controller_was_asked_to_inject_stays(
    cluster: Cluster, registry: trioperator.OperatorRegistry, url: str, annotated: bool, autojump_clock: object
) -> None:
    bundle = base64.b64encode(b"theirs").decode()
    webhook = {"clientConfig": {"url": url, "caBundle": bundle}, "conversionReviewVersions": ["v1"]}
    crd = definition("v1", "v2", conversion={"strategy": "Webhook", "webhook": webhook})
    crd["metadata"]["annotations"] = {"cert-manager.io/inject-ca-from": "default/hooks"} if annotated else {}
    await cluster.apply(crd)
    async with converting(cluster, registry, Hooks()):
        config = (await cluster.get("crd", NAME))["spec"]["conversion"]["webhook"]["clientConfig"]
        assert config == {"url": f"{URL}/convert", **({"caBundle": bundle} if annotated else {})}


async def test_a_service_whose_ca_is_injected_is_put_back_when_an_operator_at_a_url_stops(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    service = {"namespace": "default", "name": "hooks", "port": 443, "path": "/x"}
    webhook = {"clientConfig": {"service": service, "caBundle": "eA=="}, "conversionReviewVersions": ["v1"]}
    before = {"strategy": "Webhook", "webhook": webhook}
    crd = definition("v1", "v2", conversion=before)
    crd["metadata"]["annotations"] = {"service.beta.openshift.io/inject-cabundle": "true"}
    await cluster.apply(crd)
    async with converting(cluster, registry, Hooks()):
        pass
    assert (await cluster.get("crd", NAME))["spec"]["conversion"] == before


@pytest.mark.parametrize("in_order", [True, False])
async def test_an_operator_that_stops_while_it_writes_a_conversion_puts_the_service_back(
    cluster: Cluster, registry: trioperator.OperatorRegistry, in_order: bool, autojump_clock: object
) -> None:
    service = {"namespace": "default", "name": "hooks", "port": 443, "path": "/x"}
    webhook = {"clientConfig": {"service": service, "caBundle": "eA=="}, "conversionReviewVersions": ["v1beta1", "v1"]}
    before = {"strategy": "Webhook", "webhook": webhook}
    await cluster.apply(definition("v1", "v2", conversion=before))
    plan = FaultPlan()
    plan.add(Fault.delay(before=0.3, after=0.3), path=f"/customresourcedefinitions/{NAME}")
    settings = trioperator.OperatorSettings()
    settings.admission.managed_conversions = True
    options = {"settings": settings, "managed": None, "server": sleeping_server([])}
    for number in range(1, 20):
        transport = FaultyTransport(cluster.transport(), plan)
        await operate_for(number / 10 + 0.05, cluster, registry, in_order=in_order, transport=transport, **options)
        await trio.sleep(1)
        assert (await cluster.get("crd", NAME))["spec"]["conversion"] == before, number


async def test_a_service_is_not_put_back_over_what_others_have_written(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    service = {"namespace": "default", "name": "hooks", "port": 443, "path": "/x"}
    webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
    await cluster.apply(definition("v1", "v2", conversion={"strategy": "Webhook", "webhook": webhook}))
    other = {"url": "https://other.example.com/convert"}
    async with converting(cluster, registry, Hooks()):
        await cluster.patch("crd", NAME, {"spec": {"conversion": {"webhook": {"clientConfig": other}}}})
    assert (await cluster.get("crd", NAME))["spec"]["conversion"]["webhook"]["clientConfig"] == other


async def test_a_conversion_that_others_remove_is_written_again(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.apply(definition("v1", "v2"))
    async with converting(cluster, registry, Hooks()):
        await cluster.patch("crd", NAME, REMOVAL)
        await trio.sleep(1)
        assert (await cluster.get("crd", NAME))["spec"]["conversion"] == WANTED
    assert caplog.text.count(f"Others have removed the conversion of the CRD {NAME}: writing it again.") == 1


async def test_a_conversion_that_is_removed_again_and_again_is_written_less_and_less_often(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    async def remove() -> None:
        while True:
            await cluster.wait_for("crd", NAME, lambda crd: crd["spec"]["conversion"]["strategy"] == "Webhook")
            await cluster.patch("crd", NAME, REMOVAL)

    await cluster.apply(definition("v1", "v2"))
    async with converting(cluster, registry, Hooks()), trio.open_nursery() as nursery:
        nursery.start_soon(remove)
        before = count_writes(cluster)
        await trio.sleep(600)
        nursery.cancel_scope.cancel()
        assert count_writes(cluster) - before < 70  # by both
        await trio.sleep(60)
        assert (await cluster.get("crd", NAME))["spec"]["conversion"] == WANTED


async def test_a_conversion_that_is_removed_as_the_operator_stops_is_left_so(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    settings = trioperator.OperatorSettings()
    settings.admission.managed_conversions, settings.admission.shutdown_delay = True, 10
    settings.leadership.enabled, settings.leadership.namespace = True, "default"  # others may go on converting
    await cluster.apply(definition("v1", "v2"))
    async with operating(cluster, registry, server=Hooks(), managed=None, settings=settings, identity="a") as operator:
        await cluster.patch("crd", NAME, REMOVAL)
        await trio.sleep(1)
        await cluster.patch("crd", NAME, REMOVAL)  # it would be written again within a second
        operator.stop.set()
        await trio.sleep(8)
        assert (await cluster.get("crd", NAME))["spec"]["conversion"] == {"strategy": "None"}


async def test_another_webhook_for_conversions_is_left(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    await cluster.apply(definition("v1", "v2"))
    other = {"url": "https://other.example.com/convert"}
    async with converting(cluster, registry, Hooks()):
        await cluster.patch("crd", NAME, {"spec": {"conversion": {"webhook": {"clientConfig": other}}}})
        await trio.sleep(700)
        assert (await cluster.get("crd", NAME))["spec"]["conversion"]["webhook"]["clientConfig"] == other


@pytest.mark.parametrize("failures", [0, 3])
async def test_the_ca_of_another_replica_at_the_same_address_is_kept_for_ten_minutes(
    failures: int, cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    await cluster.apply(definition("v1", "v2"))
    plan, settings = FaultPlan(), trioperator.OperatorSettings()
    settings.networking.error_backoffs, settings.admission.managed_conversions = (), True
    options: Any = {"managed": None, "settings": settings, "transport": FaultyTransport(cluster.transport(), plan)}
    async with operating(cluster, registry, server=server_with("old"), **options):
        assert await find_trusted(cluster) == ["old"]
    async with operating(cluster, registry, server=server_with("new"), **options):
        assert await find_trusted(cluster) == ["old", "new"]
        await trio.sleep(590)
        assert await find_trusted(cluster) == ["old", "new"]
        if failures:
            plan.add(Fault.status(500), method="PATCH", path=NAME, times=failures)
        await trio.sleep(60)
        assert await find_trusted(cluster) == ["new"]
        await trio.sleep(3600)
        assert count_writes(cluster) == 3


async def test_a_replica_whose_ca_was_dropped_by_another_one_adds_it_again(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.apply(definition("v1", "v2"))
    settings = trioperator.OperatorSettings()
    settings.admission.managed_conversions = True
    options: Any = {"managed": None, "settings": settings}
    async with (
        operating(cluster, registry, server=server_with("one"), **options),
        operating(cluster, registry, server=server_with("two"), **options),
    ):
        missing, writes = 0, count_writes(cluster)
        for _ in range(2 * 3600):
            await trio.sleep(1)
            missing += set(await find_trusted(cluster)) != {"one", "two"}
    assert missing <= 12 * 2 * 2  # every ten minutes, for each of them
    assert count_writes(cluster) - writes <= 12 * 2 * 2
    assert "Another replica has dropped the CA of this one" in caplog.text


async def test_where_crds_are_not_watched_the_cas_of_other_replicas_stay(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    await cluster.apply(definition("v1", "v2"))
    settings = trioperator.OperatorSettings()
    settings.admission.managed_conversions, settings.scanning.disabled = True, True
    options: Any = {"managed": None, "settings": settings}
    async with (
        operating(cluster, registry, server=server_with("one"), **options),
        operating(cluster, registry, server=server_with("two"), **options),
    ):
        await trio.sleep(3600)
        assert await find_trusted(cluster) == ["one", "two"]


async def test_replicas_that_start_at_the_same_time_lose_no_ca(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    await cluster.apply(definition("v1", "v2"))
    plan = FaultPlan()
    plan.add(Fault.delay(before=0.2), method="PATCH", path=NAME)
    async with trio.open_nursery() as nursery:
        for name in "abc":
            settings = trioperator.OperatorSettings()
            settings.admission.managed_conversions, settings.scanning.disabled = True, True  # nothing is repaired
            transport = FaultyTransport(cluster.transport(), plan)
            options: Any = {"server": server_with(name), "managed": None, "settings": settings, "transport": transport}
            nursery.start_soon(functools.partial(operate_for, 10, cluster, registry, in_order=True, **options))
        await trio.sleep(5)
        assert set(await find_trusted(cluster)) == {"a", "b", "c"}


async def test_the_crd_is_written_when_it_was_deleted_and_created_again(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.apply(definition("v1", "v2"))
    async with converting(cluster, registry, Hooks()):
        for pause in (0.0, 5.0):
            await cluster.delete("crd", NAME)
            await trio.sleep(pause)
            await cluster.apply(definition("v1", "v2"))
            await trio.sleep(5)
            assert (await cluster.get("crd", NAME))["spec"]["conversion"] == WANTED


async def test_without_the_setting_crds_are_not_changed(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    await cluster.apply(definition("v1", "v2"))
    async with operating(cluster, registry, server=sleeping_server([])):
        assert (await cluster.get("crd", NAME))["spec"]["conversion"] == {"strategy": "None"}


async def test_a_crd_that_is_created_later_is_written(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    @trioperator.on.convert("toys", from_="v1", to="v2", registry=registry)
    async def convert(**_: Any) -> None: ...

    crd = definition("v1", "v2")
    crd["metadata"]["name"], crd["spec"]["names"] = "toys.example.com", {"kind": "Toy", "plural": "toys"}
    async with converting(cluster, registry, Hooks()):
        await cluster.apply(crd)
        await trio.sleep(5)
        assert (await cluster.get("crd", "toys.example.com"))["spec"]["conversion"] == WANTED


async def test_what_is_not_defined_by_a_crd_is_warned_of(
    cluster: Cluster, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    registry = trioperator.OperatorRegistry()
    trioperator.on.convert("pods", from_="v1", to="v2", registry=registry)(print)
    async with converting(cluster, registry, Hooks()):
        pass
    assert "There is no CRD pods: its objects cannot be converted by webhooks." in caplog.text


async def test_an_error_is_logged_shown_and_tried_again(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    plan = FaultPlan()
    plan.add(Fault.answer(500, b'{"kind":"Status","code":500,"message":"no"}'), method="PATCH", path=NAME, times=1)
    settings = trioperator.OperatorSettings()
    settings.networking.error_backoffs = ()
    settings.admission.managed_conversions = True
    await cluster.apply(definition("v1", "v2"))
    transport = FaultyTransport(cluster.transport(), plan)
    async with operating(cluster, registry, server=Hooks(), managed=None, settings=settings, transport=transport):
        assert "The conversions of CRDs cannot be written; retrying in 5 s" in caplog.text
        assert "It does not handle everything: The conversions of CRDs are not up to date." in caplog.text
        await trio.sleep(6)
        assert (await cluster.get("crd", NAME))["spec"]["conversion"] == WANTED


async def test_without_the_right_to_read_crds_they_are_written_on_every_start(
    cluster: Cluster, registry: trioperator.OperatorRegistry, autojump_clock: object
) -> None:
    plan = FaultPlan()
    plan.add(Fault.answer(403, b'{"kind":"Status","code":403,"message":"no"}'), method="GET", path=NAME)
    await cluster.apply(definition("v1", "v2"))
    for _ in range(2):
        async with converting(cluster, registry, Hooks(), transport=FaultyTransport(cluster.transport(), plan)):
            pass
    assert count_writes(cluster) == 2
