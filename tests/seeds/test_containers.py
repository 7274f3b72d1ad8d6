"""The chapter In-memory containers: memos of objects and of the operator, and memos of custom classes."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import queue
import threading
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator as kopf
from tests.seeds.conftest import change, example, operating, rest
from trioperator.apiserver import Cluster


async def test_handlers_and_timers_of_an_object_share_its_memo(
    kex: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @kopf.on.event("KopfExample")
    def pinged(memo: kopf.Memo, **_: Any) -> None:
        memo.counter = memo.get("counter", 0) + 1

    @kopf.timer("KopfExample", interval=10)
    def tick(memo: kopf.Memo, logger: Any, **_: Any) -> None:
        logger.info(f"{memo.counter} events have been received in 10 seconds.")
        memo.counter = 0

    caplog.set_level(logging.INFO)
    async with operating(kex):
        await kex.create(example())
        await rest(12)
        caplog.clear()
        for value in range(3):
            await change(kex, field=value)
        await rest(10)
    assert "3 events have been received in 10 seconds." in caplog.text


async def test_the_operators_memo_populates_those_of_objects(kex: Cluster, autojump_clock: MockClock) -> None:
    printed = io.StringIO()

    @kopf.on.startup()
    def start_background_worker(memo: kopf.Memo, **_: Any) -> None:
        memo.my_queue = queue.Queue()
        memo.my_thread = threading.Thread(target=background, args=(memo.my_queue,))
        memo.my_thread.start()

    @kopf.on.cleanup()
    def stop_background_worker(memo: kopf.Memo, **_: Any) -> None:
        memo["my_queue"].put(None)
        memo["my_thread"].join()

    def background(queue: queue.Queue[str | None]) -> None:
        while True:
            item = queue.get()
            if item is None:
                break
            print(item, file=printed)

    # ... continued from the previous example.
    @kopf.on.event("KopfExample")
    def pinged(memo: kopf.Memo, namespace: str, name: str, **_: Any) -> None:
        if not memo.get("is_seen"):
            memo.my_queue.put(f"{namespace}/{name}")
            memo.is_seen = True

    async with operating(kex):
        await kex.create(example("one"))
        await kex.create(example("other"))
        await rest()
        await kex.patch("kopfexamples", "one", {"spec": {"field": 1}})
        await rest()
    assert sorted(printed.getvalue().split()) == ["default/one", "default/other"]


async def test_a_custom_class_can_be_one_memo_for_all(kex: Cluster, autojump_clock: MockClock) -> None:
    printed = io.StringIO()

    @dataclasses.dataclass()
    class CustomContext:
        create_tpl: str
        delete_tpl: str

        def __copy__(self) -> CustomContext:
            return self

    @kopf.on.create("kopfexamples")
    def create_fn(memo: CustomContext, **kwargs: Any) -> None:
        print(memo.create_tpl.format(**kwargs), file=printed)

    @kopf.on.delete("kopfexamples")
    def delete_fn(memo: CustomContext, **kwargs: Any) -> None:
        print(memo.delete_tpl.format(**kwargs), file=printed)

    async with operating(
        kex,
        memo=CustomContext(
            create_tpl="Hello, {name}!",
            delete_tpl="Good bye, {name}!",
        ),
    ):
        await kex.create(example())
        await rest()
        await kex.delete("kopfexamples", "kex-1")
        await rest()
    assert printed.getvalue() == "Hello, kex-1!\nGood bye, kex-1!\n"


async def test_a_memo_ends_with_its_object(kex: Cluster, autojump_clock: MockClock) -> None:
    seen: list[tuple[str, int]] = []

    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    @kopf.on.delete("kopfexamples")
    async def count(memo: kopf.Memo, reason: str, **_: Any) -> None:
        memo.count = memo.get("count", 0) + 1
        seen.append((reason, memo.count))

    async with operating(kex):
        for _ in range(2):  # an object of the same name is another one
            await kex.create(example())
            await rest()
            await change(kex, field=1)
            await rest()
            await kex.delete("kopfexamples", "kex-1")
            await rest()
    assert seen == [("create", 1), ("update", 2), ("delete", 3)] * 2


async def test_later_changes_of_the_operators_memo_do_not_reach_objects_that_have_one(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    memo = kopf.Memo(value="early", shared=[])
    seen: list[Any] = []

    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    async def look(name: str, memo: kopf.Memo, **_: Any) -> None:
        memo.shared.append(name)
        seen.append((name, memo.value, len(memo.shared)))

    async with operating(kex, memo=memo):
        await kex.create(example())
        await rest()
        memo.value = "late"
        await change(kex, field=1)
        await kex.create(example("kex-2"))
        await rest()
    assert seen[0] == ("kex-1", "early", 1)
    assert sorted(seen[1:]) in (
        [("kex-1", "early", 2), ("kex-2", "late", 3)],
        [("kex-1", "early", 3), ("kex-2", "late", 2)],
    )


async def test_daemons_threads_indices_and_filters_get_the_same_memo(kex: Cluster, autojump_clock: MockClock) -> None:
    seen: dict[str, int] = {}

    def note(name: str, memo: Any) -> bool:
        seen[name] = id(memo)
        return True

    @kopf.on.create("kopfexamples", when=lambda memo, **_: note("filter", memo))
    def in_a_thread(memo: Any, **_: Any) -> None:
        note("thread", memo)

        @kopf.subhandler()
        async def child(memo: Any, **_: Any) -> None:
            note("sub-handler", memo)

    @kopf.on.event("kopfexamples")
    async def event(memo: Any, **_: Any) -> None:
        note("event", memo)

    @kopf.index("kopfexamples")
    async def names(memo: Any, name: str, **_: Any) -> str:
        note("index", memo)
        return name

    @kopf.daemon("kopfexamples")
    async def daemon(memo: Any, stopped: Any, **_: Any) -> None:
        note("daemon", memo)
        await stopped.wait()

    @kopf.daemon("kopfexamples")
    def sync_daemon(memo: Any, **_: Any) -> None:
        note("sync daemon", memo)

    operators: list[int] = []

    @kopf.on.startup()
    @kopf.on.cleanup()
    async def activity(memo: Any, **_: Any) -> None:
        operators.append(id(memo))

    class Plain:
        """Memo that is not a mapping."""

    memo = Plain()
    with contextlib.suppress(TimeoutError):
        async with operating(kex, memo=memo):
            await kex.create(example())
            await rest()
    assert set(seen) == {"filter", "thread", "sub-handler", "event", "index", "daemon", "sync daemon"}
    assert len(set(seen.values())) == 1
    assert operators == [id(memo)] * 2
    assert id(memo) not in seen.values()


def test_items_are_attributes() -> None:
    memo = kopf.Memo()
    memo.f1 = 100
    assert memo["f1"] == 100
    memo["f2"] = 200
    assert memo.f2 == 200
    assert set(memo.keys()) == {"f1", "f2"}
