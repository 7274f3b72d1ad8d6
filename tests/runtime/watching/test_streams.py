"""Tests for :mod:`trioperator._runtime.watching.streams`: two streams with different selectors, as one."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Collection
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from tests.runtime.test_restored import running
from tests.runtime.watching.conftest import labelled
from trioperator._kube.objects import RawObject, parse_object
from trioperator._runtime.watching.streams import Streams
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


class Log:
    """An observer that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def observe(self, type: str | None, obj: RawObject) -> str:
        self.told.append(f"{type} {obj.uid}{obj.resource_version}")
        return obj.key

    def replace(self, listed: Collection[str]) -> None:
        self.told.append(f"listed {''.join(sorted(listed))}")

    def rewind(self) -> None:
        self.told.append("rewind")


def make(text: str) -> RawObject:
    """Make the object with the uid that is the first letter, in the version that is the rest."""
    return parse_object(
        json.dumps({"metadata": {"uid": text[0], "name": text[0], "resourceVersion": text[1:]}}).encode()
    )


def tell(*steps: str) -> list[str]:
    """Let two listed streams show what the steps say, and return what is passed on: "1 ADDED a5", "2 listed ab"."""
    log = Log()
    streams = Streams(log)
    for step in ("1 listed ", "2 listed ", *steps):
        number, kind, text = step.split(" ")
        stream = streams.first if number == "1" else streams.second
        if kind == "listed":
            stream.replace(text)
        elif kind == "rewind":
            stream.rewind()
        else:
            stream.observe(None if kind == "None" else kind, make(text))
    assert log.told[0] == "listed "
    return log.told[1:]


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        pytest.param(["1 ADDED a5", "2 ADDED a5"], ["ADDED a5"], id="an object of both is one object"),
        pytest.param(["1 ADDED a5", "1 MODIFIED a6", "2 ADDED a6"], ["ADDED a5", "MODIFIED a6"], id="a change of both"),
        pytest.param(["1 ADDED a5", "2 ADDED a6", "1 DELETED a6"], ["ADDED a5", "MODIFIED a6"], id="it moves"),
        pytest.param(
            ["1 ADDED a5", "1 DELETED a6", "2 ADDED a6"],
            ["ADDED a5", "DELETED a6", "ADDED a6"],
            id="it leaves one stream before it enters the other, which the deletion checker waits for",
        ),
        pytest.param(["1 ADDED a6", "2 ADDED a5"], ["ADDED a6"], id="a late stream brings nothing older"),
        pytest.param(
            ["1 ADDED a5", "2 ADDED a5", "1 DELETED a7", "2 DELETED a7"],
            ["ADDED a5", "DELETED a7"],
            id="a deletion is one deletion",
        ),
        pytest.param(
            ["1 ADDED a5", "1 DELETED a7", "2 ADDED a4", "2 MODIFIED a6", "2 DELETED a7"],
            ["ADDED a5", "DELETED a7"],
            id="a late stream does not bring back what is deleted",
        ),
        pytest.param(
            ["1 ADDED a5", "1 DELETED a6", "2 ADDED a4", "2 MODIFIED a8"],
            ["ADDED a5", "DELETED a6", "ADDED a8"],
            id="what has left comes back when it enters the other",
        ),
        pytest.param(
            ["1 ADDED a3", "2 ADDED a3", "1 MODIFIED a5", "1 DELETED a7", "2 DELETED a4"],
            ["ADDED a3", "MODIFIED a5", "listed "],
            id="a late stream which it has left before shows no older state of a deletion",
        ),
        pytest.param(
            ["1 ADDED a5", "2 ADDED b6", "1 listed ", "2 listed b"],
            ["ADDED a5", "ADDED b6", "listed b", "listed b"],
            id="what no list has is missing",
        ),
        pytest.param(
            ["1 ADDED a5", "2 None a5", "2 listed a", "1 listed "],
            ["ADDED a5", "listed a", "listed a"],
            id="a list of the other stream has it still",
        ),
        pytest.param(
            ["1 ADDED a5", "2 ADDED b6", "1 rewind 0", "2 MODIFIED b9", "1 None a2", "2 rewind 0", "2 None b3"],
            ["ADDED a5", "ADDED b6", "rewind", "None a2", "None b3"],
            id="after a restore, nothing is believed of a stream that has not begun to list again",
        ),
    ],
)
def test_two_streams_tell_what_one_would(steps: list[str], told: list[str]) -> None:
    assert tell(*steps) == told


def test_nothing_is_missing_until_both_streams_are_listed() -> None:
    log = Log()
    streams = Streams(log)
    streams.first.observe(None, make("a5"))
    streams.first.replace({"a"})
    assert log.told == ["None a5"]
    streams.second.observe(None, make("b5"))
    streams.second.replace({"b"})
    assert log.told == ["None a5", "None b5", "listed ab"]


