"""Exploring finds nothing wrong with the examples, which users copy."""

from __future__ import annotations

import pathlib

import pytest

from tests.explore.correct import find_false_alarms
from tests.explore.examples import EXAMPLES, EXCLUDED, FOLDER, Example
from trioperator._tooling.scaffolding.project import ProjectOptions, render_project
from trioperator.testing.exploring.app import FilesApp
from trioperator.testing.exploring.checks import make_players
from trioperator.testing.exploring.explorer import Budget, Explorer


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.name)
def test_nothing_is_found_of_an_example(example: Example) -> None:
    assert find_false_alarms(example, sequences=2, faults=["crash", "blind", "late"]) == []


def test_each_example_is_explored_or_has_a_reason_not_to_be() -> None:
    names = {path.parent.name for path in FOLDER.glob("*/README.md")}
    assert names == {each.name for each in EXAMPLES} | EXCLUDED.keys()


def test_nothing_is_found_of_a_new_project(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, text in render_project(ProjectOptions(name="fleet", kind="Fleet")).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (player,) = make_players(FilesApp([], ["fleet.handlers"]))
    explorer = Explorer(player)
    explorer.run(Budget(sequences=4, seconds=60))
    explorer.perturb(explorer.draw_short()[:1], ["crash", "blind", "edit"], Budget(sequences=1, seconds=60))
    assert [each for each in explorer.report.findings if not each.is_information] == []
