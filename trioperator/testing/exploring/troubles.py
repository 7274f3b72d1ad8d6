"""Troubles: perturbations while a play goes on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import httpx
import trio

from trioperator.errors import ApiError
from trioperator.settings import PausingSettings
from trioperator.testing.exploring.perturbations import (
    CUT,
    DELETES,
    LABELS,
    NEXT,
    PAUSES,
    POKES,
    Perturbation,
    make_plan,
)
from trioperator.testing.exploring.snapshots import EDIT_LABEL
from trioperator.testing.exploring.stages import Send, Stage
from trioperator.testing.exploring.steps import Step
from trioperator.testing.exploring.subjects import State
from trioperator.testing.operator_runner import OperatorRunner

# Seconds until all late events of a change have come: each of them waits for the one before.
_LATENESS: Final = 900.0
# Seconds in which events are missed, and in which watches are opened again.
_MISSING: Final = 60.0
_AFTER_WRITE: Final = "after write"
_PAUSING: Final = PausingSettings()
# Traces of edits in the metadata of the object, which are removed in the end.
_METADATA: Final[dict[str, dict[str, dict[str, str | None]]]] = {
    LABELS: {"labels": {EDIT_LABEL: "x"}},
    PAUSES: {"annotations": {str(_PAUSING.annotation): "true"}},
    POKES: {"annotations": {str(_PAUSING.poke_annotation): "now"}},
}


class Crash:
    """The crash of a perturbation, if it is one: at a write, or at a call outside. *restart* does what follows."""

    def __init__(
        self, perturbation: Perturbation, operator: OperatorRunner, restart: Callable[[], Awaitable[object]]
    ) -> None:
        self._perturbation = perturbation
        self._operator = operator
        self._restart_operator = restart
        self._crashing = trio.Event()
        self.writes = self._calls = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Start the operator again after its crash, in the block."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._restart, name="restart")
            yield
            nursery.cancel_scope.cancel(reason="the play has ended")

    async def _restart(self) -> None:
        await self._crashing.wait()
        await self._restart_operator()

    async def around_write(self, send: Send) -> httpx.Response:
        """Send a write, or crash at it."""
        number, self.writes = self.writes, self.writes + 1
        return await self._maybe_crash(send, number, " write")

    async def around_call(self, send: Send) -> httpx.Response:
        """Send a call outside, or crash at it."""
        number, self._calls = self._calls, self._calls + 1
        return await self._maybe_crash(send, number, " outside call")

    async def _maybe_crash(self, send: Send, number: int, what: str) -> httpx.Response:
        found = self._perturbation
        if number != found.at or not found.what.endswith(what):
            return await send()
        if found.what.startswith("after"):
            await send()
        self._operator.cut_off()  # a sync function in this task may go on
        self._crashing.set()
        await trio.sleep_forever()
        raise AssertionError("the operator has crashed")


class Trouble:
    """Effect of a perturbation on the operator on a stage, in a sequence of states."""

    def __init__(self, stage: Stage, states: Sequence[State], perturbation: Perturbation) -> None:
        self.plan = make_plan(perturbation)
        self._stage = stage
        self._states = states
        self._perturbation = perturbation
        self._index = 0  # of the change that is going on
        self._is_concluding = False  # whether the last one is over: nothing is edited then
        self._crash = Crash(perturbation, stage.operator, self._restart)
        if perturbation.fault in ("crash", "edit", "blind"):
            stage.around_write = self._around_write
            stage.outside.on_call = self._crash.around_call

    def open(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Start the operator again after its crash, in the block."""
        return self._crash.open()

    async def _restart(self) -> None:
        await self._stage.operator.crash()
        if self._perturbation.fault != "blind" or self._index >= len(self._states):  # the deletion is the last change
            await self._stage.start(self.plan)

    async def _around_write(self, send: Send) -> httpx.Response:
        is_due = self._crash.writes == self._perturbation.at and not self._is_concluding
        if self._perturbation.fault == "edit" and is_due:
            await self._edit()
        return await self._crash.around_write(send)

    async def _edit(self) -> None:
        """Change the object as somebody else does it."""
        stage, subject = self._stage, self._stage.subject
        with contextlib.suppress(ApiError):  # it may be gone
            match self._perturbation.what:
                case what if what in _METADATA:
                    if what != PAUSES or self._index < len(self._states):  # nothing ends a pause of the deletion
                        patch = {"metadata": _METADATA[what]}
                        await stage.cluster.patch(subject.resource, subject.name, patch)
                case what if what == DELETES:
                    await stage.cluster.delete(subject.resource, subject.name)
                case what if what == NEXT and self._index + 1 < len(self._states):
                    await stage.put(self._states[self._index + 1])

    async def before(self, index: int) -> None:
        """Do what comes before a change."""
        self._index, self._is_concluding = index, False
        found = self._perturbation
        if found.fault == "blind" and found.what != _AFTER_WRITE and index == found.at:
            if found.what == CUT:
                self._cut(True)
            else:
                await self._stage.operator.crash()

    async def after(self, index: int) -> None:
        """Do what comes after a change, before all is at rest."""
        found = self._perturbation
        if found.fault == "late":
            await trio.sleep(_LATENESS)
        elif found.fault == "blind" and found.what == _AFTER_WRITE:
            if not self._stage.operator.is_running:
                await self._stage.start(self.plan)
        elif found.fault == "blind" and index == found.until:
            if found.what != CUT:
                await self._stage.start(self.plan)
                return
            await trio.sleep(_MISSING)
            self._stage.cluster.compact()
            self._cut(False)
            await trio.sleep(_MISSING)

    def _cut(self, is_cut: bool) -> None:
        self._stage.watches.is_cut = is_cut

    async def conclude(self, last: Step) -> None:
        """Do what comes when all is at rest after the last change, and look at the end again."""
        stage, found = self._stage, self._perturbation
        self._is_concluding = True
        if found.fault == "edit" and found.what in _METADATA:
            removed = {key: dict.fromkeys(values) for key, values in _METADATA[found.what].items()}
            with contextlib.suppress(ApiError):
                await stage.cluster.patch(stage.subject.resource, stage.subject.name, {"metadata": removed})
        elif found.fault == "drift":
            await self._drift(found.what)
        else:
            return
        await stage.settle()
        last.snapshot = stage.take_snapshot()

    async def _drift(self, what: str) -> None:
        """Delete or change a child, as somebody else does it."""
        _, verb, kind, place = what.split(" ")
        namespace, _, name = place.rpartition("/")
        with contextlib.suppress(ApiError):
            if verb == "deletes":
                await self._stage.cluster.delete(kind, name, namespace or None)
            else:
                obj = await self._stage.cluster.get(kind, name, namespace or None)
                await self._stage.cluster.patch(kind, name, _change(obj), namespace or None)


def _change(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the patch by which somebody changes an object."""
    replicas = (obj.get("spec") or {}).get("replicas")
    if isinstance(replicas, int):
        return {"spec": {"replicas": replicas + 1}}
    if obj["kind"] == "ConfigMap" and obj.get("data"):
        return {"data": dict.fromkeys(obj["data"], "changed by somebody")}
    return {}
