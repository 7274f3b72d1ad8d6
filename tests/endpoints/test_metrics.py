"""Tests for :mod:`trioperator._endpoints.metrics`.

What a busy operator tells Prometheus, by the library's own parser.
"""

from __future__ import annotations

import collections
import pathlib
import re
import subprocess
import sys
from typing import Any, Final

import prometheus_client
import pytest
import trio
import trustme
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

import trioperator
from tests.endpoints.plain_client import get
from tests.runtime.conftest import CRD, Bench, widget
from tests.runtime.databases import CRD as DATABASES
from tests.runtime.databases import database
from tests.runtime.patching.test_contention_guard import fighting, stomp_label
from tests.webhooks.admission import deny, operating
from tests.webhooks.conversions import definition
from tests.webhooks.serving import until, write_pair
from trioperator._coordination.pauses import Pauses
from trioperator._endpoints.metrics import OperatorCollector, serve_metrics
from trioperator._telemetry.inspector import Inspector
from trioperator._telemetry.instruments import Instruments
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport, OperatorRunner

on = trioperator.on
ROOT: Final = pathlib.Path(__file__).parents[2]
DOCUMENTED: Final = re.findall(
    r"^\| `((?:controller|workqueue|rest|leader|certwatcher|trioperator)_\w+)` \|",
    (ROOT / "docs" / "monitoring.md").read_text(),
    re.M,
)
WEBHOOKS: Final = frozenset(
    name for name in DOCUMENTED if "_webhook_" in name or name.startswith(("certwatcher_", "trioperator_certificate_"))
)


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    return Bench(cluster, trioperator.OperatorRegistry(), trioperator.OperatorSettings())


class Scraper:
    """The metrics of an operator, by the names of samples, and the largest values that were ever seen."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.largest: collections.defaultdict[str, float] = collections.defaultdict(float)
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}

    async def scrape(self) -> None:
        status, text = await get(self.url)
        assert status == 200
        self.samples.clear()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.largest[sample.name] = max(self.largest[sample.name], sample.value)
                self.samples[sample.name, frozenset(sample.labels.items())] = sample.value

    def value(self, name: str, /, **labels: str) -> float:
        """Return the value of one sample, or the sum of those that have the labels."""
        wanted = set(labels.items())
        return sum(value for (found, have), value in self.samples.items() if found == name and wanted <= have)

    def has_moved(self, name: str) -> bool:
        return self.largest[name] > 0 or self.largest[f"{name}_count"] > 0


def find_url(caplog: pytest.LogCaptureFixture) -> str:
    [url] = re.findall(r"Serving metrics at (\S+)", caplog.text)
    return str(url)


def lease() -> dict[str, Any]:
    """Return the lease of an operator, which others have held."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "trioperator", "namespace": "default"},
        "spec": {"holderIdentity": "", "leaseTransitions": 7},
    }


def declare_handlers(bench: Bench) -> None:
    registry = bench.registry

    @on.create("widgets", id="work", backoff=1, retries=5, registry=registry)
    async def work(spec: Any, retry: int, patch: Any, **_: Any) -> None:
        await trio.sleep(spec.get("seconds", 5))
        if spec.get("fails") == "once" and not retry:
            raise ValueError("not yet")
        if spec.get("fails") == "always":
            raise trioperator.PermanentError("never")
        patch.status["done"] = True

    @on.create("widgets", id="late", timeout=1, field="spec.late", registry=registry)
    async def late(**_: Any) -> None:
        await trio.sleep(100)

    @on.create("widgets", id="parent", registry=registry)
    async def parent(**_: Any) -> None:
        for number in range(3):
            trioperator.subhandler(id=f"child-{number}")(lambda **_: None)

    @on.daemon("widgets", id="keep", registry=registry)
    async def keep(stopped: Any, **_: Any) -> None:
        await stopped.wait()

    @on.delete("widgets", id="clean", registry=registry)
    async def clean(**_: Any) -> None: ...


