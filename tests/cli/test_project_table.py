"""Tests for :mod:`trioperator.cli.project_table`: options of commands in the project's pyproject.toml."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import yaml
from typer.testing import CliRunner

import trioperator
from tests.runtime.conftest import CRD
from trioperator.cli.failures import USAGE_ERROR
from trioperator.cli.root import app as command

Invoke: TypeAlias = Callable[..., Any]

APP = """
import trioperator

@trioperator.on.startup()
def configure(settings, **_):
    settings.admission.server = trioperator.WebhookServer()

@trioperator.on.create("widgets")
def handle(**_): pass

@trioperator.on.validate("widgets")
def check(**_): pass
"""
TABLE = """
[tool.trioperator]
files = ["app.py"]
namespaces = ["a"]
rules = ["get:secrets"]
managed = "hooks.example.com"
name = "mine"
events = false
other-crds = ["crds.yaml"]

[tool.trioperator.rbac]
embedded = true
apply = ["crds.yaml"]

[tool.trioperator.manifests]
replicas = 3
shards = 5
metrics = true
"""


@pytest.fixture
def invoke(restored_modules: None, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[Invoke]:
    """Return a function that runs the command in this process, in the directory of the project."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "other.py").write_text("import trioperator\n\n@trioperator.on.event('pods')\ndef see(**_): pass\n")
    (tmp_path / "crds.yaml").write_text(yaml.safe_dump(CRD))
    (tmp_path / "pyproject.toml").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    registry, handlers = trioperator.get_default_registry(), logging.root.handlers[:]

    def invoke(*args: str) -> Any:
        trioperator.set_default_registry(trioperator.OperatorRegistry())
        return CliRunner().invoke(command, args)

    yield invoke
    trioperator.set_default_registry(registry)
    logging.root.handlers[:] = handlers


def load(result: Any) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    return {each["kind"]: each for each in yaml.safe_load_all(result.stdout)}


def test_commands_take_their_options_from_the_project(invoke: Invoke) -> None:
    made = load(invoke("manifests"))
    assert made["Deployment"]["metadata"]["name"] == "mine"
    assert made["Deployment"]["spec"]["replicas"] == 3
    [container] = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert {"--namespace=a", "--shards=5", "app.py"} < set(container["args"])
    assert "ServiceMonitor" in made
    assert "hooks.example.com" in str(made["ClusterRole"])
    roles = load(invoke("rbac", "--standalone"))
    assert "secrets" in str(roles["Role"])
    assert roles["Role"]["metadata"] == {"name": "mine", "namespace": "a"}
    assert "events" not in str(roles)
    assert "leases" not in str(roles)  # of manifests only


def test_the_command_line_and_the_environment_win(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIOPERATOR_DEPLOY_NAME", "theirs")
    made = load(invoke("manifests", "--replicas=2", "--rule=get:nodes"))
    assert made["Deployment"]["spec"]["replicas"] == 2
    assert made["Deployment"]["metadata"]["name"] == "theirs"
    assert "nodes" in str(made["ClusterRole"])
    assert "'get'" in str(made["ClusterRole"])
    assert "secrets" not in str(made)


def test_what_is_given_replaces_its_alternative(invoke: Invoke) -> None:
    made = load(invoke("manifests", "-A"))
    [container] = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert "--all-namespaces" in container["args"]
    assert "1 handler, no problems" in invoke("check", "-m", "other").stdout


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[tool.trioperator]\nfile = ['a.py']", None),
        ("[tool.trioperator]\nmanagd = 'x.y'", "has managd (did you mean managed?) in [tool.trioperator]"),
        ("[tool.trioperator.rbac]\nreplicas = 2", "in [tool.trioperator.rbac]: rbac has no such option"),
        ("[tool.trioperator.rbac]\nca-secert = 'a/b'", "has ca-secert (did you mean ca-secret?)"),
        ("[tool.trioperator.manifest]\nreplicas = 2", "has manifest (did you mean manifests?)"),
        ("[tool.trioperator]\nmetrics = true", "put it into [tool.trioperator.run], [tool.trioperator.manifests]"),
        ("[tool.trioperator]\nrules = 'get:pods'", "has rules='get:pods' in [tool.trioperator]: it must be an array"),
        ("[tool.trioperator]\nevents = 'no'", "has events='no' in [tool.trioperator]: it must be true or false"),
        ("[tool.trioperator]\nshards = '2'", "has shards='2' in [tool.trioperator]: it must be a whole number"),
        ("[tool.trioperator]\nname = 2", "has name=2 in [tool.trioperator]: it must be a string"),
        ("[tool]\ntrioperator = 3", "it must be a table, [tool.trioperator]"),
        ("[tool.trioperator", "pyproject.toml is not valid"),
    ],
)
def test_what_is_wrong_in_the_table_is_explained(
    invoke: Invoke, tmp_path: pathlib.Path, table: str, message: str | None
) -> None:
    (tmp_path / "pyproject.toml").write_text(table)
    result = invoke("rbac", "app.py")
    assert result.exit_code == USAGE_ERROR
    assert (message or "has file (did you mean files?) in [tool.trioperator]") in result.output


def test_check_looks_at_the_options_of_all_commands(invoke: Invoke, tmp_path: pathlib.Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.trioperator.manifests]\nreplicsa = 2\n")
    assert "replicsa (did you mean replicas?)" in invoke("check", "app.py").output
    assert "replicsa" not in invoke("crds", "app.py").output


@pytest.mark.parametrize("table", ["", "[project]\nname = 'trioperator-user'", "[tool.other]\nx = 'trioperator'"])
def test_projects_without_the_table_are_as_before(invoke: Invoke, tmp_path: pathlib.Path, table: str) -> None:
    (tmp_path / "pyproject.toml").write_text(table)
    assert "pass files or modules" in invoke("check").output
    assert "3 handlers, no problems" in invoke("check", "app.py").stdout


def test_webhooks_that_replicas_take_away_from_each_other_are_found_by_check(
    invoke: Invoke, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "app.py").write_text(APP.replace('widgets")\ndef check', 'widgets", persistent=False)\ndef check'))
    result = invoke("check")
    assert result.exit_code == 1
    assert "app.py:11: Webhook 'check' has persistent=False: each replica that stops" in result.stdout
    (tmp_path / "pyproject.toml").write_text(TABLE.replace("shards = 5", "").replace("replicas = 3", ""))
    assert "3 handlers, no problems" in invoke("check").stdout


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (["admission.managed = 'hooks.example.com'", "leadership.enabled = True"], True),
        (["admission.managed = 'hooks.example.com'", "leadership.shards = 3"], True),
        (["admission.managed = 'hooks.example.com'"], False),
        (["leadership.enabled = True"], False),
        (["admission.managed = 'hooks.example.com'", "leadership.enabled = False"], False),
    ],
)
def test_check_knows_from_settings_that_replicas_take_webhooks_away_from_each_other(
    invoke: Invoke, tmp_path: pathlib.Path, settings: list[str], found: bool
) -> None:
    lines = "".join(f"    settings.{line}\n" for line in settings)
    source = APP.replace('widgets")\ndef check', 'widgets", persistent=False)\ndef check')
    (tmp_path / "app.py").write_text(source.replace("**_):\n", f"**_):\n{lines}", 1))
    (tmp_path / "pyproject.toml").unlink(missing_ok=True)
    result = invoke("check", "app.py")
    assert ("persistent=False: each replica that stops" in result.stdout) is found
    assert result.exit_code == found
