"""Checkouts of public operators: from a folder, or a message that says what to provide."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess

import pytest

from tests.world import application_operators  # noqa: F401 -- adds to the table
from tests.world.__main__ import write_requirements
from tests.world.operators import OPERATORS
from tests.world.sources import VARIABLE, Missing, find_checkout, find_missing, find_version, read_commit


def make_repository(path: pathlib.Path, *, bare: bool = False) -> None:
    work = path.with_name("work") if bare else path
    work.mkdir(parents=True, exist_ok=True)
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


@pytest.mark.parametrize("tag", ["1.0", None])
@pytest.mark.parametrize("cloned", [False, True])
def test_the_commit_of_a_tag_or_hash_is_checked_out(
    tag: str | None, cloned: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "all" / "me" / "app"
    make_repository(work)
    identity = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    subprocess.run(["git", "tag", "1.0"], cwd=work, check=True, capture_output=True)
    found = subprocess.run(["git", "rev-parse", "1.0"], cwd=work, check=True, capture_output=True, text=True)
    (work / "operator.py").write_text("import other\n")
    subprocess.run(["git", *identity, "commit", "-q", "-a", "-m", "Second"], cwd=work, check=True, capture_output=True)
    if cloned:
        monkeypatch.delenv(VARIABLE, raising=False)
        monkeypatch.setattr("tests.world.sources._HOST", (tmp_path / "all").as_uri())
    else:
        monkeypatch.setenv(VARIABLE, str(tmp_path / "all"))
    (tmp_path / "scratch").mkdir()
    checkout = find_checkout(f"me/app@{tag or found.stdout.strip()}", tmp_path / "scratch")
    assert (checkout / "operator.py").read_text() == "import kopf\n"


def test_a_mirror_without_a_large_file_is_checked_out_without_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "all" / "me+app"
    repository.mkdir(parents=True)
    (repository / "picture").write_text("large")
    found = subprocess.run(
        ["git", "hash-object", "picture"], cwd=repository, check=True, capture_output=True, text=True
    )
    make_repository(repository)
    (repository / ".git" / "objects" / found.stdout[:2] / found.stdout[2:].strip()).unlink()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "all"))
    (tmp_path / "scratch").mkdir()
    checkout = find_checkout("me/app", tmp_path / "scratch")
    assert [path.name for path in checkout.iterdir() if path.name != ".git"] == ["operator.py"]


def test_what_is_missing_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(Missing, match=rf"me\+app in \${VARIABLE}"):
        find_checkout("me/app", tmp_path)


def test_an_operator_that_is_a_package_is_found_or_said_to_be_missing() -> None:
    assert find_version("trio").count(".") == 2
    with pytest.raises(Missing, match="install no-such-operator"):
        find_version("no-such-operator")


def test_requirements_that_do_not_go_together_are_written_apart(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.world.__main__.RESULTS", tmp_path)
    monkeypatch.setattr("tests.world.__main__.APART", tmp_path / "apart")
    future = dataclasses.replace(OPERATORS["keycloak"], python=(99, 0))
    write_requirements([OPERATORS["gefyra"], OPERATORS["chaostoolkit"], future])
    assert "aiobreaker" not in (tmp_path / "requirements.txt").read_text()
    assert "kubernetes\n" in (tmp_path / "requirements.txt").read_text()
    assert (tmp_path / "apart" / "gefyra.txt").read_text() == "kubernetes<37\n"
    assert [path.name for path in (tmp_path / "apart").iterdir()] == ["gefyra.txt"]


def test_it_is_known_at_first_what_the_folder_lacks(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_repository(tmp_path / "me+app")
    wanted = ("me/app@1.0", "me/other@2.0", "me/other", None)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert find_missing(wanted) == ["me/other"]
    monkeypatch.delenv(VARIABLE)
    assert find_missing(wanted) == []
