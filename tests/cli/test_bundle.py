"""Tests for :mod:`trioperator.cli.bundle`: the command that makes bundles for OLM."""

from __future__ import annotations

import copy
import json
import logging
import pathlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import typer.main
import yaml
from typer.testing import CliRunner, Result

import trioperator
from tests.runtime.conftest import CRD
from trioperator.cli.failures import USAGE_ERROR
from trioperator.cli.root import app as command

Invoke: TypeAlias = Callable[..., Result]

APP = """
import trioperator

@trioperator.on.create("widgets")
async def create_fn(**_): ...

@trioperator.on.validate("widgets", match_conditions={"it": "true"})
async def check(**_): ...
"""
FILES = {
    "bundle.Dockerfile",
    "manifests/example.com_widgets.yaml",
    "manifests/it.clusterserviceversion.yaml",
    "metadata/annotations.yaml",
}
VERIFY = shutil.which("operator-verify")


def make_definition(**spec: Any) -> dict[str, Any]:
    definition = copy.deepcopy(CRD)
    properties = {"spec": {"type": "object", "properties": {"size": spec}, "required": ["size"]}}
    schema = {"type": "object", "properties": properties, "required": ["spec"]}
    definition["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    return definition


@pytest.fixture
def invoke(restored_modules: None, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[Invoke]:
    """Return a function that runs the command in this process, in the directory of the files."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "crds.yaml").write_text(yaml.safe_dump(make_definition(type="integer", minimum=1)))
    monkeypatch.chdir(tmp_path)
    registry, handlers = trioperator.get_default_registry(), logging.root.handlers[:]

    def invoke(*args: str) -> Result:
        trioperator.set_default_registry(trioperator.OperatorRegistry())
        return CliRunner().invoke(command, ["bundle", "app.py", "--name=it", "--crds=crds.yaml", *args])

    yield invoke
    trioperator.set_default_registry(registry)
    logging.root.handlers[:] = handlers


def read(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def load(folder: pathlib.Path) -> Any:
    return yaml.safe_load((folder / "bundle/manifests/it.clusterserviceversion.yaml").read_text())


def test_a_bundle_is_written_and_the_same_the_next_time(invoke: Invoke, tmp_path: pathlib.Path) -> None:
    options = ("--version=0.1.0", "--channels=beta,alpha", "--image=registry.example.com/it:1")
    result = invoke(*options)
    assert result.exit_code == 0, result.output
    files = read(tmp_path / "bundle")
    assert files.keys() == FILES
    assert b"bundle.channel.default.v1: beta" in files["metadata/annotations.yaml"]
    service_version = load(tmp_path)
    assert service_version["metadata"]["name"] == "it.v0.1.0"
    install = service_version["spec"]["install"]["spec"]
    assert (
        install["deployments"][0]["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example.com/it:1"
    )
    [permissions] = install["permissions"]
    verbs = ["get", "list", "watch", "patch"]
    assert {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": verbs} in permissions["rules"]
    assert "Webhook 'check' has a namespace selector or match conditions" in result.stderr
    assert (
        "0 of 4 files" in invoke("--version=0.1.0", "--channels=beta,alpha", "--image=registry.example.com/it:1").stderr
    )
    assert read(tmp_path / "bundle") == files
    refused = invoke("--version=0.2.0")
    assert (refused.exit_code, "Pass --force" in refused.stderr) == (USAGE_ERROR, True)
    assert read(tmp_path / "bundle") == files
    assert invoke("--version=0.2.0", "--replaces=0.1.0", "--force").exit_code == 0
    assert load(tmp_path)["spec"]["replaces"] == "it.v0.1.0"


def test_examples_are_made_unless_they_are_given(invoke: Invoke, tmp_path: pathlib.Path) -> None:
    assert invoke("--version=0.1.0").exit_code == 0
    [made] = json.loads(load(tmp_path)["metadata"]["annotations"]["alm-examples"])
    assert (made["kind"], made["spec"]) == ("Widget", {"size": 1})
    given = {**made, "metadata": {"name": "mine"}, "spec": {"size": 7}}
    (tmp_path / "examples.yaml").write_text(yaml.safe_dump(given))
    assert invoke("--version=0.1.0", "--examples=examples.yaml", "--force").exit_code == 0
    assert json.loads(load(tmp_path)["metadata"]["annotations"]["alm-examples"]) == [given]


def test_examples_that_are_invalid_are_reported(invoke: Invoke, tmp_path: pathlib.Path) -> None:
    (tmp_path / "crds.yaml").write_text(yaml.safe_dump(make_definition(type="string", pattern="^[a-z]+$")))
    made = invoke("--version=0.1.0")
    assert made.exit_code == 0
    assert "The example widget-example of Widget is invalid" in made.stderr
    assert "Pass one with --examples." in made.stderr
    example = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "mine"}, "spec": {"size": 1}}
    (tmp_path / "examples.yaml").write_text(yaml.safe_dump(example))
    refused = invoke("--version=0.1.0", "--examples=examples.yaml", "--force")
    assert refused.exit_code == USAGE_ERROR
    assert "The example mine of Widget is invalid" in refused.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "Missing option '--version'"),
        (["--version=1"], "The version '1' is invalid"),
        (["--version=1.0.0", "--channels=A"], "The channel 'A' is invalid"),
        (["--version=1.0.0", "--replicas=2"], "pass --leader-elect or --shards"),
        (["--version=1.0.0", "--crds=missing.yaml"], "Cannot read the manifests in missing.yaml"),
    ],
)
def test_wrong_input_is_explained(invoke: Invoke, tmp_path: pathlib.Path, options: list[str], message: str) -> None:
    result = invoke(*options)
    assert result.exit_code == USAGE_ERROR
    assert message in result.stderr
    assert not (tmp_path / "bundle").exists()


@pytest.mark.skipif(VERIFY is None, reason="install operator-verify of github.com/operator-framework/api")
def test_the_validators_of_olm_find_nothing_wrong(invoke: Invoke, tmp_path: pathlib.Path) -> None:
    options = ("--leader-elect", "--replicas=2", "--metrics", "--provider=We")
    assert invoke("--version=0.1.0", *options).exit_code == 0
    assert VERIFY is not None
    result = subprocess.run(
        [VERIFY, "manifests", "--operatorhub_validate", "--object_validate", tmp_path / "bundle"],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [
        line for line in result.stderr.splitlines() if "deprecated" not in line and "Icon not specified" not in line
    ]
    assert (result.returncode, lines) == (0, [])


@pytest.mark.parametrize(("targets", "patterns"), [("", []), ("team", ["team"])])
def test_the_operator_takes_the_namespaces_of_olm(
    targets: str, patterns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIOPERATOR_RUN_NAMESPACES", targets)
    run = typer.main.get_command(command).commands["run"]  # type: ignore[attr-defined]  # the root is a group
    assert list(run.make_context("run", ["app.py"]).params["namespaces"] or ()) == patterns
