"""Tests for :mod:`trioperator._runtime.watching.streams`: two streams with different selectors, as one."""

from __future__ import annotations

import json
import random
from collections.abc import Collection

import pytest

import trioperator
from trioperator._kube.objects import RawObject, parse_object
from trioperator._runtime.watching.streams import Streams

on = trioperator.on


class Log:
    """An observer that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def observe(self, type: str | None, obj: RawObject) -> str:
        self.told.append(f"{type} {obj.uid}{obj.resource_version}")
        return obj.key

    def replace(self, listed: Collection[str]) -> None:
        self.told.append(f"listed {''.join(sorted(listed))}")

    def rewind(self) -> None:
        self.told.append("rewind")


def make(text: str) -> RawObject:
    """Make the object with the uid that is the first letter, in the version that is the rest."""
    return parse_object(
        json.dumps({"metadata": {"uid": text[0], "name": text[0], "resourceVersion": text[1:]}}).encode()
    )


def tell(*steps: str) -> list[str]:
    """Let two listed streams show what the steps say, and return what is passed on: "1 ADDED a5", "2 listed ab"."""
    log = Log()
    streams = Streams(log)
    for step in ("1 listed ", "2 listed ", *steps):
        number, kind, text = step.split(" ")
        stream = streams.first if number == "1" else streams.second
        if kind == "listed":
            stream.replace(text)
        elif kind == "rewind":
            stream.rewind()
        else:
            stream.observe(None if kind == "None" else kind, make(text))
    assert log.told[0] == "listed "
    return log.told[1:]


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        pytest.param(["1 ADDED a5", "2 ADDED a5"], ["ADDED a5"], id="an object of both is one object"),
        pytest.param(["1 ADDED a5", "1 MODIFIED a6", "2 ADDED a6"], ["ADDED a5", "MODIFIED a6"], id="a change of both"),
        pytest.param(["1 ADDED a5", "2 ADDED a6", "1 DELETED a6"], ["ADDED a5", "MODIFIED a6"], id="it moves"),
        pytest.param(
            ["1 ADDED a5", "1 DELETED a6", "2 ADDED a6"],
            ["ADDED a5", "DELETED a6", "ADDED a6"],
            id="it leaves one stream before it enters the other, which the deletion checker waits for",
        ),
        pytest.param(["1 ADDED a6", "2 ADDED a5"], ["ADDED a6"], id="a late stream brings nothing older"),
        pytest.param(
            ["1 ADDED a5", "2 ADDED a5", "1 DELETED a7", "2 DELETED a7"],
            ["ADDED a5", "DELETED a7"],
            id="a deletion is one deletion",
        ),
        pytest.param(
            ["1 ADDED a5", "1 DELETED a7", "2 ADDED a4", "2 MODIFIED a6", "2 DELETED a7"],
            ["ADDED a5", "DELETED a7"],
            id="a late stream does not bring back what is deleted",
        ),
        pytest.param(
            ["1 ADDED a5", "1 DELETED a6", "2 ADDED a4", "2 MODIFIED a8"],
            ["ADDED a5", "DELETED a6", "ADDED a8"],
            id="what has left comes back when it enters the other",
        ),
        pytest.param(
            ["1 ADDED a3", "2 ADDED a3", "1 MODIFIED a5", "1 DELETED a7", "2 DELETED a4"],
            ["ADDED a3", "MODIFIED a5", "listed "],
            id="a late stream which it has left before shows no older state of a deletion",
        ),
        pytest.param(
            ["1 ADDED a5", "2 ADDED b6", "1 listed ", "2 listed b"],
            ["ADDED a5", "ADDED b6", "listed b", "listed b"],
            id="what no list has is missing",
        ),
        pytest.param(
            ["1 ADDED a5", "2 None a5", "2 listed a", "1 listed "],
            ["ADDED a5", "listed a", "listed a"],
            id="a list of the other stream has it still",
        ),
        pytest.param(
            ["1 ADDED a5", "2 ADDED b6", "1 rewind 0", "2 MODIFIED b9", "1 None a2", "2 rewind 0", "2 None b3"],
            ["ADDED a5", "ADDED b6", "rewind", "None a2", "None b3"],
            id="after a restore, nothing is believed of a stream that has not begun to list again",
        ),
    ],
)
def test_two_streams_tell_what_one_would(steps: list[str], told: list[str]) -> None:
    assert tell(*steps) == told


def test_nothing_is_missing_until_both_streams_are_listed() -> None:
    log = Log()
    streams = Streams(log)
    streams.first.observe(None, make("a5"))
    streams.first.replace({"a"})
    assert log.told == ["None a5"]
    streams.second.observe(None, make("b5"))
    streams.second.replace({"b"})
    assert log.told == ["None a5", "None b5", "listed ab"]


def test_the_list_of_the_only_stream_has_everything() -> None:
    log = Log()
    streams = Streams(log)
    for stream, text in ((streams.first, "a5"), (streams.second, "b5")):
        stream.observe(None, make(text))
        stream.replace({text[0]})
    streams.join()
    streams.first.observe("DELETED", make("c6"))
    streams.first.observe(None, make("b7"))
    streams.first.replace({"b", "d"})
    assert log.told[2:] == ["listed ab", "None b7", "listed bd"]


@pytest.mark.parametrize("seed", range(50))
def test_whatever_the_delays_the_newest_state_is_known_in_the_end(seed: int) -> None:
    """Streams of random histories of labels, each as late as it likes, against what the server has in the end."""
    rng = random.Random(seed)
    places_of = [None, *(frozenset(numbers) for numbers in ((), (0,), (1,), (0, 1)))]  # None: it is deleted
    history = [(rng.choice("abc"), rng.choice(places_of)) for _ in range(60)]
    uids, now = dict[str, str](), dict[str, frozenset[int]]()
    events: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
    for version, (name, places) in enumerate(history, 1):
        before, uid = now.get(name, frozenset()), uids.setdefault(name, name)
        if places is None:
            if name in now:
                del now[name]
                del uids[name]
            uids[name] = chr(ord(uid) + 3)
        else:
            now[name] = places
        for number, stream in enumerate(events):
            if number in (places or ()):
                stream.append(("MODIFIED" if number in before else "ADDED", f"{uid}{version}"))
            elif number in before:
                stream.append(("DELETED", f"{uid}{version}"))
    log = Log()
    streams = Streams(log)
    streams.first.replace(())
    streams.second.replace(())
    queues = [iter(stream) for stream in events]
    order = [0] * len(events[0]) + [1] * len(events[1])
    rng.shuffle(order)
    known: dict[str, int] = {}
    for number in order:
        kind, text = next(queues[number])
        (streams.first, streams.second)[number].observe(kind, make(text))
    for told in log.told:
        kind, _, text = told.partition(" ")
        if kind == "listed":
            known = {uid: version for uid, version in known.items() if uid in text}
        elif kind == "DELETED":
            assert int(text[1:]) >= known.pop(text[0])
        else:
            assert int(text[1:]) > known.get(text[0], 0)
            assert (kind == "MODIFIED") == (text[0] in known)
            known[text[0]] = int(text[1:])
    assert set(known) == {uids[name] for name, places in now.items() if places}
