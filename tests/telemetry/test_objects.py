"""Tests for :mod:`trioperator._telemetry.objects`: which objects are found, and what is known of one."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator._kube.objects import parse_object
from trioperator._telemetry.inspector import Inspector
from trioperator._telemetry.objects import STATES, ObjectFilter, describe_object, find_object, find_objects
from trioperator._telemetry.snapshot import describe_paused
from trioperator.apiserver import Cluster

on = trioperator.on
PAUSED = "trioperator.dev/paused"


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    settings = trioperator.OperatorSettings()
    settings.posting.enabled = False
    return Bench(cluster, trioperator.OperatorRegistry(), settings)


def parts_of(view: Any) -> Inspector:
    parts: Inspector = view._shown.parts
    return parts


def found(parts: Inspector, **wanted: str) -> list[str]:
    total, rows = find_objects(parts, ObjectFilter(**wanted), start=0, limit=1000)
    assert total == len(rows)
    return [row["name"] for row in rows]


async def test_objects_are_found_by_their_kind_names_and_states(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(name: str, **_: Any) -> None:
        if name == "fails":
            raise trioperator.TemporaryError("later", delay=30)
        if name == "works":
            await trio.sleep_forever()

    view = trioperator.live_view_app()
    bench.settings.process.grace = 1.0
    async with bench.running(live_view_app=view, standalone=True):
        for name in ("works", "idle", "fails"):
            await bench.cluster.create(widget(name))
        await settle(5)
        parts = parts_of(view)
        assert found(parts) == ["fails", "idle", "works"]
        states = {state: found(parts, state=state) for state in STATES}
        assert states == {
            "at work": ["works"],
            "queued": [],
            "due later": ["fails"],
            "failing": ["fails"],
            "paused": [],
            "idle": ["idle"],
        }
        await bench.cluster.patch("widgets", "idle", {"metadata": {"annotations": {PAUSED: "reason=DBA"}}})
        await settle(1)
        assert found(parts, state="paused") == ["idle"]
        [described] = find_objects(parts, ObjectFilter(state="paused"), start=0, limit=1)[1]
        assert (described["state"], described["paused"]) == ("idle", "paused: DBA")
        snapshot = describe_paused(parts)
        assert (snapshot["count"], [each["object"] for each in snapshot["objects"]]) == (1, ["Widget/default/idle"])
        assert found(parts, kind="widgets.example.com", namespace="default", text="FAULT/I") == ["idle"]
        assert found(parts, kind="other.example.com") == found(parts, namespace="x") == found(parts, text="x") == []
        total, rows = find_objects(parts, ObjectFilter(), start=1, limit=1)
        assert (total, [row["name"] for row in rows]) == (3, ["idle"])


async def test_all_that_is_known_of_an_object_is_shown(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        raise trioperator.TemporaryError("later", delay=30)

    @on.daemon("widgets", id="daemon", registry=bench.registry)
    async def daemon(stopped: Any, **_: Any) -> None:
        await stopped.wait()

    on.timer("widgets", id="timer", interval=100, registry=bench.registry)(lambda **_: None)
    view, body = trioperator.live_view_app(), widget("w", password="s3cret")
    body["metadata"]["labels"] = {"team": "blue"}
    async with bench.running(live_view_app=view, standalone=True):
        uid = (await bench.cluster.create(body))["metadata"]["uid"]
        await settle(5)
        described = describe_object(parts_of(view), uid)
        assert described is not None
        assert (described["kind"], described["namespace"], described["name"]) == ("widgets.example.com", "default", "w")
        assert (described["state"], described["failing"], described["cause"]) == ("due later", True, "create")
        assert 20 < described["due"] <= 30
        [step] = described["progress"]
        assert (step["handler"], step["result"], step["retries"], step["message"]) == ("create", "waiting", 1, "later")
        daemons = sorted((each["kind"], each["id"]) for each in described["daemons"])
        assert daemons == [("Daemon", "daemon"), ("Timer", "timer")]
        assert described["metadata"]["labels"] == {"team": "blue"}
        assert len(described["metadata"]["finalizers"]) == 1
        assert "s3cret" not in str(described)
        assert describe_object(parts_of(view), "nobody") is None


NAMES = ["a/b", "a%2fb", "..", "", "<script>", "a b?c#d"]


async def test_objects_of_any_names_are_found_by_them(bench: Bench) -> None:
    on.event("widgets", registry=bench.registry)(lambda **_: None)
    view = trioperator.live_view_app()
    async with bench.running(live_view_app=view, standalone=True):
        parts = parts_of(view)
        assert parts.watches is not None
        [(cache, _)] = parts.watches.caches()
        for number, name in enumerate(NAMES):
            raw = {"metadata": {"name": name, "uid": f"uid/{number}", "namespace": "..", "resourceVersion": "1"}}
            cache.observe("ADDED", parse_object(trioperator_json(raw)))
        kind = ObjectFilter(kind="widgets.example.com", namespace="..")
        for number, name in enumerate(NAMES):
            wanted = f"uid/{number}" if name else None
            assert find_object(parts, wanted=kind, name=name) == wanted
            assert find_object(parts, uid=f"uid/{number}") == f"uid/{number}"
        assert find_object(parts, uid="nobody") is find_object(parts, wanted=kind, name="nobody") is None


def trioperator_json(value: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        [],
        "x",
        {"labels": []},
        {"finalizers": {"a": 1}, "ownerReferences": [1, {"kind": "K"}], "labels": {"a": 1}},
    ],
)
async def test_metadata_of_any_form_are_shown(bench: Bench, metadata: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from trioperator._telemetry.objects import _describe_metadata

    described = _describe_metadata({"metadata": metadata})
    if isinstance(metadata, dict):
        assert described is not None
        assert described["owners"] in ([], ["K/"])
    else:
        assert described is None
