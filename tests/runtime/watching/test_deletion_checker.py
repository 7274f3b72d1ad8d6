"""Tests for :mod:`trioperator._runtime.watching.deletion_checker`: objects that leave and enter a selector."""

from __future__ import annotations

import gc
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle
from tests.runtime.watching.conftest import crd, labelled, thing
from trioperator._model.resource import Resource
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.watching.deletion_checker import METADATA
from trioperator._runtime.watching.targets import Requirements, Targets, select_targets
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
GOLD = {"tier": "gold"}


async def relabel(bench: Bench, tier: str | None, name: str = "w", **spec: Any) -> None:
    await bench.cluster.patch("widgets", name, {"metadata": {"labels": {"tier": tier}}, "spec": spec})


async def finalizers(bench: Bench, name: str = "w") -> list[str]:
    found: list[str] = (await bench.cluster.get("widgets", name))["metadata"].get("finalizers", [])
    return found


def see_types(bench: Bench, kind: str, **filters: Any) -> list[str]:
    """Register an event handler, and return the names and the types of the events that it has seen."""
    seen: list[str] = []

    @on.event(kind, registry=bench.registry, **filters)
    def see(name: str, type: Any, **_: Any) -> None:
        seen.append(f"{name} {type}")

    return seen


def queries(bench: Bench, *, watch: bool = False) -> list[dict[str, str]]:
    """Return the parameters of the operator's lists or watches of widgets."""
    found = (r for r in bench.cluster.requests if r.path.endswith("/widgets") and r.method == "GET" and r.user_agent)
    return [query for query in (dict(r.query) for r in found) if ("watch" in query) == watch]


