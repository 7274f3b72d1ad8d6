"""Tests for :mod:`trioperator._tooling.scaffolding.project`: names, and the files with them."""

from __future__ import annotations

import ast
import pathlib
import re
import tomllib

import pytest
import yaml

import trioperator
from tests.cli.conftest import restored_modules
from tests.dockerfile import Dockerfile, is_ignored
from trioperator._tooling.scaffolding import ProjectOptions, render_project
from trioperator._tooling.scaffolding.project import derive_kind
from trioperator.apiserver import Cluster
from trioperator.cli.loading import load_file
from trioperator.crds.definitions import collect_definitions
from trioperator.errors import ConfigError

__all__ = ["restored_modules"]


def test_the_files_have_the_names_of_the_project() -> None:
    files = render_project(ProjectOptions(name="my-database", kind="Policy", group="db.example.org"))
    assert set(files) == {
        ".dockerignore",
        ".github/workflows/ci.yaml",
        ".gitignore",
        "Dockerfile",
        "README.md",
        "examples/policy.yaml",
        "my_database/__init__.py",
        "my_database/handlers.py",
        "my_database/kinds.py",
        "pyproject.toml",
        "tests/test_handlers.py",
    }
    assert [path for path, text in files.items() if "@@" in text or not text.endswith("\n")] == []
    for path, text in files.items():
        if path.endswith(".py"):
            ast.parse(text)
        elif path.endswith(".yaml"):
            assert yaml.safe_load(text)
    assert tomllib.loads(files["pyproject.toml"])["project"]["name"] == "my-database"


def test_no_index_can_replace_a_local_wheel_and_nothing_moves_by_itself() -> None:
    project = render_project(ProjectOptions(name="my-database", kind="Policy"))
    dockerfile = Dockerfile.parse(project["Dockerfile"])
    assert all("@sha256:" in arg for arg in dockerfile.select("ARG"))
    installs = [part for run in dockerfile.select("RUN") for part in re.findall(r"pip [^;&]* install [^;&]*", run)]
    installs += re.findall(r"pip install .*", project[".github/workflows/ci.yaml"])
    assert len(installs) == 4
    for install in installs:  # by hashes, by the wheels themselves, or without dependencies
        assert "--require-hashes" in install or "-name '*.whl'" in install or "--no-deps" in install
    actions = re.findall(r"uses: (\S+)", project[".github/workflows/ci.yaml"])
    assert actions
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action) for action in actions)


def test_what_the_image_is_built_from_exists_and_all_else_is_ignored() -> None:
    project = render_project(ProjectOptions(name="my-database", kind="Policy"))
    files = {*project, "requirements.txt", "trioperator-1.0-py3-none-any.whl"}
    sources = Dockerfile.parse(project["Dockerfile"]).sources
    needed = {path for path in files for source in sources if pathlib.PurePath(path.partition("/")[0]).match(source)}
    assert {path.partition("/")[0] for path in needed} == {
        "README.md",
        "my_database",
        "pyproject.toml",
        "requirements.txt",
        "trioperator-1.0-py3-none-any.whl",
    }
    assert {path for path in files if not is_ignored(path, project[".dockerignore"])} == needed
    assert is_ignored("my_database/__pycache__/kinds.pyc", project[".dockerignore"])


@pytest.mark.parametrize("namespaced", [True, False])
async def test_the_kind_is_accepted_by_an_api_server_and_so_is_the_example(
    namespaced: bool, tmp_path: pathlib.Path, restored_modules: None
) -> None:
    files = render_project(ProjectOptions(name="it-is", kind="Box", group="a.example.com", namespaced=namespaced))
    path = tmp_path / "kinds_of_it_is.py"
    path.write_text(files["it_is/kinds.py"])
    before, registry = trioperator.get_default_registry(), trioperator.OperatorRegistry()
    trioperator.set_default_registry(registry)
    try:
        load_file(str(path))
    finally:
        trioperator.set_default_registry(before)
    [definition] = collect_definitions(registry)
    assert definition["metadata"]["name"] == f"{ProjectOptions(name='it-is', kind='Box').plural}.a.example.com"
    cluster = Cluster()
    await cluster.apply(definition)
    created = await cluster.create(yaml.safe_load(files["examples/box.yaml"]))
    assert ("namespace" in created["metadata"]) is namespaced


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"name": "My-Operator"}, "The name 'My-Operator' is invalid"),
        ({"name": "../up"}, "is invalid"),
        ({"name": "1st"}, "is invalid"),
        ({"name": "a" * 53}, "is invalid"),
        ({"name": "a-"}, "is invalid"),
        ({"name": "json"}, "another Python module"),
        ({"name": "class"}, "another Python module or keyword"),
        ({"name": "trioperator"}, "another Python module"),
        ({"kind": "database"}, "The kind 'database' is invalid"),
        ({"kind": "Data-Base"}, "is invalid"),
        ({"group": "example"}, "The group 'example' is invalid"),
        ({"group": "Example.com"}, "is invalid"),
        ({"group": "a..b"}, "is invalid"),
        ({"group": "x.k8s.io"}, "reserved for Kubernetes"),
    ],
)
def test_names_that_kubernetes_or_python_would_reject_are_errors(names: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ProjectOptions(**{"name": "it-is", "kind": "Box", **names})  # type: ignore[arg-type]  # strings only
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Database", "databases"),
        ("Policy", "policies"),
        ("Gateway", "gateways"),
        ("Box", "boxes"),
        ("Patch", "patches"),
    ],
)
def test_plurals_are_english(kind: str, plural: str) -> None:
    assert ProjectOptions(name="it-is", kind=kind).plural == plural


@pytest.mark.parametrize(
    ("name", "kind"),
    [("database-operator", "Database"), ("web-app", "WebApp"), ("operator", "Operator"), ("x--y", "XY")],
)
def test_the_kind_is_named_after_the_project(name: str, kind: str) -> None:
    assert derive_kind(name) == kind
