"""The defects that can be planted: each can be, and lives find one."""

from __future__ import annotations

import ast
import pathlib
import shutil

import pytest

import trioperator
from tests.lives.defects import DEFECTS, Defect, Edit
from tests.lives.planted import hunt, plant

_PACKAGE = pathlib.Path(trioperator.__file__).parent


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda each: each.name.replace(" ", "-"))
def test_a_defect_can_be_planted_into_the_code_of_today(defect: Defect, tmp_path: pathlib.Path) -> None:
    for edit in defect.edits:
        copy = tmp_path / edit.module
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists():
            shutil.copy(_PACKAGE / edit.module, copy)
        plant(edit, tmp_path)
        ast.parse(copy.read_text())


@pytest.mark.parametrize("text", ["a = 0", "b = 0"], ids=["not there", "there twice"])
def test_what_is_to_be_replaced_must_be_there_once(text: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.py").write_text("b = 0\nb = 0\n")
    with pytest.raises(ValueError, match=r"x\.py has this [02] times, not once"):
        plant(Edit("x.py", text, "c = 0"), tmp_path)


def test_defects_have_numbers_of_their_own() -> None:
    assert [each.number for each in DEFECTS] == list(range(1, 45))


def test_lives_find_a_defect_that_is_planted() -> None:
    defect = next(each for each in DEFECTS if "threads that wait" in each.name)
    found = hunt(defect, seed=35, lives=10)
    assert found is not None
    assert found.kind == "hang"
