"""Tests for :mod:`trioperator.apiserver.store.state`: the only source of objects, time and randomness of a cluster."""

from __future__ import annotations

import datetime
import functools
import pathlib
import time
import uuid
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from trioperator.apiserver.model.kinds import Kind
from trioperator.apiserver.store.data_file import DataFile
from trioperator.apiserver.store.state import State, trio_seconds
from trioperator.errors import NotFoundError

MOMENT = datetime.datetime(2020, 1, 31, 23, 59, 58, 999_999, tzinfo=datetime.UTC)


def make_state(
    *, clock: Callable[[], datetime.datetime] | None = None, seed: int | None = 0, data: DataFile | None = None
) -> State:
    return State(clock=clock, seed=seed, history=100, history_age=300, data=data)


def kind_of(state: State, name: str) -> Kind:
    kind = state.catalog.find(name)
    assert kind is not None
    return kind


def test_uids_are_valid_and_reproducible_by_the_seed() -> None:
    first, second, other = make_state(seed=7), make_state(seed=7), make_state(seed=8)
    uids = [first.uid() for _ in range(20)]
    assert len(set(uids)) == 20
    assert {uuid.UUID(uid).version for uid in uids} == {4}
    assert [second.uid() for _ in range(20)] == uids
    assert other.uid() not in uids


def test_a_random_letter_is_one_of_the_given_letters() -> None:
    state = make_state()
    assert {state.choose("abc") for _ in range(100)} == set("abc")


def test_timestamps_have_the_format_of_the_api() -> None:
    state = make_state(clock=lambda: MOMENT)
    assert state.timestamp() == "2020-01-31T23:59:58Z"
    assert state.timestamp(plus=1.5) == "2020-02-01T00:00:00Z"


def test_the_wall_time_is_that_of_the_machine_where_the_clock_does_not_work() -> None:
    def clock() -> datetime.datetime:
        raise RuntimeError("must be called from async context")

    for state in (make_state(clock=clock), make_state()):
        assert abs(state.now() - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(minutes=1)


async def test_seconds_are_those_of_trio_s_clock(autojump_clock: MockClock) -> None:
    began = trio_seconds()
    await trio.sleep(1000)
    assert trio_seconds() - began == pytest.approx(1000)


def test_seconds_outside_trio_are_monotonic() -> None:
    before = time.monotonic()
    assert before <= trio_seconds() <= time.monotonic()


def test_all_groups_of_a_resource_share_a_table() -> None:
    state = make_state()
    old, new = (state.catalog.get(group, "v1", "events") for group in ("", "events.k8s.io"))
    assert old is not None
    assert new is not None
    assert state.table(old) is state.table(new)
    assert state.table(old) is not state.table(kind_of(state, "pods"))


def test_a_required_object_is_found_in_its_namespace_only() -> None:
    state = make_state()
    pods = kind_of(state, "pods")
    stored = state.store.put(state.table(pods), pods.key("a", "p"), {"metadata": {"name": "p", "uid": "u"}})
    assert state.require(pods, "a", "p") is stored
    with pytest.raises(NotFoundError, match='pods "p" not found'):
        state.require(pods, "b", "p")


async def test_a_secret_is_made_once_for_each_data_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "data"
    for made in ("first", "second"):
        data = DataFile.open(path)
        state = make_state(data=data)
        assert state.persisted("authority", functools.partial(str, made)) == "first"
        await state.saved()
        data.close()
    assert make_state().persisted("authority", lambda: "third") == "third"