def test_the_list_of_the_only_stream_has_everything() -> None:
    log = Log()
    streams = Streams(log)
    for stream, text in ((streams.first, "a5"), (streams.second, "b5")):
        stream.observe(None, make(text))
        stream.replace({text[0]})
    streams.join()
    streams.first.observe("DELETED", make("c6"))
    streams.first.observe(None, make("b7"))
    streams.first.replace({"b", "d"})
    assert log.told[2:] == ["listed ab", "None b7", "listed bd"]


@pytest.mark.parametrize("seed", range(50))
def test_whatever_the_delays_the_newest_state_is_known_in_the_end(seed: int) -> None:
    """Streams of random histories of labels, each as late as it likes, against what the server has in the end."""
    rng = random.Random(seed)
    places_of = [None, *(frozenset(numbers) for numbers in ((), (0,), (1,), (0, 1)))]  # None: it is deleted
    history = [(rng.choice("abc"), rng.choice(places_of)) for _ in range(60)]
    uids, now = dict[str, str](), dict[str, frozenset[int]]()
    events: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
    for version, (name, places) in enumerate(history, 1):
        before, uid = now.get(name, frozenset()), uids.setdefault(name, name)
        if places is None:
            if name in now:
                del now[name]
                del uids[name]
            uids[name] = chr(ord(uid) + 3)
        else:
            now[name] = places
        for number, stream in enumerate(events):
            if number in (places or ()):
                stream.append(("MODIFIED" if number in before else "ADDED", f"{uid}{version}"))
            elif number in before:
                stream.append(("DELETED", f"{uid}{version}"))
    log = Log()
    streams = Streams(log)
    streams.first.replace(())
    streams.second.replace(())
    queues = [iter(stream) for stream in events]
    order = [0] * len(events[0]) + [1] * len(events[1])
    rng.shuffle(order)
    known: dict[str, int] = {}
    for number in order:
        kind, text = next(queues[number])
        (streams.first, streams.second)[number].observe(kind, make(text))
    for told in log.told:
        kind, _, text = told.partition(" ")
        if kind == "listed":
            known = {uid: version for uid, version in known.items() if uid in text}
        elif kind == "DELETED":
            assert int(text[1:]) >= known.pop(text[0])
        else:
            assert int(text[1:]) > known.get(text[0], 0)
            assert (kind == "MODIFIED") == (text[0] in known)
            known[text[0]] = int(text[1:])
    assert set(known) == {uids[name] for name, places in now.items() if places}


# With an operator.


def declare(bench: Bench) -> list[str]:
    """Declare handlers whose labels do not combine, and return what they have seen."""
    seen: list[str] = []
    options: dict[str, Any] = {"registry": bench.registry}

    @on.event("widgets", labels={"tier": "gold"}, **options)
    def gold(name: str, type: Any, **_: Any) -> None:
        seen.append(f"gold {name} {type}")

    @on.event("widgets", labels={"app": "web"}, **options)
    def web(name: str, type: Any, **_: Any) -> None:
        seen.append(f"web {name} {type}")

    return seen


def queries(bench: Bench) -> list[dict[str, str]]:
    """Return the parameters of the operator's watches of widgets."""
    requests = [request for request in bench.cluster.requests if request.path.endswith("/widgets")]
    return [dict(request.query) for request in requests if request.user_agent and "watch" in dict(request.query)]


def watched(bench: Bench) -> list[str | None]:
    return [query.get("labelSelector") for query in queries(bench)]


async def test_labels_that_do_not_combine_have_two_streams(bench: Bench, autojump_clock: MockClock) -> None:
    seen = declare(bench)
    await bench.cluster.create(labelled("a", tier="gold"))
    await bench.cluster.create(labelled("b", app="web"))
    await bench.cluster.create(labelled("foreign", tier="silver"))
    async with bench.running():
        await bench.cluster.create(labelled("both", tier="gold", app="web"))
        await settle(5)
        assert sorted(watched(bench), key=str) == ["app=web", "tier=gold"]
    assert sorted(seen) == ["gold a None", "gold both ADDED", "web b None", "web both ADDED"]


