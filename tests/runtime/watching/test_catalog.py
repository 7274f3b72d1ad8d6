"""Tests for :mod:`trioperator._runtime.watching.catalog`: kinds that are discovered, and that CRDs define."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from tests.runtime.watching.conftest import crd, thing, warnings, watch
from trioperator._kube.objects import parse_object
from trioperator._model.resource import Resource
from trioperator._runtime.watching.catalog import Catalog
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


async def test_kinds_are_served_where_crds_must_not_be_listed(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen = watch(bench, "widgets")
    plan = FaultPlan()
    plan.add(Fault.status(403), path="/customresourcedefinitions")
    await bench.cluster.create(widget())
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(60)
        assert seen == ["widgets.v1.example.com w"]
    assert len(warnings(caplog, "scanning.disabled")) == 1


async def test_without_scanning_the_kinds_of_the_start_are_served_and_no_crds_asked_for(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.settings.scanning.disabled = True
    seen = watch(bench, "widgets")
    later = watch(bench, "things")
    async with bench.running():
        await bench.cluster.create(widget())
        await bench.cluster.apply(crd("things", "Thing"))
        await bench.cluster.create(thing("Thing"))
        await settle(60)
    assert (seen, later) == (["widgets.v1.example.com w"], [])
    assert bench.cluster.requests.count(resource="customresourcedefinitions") == 0


async def test_an_operator_whose_cluster_cannot_be_discovered_does_not_start(
    bench: Bench, autojump_clock: MockClock
) -> None:
    watch(bench, "widgets")
    plan = FaultPlan()
    plan.add(Fault.status(403), path="^/apis?")
    with pytest.raises(trioperator.errors.ApiError):
        await trioperator.operator(
            registry=bench.registry,
            connection=trioperator.ConnectionInfo(server="http://embedded"),
            transport=FaultyTransport(bench.cluster.transport(), plan),
        )


@pytest.mark.parametrize(
    "broken",
    [{"status": {"conditions": ["odd"]}}, {"spec": {"names": "odd"}}, {"spec": {"names": {}, "versions": ["odd"]}}, {}],
)
async def test_a_broken_crd_is_passed_over_and_others_are_served(
    broken: dict[str, Any], bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen = watch(bench, "things")
    established = {"conditions": [{"type": "Established", "status": "True"}]}
    odd = {"metadata": {"name": "odd.example.com", "uid": "odd"}, "spec": {}, "status": established, **broken}
    await bench.cluster.apply(crd("things", "Thing"))
    good = await bench.cluster.get("customresourcedefinitions", "things.later.example.com")
    await bench.cluster.create(thing("Thing"))
    plan = FaultPlan()
    metadata = {"resourceVersion": good["metadata"]["resourceVersion"]}
    listed = {"kind": "CustomResourceDefinitionList", "metadata": metadata}
    plan.add(
        Fault.answer(200, msgspec.json.encode({**listed, "items": [odd, good]})),
        path="/customresourcedefinitions",
        watch=False,
    )
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(5)
    assert seen == ["things.v1.later.example.com t"]
    assert len(warnings(caplog, "odd.example.com")) == 1


async def test_a_group_that_cannot_be_discovered_at_the_start_is_served_when_it_can(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen = watch(bench, "example.com", "v1", "widgets")
    groups = [{"name": "example.com", "versions": [{"version": "v1"}]}]
    began = trio.current_time()
    plan = FaultPlan()
    plan.add(Fault.status(503), path="^/apis/example.com/v1$", until=began + 100)
    plan.add(Fault.status(503), path="^/apis$", since=began + 100, until=began + 200)
    plan.add(Fault.answer(200, msgspec.json.encode({"kind": "APIGroupList", "groups": groups})), path="^/apis$")
    bench.settings.scanning.disabled = True
    bench.settings.networking.error_backoffs = ()
    await bench.cluster.create(widget())
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(90)
        assert not seen
        assert len(warnings(caplog, "/apis/example.com/v1 is not available")) == 5
        await settle(500)
        assert seen == ["widgets.v1.example.com w"]
        asked = [r for r in bench.cluster.requests if r.path == "/apis/example.com/v1"]
        await settle(1000)
        assert [r for r in bench.cluster.requests if r.path == "/apis/example.com/v1"] == asked


async def test_a_kind_without_the_preferred_version_is_served_when_its_group_is_known(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen = watch(bench, "example.com", "widgets")
    versions = [{"version": "v2"}, {"version": "v1"}]
    groups = {"kind": "APIGroupList", "groups": [{"name": "example.com", "versions": versions}]}
    plan = FaultPlan()
    plan.add(Fault.status(503), path="^/apis/example.com/v2$", until=trio.current_time() + 100)
    plan.add(Fault.answer(200, msgspec.json.encode({"resources": []})), path="^/apis/example.com/v2$")
    plan.add(Fault.answer(200, msgspec.json.encode(groups)), path="^/apis$")
    bench.settings.scanning.disabled = True
    bench.settings.networking.error_backoffs = ()
    await bench.cluster.create(widget())
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(90)
        assert not seen
        await settle(500)
        assert seen == ["widgets.v1.example.com w"]


def test_a_kind_may_have_objects_while_its_definition_exists_whether_it_is_served_or_not() -> None:
    notified: list[bool] = []
    catalog = Catalog(None, lambda: notified.append(True))  # type: ignore[arg-type]
    definition = crd("things", "Thing")
    things = Resource("later.example.com", "v1", "things")
    obj = parse_object(msgspec.json.encode({**definition, "status": {}}))
    catalog.crds.replace([catalog.crds.observe(None, obj)])
    assert notified
    assert catalog.has(things)
    assert things not in catalog.resources()
    catalog.crds.replace([])
    assert not catalog.has(things)
