"""What goes wrong on the way to children is reported, and tried again; it neither loses calls nor children."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.reconciling.conftest import children_of, config_map, names_of
from tests.runtime.conftest import Bench, settle, widget
from trioperator import on
from trioperator.testing import Fault, FaultPlan, FaultyTransport


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"labels": ["a"]}, "metadata.labels: ['a'], which must be a dict"),
        ({"annotations": "a"}, "metadata.annotations: 'a', which must be a dict"),
        ("w", "metadata: 'w', which must be a dict"),
    ],
)
async def test_a_child_with_unusable_metadata_is_an_error_that_says_so(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, metadata: Any, message: str
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> dict[str, Any]:
        return {**config_map("x"), "metadata": metadata}

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(60)
    assert message in caplog.text
    assert "will try again when something changes" in caplog.text


@pytest.mark.parametrize(
    "content", [{"stringData": {"key": ["s3cret"]}}, {"data": {"key": "s3cret!"}}, {"type": "s3cret"}]
)
async def test_what_the_server_says_of_a_secret_is_not_shown(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, content: dict[str, Any]
) -> None:
    @on.reconcile("widgets", owns=["secrets"], condition="Ready", registry=bench.registry)
    async def reconcile(spec: Any) -> dict[str, Any]:
        named = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "immutable": True}
        return named if spec["size"] == 1 else {**named, **content}

    await bench.cluster.create(widget(size=1))
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(60)
    found = await bench.cluster.get("widgets", "w")
    (condition,) = (each for each in found["status"]["conditions"] if each["type"] == "Ready")
    assert condition["status"] == "False"
    assert "is not shown" in condition["message"]
    texts = [*(event["message"] for event in await bench.cluster.list("events")), condition["message"]]
    texts += caplog.messages
    assert not [text for text in texts if "s3cret" in text]


@pytest.mark.parametrize("code", [400, 422, 500])
async def test_nothing_that_the_server_says_of_a_secret_gets_anywhere(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    errors: list[str] = []

    @on.create("widgets", registry=bench.registry, retries=3)
    async def create(client: Any, logger: Any, retry: int) -> None:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "stringData": {"key": "s3cret"}}
        ways: tuple[Callable[[], Awaitable[Any]], ...] = (
            lambda: client.apply(secret),
            lambda: client.create(secret),
            lambda: client.patch("secrets", "x", merge=secret),
            lambda: client.delete("secrets", "x"),
            lambda: client.get("secrets", "x"),
        )
        for call in ways:
            try:
                await call()
            except trioperator.ApiError as error:
                errors.append(repr((error, error.args, error.details)))
                logger.exception("it has failed")
        await ways[retry]()

    @on.event("secrets", registry=bench.registry)
    async def see() -> None: ...

    caplog.set_level("DEBUG")
    plan = FaultPlan()
    plan.add(Fault.status(code, message="s3cret is bad"), resource="secrets", watch=False, since=1)
    plan.add(Fault.error_event(code, message="s3cret is bad"), resource="secrets", watch=True, times=2)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(2)
        await bench.cluster.create(widget())
        await settle(1000)
    found = [await bench.cluster.get("widgets", "w"), await bench.cluster.list("events")]
    assert len(errors) == 15
    assert "is not shown" in caplog.text
    assert "s3cret is" not in f"{errors}{found}{caplog.text}"


async def test_what_the_server_says_of_a_kind_with_secret_fields_gets_nowhere_either(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench.settings.persistence.digested_fields = {"widgets.example.com": ["spec.password"]}

    @on.create("widgets", registry=bench.registry)
    async def create(client: Any, patch: trioperator.Patch, logger: Any) -> None:
        patch.status["phase"] = "Ready"
        try:
            await client.patch("widgets", "w", merge={"spec": {"size": 1}})
        except trioperator.ApiError:
            logger.exception("it has failed")

    caplog.set_level("DEBUG")
    plan = FaultPlan()
    plan.add(Fault.status(422, message="s3cret is bad", reason="Invalid"), resource="widgets", verb="patch")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget())
        await settle(1000)
    found = [await bench.cluster.get("widgets", "w"), await bench.cluster.list("events")]
    assert "is not shown" in caplog.text
    assert "s3cret" not in f"{found}{caplog.text}"


async def test_a_child_without_metadata_has_the_name_of_its_owner(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": None}

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
        assert await names_of(bench.cluster) == ["w"]


async def test_a_long_chain_of_dependencies_is_applied_in_its_order(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> list[trioperator.Child]:
        chain: list[trioperator.Child] = []
        for number in range(1500):
            chain.append(trioperator.Child(config_map(f"c{number:04}"), depends_on=chain[-1:]))
        return chain[::-1]

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(10)
        written = [each.name for each in bench.cluster.requests if each.verb == "patch"]
    assert written == [f"c{number:04}" for number in range(1500)]


async def test_an_unexpected_error_is_reported_and_the_call_is_repeated(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    times: list[float] = []

    def fail() -> None:
        raise LookupError("a bug")

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> list[dict[str, Any]]:
        times.append(trio.current_time())
        return [config_map("x")]

    plan = FaultPlan()
    plan.add(Fault.call(fail), resource="configmaps", verb="patch", times=2)
    await bench.cluster.create(widget())
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(10)
        assert await names_of(bench.cluster) == ["x"]
    assert [round(each - times[0], 1) for each in times] == [0.0, 0.1, 0.3]
    assert re.findall(r"LookupError: a bug \(will try again in (.*) seconds\)", caplog.text) == ["0.1"]


@pytest.mark.parametrize("code", [409, 403, 404, 500])  # a 404 without details: the kind is not served just now
async def test_a_child_whose_deletion_is_refused_is_deleted_later(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        return children_of(spec)

    bench.settings.networking.error_backoffs = []
    plan = FaultPlan()
    plan.add(Fault.status(code, message="it is protected"), resource="configmaps", verb="delete", times=1)
    await bench.cluster.create(widget(maps={"one": {}, "two": {}, "three": {}}))
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"maps": {"one": None, "two": None}}})
        await settle(1)
        assert await names_of(bench.cluster) == ["three"]
        assert [each.name for each in bench.cluster.requests if each.verb == "delete"].count("two") == 1
    assert "ConfigMap default/one cannot be deleted, though it is no longer desired: HTTP" in caplog.text
    assert "it is protected (will try again in 0.1 seconds)" in caplog.text


async def test_a_child_that_was_replaced_is_not_deleted(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        return children_of(spec)

    plan = FaultPlan()
    another = "Precondition failed: UID in precondition: one, UID in object meta: another"
    plan.add(Fault.status(409, message=another), resource="configmaps", verb="delete", times=1)
    await bench.cluster.create(widget(maps={"one": {}}))
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"maps": {"one": None}}})
        await settle(60)
        assert await names_of(bench.cluster) == ["one"]
    assert "ERROR" not in {record.levelname for record in caplog.records}


def guard_clause(spec: Mapping[str, Any]) -> Any:
    if not spec["image"]:
        return  # noqa: RET502 -- as users write it
    return config_map("x")


def undecided(spec: Mapping[str, Any]) -> Any:
    return config_map("x") if spec["image"] else None


def guarded_generator(spec: Mapping[str, Any]) -> Iterator[Any]:
    if not spec["image"]:
        return
    yield config_map("x")


async def guarded_async_generator(spec: Mapping[str, Any]) -> AsyncIterator[Any]:
    if not spec["image"]:
        return
    yield config_map("x")


@pytest.mark.parametrize("fn", [guard_clause, undecided, guarded_generator, guarded_async_generator])
async def test_children_stay_if_a_handler_does_not_say_that_there_are_none(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, fn: Any
) -> None:
    on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)(fn)
    await bench.cluster.create(widget(image="web"))
    async with bench.running():
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"image": ""}})
        await settle(60)
        assert await names_of(bench.cluster) == ["x"]
        await bench.cluster.patch("widgets", "w", {"spec": {"image": "other"}})
        await settle(1)
    assert "which does not say what children there are to be" in caplog.text
    assert "[] if there are none" in caplog.text
    assert caplog.text.count("will try again when something changes") == 1


def explicit(spec: Mapping[str, Any]) -> Any:
    return [config_map("x")] if spec["image"] else []


def explicit_generator(spec: Mapping[str, Any]) -> Iterator[Any]:
    if not spec["image"]:
        yield []
        return
    yield config_map("x")


def loop(spec: Mapping[str, Any]) -> Iterator[Any]:
    def make(name: str) -> dict[str, Any]:
        return config_map(name)

    for _ in spec["image"]:
        yield make("x")


@pytest.mark.parametrize("fn", [explicit, explicit_generator, loop])
async def test_children_go_if_a_handler_says_that_there_are_none(
    bench: Bench, autojump_clock: MockClock, fn: Any
) -> None:
    on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)(fn)
    await bench.cluster.create(widget(image="w"))
    async with bench.running():
        await settle(1)
        assert await names_of(bench.cluster) == ["x"]
        await bench.cluster.patch("widgets", "w", {"spec": {"image": ""}})
        await settle(60)
        assert await names_of(bench.cluster) == []


async def test_a_handler_that_owns_nothing_may_return_none(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.reconcile("widgets", registry=bench.registry)
    async def reconcile() -> None: ...

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
    assert "ERROR" not in {record.levelname for record in caplog.records}


async def test_what_a_generator_returns_counts(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[float] = []

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    def reconcile() -> Generator[Any, None, Any]:
        calls.append(1)
        if len(calls) > 1:
            return trioperator.Requeue(after=10)
        yield config_map("x")
        return trioperator.Requeue(after=5)

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
        assert await names_of(bench.cluster) == ["x"]
        await settle(26)
        assert len(calls) == 4
        assert await names_of(bench.cluster) == ["x"]


async def test_a_child_that_must_not_change_survives_a_lost_answer_and_a_late_watch(
    bench: Bench, autojump_clock: MockClock
) -> None:
    made = itertools.count(1)

    @on.reconcile("widgets", owns=[trioperator.Owned("configmaps", strategy="on_delete")], registry=bench.registry)
    async def reconcile() -> list[dict[str, Any]]:
        return [config_map("password", value=str(next(made)))]

    bench.settings.networking.error_backoffs = []
    plan = FaultPlan()
    plan.add(Fault.lose_answer(), resource="configmaps", verb="patch", times=1)
    plan.add(Fault.lag(5), resource="configmaps", verb="watch")
    await bench.cluster.create(widget())
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(60)
        assert next(made) > 2, "it was called again"
        assert (await bench.cluster.get("configmaps", "password"))["data"] == {"value": "1"}
