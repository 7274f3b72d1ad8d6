"""Verdicts about public operators: races are told from differences by whether Kopf differs from itself."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from tests.world.__main__ import Verdict, judge_all, summarize
from tests.world.operators import OPERATORS, Operator
from tests.world.playing import Play
from tests.world.records import Records


class Played:
    """What is left of a play."""

    def __init__(self, state: str) -> None:
        self.states = {"created": [state]}
        self.costs: list[object] = []


def judge(kopf: str, bridge: str) -> Verdict:
    """Return the verdict about plays, each of which has ended in a state of one letter."""
    verdict = Verdict(OPERATORS["gefyra"], ("kopf", "bridge"))
    verdict.plays = {
        mode: [cast("Play", Played(state)) for state in states] for mode, states in (("kopf", kopf), ("bridge", bridge))
    }
    return verdict


@pytest.mark.parametrize(
    ("kopf", "bridge", "word"),
    [
        ("a", "a", "same"),
        ("ab", "bb", "same in one of 2 plays; Kopf differs from itself, too"),
        ("aaa", "aab", "differs at times, as Kopf does not: created"),
        ("aaa", "bbb", "differs: created"),
        ("abb", "ccc", "differs: created"),
    ],
)
def test_a_difference_is_forgiven_if_kopf_differs_from_itself(
    kopf: str, bridge: str, word: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.world.__main__.RESULTS", tmp_path)
    verdict = judge(kopf, bridge)
    verdict.describe()
    assert verdict.words["bridge"].startswith(f"{word} (")
    assert verdict.failed == word.startswith("differs")
    assert (tmp_path / "gefyra.kopf.diff").exists() == (len({*kopf}) > 1)


@pytest.mark.parametrize(
    ("kopf", "bridge", "again"), [("a", "a", False), ("a", "b", True), ("aa", "ab", True), ("ab", "ab", False)]
)
def test_it_is_played_again_until_the_difference_is_explained(kopf: str, bridge: str, again: bool) -> None:
    assert judge(kopf, bridge).to_play() == (["kopf", "bridge"] if again else [])


def test_the_summary_names_what_is_wrong(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.world.__main__.RESULTS", tmp_path)
    right, wrong = judge("a", "a"), judge("a", "b")
    for verdict in (right, wrong):
        verdict.describe()
    assert not summarize([right])
    assert summarize([right, wrong])
    assert summarize([right, Verdict(OPERATORS["gefyra"], ("kopf",))])


async def test_a_resumed_run_counts_what_is_skipped_as_skipped(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = Operator("newer", None, cast("Any", None), python=(99, 0))
    for resume in (False, True):
        records = Records(tmp_path, ["kopf"], real=False, resume=resume)
        assert not summarize(await judge_all([newer], ("kopf",), 1, records))
        assert "0 of 0 operators do the same.\nSkipped on this Python: newer." in capsys.readouterr().out


async def test_operators_are_played_side_by_side_unless_they_share_a_port(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    running: set[str] = set()
    begun: list[str] = []
    folders: list[pathlib.Path] = []
    together: set[frozenset[str]] = set()

    async def play(operator: Operator, modes: Sequence[str], folder: pathlib.Path, *, real: bool) -> Verdict:
        folders.append(folder)
        assert folder.is_dir()  # noqa: ASYNC240
        together.update(frozenset({operator.name, name}) for name in running)
        running.add(operator.name)
        begun.append(operator.name)
        await trio.sleep(60)
        running.remove(operator.name)
        return Verdict(operator, modes)

    monkeypatch.setattr("tests.world.__main__.judge", play)
    ports: dict[str, tuple[int, ...]] = {"four": (), "one": (1, 2), "two": (2, 3), "three": (3,)}
    operators = [Operator(name, None, cast("Any", None), ports=each) for name, each in ports.items()]
    await judge_all(operators, ("kopf",), 3, Records(tmp_path, ["kopf"], real=False, resume=False))
    assert begun[0] == "two"  # two others wait for its ports
    assert len(begun) == len({*folders}) == 4
    assert not any(folder.exists() for folder in folders)
    assert frozenset({"one", "two"}) not in together
    assert frozenset({"two", "three"}) not in together
    assert frozenset({"one", "three"}) in together
    assert {frozenset({"four", name}) for name in ("one", "two", "three")} & together
