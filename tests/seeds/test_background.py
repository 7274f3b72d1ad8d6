"""Daemons and timers."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator as kopf
from tests.seeds.conftest import change, example, operating, rest
from trioperator.apiserver import Cluster


async def delete(cluster: Cluster, *, within: float) -> float:
    """Delete the object, and return the seconds until it is gone."""
    asked = trio.current_time()
    await cluster.delete("kopfexamples", "kex-1")
    with trio.fail_after(within):
        while await cluster.list("kopfexamples"):  # noqa: ASYNC110 -- seen from outside
            await trio.sleep(0.1)
    return trio.current_time() - asked


def sleep(seconds: float) -> None:
    """Replace ``time.sleep()``: each sleep of a thread is a tenth of a second of virtual time."""
    time.sleep(min(seconds, 0.1))


# -------------------------------------------------------------------------------------------------------------- Daemons


async def test_sync_and_async_daemons_run_beside_an_object(kex: Cluster) -> None:
    checks: list[str] = []

    @kopf.daemon("kopfexamples", cancellation_timeout=1)
    async def monitor_kex_async(**kwargs: Any) -> None:
        while True:
            checks.append("async")
            await trio.sleep(10)

    @kopf.daemon("kopfexamples")
    def monitor_kex_sync(stopped: Any, **kwargs: Any) -> None:
        while not stopped:
            checks.append("sync")
            sleep(10)

    async with operating(kex):
        await kex.create(example())
        with trio.fail_after(60):
            while set(checks) != {"async", "sync"}:  # noqa: ASYNC110
                await trio.sleep(0.01)
        await delete(kex, within=30)


async def test_a_sync_daemon_is_stopped_by_its_flag(kex: Cluster) -> None:
    words: list[str] = []

    @kopf.daemon("kopfexamples")
    def monitor_kex(stopped: Any, **kwargs: Any) -> None:
        while not stopped:
            sleep(1.0)
        words.append("We are done. Bye.")

    async with operating(kex):
        await kex.create(example())
        await rest(0.1)
        await delete(kex, within=30)
    assert words == ["We are done. Bye."]


async def test_an_async_daemon_is_stopped_by_cancellation(kex: Cluster, autojump_clock: MockClock) -> None:
    words: list[str] = []

    @kopf.daemon("kopfexamples", cancellation_timeout=1.0)
    async def monitor_kex(**kwargs: Any) -> None:
        try:
            while True:  # noqa: ASYNC110
                await trio.sleep(10)
        except trio.Cancelled:
            words.append("We are done. Bye.")

    async with operating(kex):
        await kex.create(example())
        await rest(100)
        assert await delete(kex, within=5) < 1
    assert words == ["We are done. Bye."]


async def test_a_daemon_has_timeouts_for_the_stages_of_stopping(kex: Cluster, autojump_clock: MockClock) -> None:
    @kopf.daemon("kopfexamples", cancellation_backoff=1.0, cancellation_timeout=3.0)
    async def monitor_kex(stopped: Any, **kwargs: Any) -> None:
        while not stopped:  # noqa: ASYNC110
            await trio.sleep(1)

    async with operating(kex):
        await kex.create(example())
        await rest(10.5)
        assert await delete(kex, within=5) < 1.2


@pytest.mark.parametrize("style", ["sync", "async"])
async def test_safe_sleeps_end_with_the_flag(kex: Cluster, autojump_clock: MockClock, style: str) -> None:
    loops: list[int] = []

    if style == "sync":

        @kopf.daemon("kopfexamples")
        def monitor_kex(stopped: Any, **kwargs: Any) -> None:
            while not stopped:
                loops.append(1)
                stopped.wait(10)
    else:

        @kopf.daemon("kopfexamples")
        async def monitor_kex_async(stopped: Any, **kwargs: Any) -> None:
            while not stopped:
                loops.append(1)
                await stopped.wait(10)

    async with operating(kex):
        await kex.create(example())
        await rest(55)
        assert len(loops) == 6
        assert await delete(kex, within=60) < 1


async def test_a_daemon_can_be_postponed(kex: Cluster, autojump_clock: MockClock) -> None:
    begun: list[float] = []

    @kopf.daemon("kopfexamples", initial_delay=30)
    async def monitor_kex(stopped: Any, **kwargs: Any) -> None:
        begun.append(trio.current_time())
        while True:  # noqa: ASYNC110
            await trio.sleep(1.0)

    async with operating(kex):
        created = trio.current_time()
        await kex.create(example())
        await rest(100)
    assert begun == [created + 30]


async def test_a_daemon_restarts_by_a_temporary_error(kex: Cluster, autojump_clock: MockClock) -> None:
    begun: list[float] = []

    @kopf.daemon("kopfexamples")
    async def monitor_kex(stopped: Any, **kwargs: Any) -> None:
        begun.append(trio.current_time())
        await trio.sleep(10.0)
        raise kopf.TemporaryError("Need to restart.", delay=10)

    async with operating(kex):
        await kex.create(example())
        await rest(95)
        await kex.patch("kopfexamples", "kex-1", {"metadata": {"finalizers": None}})
    assert [b - a for a, b in itertools.pairwise(begun)] == [20, 20, 20, 20]


async def test_a_daemon_sees_what_a_timer_changes(kex: Cluster, autojump_clock: MockClock) -> None:
    seen: list[Any] = []
    numbers = iter(range(100))

    @kopf.daemon("kopfexamples")
    def monitor_kex(stopped: Any, logger: kopf.Logger, body: kopf.Body, spec: kopf.Spec, **kwargs: Any) -> None:
        while not stopped:
            seen.append(spec["field"])
            logger.info(f"FIELD={spec['field']}")
            stopped.wait(1)

    @kopf.timer("kopfexamples", interval=2.5)
    def modify_kex_sometimes(patch: kopf.Patch, **kwargs: Any) -> None:
        patch.spec["field"] = next(numbers)

    async with operating(kex):
        await kex.create(example(field="a"))
        await rest(20)
        await delete(kex, within=60)
    values = [field for field in seen if field != "a"]
    assert values == sorted(values)
    assert set(values) >= set(range(1, 7))


async def test_a_daemon_delivers_its_result(kex: Cluster, autojump_clock: MockClock) -> None:
    @kopf.daemon("kopfexamples", id="monitor_kex")
    async def monitor_kex(stopped: Any, **kwargs: Any) -> Any:
        await trio.sleep(10.0)
        return {"finished": True}

    async with operating(kex):
        await kex.create(example())
        await rest(9)
        assert "status" not in await kex.get("kopfexamples", "kex-1")
        await rest(2)
        assert (await kex.get("kopfexamples", "kex-1"))["status"] == {"monitor_kex": {"finished": True}}


async def test_a_daemon_handles_its_errors(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @kopf.daemon("kopfexamples", errors=kopf.ErrorsMode.TEMPORARY, backoff=1, retries=10)
    def monitor_kex(retry: int, **_: Any) -> None:
        calls.append((retry, trio.from_thread.run_sync(trio.current_time) - created))
        if retry < 3:
            raise kopf.TemporaryError("I'll be back!", delay=1)
        if retry < 5:
            raise OSError("Something happened!")
        raise kopf.PermanentError("Bye-bye!")

    async with operating(kex):
        created = trio.current_time()
        await kex.create(example())
        await rest(100)
        await change(kex, field="b")
        await rest(100)
    assert calls == [(number, number) for number in range(6)]


async def test_a_daemon_runs_for_those_that_match(kex: Cluster, autojump_clock: MockClock) -> None:
    running: set[str] = set()

    @kopf.daemon(
        "kopfexamples",
        annotations={"some-annotation": "some-value"},
        labels={"some-label": "some-value"},
        when=lambda name, **_: "some" in name,
    )
    async def monitor_selected_kexes(name: str, stopped: Any, **kwargs: Any) -> None:
        running.add(name)
        await stopped.wait()
        running.remove(name)

    meta = {"annotations": {"some-annotation": "some-value"}, "labels": {"some-label": "some-value"}}
    async with operating(kex):
        await kex.create(example("some-one", meta=meta))
        await kex.create(example("other", meta=meta))
        await kex.create(example("some-other"))
        await rest()
        assert running == {"some-one"}
        await kex.patch("kopfexamples", "some-other", {"metadata": meta})
        await kex.patch("kopfexamples", "some-one", {"metadata": {"labels": {"some-label": "other"}}})
        await rest()
        assert running == {"some-other"}
        await kex.patch("kopfexamples", "some-one", {"metadata": meta})
        await rest()
        assert running == {"some-one", "some-other"}


async def test_a_daemon_can_be_excluded_permanently(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @kopf.on.update("kopfexamples", annotations={"update-fn-never-again": kopf.ABSENT})
    async def update_fn(patch: kopf.Patch, **_: Any) -> None:
        calls.append("update")
        patch.metadata.annotations["update-fn-never-again"] = "yes"
        raise kopf.PermanentError("Never call update-fn again.")

    @kopf.daemon("kopfexamples", annotations={"monitor-never-again": kopf.ABSENT})
    async def monitor_kex(patch: kopf.Patch, **kwargs: Any) -> None:
        calls.append("daemon")
        patch.metadata.annotations["monitor-never-again"] = "yes"

    async with operating(kex):
        await kex.create(example())
        await rest()
        await change(kex, field="b")
        await rest()
        await change(kex, field="c")
        await rest()
    async with operating(kex):
        await rest()
    assert calls == ["daemon", "update"]


# --------------------------------------------------------------------------------------------------------------- Timers


class Pings:
    """Times of calls since the creation of the object."""

    def __init__(self) -> None:
        self.created = 0.0
        self.times: list[float] = []

    async def create(self, cluster: Cluster, **spec: Any) -> None:
        self.created = trio.current_time()
        await cluster.create(example(**spec))

    def note(self) -> None:
        self.times.append(round(trio.from_thread.run_sync(trio.current_time) - self.created, 3))


@pytest.fixture
def pings() -> Pings:
    return Pings()


async def test_an_interval(kex: Cluster, autojump_clock: MockClock, pings: Pings) -> None:
    @kopf.timer("kopfexamples", interval=1.0)
    def ping_kex(spec: kopf.Spec, **kwargs: Any) -> None:
        pings.note()

    async with operating(kex):
        await pings.create(kex)
        await rest(10.5)
    assert pings.times == list(range(11))


async def test_idling(kex: Cluster, autojump_clock: MockClock, pings: Pings) -> None:
    @kopf.timer("kopfexamples", idle=10)
    def ping_kex(spec: kopf.Spec, **kwargs: Any) -> None:
        print(f"FIELD={spec['field']}")  # noqa: T201
        pings.note()

    async with operating(kex):
        await pings.create(kex, field="a")
        for number in range(4):
            await rest(5)
            await change(kex, field=number)
        await rest(100)
    assert pings.times == [30]


async def test_idling_with_an_interval(kex: Cluster, autojump_clock: MockClock, pings: Pings) -> None:
    @kopf.timer("kopfexamples", idle=10, interval=1)
    def ping_kex(spec: kopf.Spec, **kwargs: Any) -> None:
        print(f"FIELD={spec['field']}")  # noqa: T201
        pings.note()

    async with operating(kex):
        await pings.create(kex, field="a")
        await rest(12.5)
        await change(kex, field="b")
        await rest(12)
    assert pings.times == [10, 11, 12, 22.5, 23.5, 24.5]


async def test_postponing(kex: Cluster, autojump_clock: MockClock, pings: Pings) -> None:
    @kopf.timer("kopfexamples", interval=1, initial_delay=5)
    def ping_kex(spec: kopf.Spec, **kwargs: Any) -> None:
        print(f"FIELD={spec['field']}")  # noqa: T201
        pings.note()

    async with operating(kex):
        await pings.create(kex, field="a")
        await rest(7.5)
    assert pings.times == [5, 6, 7]


async def test_combined_timing(kex: Cluster, autojump_clock: MockClock, pings: Pings) -> None:
    @kopf.timer("kopfexamples", initial_delay=60, interval=10, idle=600)
    def ping_kex(spec: kopf.Spec, **kwargs: Any) -> None:
        pings.note()

    async with operating(kex):
        await pings.create(kex)
        await rest(30)
        await change(kex, field="b")
        await rest(625)
    assert pings.times == [630, 640, 650]


async def test_errors_in_timers(kex: Cluster, autojump_clock: MockClock, pings: Pings) -> None:
    retries: list[int] = []

    @kopf.timer("kopfexamples", errors=kopf.ErrorsMode.TEMPORARY, interval=10, backoff=5)
    def monitor_kex_by_time(name: str, retry: int, **kwargs: Any) -> None:
        pings.note()
        retries.append(retry)
        if retry < 3:
            raise Exception()

    async with operating(kex):
        await pings.create(kex)
        await rest(26)
    assert retries == [0, 1, 2, 3, 0]
    assert pings.times == [0, 5, 10, 15, 25]


async def test_results_of_timers(kex: Cluster, autojump_clock: MockClock) -> None:
    @kopf.timer("kopfexamples", id="ping_kex", interval=10)
    def ping_kex(spec: kopf.Spec, **kwargs: Any) -> int:
        return random.randint(0, 100)

    async with operating(kex):
        await kex.create(example())
        values = []
        for _ in range(30):
            await rest(10)
            values.append((await kex.get("kopfexamples", "kex-1"))["status"]["ping_kex"])
    assert all(0 <= value <= 100 for value in values)
    assert len(set(values)) > 1


async def test_filtering_of_timers(kex: Cluster, autojump_clock: MockClock) -> None:
    pinged: set[str] = set()

    @kopf.timer(
        "kopfexamples",
        interval=10,
        annotations={"some-annotation": "some-value"},
        labels={"some-label": "some-value"},
        when=lambda name, **_: "some" in name,
    )
    def ping_kex(spec: kopf.Spec, name: str, **kwargs: Any) -> None:
        pinged.add(name)

    meta = {"annotations": {"some-annotation": "some-value"}, "labels": {"some-label": "some-value"}}
    async with operating(kex):
        await kex.create(example("some-one", meta=meta))
        await kex.create(example("other", meta=meta))
        await kex.create(example("some-other"))
        await rest(50)
    assert pinged == {"some-one"}
