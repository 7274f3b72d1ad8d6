"""Daemons and timers while everything goes wrong: never two at once, none too many, none missing when all is over.

Every seed is a life of one object, with the handlers and the troubles of ``test_chaos``.
"""

from __future__ import annotations

import collections
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.life import Life
from trioperator.testing import deterministic


class AccompaniedLife(Life):
    """The life of an object with daemons and timers."""

    def __init__(self, seed: int, *, restarting: bool) -> None:
        super().__init__(seed, restarting=restarting, reverting=False)
        self.settings.process.grace = 1000
        self.running: collections.Counter[str] = collections.Counter()
        self.most: collections.Counter[str] = collections.Counter()
        self.ticks = 0
        self._add_daemon("steady")
        self._add_daemon("even", when=lambda spec, **_: int(spec.get("serial", "0")) % 2 == 0)
        self._add_daemon("free", finalizer=False)
        self._add_timer()

    def _add_daemon(self, id: str, **options: Any) -> None:
        options["cancellation_backoff"] = self.random.choice([None, 1, 10])
        options["cancellation_timeout"] = self.random.choice([None, 5, 100])

        @trioperator.daemon("widgets", id=id, backoff=3, registry=self.registry, **options)
        async def accompany(stopped: trioperator.DaemonStopped, patch: Any, retry: int, **_: Any) -> None:
            self.running[id] += 1
            self.most[id] = max(self.most[id], self.running[id])
            try:
                await trio.sleep(self.random.choice([0, 0, 0.1, 5]))
                if not self.peace and self.random.random() < 0.5:
                    patch.status[id] = retry
                    raise trioperator.TemporaryError("not yet", delay=self.random.choice([0, 0.05, 1, 5]))
                await stopped.wait()
                await trio.sleep(self.random.choice([0, 0, 0.1, 5, 50]))
                patch.status[id] = "ended"
            finally:
                self.running[id] -= 1

    def _add_timer(self) -> None:
        options: dict[str, Any] = self.random.choice([{"interval": 7}, {"interval": 7, "sharp": True}])

        @trioperator.timer("widgets", id="timer", backoff=3, registry=self.registry, **options)
        async def tick(patch: Any, retry: int, **_: Any) -> None:
            self.running["timer"] += 1
            self.most["timer"] = max(self.most["timer"], self.running["timer"])
            try:
                await self._go_through(retry)
                self.ticks += 1
                patch.status["ticks"] = self.ticks
            finally:
                self.running["timer"] -= 1

    async def operate(self, *, seconds: float, how: str) -> None:
        await super().operate(seconds=seconds, how=how)
        self.check_none_runs("the operator has ended")

    async def check_settled(self) -> None:
        await super().check_settled()
        body = await self.cluster.get("widgets", "w")
        even = int(body["spec"].get("serial", "0")) % 2 == 0
        expected = {"steady": 1, "even": 1 if even else 0, "free": 1}
        running = {id: self.running[id] for id in expected}
        assert running == expected, f"seed {self.seed}: there run {running}, and not {expected}"
        assert body["status"]["ticks"] >= self.ticks - 1, f"seed {self.seed}: a timer's patch is not stored"

    async def delete(self) -> None:
        await super().delete()
        self.check_none_runs("the object is gone")
        assert max(self.most.values()) == 1, f"seed {self.seed}: there were two at once: {self.most}"

    def check_none_runs(self, since: str) -> None:
        running = {id: number for id, number in self.running.items() if number}
        assert not running, f"seed {self.seed}: {since}, and there run {running}"


async def live(seed: int, *, restarting: bool) -> None:
    """Live the life of a seed, always in the same way."""
    with deterministic(seed):
        await AccompaniedLife(seed, restarting=restarting).live()


@pytest.mark.parametrize("seed", range(8))
async def test_daemons_and_timers_are_what_they_should_be_when_all_is_over(
    seed: int, autojump_clock: MockClock
) -> None:
    await live(seed, restarting=False)


@pytest.mark.parametrize("seed", range(1000, 1008))
async def test_restarts_leave_no_daemon_behind(seed: int, autojump_clock: MockClock) -> None:
    await live(seed, restarting=True)
