"""Counting instructions: the paths that are counted, without callgrind."""

from __future__ import annotations

import pathlib

import pytest

from tests.bench.instructions import PATHS, main, run_path


@pytest.mark.parametrize(
    ("path", "metrics"), [*((path, False) for path in PATHS if path != "import"), ("create", True)]
)
async def test_a_path_is_run_without_trouble(
    path: str, metrics: bool, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    await run_path(path, 2, metrics=metrics)
    assert [record.getMessage() for record in caplog.records if record.levelname in {"WARNING", "ERROR"}] == []


def test_unknown_paths_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["create", "creation", "--against", str(pathlib.Path("nothing.json"))])
    assert "no such path: creation; there are create, update" in capsys.readouterr().err
