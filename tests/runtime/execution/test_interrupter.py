"""The interrupter: which watch events interrupt a call, and which do not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

import trioperator
from tests.runtime.harness import Harness, open_harness, patched
from trioperator._handling.calls.interruption import Interruption
from trioperator._handling.guard import guarded
from trioperator._handling.storages.diffbase import AnnotationsDiffBaseStorage
from trioperator._kube.objects import parse_object
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.cache.watch_event import WatchEvent
from trioperator._runtime.causes import Essences
from trioperator._runtime.execution.interrupter import Interrupter
from trioperator.apiserver import Cluster

DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/f"]}


@pytest.fixture
async def parts(cluster: Cluster) -> AsyncIterator[Harness]:
    async with open_harness(cluster) as harness:
        yield harness


class Call:
    """A call in progress for an object that can be interrupted."""

    def __init__(self, parts: Harness, state: ObjectState, essences: Essences | None = None) -> None:
        assert state.body is not None
        self.body = dict(state.body)
        self.interruption = Interruption()
        cause = parts.detect(state).cause
        self._interrupter = Interrupter(state, cause, self.interruption, essences=essences or parts.essences)

    def see(self, type: str | None = "MODIFIED", *, changes: dict[str, Any]) -> str | None:
        """Handle a watch event of the object with changes, and return why the call is interrupted."""
        return self.handle(type, patched(self.body, changes))

    def handle(self, type: str | None, body: dict[str, Any]) -> str | None:
        version = int(body["metadata"]["resourceVersion"])
        self._interrupter.handle(WatchEvent(type, version, parse_object(msgspec.json.encode(body))))
        return self.interruption.reason


@pytest.fixture
async def call(parts: Harness) -> Call:
    state = await parts.make("a", size=1)
    assert state.body is not None
    state.body = patched(dict(state.body), {"metadata": {"generation": 5}})
    return Call(parts, state)


def changed(generation: int | None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"generation": generation, "resourceVersion": "99"}, "spec": spec}


async def test_a_newer_generation_with_another_essence_interrupts(call: Call) -> None:
    assert call.see(changes=changed(6, size=2)) == "the object has changed"


@pytest.mark.parametrize("generation", [4, 5])
async def test_a_generation_that_is_not_newer_does_not_interrupt(generation: int, call: Call) -> None:
    assert call.see(changes=changed(generation, size=2)) is None


async def test_a_newer_generation_with_the_same_essence_does_not_interrupt(call: Call) -> None:
    assert call.see(changes=changed(6, size=1)) is None
    assert call.see(changes={"metadata": {"generation": 6}, "status": {"ready": True}}) is None


async def test_without_a_generation_essences_are_compared(call: Call) -> None:
    assert call.see(changes=changed(None, size=1)) is None
    assert call.see(changes=changed(None, size=2)) == "the object has changed"


async def test_the_progress_of_handlers_is_no_change(call: Call) -> None:
    annotations = {"trioperator.dev/a": "{}", "trioperator.dev/last-handled-configuration": "{}"}
    assert call.see(changes={"metadata": {"generation": None, "annotations": annotations}}) is None
    assert call.see(changes={"metadata": {"generation": None, "annotations": {"other": "x"}}}) is not None


async def test_the_end_of_the_object_interrupts(call: Call) -> None:
    assert call.see("DELETED", changes={}) == "the object is gone"


async def test_the_deletion_of_the_object_interrupts(call: Call) -> None:
    assert call.see(changes={"metadata": DELETED}) == "the object is being deleted"


async def test_a_call_for_the_deletion_is_not_interrupted_by_it(parts: Harness) -> None:
    state = await parts.make("a", size=1)
    assert state.body is not None
    state.body = patched(dict(state.body), {"metadata": DELETED})
    call = Call(parts, state)
    assert call.see(changes={"metadata": {"resourceVersion": "99"}}) is None
    assert call.see("DELETED", changes={}) == "the object is gone"


async def test_the_response_to_an_own_write_is_compared_as_well(call: Call) -> None:
    call._interrupter.handle(WatchEvent(None, 99, body=patched(call.body, changed(6, size=1))))
    assert call.interruption.reason is None
    call._interrupter.handle(WatchEvent(None, 99, body=patched(call.body, changed(6, size=2))))
    assert call.interruption.reason == "the object has changed"


async def test_the_first_reason_is_kept(call: Call) -> None:
    call.see(changes=changed(6, size=2))
    assert call.see("DELETED", changes={}) == "the object has changed"


async def test_an_object_that_cannot_be_decoded_does_not_interrupt(call: Call) -> None:
    raw = msgspec.json.encode(patched(call.body, changed(6, size=2))).replace(b'"size":2', b'"size":1e999')
    call._interrupter.handle(WatchEvent("MODIFIED", 99, parse_object(raw)))
    assert call.interruption.reason is None


class FailingStorage(trioperator.AnnotationsProgressStorage):
    """A storage of the user's that fails when it is switched on."""

    failing = False

    def clear(self, **kwargs: Any) -> Any:
        if self.failing:
            raise ValueError("something")
        return super().clear(**kwargs)


async def test_an_essence_that_cannot_be_computed_does_not_interrupt(parts: Harness) -> None:
    storage = FailingStorage()
    essences = Essences(progress=guarded(storage), diffbase=AnnotationsDiffBaseStorage())
    state = await parts.make("a", size=1)
    call = Call(parts, state, essences)
    storage.failing = True
    assert call.see(changes=changed(6, size=2)) is None
    storage.failing = False
    assert call.see(changes=changed(6, size=2)) == "the object has changed"
