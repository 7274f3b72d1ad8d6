"""A release without some handlers, which is rolled back: what it has handled, it has handled without them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator import (
    MultiProgressStorage,
    OperatorRegistry,
    ProgressStorage,
    SmartProgressStorage,
    StatusProgressStorage,
)

on = trioperator.on
DELAY = 10.0
STORAGES: list[Callable[[], ProgressStorage]] = [
    SmartProgressStorage,
    StatusProgressStorage,
    lambda: MultiProgressStorage([StatusProgressStorage(), SmartProgressStorage()]),
]


class Release:
    """Handlers of one release, of which ``done`` succeeds, and ``trying`` does so only in a release that works."""

    def __init__(self, *, works: bool) -> None:
        self.registry, self.calls = OperatorRegistry(), list[tuple[str, int, int]]()

        @on.create("widgets", id="created", registry=self.registry)
        async def created(**_: object) -> None: ...

        @on.update("widgets", id="done", registry=self.registry)
        async def done(spec: trioperator.Spec, retry: int, **_: object) -> None:
            self.calls.append(("done", retry, spec["size"]))

        @on.update("widgets", id="trying", timeout=60, retries=5, registry=self.registry)
        async def trying(spec: trioperator.Spec, retry: int, **_: object) -> None:
            @trioperator.subhandler(id="part")
            async def part(retry: int, **_: object) -> None:
                self.calls.append(("trying/part", retry, spec["size"]))

            if not works:
                await trioperator.execute()
                raise trioperator.TemporaryError("It does not work.", delay=DELAY)
            self.calls.append(("trying", retry, spec["size"]))


def renamed() -> OperatorRegistry:
    """Return the handlers of a release that has none of the others' handlers."""
    registry = OperatorRegistry()

    @on.create("widgets", id="other", registry=registry)
    @on.update("widgets", id="other", registry=registry)
    async def other(**_: object) -> None: ...

    return registry


async def resize(bench: Bench, size: int) -> None:
    await bench.cluster.patch("widgets", "w", {"spec": {"size": size}})


@pytest.fixture(params=STORAGES)
async def interrupted(bench: Bench, request: pytest.FixtureRequest, autojump_clock: MockClock) -> Release:
    """Let a release end while one handler has succeeded and the other one is tried again."""
    bench.settings.persistence.progress_storage = request.param()
    release = Release(works=False)
    async with bench.running(registry=release.registry):
        await bench.cluster.create(widget(size=0))
        await settle(1)
        await resize(bench, 1)
        await settle(3 * DELAY - 5)
    assert release.calls == [("done", 0, 1), ("trying/part", 0, 1)]
    return release


async def test_a_change_is_handled_by_all_though_another_release_has_handled_the_one_that_some_had_seen(
    bench: Bench, interrupted: Release, autojump_clock: MockClock
) -> None:
    async with bench.running(registry=renamed()):
        await resize(bench, 2)
        await settle(1000)
    await resize(bench, 3)
    back = Release(works=True)
    async with bench.running(registry=back.registry):
        await settle(1000)
    assert back.calls == [("done", 0, 3), ("trying", 0, 3), ("trying/part", 0, 3)]
    left = await bench.cluster.get("widgets", "w")
    assert sorted(key.partition("/")[2] for key in left["metadata"]["annotations"]) == [
        "kopf-managed",
        "last-handled-configuration",
    ]
    assert not left.get("status", {}).get("trioperator", {}).get("progress")


async def test_an_unfinished_change_goes_on_where_no_other_release_has_handled_it(
    bench: Bench, interrupted: Release, autojump_clock: MockClock
) -> None:
    back = Release(works=True)
    async with bench.running(registry=back.registry):
        await settle(1000)
    assert back.calls == [("trying", 3, 1)]


async def test_a_change_to_what_is_unfinished_keeps_the_attempts(
    bench: Bench, interrupted: Release, autojump_clock: MockClock
) -> None:
    await resize(bench, 3)
    back = Release(works=True)
    async with bench.running(registry=back.registry):
        await settle(1000)
    assert ("trying", 3, 3) in back.calls
    assert ("done", 0, 3) in back.calls


async def test_what_another_release_has_handled_and_taken_back_begins_anew(
    bench: Bench, interrupted: Release, autojump_clock: MockClock
) -> None:
    async with bench.running(registry=renamed()):
        await settle(100)
        await resize(bench, 0)
        await settle(100)
    await resize(bench, 3)
    back = Release(works=True)
    async with bench.running(registry=back.registry):
        await settle(1000)
    assert back.calls == [("done", 0, 3), ("trying", 0, 3), ("trying/part", 0, 3)]
