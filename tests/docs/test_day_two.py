"""docs/day-two.md: it has all that there is, and its commands do what it shows."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys
from typing import Any

import msgspec
import pytest
import trio
import typer.main

from tests.docs.pages import read, read_commands
from tests.runtime.databases import CRD, database
from trioperator._reconciling import kstatus
from trioperator._reconciling.schedules import Report
from trioperator._runtime.patching import contention_guard
from trioperator._tooling.deployment.alerts import ALERTS
from trioperator.apiserver import Cluster, serve_cluster
from trioperator.cli.root import app
from trioperator.settings import OperatorSettings

PAGE = "docs/day-two.md"
COMMANDS = ("pause", "unpause", "poke", "why", "release", "uninstall")
OTHERS = ("top", "crds --migrate")
# Commands of the days before: how to write, try and deploy an operator.
EARLIER = frozenset(
    {"new", "run", "check", "explore", "freeze", "resume", "cluster", "rbac", "manifests", "bundle", "crds"}
)
CONDITIONS = (
    str(OperatorSettings().pausing.condition),
    contention_guard._CONDITION,
    *(name for name, _ in kstatus._list_conditions(Report("done", ""))),
)
LEASE = {"name": "database-operator", "namespace": "operators"}
APP = """
import trioperator

@trioperator.on.delete("databases.example.com")
def delete(**_): ...
"""


def list_headings() -> list[str]:
    return re.findall(r"^#+ (.*)$", read(PAGE), re.M)


def test_each_alert_has_its_section_which_leads_to_its_runbook() -> None:
    text = read(PAGE)
    names = list(dict.fromkeys(alert.name for alert in ALERTS))
    assert [each for each in list_headings() if each.startswith("Trioperator")] == names
    for name in names:
        section = text.split(f"\n### {name}\n")[1].split("\n#")[0]
        assert f"(runbooks.md#{name.lower()})" in section.replace("\n", " ")


@pytest.mark.parametrize("name", CONDITIONS)
def test_each_condition_has_its_section(name: str) -> None:
    assert f"The condition `{name}`" in list_headings()


def test_each_command_has_its_section_or_is_of_the_days_before() -> None:
    found = {command for heading in list_headings() for command in re.findall(r"`trioperator ([^`]+)`", heading)}
    assert found == {*COMMANDS, *OTHERS}
    known = set(typer.main.get_group(app).commands)
    assert {command.partition(" ")[0] for command in found} | EARLIER == known


def find_command(name: str) -> tuple[list[str], str]:
    """Return a command of the page, with the output that it shows."""
    [found] = [each for each in read_commands(PAGE) if each[0].startswith(f"trioperator {name} ")]
    return shlex.split(found[0].replace("\\\n", " "))[1:], found[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_on_the_page(name: str) -> None:
    assert find_command(name)[0][0] == name


class Shell:
    """Runs commands as users do, on an embedded cluster."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    async def run(self, *args: str, answer: str = "") -> str:
        """Run a command of trioperator, which must succeed, and return what it prints."""
        environment = {**os.environ, "KUBECONFIG": str(self._folder / "kubeconfig")}
        command = [sys.executable, "-m", "trioperator", *args]
        done = await trio.run_process(
            command,
            env=environment,
            cwd=self._folder,
            stdin=answer.encode(),
            capture_stdout=True,
            stderr=subprocess.STDOUT,
        )
        return done.stdout.decode()


async def test_the_commands_do_what_the_page_shows(tmp_path: pathlib.Path) -> None:
    cluster, shell = Cluster(), Shell(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    await cluster.apply(CRD)
    held = database(size=1)
    held["metadata"]["finalizers"] = ["trioperator.dev/finalizer"]
    await cluster.create(held)
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "operators"}})
    await cluster.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": LEASE, "spec": {}})
    group = "admissionregistration.k8s.io/v1"
    hooks = {"apiVersion": group, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "hooks.example.com"}}
    await cluster.create(hooks)
    async with trio.open_nursery() as nursery:
        url = await nursery.start(serve_cluster, cluster)
        (tmp_path / "kubeconfig").write_bytes(msgspec.json.encode(cluster.kubeconfig(str(url))))

        async def annotations() -> dict[str, Any]:
            return dict((await cluster.get("databases", "orders"))["metadata"].get("annotations", {}))

        await shell.run(*find_command("pause")[0])
        assert "reason=DBA at work" in (await annotations())["trioperator.dev/paused"]
        await shell.run(*find_command("unpause")[0])
        assert "trioperator.dev/paused" not in await annotations()
        await shell.run(*find_command("poke")[0])
        assert (await annotations())["trioperator.dev/reconcile-requested-at"]
        release, shown = find_command("release")
        assert (await shell.run(*release)).replace("1 of 1", "1 of 24") == shown
        assert not (await cluster.get("databases", "orders"))["metadata"].get("finalizers")
        uninstall, shown = find_command("uninstall")
        printed = await shell.run(*uninstall, answer="y\n")
        assert printed.startswith(shown.rstrip("\n"))
        nursery.cancel_scope.cancel()
