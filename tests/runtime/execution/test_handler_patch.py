"""Tests for :mod:`trioperator._runtime.execution.handler_patch`.

What one attempt of a handler contributes, and when.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from trio.testing import MockClock

from tests.runtime.harness import Harness, open_harness
from trioperator._handling.handlers.handler import ChangeHandler, Reason
from trioperator._model.resource import Selector
from trioperator._runtime.execution.handler_patch import HandlerPatch
from trioperator.apiserver import Cluster


class Contributing:
    """An object, and patches of attempts of one handler of it."""

    def __init__(self, parts: Harness, state: Any) -> None:
        self.parts, self.state = parts, state
        self._handler = ChangeHandler(fn=print, id="a", selector=Selector.parse("widgets"), reason=Reason.CREATE)

    def begin(self, **options: Any) -> HandlerPatch:
        cause = self.parts.detect(self.state).cause
        return HandlerPatch(self.parts.pending, self.state, cause, self._handler, **options)

    @property
    def contributions(self) -> list[Any]:
        pending: Any = self.parts.pending.get(self.state)
        return [dict(each.patch) for each in pending.contributions] if pending else []


@pytest.fixture
async def bench(cluster: Cluster) -> AsyncIterator[Contributing]:
    async with open_harness(cluster) as parts:
        yield Contributing(parts, await parts.make(size=1))


async def test_the_patch_and_the_result_are_contributed_at_the_end(
    bench: Contributing, autojump_clock: MockClock
) -> None:
    own = bench.begin()
    own.patch.status["size"] = 1
    assert bench.contributions == []
    own.finish("done")
    assert bench.contributions == [{"status": {"size": 1, "a": "done"}}]


async def test_what_was_contributed_before_the_end_is_not_contributed_again(
    bench: Contributing, autojump_clock: MockClock
) -> None:
    own = bench.begin()
    own.patch.spec["before"] = 1
    own.contribute()
    own.patch.spec["after"] = 2
    own.finish(None)
    assert bench.contributions == [{"spec": {"before": 1}}, {"spec": {"after": 2}}]


async def test_what_a_parent_wants_is_left_to_the_parent(bench: Contributing, autojump_clock: MockClock) -> None:
    parent, child = bench.begin(), bench.begin()
    parent.patch.spec["by"] = "the parent"
    child.inherit(parent)
    assert child.patch.spec == {"by": "the parent"}
    child.patch.spec["too"] = True
    child.finish(None)
    assert bench.contributions == [{"spec": {"too": True}}]


async def test_a_handler_that_repeats_contributes_nothing_that_the_object_has(
    bench: Contributing, autojump_clock: MockClock
) -> None:
    own = bench.begin(repeats=True)
    own.patch.spec["size"] = 1
    own.finish(None)
    assert bench.contributions == []
    own = bench.begin(repeats=True)
    own.patch.spec["size"] = 2
    own.finish(None)
    assert bench.contributions == [{"spec": {"size": 2}}]
