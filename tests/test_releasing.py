"""Releases: what the workflow may do, what it is made of, and what is said of vulnerabilities."""

from __future__ import annotations

import copy
import json
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.audit import judge

ROOT = pathlib.Path(__file__).parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
# The permissions that a job may have, by what it is for; no job runs code of others with a right to write.
ALLOWED = {
    "build": {"contents": "read"},
    "attest": {"attestations": "write", "id-token": "write"},
    "publish": {"id-token": "write"},
}


def find_problems(workflow: dict[Any, Any]) -> Iterator[str]:
    """Yield what a workflow that publishes must not have, and what it lacks."""
    triggers = workflow.get("on", workflow.get(True))  # in YAML 1.1, a key `on` is true
    if not isinstance(triggers, dict) or set(triggers) != {"push"} or set(triggers["push"]) != {"tags"}:
        yield "it is started by something else than a tag"
    if workflow.get("permissions") != {}:
        yield "jobs have permissions that they do not ask for"
    for name, job in workflow["jobs"].items():
        if job.get("permissions") != ALLOWED.get(name):
            yield f"{name} has other permissions"
        for step in job["steps"]:
            yield from (f"{name}: {problem}" for problem in find_problems_of_step(step))
    if workflow["jobs"]["publish"].get("environment") != "pypi":
        yield "publishing is not approved"
    if workflow["jobs"]["publish"].get("needs") != "attest" or workflow["jobs"]["attest"].get("needs") != "build":
        yield "something is published that was not built or attested"


def find_problems_of_step(step: dict[str, Any]) -> Iterator[str]:
    uses, options, command = step.get("uses"), step.get("with", {}), step.get("run", "")
    if uses is not None and not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", uses):
        yield f"{uses} is not pinned by its commit"
    if (uses or "").startswith("actions/checkout@") and options.get("persist-credentials") is not False:
        yield "the token stays in the checkout"
    if (uses or "").startswith("pypa/gh-action-pypi-publish@") and options.get("attestations") is not True:
        yield "it is published without attestations"
    if {"password", "user"} & set(options) or "secrets." in json.dumps(step):
        yield "it has a secret"
    if "${{" in command:
        yield "a text of others becomes a command"
    for install in re.findall(r"pip install[^\n]*", command):
        if "--require-hashes" not in install:
            yield f"{install} is not locked"


@pytest.fixture
def workflow() -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text())
    return loaded


def test_the_workflow_publishes_by_a_short_lived_identity_what_it_has_built_and_attested(
    workflow: dict[Any, Any],
) -> None:
    assert list(find_problems(workflow)) == []
    used = [
        step["uses"].partition("@")[0] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step
    ]
    assert {"actions/attest-build-provenance", "actions/attest", "pypa/gh-action-pypi-publish"} <= set(used)
    assert "sbom-path" in json.dumps(workflow["jobs"]["attest"])


def test_each_pin_names_its_version() -> None:
    pins = re.findall(r"uses: \S+@[0-9a-f]{40}(.*)", WORKFLOW.read_text())
    assert pins
    assert all(re.fullmatch(r" # v\d+\.\d+\.\d+", pin) for pin in pins)


def test_all_workflows_pin_the_same_action_alike() -> None:
    template = ROOT / "trioperator" / "_tooling" / "scaffolding" / "templates" / "ci.yaml.tmpl"
    pins = re.findall(r"uses: (\S+)@(\S+) #", WORKFLOW.read_text() + template.read_text())
    assert len(dict(pins)) == len(set(pins))


def add_trigger(workflow: dict[Any, Any]) -> None:
    workflow[True]["pull_request_target"] = None


def widen(workflow: dict[Any, Any]) -> None:
    workflow["permissions"] = {"contents": "write"}


def widen_job(workflow: dict[Any, Any]) -> None:
    workflow["jobs"]["build"]["permissions"]["id-token"] = "write"


def unpin(workflow: dict[Any, Any]) -> None:
    workflow["jobs"]["publish"]["steps"][0]["uses"] = "actions/download-artifact@v8"


def keep_token(workflow: dict[Any, Any]) -> None:
    del workflow["jobs"]["build"]["steps"][0]["with"]


def add_secret(workflow: dict[Any, Any]) -> None:
    workflow["jobs"]["publish"]["steps"][1]["with"]["password"] = "${{ secrets.PYPI }}"


def inject(workflow: dict[Any, Any]) -> None:
    workflow["jobs"]["build"]["steps"].append({"run": "echo ${{ github.ref_name }}"})


def unlock(workflow: dict[Any, Any]) -> None:
    workflow["jobs"]["build"]["steps"].append({"run": "python -m pip install build"})


def skip_attestations(workflow: dict[Any, Any]) -> None:
    workflow["jobs"]["publish"]["needs"] = "build"


def publish_bare(workflow: dict[Any, Any]) -> None:
    workflow["jobs"]["publish"]["steps"][1]["with"]["attestations"] = False


def approve_nothing(workflow: dict[Any, Any]) -> None:
    del workflow["jobs"]["publish"]["environment"]


@pytest.mark.parametrize(
    "spoil",
    [
        add_trigger,
        widen,
        widen_job,
        unpin,
        keep_token,
        add_secret,
        inject,
        unlock,
        skip_attestations,
        publish_bare,
        approve_nothing,
    ],
)
def test_a_workflow_that_is_weakened_is_found_out(
    workflow: dict[Any, Any], spoil: Callable[[dict[Any, Any]], None]
) -> None:
    spoiled = copy.deepcopy(workflow)
    spoil(spoiled)
    assert list(find_problems(spoiled))


def test_the_tools_of_a_release_are_locked_with_hashes() -> None:
    for name in ("build-requirements.txt", "release-requirements.txt"):
        text = (ROOT / "deploy" / name).read_text()
        assert text.count("==") == len(re.findall(r"(?m)^\S+==\S+ \\\n    --hash=sha256:", text)) > 0
    assert "pip-audit==" in text
    assert "cyclonedx-bom==" in text


def test_a_database_that_cannot_be_asked_is_no_vulnerability() -> None:
    code, text = judge(None, "WARNING: x\nERROR:pip_audit: connection refused\n")
    assert code == 2
    assert "nothing is known" in text
    assert "ERROR:pip_audit: connection refused" in text
    assert judge(None, "")[0] == 2


def test_vulnerabilities_are_named_with_what_mends_them() -> None:
    vulns = [{"id": "CVE-1", "fix_versions": ["2.0"]}, {"id": "CVE-2", "fix_versions": []}]
    report: dict[str, Any] = {
        "dependencies": [{"name": "a", "version": "1", "vulns": vulns}, {"name": "b", "version": "1", "vulns": []}]
    }
    assert judge(json.dumps(report), "") == (
        1,
        "Known vulnerabilities:\na 1: CVE-1, fixed in 2.0\na 1: CVE-2, fixed in none",
    )
    report["dependencies"][0]["vulns"] = []
    assert judge(json.dumps(report), "") == (0, "No vulnerability is known of 2 packages.")