async def test_an_object_that_moves_from_one_stream_to_the_other_is_not_deleted(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen = declare(bench)
    await bench.cluster.create(labelled("a", tier="gold"))
    async with bench.running():
        await settle(5)
        for tier, app in [(None, "web"), ("gold", None), (None, "web")]:
            await bench.cluster.patch("widgets", "a", {"metadata": {"labels": {"tier": tier, "app": app}}})
            await settle(5)
    assert seen == ["gold a None", "web a MODIFIED", "gold a MODIFIED", "web a MODIFIED"]


async def test_a_daemon_goes_on_while_its_object_moves_and_the_other_stream_is_late(
    bench: Bench, autojump_clock: MockClock
) -> None:
    called: list[str] = []
    declare(bench)

    @trioperator.daemon("widgets", labels={"app": "web"}, registry=bench.registry)
    @trioperator.daemon("widgets", id="other", labels={"tier": "gold"}, registry=bench.registry)
    async def daemon(stopped: Any, **_: Any) -> None:
        called.append("started")
        await stopped.wait()
        called.append(str(stopped.reason))

    plan = FaultPlan()
    await bench.cluster.create(labelled("a", tier="gold"))
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(5)
        plan.add(Fault.stall(), path="/widgets", watch=True)
        await bench.cluster.patch("widgets", "a", {"metadata": {"labels": {"tier": None, "app": "web"}}})
        await settle(30)
        plan.clear()
        await settle(400)
        assert called[0] == "started"
        assert called[1:].count("started") == 1
        assert "deleted" not in str(called).lower()
        assert (await bench.cluster.get("widgets", "a"))["metadata"]["finalizers"]


@pytest.mark.parametrize(("foreign", "count"), [(2, 1), (20, 2)])
async def test_one_stream_takes_the_place_of_two_that_would_bring_more(
    bench: Bench, autojump_clock: MockClock, foreign: int, count: int
) -> None:
    seen = declare(bench)
    for number in range(10):
        await bench.cluster.create(labelled(f"both{number}", tier="gold", app="web"))
    for number in range(foreign):
        await bench.cluster.create(labelled(f"foreign{number}", tier="silver"))
    async with bench.running():
        await settle(30)
        before = len(watched(bench))
        await bench.cluster.patch("widgets", "both1", {"metadata": {"labels": {"tier": "silver"}}})
        await bench.cluster.patch("widgets", "foreign1", {"metadata": {"labels": {"tier": "gold"}}})
        await bench.cluster.create(labelled("late", tier="gold"))
        await settle(600)
        assert set(watched(bench)[before:]) == ({None} if count == 1 else {"app=web", "tier=gold"})
    assert len([text for text in seen if text.endswith("None")]) == 20
    entered = "ADDED" if count == 2 else "MODIFIED"
    assert sorted(seen[20:]) == sorted(["web both1 MODIFIED", f"gold foreign1 {entered}", "gold late ADDED"])


async def test_a_definition_without_selectable_fields_ends_two_streams_for_these(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[str] = []
    for color in ("red", "blue"):
        on.event("widgets", field="spec.color", value=color, id=color, registry=bench.registry)(
            lambda name, **_: seen.append(name)
        )
    definition = copy.deepcopy(CRD)
    version = definition["spec"]["versions"][0]
    version["selectableFields"] = [{"jsonPath": ".spec.color"}]
    spec = {"type": "object", "properties": {"color": {"type": "string"}}}
    version["schema"]["openAPIV3Schema"] = {"type": "object", "properties": {"spec": spec}}
    await bench.cluster.apply(definition)
    await bench.cluster.create(widget("a", color="red"))
    await bench.cluster.create(widget("b", color="blue"))
    await bench.cluster.create(widget("foreign", color="green"))
    async with bench.running():
        await settle(5)
        assert sorted(query["fieldSelector"] for query in queries(bench)) == ["spec.color=blue", "spec.color=red"]
        version["selectableFields"] = []
        await bench.cluster.apply(definition)
        await settle(5)
        assert "fieldSelector" not in queries(bench)[-1]
        await bench.cluster.create(widget("c", color="red"))
        await bench.cluster.patch("widgets", "foreign", {"spec": {"color": "blue"}})
        await settle(600)
        assert len(queries(bench)) < 6
    assert sorted(seen) == ["a", "b", "c", "foreign"]


async def test_a_restored_etcd_is_listed_again_by_both_streams(autojump_clock: MockClock) -> None:
    sizes: dict[str, int] = {}
    registry = trioperator.OperatorRegistry()
    for labels in ({"tier": "gold"}, {"app": "web"}):

        @on.event("widgets", id=str(labels), labels=labels, registry=registry)
        def see(name: str, spec: Any, **_: Any) -> None:
            sizes[name] = spec["size"]

    async with running(registry) as restored:
        await restored.old.create(labelled("a", tier="gold"))
        await restored.old.create(labelled("b", app="web"))
        await settle(5)
        restored.back_up()
        for size in (7, 8, 9):
            for name in ("a", "b"):
                await restored.old.patch("widgets", name, {"spec": {"size": size}})
        await settle(5)
        assert sizes == {"a": 9, "b": 9}
        new = await restored.restore(outage=60)
        await settle(600)
        assert sizes == {"a": 1, "b": 1}
        for name in ("a", "b"):
            await new.patch("widgets", name, {"spec": {"size": 5}})
            await settle(5)
        assert sizes == {"a": 5, "b": 5}
