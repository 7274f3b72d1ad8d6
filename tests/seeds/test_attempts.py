"""Arguments, results and errors of handlers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator as kopf
from tests.seeds.conftest import change, example, operating, rest
from trioperator.apiserver import Cluster

# ------------------------------------------------------------------------------------------------------------ Arguments


async def test_param_distinguishes_decorators(kex: Cluster, autojump_clock: MockClock) -> None:
    @kopf.on.create("KopfExample", param=1000)
    @kopf.on.resume("KopfExample", param=100)
    @kopf.on.update("KopfExample", param=10, field="spec.field")
    @kopf.on.update("KopfExample", param=1, field="spec.items")
    async def count_updates(param: int, patch: kopf.Patch, status: kopf.Status, **_: Any) -> None:
        patch.status["counter"] = status.get("counter", 0) + param

    async def counter() -> int:
        await rest()
        return int((await kex.get("kopfexamples", "kex-1"))["status"]["counter"])

    async with operating(kex):
        await kex.create(example(field=1))
        assert await counter() == 1000
        await change(kex, field=2)
        assert await counter() == 1010
        await change(kex, items=[1])
        assert await counter() == 1011
        await change(kex, field=3, items=[2])
        assert await counter() == 1022
        await change(kex, other=1)
        assert await counter() == 1022
    async with operating(kex):
        assert await counter() == 1122


async def test_overlapping_fields_are_two_calls_with_their_own_arguments(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @kopf.on.update("KopfExample", param=10, field="spec.field")
    @kopf.on.update("KopfExample", param=1, field="spec")
    async def fn(param: int, old: Any, new: Any, diff: Any, **_: Any) -> None:
        calls.append((param, old, new, tuple(diff)))

    async with operating(kex):
        await kex.create(example(field="a"))
        await rest()
        await change(kex, field="b")
        await rest()
        await change(kex, other="c")
        await rest()
    assert calls == [
        (1, {"field": "a"}, {"field": "b"}, (("change", ("field",), "a", "b"),)),
        (10, "a", "b", (("change", (), "a", "b"),)),
        (1, {"field": "b"}, {"field": "b", "other": "c"}, (("add", ("other",), None, "c"),)),
    ]


async def test_a_handler_gets_the_number_of_its_retries(kex: Cluster, autojump_clock: MockClock) -> None:
    attempts: list[Any] = []

    @kopf.on.create("kopfexamples")
    async def create_fn(retry: int, started: Any, runtime: Any, **_: Any) -> None:
        attempts.append((retry, started, round(runtime.total_seconds())))
        if retry < 3:
            raise kopf.TemporaryError("The data is not yet ready.", delay=60)

    async with operating(kex):
        await kex.create(example())
        await rest(1000)
    assert [(retry, runtime) for retry, _, runtime in attempts] == [(0, 0), (1, 60), (2, 120), (3, 180)]
    assert len({started for _, started, _ in attempts}) == 1
    assert attempts[0][1].tzinfo is not None


# ----------------------------------------------------------------------------------------------------- Results delivery


async def test_results_are_stored_in_the_status_under_the_handler_ids(kex: Cluster, autojump_clock: MockClock) -> None:
    @kopf.on.create("kopfexamples", id="create_kex_1")
    async def create_kex_1(**_: Any) -> int:
        return 100

    @kopf.on.create("kopfexamples", id="create_kex_2")
    async def create_kex_2(uid: str, **_: Any) -> dict[str, int]:
        return {"r1": 66, "r2": 666}

    async with operating(kex):
        await kex.create(example())
        await rest()
    status = (await kex.get("kopfexamples", "kex-1"))["status"]
    assert status == {"create_kex_1": 100, "create_kex_2": {"r1": 66, "r2": 666}}


async def test_handlers_wait_for_the_results_of_others(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @kopf.on.create("kopfexamples", id="create_job")
    async def create_job(status: kopf.Status, **_: Any) -> dict[str, str]:
        calls.append("job")
        if not status.get("create_pvc", {}):
            raise kopf.TemporaryError("PVC is not created yet.", delay=10)
        return {"name": f"job-for-{status['create_pvc']['name']}"}

    @kopf.on.create("kopfexamples", id="create_pvc")
    async def create_pvc(**_: Any) -> dict[str, str]:
        calls.append("pvc")
        return {"name": "pvc-1"}

    async with operating(kex):
        await kex.create(example())
        await rest(30)
    assert calls == ["job", "pvc", "job"]
    status = (await kex.get("kopfexamples", "kex-1"))["status"]
    assert status == {"create_pvc": {"name": "pvc-1"}, "create_job": {"name": "job-for-pvc-1"}}


# ------------------------------------------------------------------------------------------------------- Error handling


@pytest.mark.parametrize(
    ("options", "error", "delays"),
    [
        ({}, kopf.TemporaryError("not yet", delay=60), [60, 60, 60]),
        ({}, kopf.TemporaryError("not yet"), [60, 60, 60]),
        ({}, kopf.TemporaryError("not yet", delay=5), [5, 5, 5]),
        ({}, kopf.PermanentError("never"), []),
        ({}, Exception(), [60, 60, 60]),
        ({"errors": kopf.ErrorsMode.TEMPORARY}, Exception(), [60, 60, 60]),
        ({"errors": kopf.ErrorsMode.PERMANENT}, Exception(), []),
        ({"errors": kopf.ErrorsMode.IGNORED}, Exception(), []),
        ({"backoff": 30}, Exception(), [30, 30, 30]),
        ({"backoff": 30}, kopf.TemporaryError(delay=7), [7, 7, 7]),
        ({"retries": 3}, Exception(), [60, 60]),
        ({"retries": 3}, kopf.TemporaryError(delay=5), [5, 5]),
        ({"retries": 1}, Exception(), []),
        ({"timeout": 100}, kopf.TemporaryError(delay=60), [60]),
        ({"timeout": 200, "backoff": 50}, Exception(), [50, 50, 50]),
    ],
)
async def test_errors_are_retried_as_they_and_the_options_specify(
    kex: Cluster, autojump_clock: MockClock, options: dict[str, Any], error: Exception, delays: list[float]
) -> None:
    times: list[float] = []

    @kopf.on.create("kopfexamples", **options)
    async def create_fn(retry: int, **_: Any) -> None:
        times.append(trio.current_time())
        if retry < 3:
            raise error

    async with operating(kex):
        await kex.create(example())
        await rest(10_000)
    assert [round(b - a) for a, b in itertools.pairwise(times)] == delays
    annotations = (await kex.get("kopfexamples", "kex-1"))["metadata"]["annotations"]
    assert "trioperator.dev/last-handled-configuration" in annotations
    assert len(annotations) == 2, "and a marker; nothing is left of the attempts"


async def test_an_hour_of_temporary_errors_is_sixty_attempts(kex: Cluster, autojump_clock: MockClock) -> None:
    attempts: list[int] = []

    @kopf.on.create("kopfexamples", timeout=60 * 60)
    async def create_fn(retry: int, **_: Any) -> None:
        attempts.append(retry)
        raise kopf.TemporaryError(delay=60)

    async with operating(kex):
        await kex.create(example())
        await rest(100_000)
    assert attempts == list(range(60))


async def test_an_async_handler_that_hangs_is_cancelled_by_its_timeout(kex: Cluster, autojump_clock: MockClock) -> None:
    ended: list[float] = []

    @kopf.on.create("kopfexamples", timeout=60 * 60)
    async def create_fn(**_: Any) -> None:
        started = trio.current_time()
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time() - started)

    async with operating(kex):
        await kex.create(example())
        await rest(10_000)
    assert [round(seconds) for seconds in ended] == [3600]


async def test_a_failed_handler_is_called_again_for_the_next_change(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @kopf.on.create("kopfexamples")
    @kopf.on.update("kopfexamples")
    async def my_handler(reason: str, **_: Any) -> None:
        calls.append(reason)
        raise kopf.PermanentError("never")

    async with operating(kex):
        await kex.create(example())
        await rest()
        await change(kex, field=1)
        await rest(1000)
    assert calls == ["create", "update"]