async def test_only_what_handlers_require_is_received(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[str] = []
    on.create("widgets", labels=GOLD, registry=bench.registry)(lambda name, **_: seen.append(name))
    await bench.cluster.create(labelled("a", tier="gold"))
    await bench.cluster.create(labelled("b", tier="silver"))
    async with bench.running():
        await bench.cluster.create(labelled("c", tier="gold"))
        await settle(5)
        assert sorted(seen) == ["a", "c"]
        assert [query["labelSelector"] for query in queries(bench, watch=True)] == ["tier=gold"]
        assert queries(bench)[0]["labelSelector"] == "tier=gold"


async def test_inference_can_be_switched_off(bench: Bench, autojump_clock: MockClock) -> None:
    bench.settings.watching.infer_selectors = False
    on.create("widgets", labels=GOLD, registry=bench.registry)(lambda **_: None)
    async with bench.running():
        await settle(5)
        assert not any("labelSelector" in query for query in queries(bench) + queries(bench, watch=True))


@pytest.mark.parametrize("scope", [{}, {"namespaces": ["default"]}], ids=["everywhere", "in a namespace"])
async def test_an_object_that_leaves_is_released_and_not_deleted(
    bench: Bench, autojump_clock: MockClock, scope: dict[str, Any]
) -> None:
    called: list[str] = []

    @on.event("widgets", labels=GOLD, registry=bench.registry)
    def event(type: Any, **_: Any) -> None:
        called.append(f"event {type}")

    @on.delete("widgets", labels=GOLD, registry=bench.registry)
    def delete(**_: Any) -> None:
        called.append("delete")

    @on.delete("widgets", labels=GOLD, optional=True, registry=bench.registry)
    def gone(**_: Any) -> None:
        called.append("gone")

    @trioperator.daemon("widgets", labels=GOLD, registry=bench.registry)
    async def daemon(stopped: Any, **_: Any) -> None:
        called.append("started")
        await stopped.wait()
        called.append(f"stopped {stopped.reason}")

    await bench.cluster.create(labelled("w", tier="gold"))
    async with bench.running(**scope):
        await settle(5)
        assert await finalizers(bench)
        called.clear()
        await relabel(bench, "silver")
        await settle(5)
        assert await finalizers(bench) == []
        (stopped,) = called
        assert stopped.startswith("stopped")
        assert "FILTERS_MISMATCH" in stopped
        await bench.cluster.delete("widgets", "w")
        await settle(5)
        assert called == [stopped]


async def test_an_object_that_is_deleted_is_deleted(bench: Bench, autojump_clock: MockClock) -> None:
    called: list[str] = []

    @on.event("widgets", labels=GOLD, registry=bench.registry)
    def event(type: Any, **_: Any) -> None:
        called.append(f"event {type}")

    @on.delete("widgets", labels=GOLD, optional=True, registry=bench.registry)
    def gone(**_: Any) -> None:
        called.append("gone")

    await bench.cluster.create(labelled("w", tier="gold"))
    async with bench.running():
        await settle(5)
        called.clear()
        await bench.cluster.delete("widgets", "w")
        await settle(5)
    assert called == ["event DELETED", "gone"]


async def test_an_object_that_comes_back_is_updated_with_all_that_has_changed(
    bench: Bench, autojump_clock: MockClock
) -> None:
    called: list[Any] = []
    memos: list[Any] = []
    on.create("widgets", labels=GOLD, id="c", registry=bench.registry)(lambda **_: called.append("create"))
    on.resume("widgets", labels=GOLD, id="r", registry=bench.registry)(lambda **_: called.append("resume"))

    @on.update("widgets", labels=GOLD, registry=bench.registry)
    def update(diff: Any, memo: Any, **_: Any) -> None:
        memos.append(memo)
        called.append([(".".join(path), old, new) for _, path, old, new in diff if path[0] == "spec"])

    async with bench.running():
        await bench.cluster.create(labelled("w", tier="gold"))
        await settle(5)
        await relabel(bench, "gold", size=2)
        await settle(5)
        await relabel(bench, "silver")
        await settle(5)
        await relabel(bench, "silver", size=3)
        await settle(5)
        await relabel(bench, "gold")
        await settle(5)
    assert called == ["create", [("spec.size", 1, 2)], [("spec.size", 2, 3)]]
    assert memos[0] is memos[1]


@pytest.mark.parametrize("inferred", [True, False])
@pytest.mark.parametrize("handled", [True, False])
async def test_an_object_that_enters_is_created_or_resumed(
    bench: Bench, autojump_clock: MockClock, handled: bool, inferred: bool
) -> None:
    bench.settings.watching.infer_selectors = inferred
    called: list[str] = []
    on.create("widgets", labels=GOLD, id="c", registry=bench.registry)(lambda **_: called.append("create"))
    on.resume("widgets", labels=GOLD, id="r", registry=bench.registry)(lambda **_: called.append("resume"))
    await bench.cluster.create(labelled("w", tier="gold" if handled else "silver"))
    async with bench.running():
        await settle(5)
    await relabel(bench, "silver")
    called.clear()
    await settle(2)
    async with bench.running():
        await settle(5)
        assert called == []
        await relabel(bench, "gold")
        await settle(5)
    assert called == (["resume"] if handled else ["create"])


@pytest.mark.parametrize("finalizer", [False, True])
async def test_a_label_that_is_stripped_while_the_operator_is_down_leaves_no_record_of_a_retry(
    bench: Bench, autojump_clock: MockClock, finalizer: bool
) -> None:
    @on.create("widgets", id="fail", labels=GOLD, registry=bench.registry)
    def fail(**_: Any) -> None:
        raise trioperator.TemporaryError("not yet", delay=100)

    if finalizer:
        on.delete("widgets", labels=GOLD, registry=bench.registry)(lambda **_: None)

    async def records() -> set[str]:
        annotations = (await bench.cluster.get("widgets", "w"))["metadata"].get("annotations", {})
        return {key for key in annotations if key.startswith("trioperator.dev/fail")}

    await bench.cluster.create(labelled("w", tier="gold"))
    async with bench.running():
        await settle(5)
        assert await records()
    await relabel(bench, "silver")
    async with bench.running():
        await settle(5)
        assert (await records(), await finalizers(bench)) == (set(), [])


async def test_a_label_that_is_stripped_while_the_operator_is_down_leaves_no_finalizer(
    bench: Bench, autojump_clock: MockClock
) -> None:
    called: list[str] = []
    on.delete("widgets", labels=GOLD, registry=bench.registry)(lambda **_: called.append("delete"))
    await bench.cluster.create(labelled("w", tier="gold"))
    await bench.cluster.create(labelled("foreign", tier="silver"))
    async with bench.running():
        await settle(5)
        assert await finalizers(bench)
    await relabel(bench, "silver")
    async with bench.running():
        await settle(5)
        assert await finalizers(bench) == []
        await bench.cluster.delete("widgets", "w")
    assert called == []


async def test_a_gap_in_the_watch_tells_objects_that_are_gone_from_those_that_left(
    bench: Bench, autojump_clock: MockClock
) -> None:
    called: list[str] = []

    @on.delete("widgets", labels=GOLD, optional=True, registry=bench.registry)
    def gone(name: str, **_: Any) -> None:
        called.append(f"{name} gone")

    @trioperator.daemon("widgets", labels=GOLD, finalizer=False, registry=bench.registry)
    async def daemon(name: str, stopped: Any, **_: Any) -> None:
        await stopped.wait()
        called.append(f"{name} {stopped.reason}")

    for name in "abc":
        await bench.cluster.create(labelled(name, tier="gold"))
    bench.settings.watching.client_timeout = 20
    plan = FaultPlan()
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(5)
        outage = plan.add(Fault.refuse(), path="/widgets", watch=True)
        await settle(20)
        await relabel(bench, "silver", "a")
        await bench.cluster.delete("widgets", "b")
        bench.cluster.compact()
        plan.remove(outage)
        await settle(60)
    reasons = dict(text.split(" ", 1) for text in called if "gone" not in text)
    assert "FILTERS_MISMATCH" in reasons["a"]
    assert "RESOURCE_DELETED" in reasons["b"]
    assert "OPERATOR_EXITING" in reasons["c"]
    assert "b gone" in called
    assert "a gone" not in called


async def test_what_cannot_be_asked_for_is_asked_for_again(bench: Bench, autojump_clock: MockClock) -> None:
    called: list[str] = []
    on.delete("widgets", labels=GOLD, optional=True, registry=bench.registry)(lambda **_: called.append("gone"))
    await bench.cluster.create(labelled("w", tier="gold"))
    plan = FaultPlan()
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(5)
        outage = plan.add(Fault.status(503), path="fieldSelector=metadata.name")
        await bench.cluster.delete("widgets", "w")
        await settle(60)
        assert called == []
        plan.remove(outage)
        await settle(60)
    assert called == ["gone"]


async def test_an_object_that_leaves_and_comes_back_at_once_is_not_touched(
    bench: Bench, autojump_clock: MockClock
) -> None:
    called: list[str] = []

    @trioperator.daemon("widgets", labels=GOLD, registry=bench.registry)
    async def daemon(stopped: Any, **_: Any) -> None:
        called.append("started")
        await stopped.wait()
        called.append("stopped")

    await bench.cluster.create(labelled("w", tier="gold"))
    async with bench.running():
        await settle(5)
        await relabel(bench, "silver")
        await relabel(bench, "gold")
        await settle(20)
        assert await finalizers(bench)
        assert called in (["started"], ["started", "stopped", "started"])


async def test_an_object_that_leaves_while_its_handler_runs_is_released_afterwards(
    bench: Bench, autojump_clock: MockClock
) -> None:
    called: list[str] = []

    @on.create("widgets", labels=GOLD, registry=bench.registry)
    async def create(patch: Any, **_: Any) -> None:
        called.append("begun")
        await trio.sleep(30)
        patch.status["done"] = True
        called.append("ended")

    on.delete("widgets", labels=GOLD, registry=bench.registry)(lambda **_: called.append("delete"))
    await bench.cluster.create(labelled("w", tier="gold"))
    async with bench.running():
        await settle(5)
        await relabel(bench, "silver")
        await settle(60)
        found = await bench.cluster.get("widgets", "w")
        assert found["status"] == {"done": True}
        assert "finalizers" not in found["metadata"]
        assert "annotations" not in found["metadata"] or "create" not in str(found["metadata"]["annotations"])
    assert called == ["begun", "ended"]


async def test_an_object_that_leaves_during_a_retry_is_not_retried(bench: Bench, autojump_clock: MockClock) -> None:
    called: list[str] = []

    @on.create("widgets", labels=GOLD, registry=bench.registry)
    def create(**_: Any) -> None:
        called.append("create")
        raise trioperator.TemporaryError("not yet", delay=30)

    await bench.cluster.create(labelled("w", tier="gold"))
    async with bench.running():
        await settle(5)
        await relabel(bench, "silver")
        await settle(100)
        found = await bench.cluster.get("widgets", "w")
        assert not any("create" in key for key in found["metadata"].get("annotations", {}))
        assert called == ["create"]


async def test_an_object_that_is_gone_when_its_finalizer_is_to_be_removed_is_forgotten(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @trioperator.daemon("widgets", labels=GOLD, registry=bench.registry)
    async def daemon(stopped: Any, **_: Any) -> None:
        await stopped.wait()
        await trio.sleep(30)

    await bench.cluster.create(labelled("w", tier="gold"))
    async with bench.running():
        await settle(5)
        await relabel(bench, "silver")
        await settle(5)
        await bench.cluster.patch("widgets", "w", {"metadata": {"finalizers": None}})
        await bench.cluster.delete("widgets", "w")
        bench.cluster.requests.clear()
        await settle(2000)
        assert len([request for request in bench.cluster.requests if request.path.endswith("/widgets/w")]) <= 2
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_the_metadata_of_all_objects_is_requested_once_if_any_may_have_a_finalizer(
    bench: Bench, autojump_clock: MockClock
) -> None:
    on.delete("widgets", labels=GOLD, registry=bench.registry)(lambda **_: None)
    async with bench.running():
        await settle(3600)
    whole = [request for request in queries(bench) if "labelSelector" not in request]
    assert len(whole) == 1
    assert METADATA[0].startswith("application/json;as=PartialObjectMetadataList")


async def test_indexed_objects_that_leave_are_not_asked_for(bench: Bench, autojump_clock: MockClock) -> None:
    @on.index("widgets", labels=GOLD, registry=bench.registry)
    def names(name: str, **_: Any) -> dict[str, str]:
        return {"all": name}

    sizes: list[int] = []

    @trioperator.timer("gadgets", interval=10, registry=bench.registry)
    def count(names: Any, **_: Any) -> None:
        sizes.append(len(names.get("all", ())))

    await bench.cluster.create(labelled("w", tier="gold"))
    await bench.cluster.create({**labelled("g"), "kind": "Gadget"})
    async with bench.running():
        await settle(15)
        await relabel(bench, "silver")
        await settle(15)
        assert not any("fieldSelector" in query for query in queries(bench))
    assert (sizes[0], sizes[-1]) == (1, 0)


async def test_an_object_that_has_left_is_not_kept_in_memory(bench: Bench, autojump_clock: MockClock) -> None:
    on.delete("widgets", labels=GOLD, registry=bench.registry)(lambda **_: None)
    await bench.cluster.create(labelled("w", tier="gold"))
    memo = object()  # by which the cache is found
    async with bench.running(memo=memo):
        await settle(5)
        (cache,) = (found for found in gc.get_objects() if type(found) is ObjectCache and found.shared.memo is memo)
        await relabel(bench, "silver")
        await settle(5)
        assert len(cache) == 0
        assert len(cache.leaving) == 0
        await relabel(bench, "gold")
        await settle(5)
        assert len(cache) == 1


async def test_what_leaves_the_selectors_of_the_settings_is_gone_and_what_leaves_the_inferred_one_is_not(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.settings.watching.label_selectors["widgets"] = "app=web"
    seen = see_types(bench, "widgets", labels=GOLD)
    for name in "ab":
        await bench.cluster.create(labelled(name, tier="gold", app="web"))
    async with bench.running():
        await settle(5)
        assert {query["labelSelector"] for query in queries(bench, watch=True)} == {"app=web,tier=gold"}
        seen.clear()
        await relabel(bench, "silver", "a")
        await bench.cluster.patch("widgets", "b", {"metadata": {"labels": {"app": "db"}}})
        await settle(5)
    assert seen == ["b DELETED"]


async def test_objects_are_selected_by_fields_that_their_definition_names(
    bench: Bench, autojump_clock: MockClock
) -> None:
    definition = crd("things", "Thing")
    version = definition["spec"]["versions"][0]
    version["schema"]["openAPIV3Schema"]["properties"] = {
        "spec": {"type": "object", "properties": {"color": {"type": "string"}}}
    }
    version["selectableFields"] = [{"jsonPath": ".spec.color"}]
    await bench.cluster.apply(definition)
    seen = see_types(bench, "things", field="spec.color", value="red")
    for name, color in (("a", "red"), ("b", "blue")):
        await bench.cluster.create({**thing("Thing", name=name), "spec": {"color": color}})
    async with bench.running():
        await settle(5)
        requests = [r for r in bench.cluster.requests if r.path.endswith("/things") and r.user_agent]
        assert {dict(request.query)["fieldSelector"] for request in requests} == {"spec.color=red"}
        await bench.cluster.patch("things", "a", {"spec": {"color": "blue"}})
        await bench.cluster.patch("things", "b", {"spec": {"color": "red"}})
        await settle(5)
    assert seen == ["a None", "b ADDED"]


@pytest.mark.parametrize("finalizer", [False, True])
async def test_replicas_that_divide_the_objects_select_them_too(
    bench: Bench, autojump_clock: MockClock, finalizer: bool
) -> None:
    bench.settings.leadership.shards = 2
    bench.settings.peering.standalone = True
    called: list[str] = []

    @trioperator.daemon("widgets", labels=GOLD, finalizer=finalizer, registry=bench.registry)
    async def daemon(name: str, stopped: Any, **_: Any) -> None:
        called.append(name)
        await stopped.wait()
        called.append(f"{name} stopped")

    for name in "abcd":
        await bench.cluster.create(labelled(name, tier="gold"))
    async with bench.running():
        await settle(60)
        assert sorted(called) == list("abcd")
        assert all("labelSelector" in query for query in queries(bench, watch=True))
        await relabel(bench, "silver", "a")
        await settle(5)
        assert called[4:] == ["a stopped"]
        assert not await finalizers(bench, "a")


@pytest.mark.parametrize("divides", [True, False], ids=["divided", "whole"])
async def test_the_finalizer_is_removed_from_an_object_that_has_left_before_its_shard_was_acquired(
    bench: Bench, autojump_clock: MockClock, divides: bool
) -> None:
    bench.cluster.api.reader.knows_shards = divides
    bench.settings.leadership.shards = 4
    bench.settings.peering.standalone = True
    on.delete("widgets", labels=GOLD, registry=bench.registry)(lambda **_: None)
    names = [f"w{number}" for number in range(12)]
    for name in names:
        made = labelled(name, tier="silver")
        made["metadata"]["finalizers"] = [bench.settings.persistence.finalizer]
        await bench.cluster.create(made)
    async with bench.running():
        await settle(60)
        assert not any([await finalizers(bench, name) for name in names])
        searches = [query for query in queries(bench) if "labelSelector" not in query and "fieldSelector" not in query]
        assert len(searches) <= 8, "one for each shard, and a first one that failed, at most"


@pytest.mark.parametrize(("uses", "selector"), [(False, {"tier=gold"}), (True, set[str]())])
async def test_a_webhook_that_takes_all_arguments_matters_only_if_it_looks_at_them(
    bench: Bench, autojump_clock: MockClock, uses: bool, selector: set[str]
) -> None:
    def validate(**kwargs: Any) -> None:
        str(kwargs["memo"])

    on.validate("widgets", registry=bench.registry)(validate if uses else lambda **_: None)
    on.event("widgets", labels=GOLD, registry=bench.registry)(lambda **_: None)
    targets: Targets[Any] = select_targets(
        Requirements.of(bench.registry, bench.settings),
        [Resource("example.com", "v1", "widgets", kind="Widget", verbs=frozenset({"list", "watch", "patch"}))],
        [],
        lambda _: [None],
    )
    assert {text for target in targets.by_key.values() for text in target.inferred.selector.labels} == selector


async def test_a_server_that_does_not_select_by_names_is_believed(bench: Bench, autojump_clock: MockClock) -> None:
    seen = see_types(bench, "widgets", labels=GOLD)
    await bench.cluster.create(labelled("w", tier="gold"))
    plan = FaultPlan()
    plan.add(Fault.status(400), path="fieldSelector=metadata.name")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(5)
        await bench.cluster.delete("widgets", "w")
        await settle(5)
    assert seen == ["w None", "w DELETED"]


async def test_a_kind_that_is_read_by_more_than_before_is_listed_again(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[str] = []
    on.event("things", labels=GOLD, registry=bench.registry)(lambda name, **_: seen.append(name))
    on.event(category="toys", registry=bench.registry)(lambda name, **_: seen.append(f"toy {name}"))
    definition = crd("things", "Thing")
    await bench.cluster.apply(definition)
    for name, tier in (("a", "gold"), ("b", "silver")):
        made = thing("Thing", name=name)
        made["metadata"]["labels"] = {"tier": tier}
        await bench.cluster.create(made)
    async with bench.running():
        await settle(5)
        assert seen == ["a"]
        names = {"spec": {"names": {"categories": ["toys"]}}}
        await bench.cluster.patch("customresourcedefinitions", "things.later.example.com", names)
        await settle(5)
        assert seen == ["a", "toy b"]


@pytest.mark.parametrize("comes_back", [True, False])
async def test_what_is_gone_waits_for_no_object_that_cannot_be_asked_for(
    bench: Bench, autojump_clock: MockClock, comes_back: bool
) -> None:
    gone: list[str] = []
    on.delete("widgets", labels=GOLD, optional=True, registry=bench.registry)(lambda name, **_: gone.append(name))
    for name in "ab":
        await bench.cluster.create(labelled(name, tier="gold"))
    bench.settings.watching.client_timeout = 20
    plan = FaultPlan()
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(5)
        outage = plan.add(Fault.refuse(), path="/widgets", watch=True)
        plan.add(Fault.stall() if comes_back else Fault.status(503), path="fieldSelector=metadata.name(=|%3D)a")
        await settle(20)
        await relabel(bench, "silver", "a")
        await bench.cluster.delete("widgets", "b")
        bench.cluster.compact()
        plan.remove(outage)
        await settle(60)
        if comes_back:
            assert gone == []
            await relabel(bench, "gold", "a")
            await settle(5)
        assert gone == ["b"]


@pytest.mark.parametrize("date", [None, "soon", "Thu, 01 Jan 2026 00:00:00 -0000"])
async def test_without_a_readable_date_in_responses_what_enters_is_new(
    bench: Bench, autojump_clock: MockClock, date: str | None
) -> None:
    class Dateless(FaultyTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            response = await super().handle_async_request(request)
            response.headers.pop("Date", None)
            if date is not None:
                response.headers["Date"] = date
            return response

    called: list[str] = []
    on.resume("widgets", labels=GOLD, registry=bench.registry)(lambda **_: called.append("resume"))
    await bench.cluster.create(labelled("w", tier="gold"))
    async with bench.running():
        await settle(5)
    await relabel(bench, "silver")
    called.clear()
    async with bench.running(transport=Dateless(bench.cluster.transport(), FaultPlan())):
        await settle(5)
        await relabel(bench, "gold")
        await settle(5)
    assert called == []


async def test_rights_for_one_name_are_enough_for_its_daemon_and_what_else_left_is_rarely_asked_for(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The server forbids lists of all objects, as with ``resourceNames`` in a role."""
    caplog.set_level("INFO")
    running: list[str] = []
    options: dict[str, Any] = {"field": "metadata.name", "value": "a", "registry": bench.registry}

    @trioperator.daemon("widgets", **options)
    async def daemon(name: str, stopped: Any, **_: Any) -> None:
        running.append(name)
        await stopped.wait()
        running.remove(name)

    plan = FaultPlan()
    unnamed = plan.add(Fault.status(403), path=r"/widgets\?(?!.*metadata\.name)")
    for name in "ab":
        await bench.cluster.create(labelled(name))
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(3600)
        assert running == ["a"]
        assert len([query for query in queries(bench) if "fieldSelector" not in query]) == 0
        assert 1 <= unnamed.hits <= 12
        await bench.cluster.delete("widgets", "a")
        await settle(60)
        assert running == []
    assert [record.levelname for record in caplog.records if "unseen" in record.getMessage()].count("INFO") == 1
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
