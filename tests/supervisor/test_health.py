"""What the probes of a running operator say: asked over HTTP, while its time is virtual."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.coordination.peers import peering, peering_crd
from tests.endpoints.plain_client import get
from tests.runtime.conftest import CRD, Bench, widget
from tests.webhooks.admission import MANAGED, sleeping_server
from tests.webhooks.conversions import definition
from trioperator._concurrency.timeouts import Timeouts
from trioperator._coordination.leadership import Leadership
from trioperator._coordination.peering import Peering
from trioperator._coordination.shards import Shards
from trioperator._endpoints.probes import Prober
from trioperator._handling.reviews.webhook_configuration import build_conversion_strategy
from trioperator._kube.credential_store import CredentialStore
from trioperator._recorder.recorder import EventRecorder
from trioperator._runtime.watching.reflector import Reflector
from trioperator._runtime.workqueue import WorkQueue
from trioperator._webhooks.configurations import WebhookConfigurations
from trioperator._webhooks.definitions import ConversionDefinitions
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
WATCH = "watch widgets.v1.example.com"


@pytest.fixture
async def bench(cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("trioperator._endpoints.health._MAX_AGE", 0.0)
    caplog.set_level(logging.INFO)
    await cluster.apply(CRD)
    bench = Bench(cluster, trioperator.OperatorRegistry(), trioperator.OperatorSettings())
    bench.settings.networking.error_backoffs = ()

    @on.event("widgets", registry=bench.registry)
    async def see(**_: Any) -> None: ...

    return bench


@pytest.fixture
def plan() -> FaultPlan:
    return FaultPlan()


class Probes:
    """The probes of an operator."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def ask(self, name: str) -> tuple[int, list[str]]:
        """Return the status and the lines of a probe."""
        status, text = await get(f"{self.url}/{name}?verbose")
        return status, text.splitlines()


@contextlib.asynccontextmanager
async def running(
    bench: Bench, plan: FaultPlan, caplog: pytest.LogCaptureFixture, **options: Any
) -> AsyncIterator[Probes]:
    """Run an operator with probes."""
    transport = FaultyTransport(bench.cluster.transport(), plan)
    options = {"health_endpoint": "http://127.0.0.1:0", "standalone": True, **options}
    run = bench.running(transport=transport, **options)
    async with run:
        [url] = re.findall(r"Serving health checks at (\S+)/livez", caplog.text)
        yield Probes(url)
        plan.clear()


