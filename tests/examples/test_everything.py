"""The reference operator: its own tests pass, and it runs on the embedded server with ``--reload``."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

import trioperator
from tests.controlplane import free_ports
from tests.e2e.test_life import until
from tests.program import Program

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
DATABASES = "databases.db.example.com"
PAUSED = "trioperator.dev/paused"
POKED = "trioperator.dev/reconcile-requested-at"
FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "21-everything"


def test_its_own_tests_pass_as_its_users_run_them() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout


def test_nothing_is_wrong_with_it() -> None:
    command = [sys.executable, "-m", "trioperator", "check"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=100, check=False)
    assert "12 handlers, no problems." in done.stdout


class Development:
    """A copy of the project, and its operator as its page runs it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder / "project"
        shutil.copytree(FOLDER, self.folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        self.metrics = f"http://127.0.0.1:{free_ports(1)[0]}/metrics"
        page = (self.folder / "README.md").read_text()
        [options] = re.findall(r"^\$ trioperator (run --embedded .*)$", page, re.MULTILINE)
        command = [sys.executable, "-m", "trioperator", *options.split(), f"--metrics={self.metrics}"]
        log = folder / "log.txt"
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=self.folder, stdout=out, stderr=subprocess.STDOUT)
        self.program = Program(process, log)
        self.shown = page.split("```text\n")[1].split("```")[0].splitlines()

    def read_metrics(self) -> str:
        with urllib.request.urlopen(self.metrics, timeout=30) as response:
            text: str = response.read().decode()
        return text

    def count_calls(self) -> float:
        """Return how often the reconcile handler was called."""
        pattern = r'^trioperator_handler_calls_total{.*handler="provide".*} (\S+)'
        return sum(map(float, re.findall(pattern, self.read_metrics(), re.MULTILINE)))

    def find_kubeconfig(self) -> str:
        [path] = re.findall(r"kubectl --kubeconfig=(\S+)", self.program.output)
        return str(path)


@pytest.fixture
def development(tmp_path: pathlib.Path) -> Iterator[Development]:
    development = Development(tmp_path)
    try:
        yield development
    finally:
        development.program.process.kill()
        development.program.process.wait()


def is_migrated(crd: Mapping[str, Any]) -> bool:
    return bool(crd["status"]["storedVersions"] == ["v1"])


async def pause_and_poke(client: trioperator.Client, development: Development) -> None:
    def is_paused(database: Mapping[str, Any]) -> bool:
        return any(each["type"] == "Paused" for each in database["status"]["conditions"])

    await client.patch(DATABASES, "users", merge={"metadata": {"annotations": {PAUSED: "true"}}})
    await client.wait_for(DATABASES, "users", condition=is_paused, timeout=60)
    await client.patch(DATABASES, "users", merge={"spec": {"replicas": 3}})
    await client.patch(DATABASES, "orders", merge={"spec": {"replicas": 1}})
    await client.wait_for("statefulsets", "orders", condition=lambda found: found["spec"]["replicas"] == 1, timeout=60)
    assert (await client.get("statefulsets", "users"))["spec"]["replicas"] == 2, "it is paused"
    await client.patch(DATABASES, "users", merge={"metadata": {"annotations": {PAUSED: None}}})
    await client.wait_for(DATABASES, "users", condition=lambda found: found["status"].get("readyReplicas") == 3)
    assert not is_paused(await client.get(DATABASES, "users"))
    calls = development.count_calls()
    await client.patch(DATABASES, "users", merge={"metadata": {"annotations": {POKED: "now"}}})
    until(lambda: development.count_calls() > calls)


async def test_it_goes_on_when_its_files_change(development: Development) -> None:
    program, backups = development.program, development.folder / "database_operator" / "backups.py"
    for line in development.shown:
        program.wait_for(line)
    assert "database_backups_total" in development.read_metrics()
    async with trioperator.open_client(kubeconfig=development.find_kubeconfig()) as client:
        stored = {"status": {"storedVersions": ["v1alpha1", "v1"]}}
        await client.patch(CRDS, DATABASES, merge=stored, subresource="status")
    backups.write_text(backups.read_text().replace("Backups that are over.", "Backups, done or failed."))
    program.wait_for("backups.py has changed: the operator starts again.")
    program.wait_for("The operator is ready.", count=2)
    assert "Backups, done or failed." in development.read_metrics()

    [database, _] = yaml.safe_load_all((development.folder / "examples" / "database.yaml").read_text())
    database["metadata"]["name"] = "users"
    async with trioperator.open_client(kubeconfig=development.find_kubeconfig()) as client:
        await client.create(database)
        ready = await client.wait_for(DATABASES, "users", condition="Ready", timeout=60)
        assert ready["spec"]["version"] == "18"
        with pytest.raises(trioperator.InvalidError, match="cannot shrink"):
            await client.patch(DATABASES, "users", merge={"spec": {"storage": "512Mi"}})
        await client.wait_for(CRDS, DATABASES, condition=is_migrated, timeout=60)
        await pause_and_poke(client, development)
    assert program.stop() == 0
    assert "[ERROR" not in program.output
    assert "Traceback" not in program.output