async def test_every_documented_series_moves_under_load(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trioperator.endpoints.metrics")
    declare_handlers(bench)
    bench.settings.leadership.enabled = True
    bench.settings.queueing.worker_limit = 2
    bench.settings.watching.server_timeout = 60
    plan = FaultPlan()
    plan.add(Fault.status(503), resource="leases", until=5)
    plan.add(Fault.status(503), resource="widgets", verb="patch", skip=6, times=1)
    specs: dict[str, dict[str, Any]] = {
        "a": {},
        "b": {"fails": "once"},
        "c": {"fails": "always"},
        "d": {"late": 1},
        "e": {},
    }
    for name, spec in specs.items():
        await bench.cluster.create(widget(name, **spec))
    transport = FaultyTransport(bench.cluster.transport(), plan)
    await bench.cluster.create(lease())
    async with bench.running(transport=transport, metrics_endpoint="http://127.0.0.1:0/metrics", standalone=True):
        scraper = Scraper(find_url(caplog))
        await scraper.scrape()
        assert scraper.largest["trioperator_paused"] == 1
        with trio.fail_after(60):
            while not scraper.value("trioperator_handlers_running"):
                await trio.sleep(1)
                await scraper.scrape()
        assert scraper.value("workqueue_depth", controller="widgets.example.com", priority="-100") == 3
        assert scraper.value("controller_runtime_active_workers", controller="widgets.example.com") == 2
        assert scraper.value("trioperator_handlers_running") == 4  # with two daemons
        for _ in range(10):
            await trio.sleep(20)
            await scraper.scrape()
        value = scraper.value
        kind = {"controller": "widgets.example.com"}
        assert value("trioperator_handler_calls_total", handler="work", result="succeeded", **kind) == 4
        assert value("trioperator_handler_calls_total", handler="work", result="retried", **kind) == 1
        assert value("trioperator_handler_calls_total", handler="work", result="failed", **kind) == 1
        assert value("trioperator_handler_calls_total", handler="parent", result="succeeded", **kind) == 20
        assert value("controller_runtime_reconcile_errors_total", **kind) == 3
        assert value("controller_runtime_terminal_reconcile_errors_total", **kind) == 2
        assert value("controller_runtime_reconcile_timeouts_total", **kind) == 1
        assert value("controller_runtime_reconcile_panics_total", **kind) == 1
        assert value("trioperator_daemons_running") == value("trioperator_cache_objects") == 5
        assert value("leader_election_master_status", name="trioperator") == 1
        patches = len(bench.cluster.requests.select(verb="patch"))
        assert value("rest_client_requests_total", method="PATCH", code="200", host="embedded") == patches
        assert value("rest_client_request_size_bytes_count", verb="PATCH") == patches + 1
        assert value("rest_client_request_retries_total", verb="PATCH", code="503") == 1
        assert value("process_cpu_seconds_total") > 0
        handlers = {dict(labels)["handler"] for name, labels in scraper.samples if "handler_calls_total" in name}
        assert handlers == {"work", "late/spec.late", "parent"}
        assert value("trioperator_lease_transitions_total", name="trioperator") == 8
        plan.add(Fault.refuse(), resource="widgets")
        await trio.sleep(100)
        await scraper.scrape()
        assert value("trioperator_watches_interrupted", resource="widgets.example.com") == 1
        assert value("rest_client_requests_total", code="<error>") > 0
        assert value("trioperator_watch_restarts_total", resource="widgets.example.com", reason="connection") > 0
        plan.clear()
        await bench.cluster.create(widget("stuck", seconds=1000))
        await bench.cluster.create(widget("fresh"))
        await trio.sleep(100)
        pause = {"metadata": {"annotations": {"trioperator.dev/paused": "until=2999-01-01T00:00Z"}}}  # a requeue, too
        await bench.cluster.patch("widgets", "fresh", pause)
        await trio.sleep(100)
        await scraper.scrape()
        stuck = {"object_namespace": "default", "object_name": "stuck", **kind}
        assert value("trioperator_stuck_object_seconds", **stuck) > 60
        assert value("trioperator_stuck_objects", **kind) == 1
        assert value("trioperator_paused_objects", **kind) == 1
        assert 90 < value("trioperator_longest_pause_seconds", **kind) <= 100
    assert len(DOCUMENTED) > 35
    tested_elsewhere = {*WEBHOOKS, "trioperator_contended_fields"}
    assert [name for name in DOCUMENTED if name not in tested_elsewhere and not scraper.has_moved(name)] == []


async def test_every_documented_series_of_webhooks_moves(
    cluster: Cluster, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With real sockets and files, and so in real time."""
    caplog.set_level("INFO", "trioperator.endpoints.metrics")
    registry = trioperator.OperatorRegistry()
    asked, answer = trio.Event(), trio.Event()

    @on.validate("example.com", "v1", "widgets", id="check_size", registry=registry)
    async def check_size(spec: Any) -> None:
        if spec["size"] == 3:
            asked.set()
            await answer.wait()
        if spec["size"] > 10:
            raise trioperator.AdmissionError("The size must be 10 at most.")
        assert spec["size"] > 0

    @on.convert("widgets", from_="v1", to="v2", registry=registry)
    async def convert(**_: Any) -> None:
        raise ValueError("no")

    await cluster.apply(definition("v1", "v2"))
    files = write_pair(tmp_path, trustme.CA(), "localhost")
    server = trioperator.WebhookServer(**files, file_check_interval=0.01)
    settings = trioperator.OperatorSettings()
    settings.admission.managed_conversions = True
    url = "http://127.0.0.1:0/metrics"
    async with operating(cluster, registry, server=server, settings=settings, metrics_endpoint=url):
        scraper = Scraper(find_url(caplog))
        await scraper.scrape()
        check = {"webhook": "check_size"}
        for code in ("200", "500"):
            assert ("controller_runtime_webhook_requests_total", frozenset({"code": code, **check}.items())) in (
                scraper.samples
            )
        assert [await deny(cluster, size=size) is None for size in (11, 0, 1)] == [False, False, True]
        async with trio.open_nursery() as writers:
            writers.start_soon(lambda: cluster.create(widget("slow", size=3)))
            await asked.wait()
            await scraper.scrape()
            answer.set()
        with pytest.raises(trioperator.ApiError):
            await cluster.get("widgets.v2.example.com", "w")
        (tmp_path / "key.pem").write_bytes(trustme.CA().issue_cert("localhost").private_key_pem.bytes())
        with trio.fail_after(60):
            await until(lambda: server.read_errors)
        await scraper.scrape()
    assert {name for name in WEBHOOKS if not scraper.has_moved(name)} == set()
    value = scraper.value
    assert scraper.largest["controller_runtime_webhook_requests_in_flight"] == 1
    assert value("controller_runtime_webhook_requests_in_flight") == 0
    assert value("controller_runtime_webhook_requests_total", code="200", **check) == 4
    assert value("controller_runtime_webhook_latency_seconds_count", **check) == 4
    assert value("controller_runtime_webhook_requests_total", code="200", webhook="convert") > 0
    assert value("controller_runtime_webhook_panics_total") == 1
    assert value("trioperator_handler_calls_total", handler="check_size", result="failed", controller="") == 2


@pytest.mark.parametrize(
    ("path", "served"), [("", "/metrics"), ("/", "/metrics"), ("/metrics/", "/metrics/"), ("/a/b", "/a/b")]
)
async def test_metrics_are_at_their_usual_path_whatever_the_url(
    path: str, served: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    instruments = Instruments([])
    parts = Inspector(trioperator.OperatorSettings(), Pauses(), {}, instruments)
    url = await nursery.start(serve_metrics, f"http://127.0.0.1:0{path}", parts, instruments)
    host = url.removesuffix(served)
    assert url == f"{host}{served}"
    for each, status in ((url, 200), (f"{host}/metrics", 200), (f"{host}/", 404), (f"{host}/a", 404)):
        assert (await get(each))[0] == status, each


async def test_own_metrics_are_served_and_the_format_is_negotiated(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trioperator.endpoints.metrics")
    made = prometheus_client.Counter("test_made", "Made.")
    try:
        async with bench.running(metrics_endpoint="http://127.0.0.1:0/metrics"):
            made.inc(3)
            _, text = await get(find_url(caplog))
            assert "test_made_total 3.0" in text
    finally:
        prometheus_client.REGISTRY.unregister(made)


async def test_two_operators_in_one_process_have_metrics_of_their_own(
    bench: Bench, caplog: pytest.LogCaptureFixture, cluster: Cluster
) -> None:
    caplog.set_level("INFO", "trioperator.endpoints.metrics")

    @on.event("widgets", registry=bench.registry)
    async def see(**_: Any) -> None: ...

    await cluster.create(widget())
    other = trioperator.OperatorRegistry()
    async with (
        bench.running(metrics_endpoint="http://127.0.0.1:0/"),
        bench.running(metrics_endpoint="http://127.0.0.1:0/", registry=other),
    ):
        first, second = [Scraper(url) for url in re.findall(r"Serving metrics at (\S+)", caplog.text)]
        await first.scrape()
        await second.scrape()
    assert first.value("trioperator_cache_objects") == 1
    assert second.value("trioperator_cache_objects") == 0


def test_without_metrics_nothing_of_them_is_imported() -> None:
    code = (
        "import sys, trioperator._supervisor.tree, trioperator.cli.root, trioperator.cli.run;"
        "print([name for name in sys.modules if name.startswith(('prometheus_client', 'opentelemetry', 'hypercorn'))"
        " or name in ('trioperator._telemetry.instruments', 'trioperator._endpoints.metrics')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def test_contended_fields_are_counted_by_their_managers(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.event("databases")
    async def insist(patch: trioperator.Patch, **_: Any) -> None:
        patch.metadata.labels["team"] = "ours"

    await cluster.apply(DATABASES)
    await operator.start()
    await cluster.create(database())
    async with fighting(cluster, "stomper", stomp_label):
        await trio.sleep(10)
    contended = operator._get_run().plan.ledger.contended
    parts = Inspector(trioperator.OperatorSettings(), Pauses(), {}, ledger=operator._get_run().plan.ledger)
    [sample] = OperatorCollector(parts, Instruments([]))._collect_contended().samples
    assert len(contended) == 1
    assert sample.labels == {"controller": "databases.example.com", "manager": "stomper", "reason": "ChangedByOthers"}
    assert sample.value == 1