async def test_an_operator_that_watches_is_live_and_ready(
    bench: Bench, plan: FaultPlan, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(bench, plan, caplog) as probes:
        status, lines = await probes.ask("readyz")
        assert status == 200
        assert {"[+]startup ok", f"[+]{WATCH} ok"} <= set(lines)
        status, lines = await probes.ask("livez")
        assert status == 200
        assert {"[+]task credentials ok", "[+]task post events ok", f"[+]{WATCH} ok"} <= set(lines)


async def test_an_operator_is_live_but_not_ready_while_it_starts(
    bench: Bench, plan: FaultPlan, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = trio.Event(), trio.Event()

    @on.startup(registry=bench.registry)
    async def start(**_: Any) -> None:
        begun.set()
        await go_on.wait()

    async def ask() -> None:
        await begun.wait()
        [url] = re.findall(r"Serving health checks at (\S+)/livez", caplog.text)
        assert (await get(f"{url}/livez"))[0] == 200
        status, text = await get(f"{url}/readyz")
        assert (status, text.splitlines()[1]) == (503, "[-]startup failed: the operator is starting")
        go_on.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        async with running(bench, plan, caplog) as probes:
            assert (await probes.ask("readyz"))[0] == 200


async def test_it_is_not_ready_until_each_kind_is_listed_and_then_it_stays_so(
    bench: Bench, plan: FaultPlan, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    plan.add(Fault.stall(), verb="list", resource="widgets", until=100)
    async with running(bench, plan, caplog) as probes:
        status, lines = await probes.ask("readyz")
        assert status == 503
        assert f"[-]{WATCH} failed: it is not listed yet" in lines
        bench.settings.networking.request_timeout = 1
        plan.clear()
        await trio.sleep(310)
        assert (await probes.ask("readyz"))[0] == 200
        plan.add(Fault.refuse())
        await trio.sleep(700)
        status, lines = await probes.ask("readyz")
        assert status == 200
        assert f"[+]{WATCH} ok, but its watch is interrupted" in lines


async def test_a_kind_that_must_not_be_listed_is_shown_and_holds_up_nothing(
    bench: Bench, plan: FaultPlan, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    plan.add(Fault.status(403), resource="widgets")
    async with running(bench, plan, caplog) as probes:
        status, lines = await probes.ask("readyz")
        assert status == 200
        assert f"[+]{WATCH} ok, but it cannot be watched (HTTP 403)" in lines
        await trio.sleep(50)
        await trio.sleep(2000)
        assert (await probes.ask("livez"))[0] == 200  # the server responds: a restart would not help


async def test_a_kind_that_nobody_converts_holds_up_nothing_as_only_ready_pods_are_asked_to_convert_it(
    bench: Bench, plan: FaultPlan, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.cluster.create(widget("stored"))
    service = {"namespace": "default", "name": "it-webhooks", "path": "/convert"}
    conversion = build_conversion_strategy({"service": service})
    await bench.cluster.apply(definition("v1", "v2", storage="v1", conversion=conversion))
    async with running(bench, plan, caplog) as probes:
        status, lines = await probes.ask("readyz")
        assert status == 200
        assert "[+]watch widgets.v2.example.com ok, but it cannot be watched (HTTP 500)" in lines


async def test_a_standby_is_live_and_ready(
    bench: Bench, plan: FaultPlan, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench.settings.leadership.enabled = True
    plan.add(Fault.status(403), resource="leases")
    async with running(bench, plan, caplog) as probes:
        status, lines = await probes.ask("readyz")
        assert status == 200
        assert any(line.startswith("[+]active ok, but it stands by until it holds the lease") for line in lines)
        assert (await probes.ask("livez"))[0] == 200


async def test_a_watch_that_waits_as_long_as_the_server_asks_for_is_live(
    bench: Bench, plan: FaultPlan, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench.settings.watching.server_timeout = 370  # a period is 400 seconds
    async with running(bench, plan, caplog) as probes:
        plan.add(Fault.status(503, retry_after=3600), watch=True, resource="widgets", times=1)
        await trio.sleep(400 + 3500)
        assert (await probes.ask("readyz"))[1][1:].count(f"[+]{WATCH} ok, but its watch is interrupted") == 1
        assert (await probes.ask("livez"))[0] == 200
        plan.add(Fault.refuse(), watch=True, resource="widgets")
        await trio.sleep(1000 + 900)  # then it counts again
        assert (await probes.ask("livez"))[0] == 503


async def test_a_watch_without_progress_for_two_periods_is_not_live(
    bench: Bench, plan: FaultPlan, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench.settings.watching.server_timeout = 370  # a period is 400 seconds
    async with running(bench, plan, caplog) as probes:
        await trio.sleep(1560)
        assert (await probes.ask("livez"))[0] == 200
        plan.add(Fault.refuse(), watch=True, resource="widgets")
        await trio.sleep(370)  # until the last watch has certainly ended
        assert (await probes.ask("livez"))[0] == 200
        await trio.sleep(450)
        status, lines = await probes.ask("livez")
        assert status == 503
        [failed] = [line for line in lines if line.startswith("[-]")]
        assert re.fullmatch(re.escape(f"[-]{WATCH} failed: it has made no progress for ") + r"\d{3} seconds", failed)
        plan.clear()
        await trio.sleep(40)
        assert (await probes.ask("livez"))[0] == 200


CORE: dict[str, tuple[type, str]] = {
    "timeouts": (Timeouts, "serve"),
    "credentials": (CredentialStore, "serve"),
    "post events": (EventRecorder, "serve"),
    "follow /apis/example.com/v1/widgets": (Reflector, "_follow"),
    "requeue": (WorkQueue, "_requeue"),
    "prober": (Prober, "serve"),
    "webhook configurations": (WebhookConfigurations, "serve"),
    "conversions of CRDs": (ConversionDefinitions, "serve"),
}
LEADING: dict[str, tuple[type, str]] = {
    "leadership": (Leadership, "_elect"),
    "keep alive in the peering object 'default'": (Peering, "_keep_alive"),
}
SHARING: dict[str, tuple[type, str]] = {
    "renew the session": (Shards, "_keep_session"),
    "judge the peering object 'default'": (Peering, "serve"),
}


@pytest.mark.parametrize(("shards", "tasks"), [(1, CORE | LEADING), (2, CORE | SHARING)])
async def test_each_core_task_that_has_ended_is_not_live(
    shards: int,
    tasks: dict[str, tuple[type, str]],
    bench: Bench,
    plan: FaultPlan,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    due, run = trio.Event(), trio.lowlevel.current_trio_token()

    def ending(serve: Any) -> Any:
        async def end(self: object) -> None:
            if trio.lowlevel.current_trio_token() is not run:  # in the thread of the health checks
                await serve(self)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, self)
                await due.wait()
                nursery.cancel_scope.cancel()

        return end

    for owner, method in tasks.values():
        monkeypatch.setattr(owner, method, ending(getattr(owner, method)))
    admission = bench.settings.admission
    admission.server, admission.managed, admission.managed_conversions = sleeping_server([]), "hooks.example.com", True
    on.validate("widgets", registry=bench.registry)(lambda **_: None)
    bench.settings.leadership.enabled = shards == 1
    await bench.cluster.apply(peering_crd())
    await bench.cluster.create(peering())
    options = {"standalone": False, "shards": shards, "liveness_endpoint": "http://127.0.0.1:0"}
    async with running(bench, plan, caplog, **options) as probes:
        await trio.sleep(60)
        status, lines = await probes.ask("livez")
        assert status == 200
        assert {name for name in tasks if f"[+]task {name} ok" not in lines} == set()
        due.set()
        await trio.sleep(1)
        status, lines = await probes.ask("livez")
        assert status == 503
        assert {name for name in tasks if f"[-]task {name} failed: it has ended" not in lines} == set()


async def test_tasks_that_end_with_a_pause_are_not_missed(
    bench: Bench, plan: FaultPlan, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench.settings.leadership.enabled = True
    async with running(bench, plan, caplog) as probes:
        plan.add(Fault.status(403), resource="leases", until=trio.current_time() + 60)
        await trio.sleep(100)
        assert "The leadership is lost" in caplog.text
        status, lines = await probes.ask("livez")
        assert (status, lines.count("[+]task requeue ok")) == (200, 1)


async def test_a_stopping_operator_is_live_but_not_ready(
    bench: Bench, plan: FaultPlan, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[tuple[int, list[str]]] = []
    found: list[Probes] = []

    @on.cleanup(registry=bench.registry)
    async def clean(**_: Any) -> None:
        answers.extend([await found[0].ask("livez"), await found[0].ask("readyz")])

    async with running(bench, plan, caplog) as probes:
        found.append(probes)
    assert [status for status, _ in answers] == [200, 503]
    assert "[-]shutdown failed: the operator is stopping" in answers[1][1]


async def test_handlers_without_a_kind_are_shown(
    bench: Bench, plan: FaultPlan, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.event("nothings", registry=bench.registry)
    async def never(**_: Any) -> None: ...

    async with running(bench, plan, caplog) as probes:
        status, lines = await probes.ask("readyz")
        assert status == 200
        assert "[+]handlers ok, but Not all handlers of nothings are called" in lines


async def test_an_operator_is_not_ready_while_other_webhooks_are_stored_than_it_wants(
    bench: Bench, plan: FaultPlan, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    on.validate("widgets", id="check", registry=bench.registry)(print)
    bench.settings.admission.server = sleeping_server([])
    bench.settings.admission.managed = MANAGED
    kind = "validatingwebhookconfigurations"
    async with running(bench, plan, caplog) as probes:
        assert (await probes.ask("readyz"))[0] == 200
        plan.add(Fault.status(500), verb="patch", path=kind)
        await bench.cluster.patch(kind, MANAGED, {"webhooks": []})
        await trio.sleep(1)
        status, lines = await probes.ask("readyz")
        assert (status, "[-]webhooks failed: The webhook configurations are not up to date" in lines) == (503, True)
        plan.clear()
        await trio.sleep(30)
        assert (await probes.ask("readyz"))[0] == 200
        assert (await bench.cluster.get(kind, MANAGED))["webhooks"]
