"""Tests for :mod:`trioperator._telemetry.tracing`: traces of a running operator, in the SDK's exporter in memory."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError

on = trioperator.on


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    settings = trioperator.OperatorSettings()
    settings.posting.enabled = False
    return Bench(cluster, trioperator.OperatorRegistry(), settings)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def parents(exporter: InMemorySpanExporter) -> dict[str, set[str]]:
    """Return the names of the spans' parents by the names of spans; an empty string for none."""
    spans = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in spans if span.context is not None}
    found: dict[str, set[str]] = {}
    for span in spans:
        found.setdefault(span.name, set()).add(names[span.parent.span_id] if span.parent is not None else "")
    return found


def find(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


async def test_a_trace_leads_from_the_watch_event_to_the_requests(
    bench: Bench, exporter: InMemorySpanExporter, autojump_clock: MockClock
) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(patch: Any, **_: Any) -> None:
        patch.status["done"] = True

    @on.create("widgets", id="threaded", registry=bench.registry)
    def threaded(**_: Any) -> None:
        with trace.get_tracer("mine").start_as_current_span("mine"):
            pass

    await bench.cluster.create(widget("listed"))
    async with bench.running(tracing=True, standalone=True):
        await settle(1)
        assert "watch event" not in parents(exporter) or parents(exporter)["watch event"] == {""}
        exporter.clear()
        await bench.cluster.create(widget("created"))
        await settle(1)
    tree = parents(exporter)
    assert tree["watch event"] == {""}
    assert "watch event" in tree["reconcile widgets.example.com"]
    assert tree["handler create"] == {"reconcile widgets.example.com"}
    assert tree["mine"] == {"handler threaded"}
    assert tree["PATCH"] == {"reconcile widgets.example.com"}
    assert "GET" not in tree  # the operator's own lists and watches are no traces
    [called] = find(exporter, "handler create")
    assert dict(called.attributes or {}) == {
        "trioperator.handler.id": "create",
        "trioperator.object.kind": "Widget",
        "trioperator.object.name": "created",
        "k8s.namespace.name": "default",
    }
    patched = find(exporter, "PATCH")[0]
    assert patched.attributes is not None
    assert patched.attributes["http.response.status_code"] == 200
    assert str(patched.attributes["url.path"]).startswith("/apis/example.com/v1/namespaces/default/widgets/created")
    traces = {span.context.trace_id for span in (called, patched) if span.context is not None}
    assert len(traces) == 1


async def test_an_error_of_a_handler_is_recorded(
    bench: Bench, exporter: InMemorySpanExporter, autojump_clock: MockClock
) -> None:
    @on.create("widgets", id="create", retries=1, registry=bench.registry)
    async def create(**_: Any) -> None:
        raise ValueError("no")

    async with bench.running(tracing=True, standalone=True):
        await bench.cluster.create(widget())
        await settle(100)
    [called] = find(exporter, "handler create")
    assert called.status.status_code is StatusCode.ERROR
    assert any(event.name == "exception" for event in called.events)


async def test_daemons_and_their_requests_have_traces_of_their_own(
    bench: Bench, exporter: InMemorySpanExporter, autojump_clock: MockClock
) -> None:
    @on.daemon("widgets", id="daemon", registry=bench.registry)
    async def daemon(stopped: Any, **_: Any) -> None:
        await stopped.wait()

    async with bench.running(tracing=True, standalone=True):
        await bench.cluster.create(widget())
        await settle(10)
    assert parents(exporter)["handler daemon"] == {""}


async def test_a_reconcile_that_nothing_has_happened_for_begins_a_trace(
    bench: Bench, exporter: InMemorySpanExporter, autojump_clock: MockClock
) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(retry: int, **_: Any) -> None:
        if not retry:
            raise trioperator.TemporaryError("later", delay=10)

    async with bench.running(tracing=True, standalone=True):
        await bench.cluster.create(widget())
        await settle(5)
        exporter.clear()
        await settle(10)
    assert parents(exporter)["handler create"] == {"reconcile widgets.example.com"}
    assert parents(exporter)["reconcile widgets.example.com"] == {""}


async def test_without_opentelemetry_the_operator_says_what_to_install(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def fail(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "trioperator._telemetry.tracing", raising=False)
    monkeypatch.setattr(builtins, "__import__", fail)
    with pytest.raises(ConfigError, match=r"pip install 'trioperator\[tracing\]'"), trio.fail_after(30):
        await trioperator.operator(
            registry=bench.registry, transport=bench.cluster.transport(), handle_signals=False, tracing=True
        )


async def test_the_span_of_a_reconcile_says_why_it_was_made(
    bench: Bench, exporter: InMemorySpanExporter, autojump_clock: MockClock
) -> None:
    @on.update("widgets", id="update", registry=bench.registry)
    async def update(**_: Any) -> None: ...

    await bench.cluster.create(widget())
    async with bench.running(tracing=True, standalone=True):
        await settle(1)
        exporter.clear()
        changed = await bench.cluster.patch("widgets", "w", {"spec": {"size": 7}})
        await settle(1)
    found = [span.attributes or {} for span in find(exporter, "reconcile widgets.example.com")]
    [why] = [each for each in found if "trioperator.reconcile.fields" in each]
    assert why["trioperator.reconcile.causes"] == (f"MODIFIED {changed['metadata']['resourceVersion']}",)
    assert why["trioperator.reconcile.fields"] == ("spec.size",)
    assert why["trioperator.reconcile.managers"] == ("unknown",)
    assert why["trioperator.reconcile.idle"] is False
