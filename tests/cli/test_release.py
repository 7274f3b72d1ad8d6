"""Tests for :mod:`trioperator.cli.release`: the commands that remove what an operator has left in a cluster."""

from __future__ import annotations

import pathlib

import pytest

from tests.cli.conftest import Command
from tests.runtime.conftest import CRD
from trioperator.apiserver import Cluster
from trioperator.cli.failures import FAILURE, SUCCESS, USAGE_ERROR

OURS = "trioperator.dev/finalizer"
APP = """
import trioperator

@trioperator.on.delete("widgets")
@trioperator.on.validate("widgets", id="check")
def handle(**_): ...
"""


@pytest.fixture
async def command(command: Command, cluster: Cluster, tmp_path: pathlib.Path) -> Command:
    """Return the command on a cluster with two widgets and the file of an operator."""
    await cluster.apply(CRD)
    for name, finalizer in (("a", OURS), ("b", "mine.example.com/x")):
        metadata = {"name": name, "namespace": "default", "finalizers": [finalizer]}
        await cluster.create({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata})
    (tmp_path / "app.py").write_text(APP)
    return command


async def finalizers(cluster: Cluster) -> list[str]:
    """Return the finalizers of all widgets."""
    return [name for widget in await cluster.list("widgets") for name in widget["metadata"].get("finalizers", ())]


async def test_release_removes_finalizers_and_says_how_many(cluster: Cluster, command: Command) -> None:
    done = await command("release", "widgets", "--dry-run")
    assert (done.returncode, done.stdout) == (
        SUCCESS,
        b"default/a: trioperator.dev/finalizer\nWould release 1 of 2 objects.\n",
    )
    done = await command("release", "widgets.example.com", "-A")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (SUCCESS, b"Released 1 of 2 objects.")
    done = await command("release", "widgets", "b", "--prefix", "mine.example.com")
    assert done.stdout.splitlines()[-1] == b"Released 1 of 1 objects."
    assert await finalizers(cluster) == []


async def test_a_single_finalizer_can_be_named(cluster: Cluster, command: Command) -> None:
    assert (await command("release", "widgets", "--finalizer", "mine.example.com/x")).returncode == SUCCESS
    assert await finalizers(cluster) == [OURS]


async def test_input_that_is_wrong_is_explained(command: Command) -> None:
    for args, code, text in [
        (("widgets", "-A", "-n", "default"), USAGE_ERROR, b"pass either -A or namespace, not both"),
        (("widgets", "--prefix", "kubernetes.io"), USAGE_ERROR, b"Kubernetes' own"),
        (("wigdets",), FAILURE, b"does not serve the kind wigdets"),
        (("widgets", "absent"), FAILURE, b'"absent" not found'),
    ]:
        done = await command("release", *args)
        assert (done.returncode, text in done.stderr) == (code, True), done.stderr


async def test_uninstall_asks_before_it_goes_on(cluster: Cluster, command: Command) -> None:
    done = await command("uninstall", "app.py", stdin=b"n\n")
    assert done.returncode == FAILURE
    assert b"1. Remove the finalizers of all widgets.v1.example.com" in done.stdout
    assert b"pass --managed" in done.stderr
    assert b"Pass --yes" in (await command("uninstall", "app.py")).stderr
    assert len(await finalizers(cluster)) == 2
    done = await command("uninstall", "app.py", "--yes")
    assert done.returncode == SUCCESS, done.stderr
    assert await finalizers(cluster) == ["mine.example.com/x"]


async def test_uninstall_says_when_there_is_nothing_to_remove(tmp_path: pathlib.Path, command: Command) -> None:
    (tmp_path / "app.py").write_text(APP.replace("widgets", "gadgets"))
    done = await command("uninstall", "app.py")
    assert (done.returncode, done.stdout) == (SUCCESS, b"There is nothing to remove.\n")


async def test_uninstall_needs_an_operator(command: Command) -> None:
    done = await command("uninstall", "--yes")
    assert (done.returncode, b"pass files or modules" in done.stderr) == (USAGE_ERROR, True)
