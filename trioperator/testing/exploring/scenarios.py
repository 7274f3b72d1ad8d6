"""Scenarios: what a test does with an operator, played repeatedly with a different fault each time."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import httpx
import trio
import trio.testing

from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError
from trioperator.testing.autojump import serial_threads
from trioperator.testing.determinism import deterministic
from trioperator.testing.effects import Outside, play_outside
from trioperator.testing.exploring.checks import check_names
from trioperator.testing.exploring.outside import OutsideCallError, refuse_outside_calls
from trioperator.testing.exploring.perturbations import (
    FAULTS,
    NONE,
    Extent,
    Perturbation,
    iterate_perturbations,
    make_plan,
)
from trioperator.testing.exploring.snapshots import Mask, Snapshot, compare, take_snapshot
from trioperator.testing.exploring.troubles import Crash
from trioperator.testing.library_clients import routed_libraries
from trioperator.testing.operator_runner import OperatorRunner, open_runner
from trioperator.testing.transport import FaultyTransport

#: The body of a test, which starts the operator itself.
Scenario: TypeAlias = Callable[[Cluster, OperatorRunner], Awaitable[object]]

# The faults that can be injected without knowing the scenario.
_FAULTS: Final = ("crash", "late", "order")
# Virtual seconds for what the operator still does after the scenario.
_SETTLING: Final = 900.0
_MAX_DIFFERENCES: Final = 6


def explore(scenario: Scenario, *, faults: Iterable[str] = _FAULTS) -> int:
    """Play a scenario repeatedly, each time with a different fault.

    ::

        async def scenario(cluster, operator):
            await cluster.apply(pathlib.Path("crd.yaml"))
            await operator.start("main.py")
            await cluster.create(DATABASE)
            await cluster.wait_for("databases", "orders", "Ready", timeout=600)

        def test_what_happens_besides_does_not_matter():
            assert explore(scenario) > 0

    *faults* are ``crash``, at each write and each call outside, before and after it is processed; ``late``, with late
    watch events of each kind; and ``order``, with other orders of tasks. In the end, the operator must have written the
    same objects as without a fault. Fields that differ between plays without faults, by other seeds, are not compared.
    It has its own virtual time: call it in a test that is not async.

    Returns the number of plays. Raises AssertionError if the objects differ, and what the scenario raises; a note names
    the fault. Raises ConfigError for unknown faults. See docs/exploring.md.
    """
    chosen = check_names("fault", faults, {name: FAULTS[name] for name in _FAULTS})
    plain, again = _Play(scenario, NONE), _Play(scenario, NONE, seed=1)
    plain.run()
    again.run()
    masks = {each.mask for each in compare(again.snapshot, plain.snapshot)}
    count = 2
    extent = Extent(writes=plain.writes, calls=plain.outside.calls, watched=plain.watched)
    for perturbation in iterate_perturbations(chosen, extent):
        play = _Play(scenario, perturbation)
        try:
            play.run()
            _check(play, plain, masks)
        except Exception as error:
            error.add_note(f"{perturbation}.")
            raise
        count += 1
    return count


def _check(play: _Play, plain: _Play, masks: set[Mask]) -> None:
    """Raise AssertionError if a play has ended otherwise than the plain one."""
    lines = [str(each) for each in compare(play.snapshot, plain.snapshot, masks=masks)]
    counts: Mapping[str, int] = plain.outside.counts
    lines += [
        f"{effect} happens {count} times instead of {counts.get(effect, 0)}"
        for effect, count in play.outside.counts.items()
        if count > counts.get(effect, 0)
    ]
    if lines:
        raise AssertionError("\n".join(lines[:_MAX_DIFFERENCES]))


class _Play:
    """One play of a scenario."""

    def __init__(self, scenario: Scenario, perturbation: Perturbation, *, seed: int = 0) -> None:
        self._scenario = scenario
        self._perturbation = perturbation
        self._seed = seed
        self.snapshot: Snapshot = {}
        self.outside = Outside()
        self.writes = 0
        self.watched: list[str] = []

    def run(self) -> None:
        """Play it. Raises what the scenario raises, and what its operator has done wrong."""
        order = self._perturbation.at if self._perturbation.fault == "order" else self._seed
        with (
            deterministic(order),
            serial_threads(),
            routed_libraries(),
            refuse_outside_calls() as refused,
            play_outside() as self.outside,
        ):
            trio.run(self._run, clock=trio.testing.MockClock(autojump_threshold=0))
        if refused:
            raise OutsideCallError(f"{refused[0]}. Fake what is called, with trioperator.testing.effects.")

    async def _run(self) -> None:
        cluster = _LateCluster(self._perturbation, seed=self._seed)
        async with open_runner(cluster) as operator:
            crash = Crash(self._perturbation, operator, functools.partial(_restart, operator))
            operator.on_write = crash.around_write
            self.outside.on_call = crash.around_call
            async with crash.open():
                await self._scenario(cluster, operator)
                if not operator.has_started:
                    raise ConfigError("The scenario does not start the operator: await operator.start(…).")
                await trio.sleep(_SETTLING)
            self.writes = crash.writes
            self.watched = sorted({each.resource for each in cluster.requests if each.verb == "watch"})
            outside = {f"Outside {name}": kept for name, kept in self.outside.stores.items() if kept}
            self.snapshot = {**take_snapshot(cluster), **outside}


async def _restart(operator: OperatorRunner) -> None:
    await operator.crash()
    await operator.start()


class _LateCluster(Cluster):
    """A cluster whose transports have the faults of a perturbation."""

    def __init__(self, perturbation: Perturbation, *, seed: int) -> None:
        super().__init__(clock=wall_now, seed=seed)
        self._plan = make_plan(perturbation)

    def transport(self, **options: Any) -> httpx.AsyncBaseTransport:
        """See :meth:`Cluster.transport`."""
        return FaultyTransport(super().transport(**options), self._plan)
