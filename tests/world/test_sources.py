"""Checkouts of public operators: from a folder, or a message that says what to provide."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from tests.world.sources import VARIABLE, Missing, find_checkout, read_commit


def make_repository(path: pathlib.Path, *, bare: bool = False) -> None:
    work = path.with_name("work") if bare else path
    work.mkdir(parents=True)
    (work / "operator.py").write_text("import kopf\n")
    identity = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "First"]):
        subprocess.run(["git", *command], cwd=work, check=True, capture_output=True)
    if bare:
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "-q", "--bare", str(work), str(path)], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("place", "bare"), [("me+app", False), ("me/app", False), ("app", False), ("me+app/repo", True)]
)
def test_checkouts_and_bare_repositories_are_found(
    place: str, bare: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_repository(tmp_path / "all" / place, bare=bare)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "all"))
    (tmp_path / "scratch").mkdir()
    checkout = find_checkout("me/app", tmp_path / "scratch")
    assert (checkout / "operator.py").read_text() == "import kopf\n"
    assert len(read_commit(checkout).split()) == 2


def test_what_is_missing_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(Missing, match=rf"me\+app in \${VARIABLE}"):
        find_checkout("me/app", tmp_path)
