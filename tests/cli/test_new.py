"""Tests for :mod:`trioperator.cli.new`. The whole way of a new user is in tests/e2e/test_first_project.py."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import yaml

from tests.dockerfile import Dockerfile, parse_arguments

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


def load(path: pathlib.Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def test_a_new_project_is_checked_and_tested(run: Run, environment: dict[str, str], tmp_path: pathlib.Path) -> None:
    made = run("new", "my-database", "--kind", "Policy", "--group", "db.example.org", "--cluster-scoped")
    assert (made.returncode, made.stderr) == (0, "")
    assert "cd my-database" in made.stdout
    root = tmp_path / "my-database"
    [crd] = load(root / "deploy" / "crds.yaml")
    assert (crd["metadata"]["name"], crd["spec"]["scope"]) == ("policies.db.example.org", "Cluster")
    [deployment] = load(root / "deploy" / "deployment.yaml")[:1]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "my-database"
    assert "--module=my_database.handlers" in container["args"]
    image = Dockerfile.parse((root / "Dockerfile").read_text()).final
    assert image.read_list("ENTRYPOINT") == ["/venv/bin/trioperator", "run"]
    assert parse_arguments(image.read_list("CMD")) == parse_arguments(container["args"])

    environment["PYTHONPATH"] = os.pathsep.join([str(root), environment["PYTHONPATH"]])  # in place of pip install -e
    checked = run("check", "-m", "my_database.handlers", PYTHONPATH=environment["PYTHONPATH"])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "2 handlers, no problems." in checked.stdout

    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout
    assert "4 passed" in tested.stdout


def test_nothing_is_overwritten(run: Run, tmp_path: pathlib.Path) -> None:
    (tmp_path / "my-database").mkdir()
    (tmp_path / "my-database" / "mine.txt").write_text("mine")
    result = run("new", "my-database")
    assert result.returncode == 2
    assert "my-database exists already" in result.stderr
    assert [path.name for path in (tmp_path / "my-database").iterdir()] == ["mine.txt"]


def test_invalid_names_make_nothing(run: Run, tmp_path: pathlib.Path) -> None:
    result = run("new", "it-is", "--kind", "lower")
    assert result.returncode == 2
    assert "The kind 'lower' is invalid" in result.stderr
    assert list(tmp_path.iterdir()) == []
