"""Tests for :mod:`trioperator.testing.exploring.app`: each start has memory of its own, as each process has."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

import trioperator
from tests.processes.conftest import environment
from tests.testing.exploring.operators import write_crd
from trioperator.errors import ConfigError
from trioperator.testing.exploring.app import FilesApp, RegistryApp

SOURCE = """\
import trioperator
from helper_of_app import seen

@trioperator.on.create("webapps")
def create_fn(name, **_):
    seen.append(name)
    return list(seen)
"""


@pytest.fixture
def app(tmp_path: pathlib.Path) -> FilesApp:
    (tmp_path / "helper_of_app.py").write_text("seen = []\n")
    (tmp_path / "app.py").write_text(SOURCE)
    return FilesApp([str(tmp_path / "app.py")])


def test_modules_of_the_project_are_imported_again(app: FilesApp) -> None:
    for _ in range(3):
        (handler,) = app.load()
        assert handler.fn(name="a") == ["a"]


def test_metrics_are_registered_again(tmp_path: pathlib.Path) -> None:
    source = 'import prometheus_client\nCOUNTED = prometheus_client.Counter("counted_by_app", "Calls.")\n'
    (tmp_path / "app.py").write_text(source)
    app = FilesApp([str(tmp_path / "app.py")])
    app.load()
    app.load()


def test_the_default_registry_stays_as_it_is(app: FilesApp) -> None:
    before = tuple(trioperator.get_default_registry())
    app.load()
    assert tuple(trioperator.get_default_registry()) == before


def test_the_arguments_are_those_of_the_command_line(app: FilesApp) -> None:
    assert app.arguments[0].endswith("app.py")
    assert FilesApp([], ["package.handlers"]).arguments == ("-m", "package.handlers")


def test_a_file_that_cannot_be_loaded_is_an_error_of_the_user(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read the file"):
        FilesApp([str(tmp_path / "missing.py")]).load()


def test_handlers_that_are_declared_stay_and_others_are_declared_at_each_start() -> None:
    registry = trioperator.OperatorRegistry()
    assert RegistryApp(registry).load() is registry

    def declare() -> None:
        @trioperator.on.create("webapps")
        def create_fn(**_: object) -> None: ...

    app = RegistryApp(registry, declare=declare)
    assert [handler.id for handler in app.load()] == [handler.id for handler in app.load()]
    assert not tuple(registry)


def test_operators_for_kopf_are_explored_with_the_settings_and_the_log_of_kopf(tmp_path: pathlib.Path) -> None:
    source = """
import kopf

@kopf.on.delete("webapps")
async def delete_fn(**_):
    raise kopf.TemporaryError("not yet")
"""
    (tmp_path / "app.py").write_text(source)
    command = [sys.executable, "-m", "trioperator.kopf", "explore", "app.py", "--crds", write_crd(tmp_path)]
    command += ["--play", '[{"spec": {}}]']
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), check=False, capture_output=True, text=True)
    assert "kept by the finalizers kopf.zalando.org/KopfFinalizerMarker" in done.stdout, done.stderr
    assert "Handler 'delete_fn' failed temporarily: not yet" in done.stdout
