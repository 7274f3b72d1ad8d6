"""The chapters Sub-handlers, Idempotence, Restarts, and Tips & Tricks."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator as kopf
from tests.seeds.conftest import change, example, operating, rest
from trioperator.apiserver import Cluster

# ----------------------------------------------------------------------------------------------- Handlers: Sub-handlers


def imperatively(handled: list[Any]) -> None:
    @kopf.on.create("kopfexamples")
    async def create_fn(spec: kopf.Spec, **_: Any) -> None:
        fns = {}

        for item in spec.get("items", []):
            fns[item] = functools.partial(handle_item, item=item)

        await kopf.execute(fns=fns)

    def handle_item(item: Any, *, spec: kopf.Spec, **_: Any) -> None:
        handled.append(item)


def declaratively(handled: list[Any]) -> None:
    @kopf.on.create("kopfexamples")
    def create_fn(spec: kopf.Spec, **_: Any) -> None:
        for item in spec.get("items", []):

            @kopf.subhandler(id=item)
            def handle_item(item: Any = item, **_: Any) -> None:
                handled.append(item)


def by_decorators_of_on(handled: list[Any]) -> None:
    @kopf.on.create("kopfexamples")
    def create(*, spec: kopf.Spec, **kwargs: Any) -> None:
        for task in spec.get("items", []):

            @kopf.on.subhandler(id=f"task_{task}")
            def create_task(*, spec: kopf.Spec, task: Any = task, **kwargs: Any) -> None:
                handled.append(task)


def by_registering(handled: list[Any]) -> None:
    @kopf.on.create("kopfexamples")
    def create_it(spec: kopf.Spec, **kwargs: Any) -> None:
        for task in spec.get("items", []):

            def create_single_task(task: Any = task, **_: Any) -> None:
                handled.append(task)

            kopf.register(id=task, fn=create_single_task)


@pytest.mark.parametrize("declare", [imperatively, declaratively, by_decorators_of_on, by_registering])
async def test_all_ways_are_equivalent(declare: Any, kex: Cluster, autojump_clock: MockClock) -> None:
    handled: list[Any] = []
    declare(handled)
    async with operating(kex):
        await kex.create(example(items=["item1", "item2"]))
        await rest()
    assert handled == ["item1", "item2"]


async def test_sub_handlers_have_ids_like_those_of_regular_handlers(
    kex: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @kopf.on.create("kopfexamples", id="create_fn")
    def create_fn(spec: kopf.Spec, **_: Any) -> None:
        for item in spec.get("items", []):

            @kopf.subhandler(id=item)
            def handle_item(item: Any = item, **_: Any) -> str:
                return f"handled {item}"

    caplog.set_level("INFO")
    async with operating(kex):
        await kex.create(example(items=["item1", "item2"]))
        await rest()
    status = (await kex.get("kopfexamples", "kex-1"))["status"]
    assert status == {"create_fn/item1": "handled item1", "create_fn/item2": "handled item2"}
    for id in ("create_fn", "create_fn/item1", "create_fn/item2"):
        assert caplog.text.count(f"Handler '{id}' succeeded.") == 1


async def test_the_parent_is_called_for_each_retry_to_register_the_sub_handlers(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @kopf.on.create("kopfexamples")
    def create_fn(spec: kopf.Spec, **_: Any) -> None:
        calls.append("parent")
        for item in spec.get("items", []):

            @kopf.subhandler(id=item, backoff=5)
            def handle_item(retry: int, item: Any = item, **_: Any) -> None:
                calls.append(item)
                if item == "item2" and retry < 2:
                    raise Exception("Not yet.")

    async with operating(kex):
        await kex.create(example(items=["item1", "item2"]))
        await rest(60)
    assert calls == ["parent", "item1", "item2", "parent", "item2", "parent", "item2"]


# -------------------------------------------------------------------------------------- Idempotence, Restarts, Downtime


async def test_the_example_of_idempotence_and_its_timing(kex: Cluster, autojump_clock: MockClock) -> None:
    printed: list[str] = []
    attempts: list[tuple[str, int]] = []

    @kopf.on.create("kopfexamples")
    async def create(spec: kopf.Spec, namespace: str, **kwargs: Any) -> None:
        printed.append("Entering create()!")  # executed ~7 times.
        await kopf.execute(
            fns={
                "a": create_a,
                "b": create_b,
            }
        )
        printed.append("Leaving create()!")  # executed 1 time only.

    async def create_a(retry: int, **kwargs: Any) -> None:
        attempts.append(("a", round(trio.current_time() - began)))
        if retry < 2:
            raise kopf.TemporaryError("Not ready yet.", delay=10)

    async def create_b(retry: int, **kwargs: Any) -> None:
        attempts.append(("b", round(trio.current_time() - began)))
        if retry < 6:
            raise kopf.TemporaryError("Not ready yet.", delay=10)

    async with operating(kex):
        began = trio.current_time()
        await kex.create(example())
        await rest(100)
    assert printed == ["Entering create()!"] * 7 + ["Leaving create()!"]
    assert attempts[-1] == ("b", 60)
    assert [at for name, at in attempts if name == "a"] == [0, 10, 20]


async def test_handlers_that_succeeded_before_a_restart_are_not_called_again(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @kopf.on.create("kopfexamples")
    async def create(**kwargs: Any) -> None:
        await kopf.execute(fns={"a": functools.partial(child, "a"), "b": functools.partial(child, "b")})

    async def child(which: str, retry: int, **kwargs: Any) -> None:
        calls.append(f"{which}{retry}")
        if which == "b" and retry < 3:
            raise kopf.TemporaryError("Not ready yet.", delay=10)

    for _ in range(4):
        async with operating(kex) as killed:
            if not calls:
                await kex.create(example())
            await rest(10)
            killed.cancel()
    assert calls == ["a0", "b0", "b1", "b2", "b3"]


# -------------------------------------------------------------------------------------------------------- Tips & Tricks


async def test_handlers_are_excluded_permanently_by_an_annotation(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @kopf.on.update("kopfexamples", annotations={"update-fn-never-again": kopf.ABSENT})
    def update_fn(patch: kopf.Patch, **_: Any) -> None:
        calls.append("update")
        patch.metadata.annotations["update-fn-never-again"] = "yes"
        raise kopf.PermanentError("Never call update-fn again.")

    @kopf.daemon("kopfexamples", annotations={"monitor-never-again": kopf.ABSENT})
    async def monitor_kex(patch: kopf.Patch, **kwargs: Any) -> None:
        calls.append("monitor")
        patch.metadata.annotations["monitor-never-again"] = "yes"

    for _ in range(2):
        async with operating(kex):
            if not calls:
                await kex.create(example(field=0))
            await rest()
            for value in range(1, 3):
                await change(kex, field=value)
                await rest()
    assert sorted(calls) == ["monitor", "update"]
