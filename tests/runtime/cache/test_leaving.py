"""Tests for :mod:`trioperator._runtime.cache.leaving`: what is known of objects that have left a selector."""

from __future__ import annotations

import msgspec

from trioperator._runtime.cache import leaving
from trioperator._runtime.cache.kind import Memory


class State(msgspec.Struct, eq=False):
    """The cached state of an object."""

    uid: str

    def remember(self) -> Memory:
        return Memory(memo=self.uid, initial=False)


def test_what_is_remembered_of_an_object_is_taken_when_it_comes_back() -> None:
    found, state = leaving.Leaving(), State("a")
    found.note(state, has_left=True)
    assert state in found
    found.forget(state)
    assert state not in found
    assert found.remember().keys() == {"a"}
    memory = found.take("a")
    assert memory is not None
    assert memory.memo == "a"
    assert found.take("a") is None


def test_an_object_that_comes_back_at_once_is_not_leaving() -> None:
    found, state = leaving.Leaving(), State("a")
    found.note(state, has_left=True)
    found.note(state, has_left=False)
    assert not found
    assert found.remember() == {}


def test_the_newest_are_remembered() -> None:
    found = leaving.Leaving()
    for number in range(leaving._MAX_REMEMBERED + 5):
        found.forget(State(str(number)))
    assert len(found.remember()) == leaving._MAX_REMEMBERED
    assert found.take("4") is None
    assert found.take("5") is not None
