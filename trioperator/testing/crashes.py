"""Crashes at every write: an operator that is killed at any moment must reach the same final state."""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, TypeAlias

import httpx
import msgspec
import trio

from trioperator._concurrency.clock import rewound_wall, wall_now
from trioperator.apiserver import Cluster
from trioperator.testing.operator_runner import OperatorRunner, open_runner
from trioperator.testing.records import Write

#: The body of a test, which starts the operator itself.
Scenario: TypeAlias = Callable[[Cluster, OperatorRunner], Awaitable[object]]
State: TypeAlias = dict[str, Any]

# Seconds of virtual time in which the operator completes its work after the scenario.
_SETTLING: Final = 300.0
# Fields that are never the same in two runs: they tell which server has stored what, and when.
_VOLATILE: Final = frozenset(
    {"uid", "resourceVersion", "generation", "observedGeneration", "creationTimestamp", "managedFields"}
)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
_UNCOMPARED: Final = frozenset({"Event", "Lease", "KopfPeering", "ClusterKopfPeering"})


async def crash_at_every_write(scenario: Scenario, *, ignore: Collection[str] = ()) -> int:
    """Play a scenario repeatedly, with a crash of the operator at another write each time.

    ::

        async def scenario(cluster, operator):
            await cluster.apply(pathlib.Path("crd.yaml"))
            await operator.start("main.py")
            await cluster.create(DATABASE)
            await cluster.wait_for("databases", "orders", "Ready")

        async def test_crashes(autojump_clock):
            assert await crash_at_every_write(scenario) > 0

    Each time, there is a new cluster, and the wall time starts again. First, the scenario is played without a crash:
    the objects at the end are the expected ones. Then the operator crashes at each of its writes, once before the
    server gets it, and once after the server has stored it, before the response arrives. It is restarted at once.
    Events, leases and peerings do not count as writes.

    Uids, versions, times, and the fields with names in *ignore*, at any depth, are not compared.

    Returns the number of crashes. Raises AssertionError if objects differ at the end, and for what fails any test with
    an operator (see :meth:`OperatorRunner.check`); raises what the scenario raises, with a note about the write at
    which the operator crashed; raises RuntimeError without virtual time.
    """
    clock = trio.lowlevel.current_clock()
    if math.isinf(getattr(clock, "autojump_threshold", math.inf)):
        raise RuntimeError("crash_at_every_write() needs virtual time: request the fixture autojump_clock.")
    start = wall_now()
    expected = _Play(scenario, ignore)
    with rewound_wall(start):
        await expected.run()
    crashes = 0
    for index, write in enumerate(expected.writes):
        for is_sent in (False, True):
            play = _Play(scenario, ignore, crash_at=index, is_sent=is_sent)
            try:
                with rewound_wall(start):
                    await play.run()
                _compare(play.state, expected.state)
            except Exception as error:
                when = "when the server had stored it" if is_sent else "before the server got it"
                count = f"{index + 1} of {len(expected.writes)}"
                error.add_note(f"The operator had crashed at write {count}, {when}: {write}")
                raise
            crashes += play.has_crashed
    return crashes


class _Play:
    """One play of a scenario, with a crash at the write with the given index, if any."""

    def __init__(
        self, scenario: Scenario, ignore: Collection[str], *, crash_at: int | None = None, is_sent: bool = False
    ) -> None:
        self._scenario = scenario
        self._ignore = _VOLATILE | frozenset(ignore)
        self._crash_at = crash_at
        self._is_sent = is_sent
        self._crashing = trio.Event()
        self.has_crashed = False
        self.writes: list[Write] = []
        self.state: State = {}

    async def run(self) -> None:
        """Play the scenario to its end, and what the operator does after it."""
        cluster = Cluster(clock=wall_now, seed=0)
        async with open_runner(cluster) as operator:
            operator.on_write = functools.partial(self._on_write, operator)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._restart, operator, name="restart")
                await self._scenario(cluster, operator)
                await trio.sleep(_SETTLING)
                nursery.cancel_scope.cancel(reason="the scenario has ended")
            self.writes = list(operator.writes)
            self.state = _describe_state(cluster, self._ignore)

    async def _restart(self, operator: OperatorRunner) -> None:
        """Wait for the crash, and start the operator again."""
        await self._crashing.wait()
        await operator.crash()
        self.has_crashed = True
        await operator.start()

    async def _on_write(
        self, operator: OperatorRunner, send: Callable[[], Awaitable[httpx.Response]]
    ) -> httpx.Response:
        crashes = len(operator.writes) - 1 == self._crash_at
        response = await send() if self._is_sent or not crashes else None
        if crashes:
            self._crashing.set()
            await trio.sleep_forever()
        assert response is not None
        return response


def _describe_state(cluster: Cluster, ignore: Collection[str]) -> State:
    """Return all objects by their kinds and names, without what is never the same."""
    objects = cluster.objects()
    names = {obj["metadata"]["uid"]: f"uid of {obj['kind']} {obj['metadata']['name']}" for obj in objects}

    def normalize(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: normalize(item) for key, item in value.items() if key not in ignore}
        if isinstance(value, list):
            return [normalize(item) for item in value]
        if not isinstance(value, str):
            return value
        if value.startswith("{"):  # JSON in an annotation, such as the last-handled configuration
            with contextlib.suppress(ValueError):
                return normalize(msgspec.json.decode(value))
        return names.get(value) or _TIME.sub("<time>", value)

    def name(obj: dict[str, Any]) -> str:
        meta = obj["metadata"]
        return f"{obj['kind']} {'/'.join(filter(None, (meta.get('namespace'), meta['name'])))}"

    return {name(obj): normalize(obj) for obj in objects if obj["kind"] not in _UNCOMPARED}


def _compare(found: State, expected: State) -> None:
    problems = [f"{name} does not exist." for name in expected if name not in found]
    problems += [f"{name} should not exist." for name in found if name not in expected]
    for name in sorted(found.keys() & expected.keys()):
        if found[name] != expected[name]:
            problems.append(f"{name} is\n  {found[name]}\nbut without a crash it is\n  {expected[name]}")
    if problems:
        raise AssertionError("\n".join(problems))
