"""Runs that are interrupted: what they have found to be right is not played again."""

from __future__ import annotations

import pathlib

import pytest

from tests.world.records import Records

MODES = ("kopf", "bridge")


def interrupt(folder: pathlib.Path) -> None:
    """Write what a run has left that was killed while it wrote."""
    records = Records(folder, MODES, real=False, resume=False)
    records.add("right", commit="abc", words={"bridge": "same"}, failed=False)
    records.add("wrong", commit="def", words={"bridge": "differs"}, failed=True)
    with (folder / "verdicts.jsonl").open("a") as file:
        file.write('{"name": "torn", "wor')


def test_a_resumed_run_keeps_what_was_right(tmp_path: pathlib.Path) -> None:
    interrupt(tmp_path)
    records = Records(tmp_path, MODES, real=False, resume=True)
    found = records.find("right")
    assert found is not None
    assert (found["commit"], found["words"]) == ("abc", {"bridge": "same"})
    assert [records.find(name) for name in ("wrong", "torn", "other")] == [None] * 3
    records.add("other", commit="ghi", words={}, failed=False)
    again = Records(tmp_path, MODES, real=False, resume=True)
    assert again.find("right")
    assert again.find("other")


@pytest.mark.parametrize(
    ("modes", "real", "resume"), [(MODES, False, False), (("kopf",), False, True), (MODES, True, True)]
)
def test_what_another_run_has_found_does_not_count(
    modes: tuple[str, ...], real: bool, resume: bool, tmp_path: pathlib.Path
) -> None:
    interrupt(tmp_path)
    assert Records(tmp_path, modes, real=real, resume=resume).find("right") is None
