"""Third-party clients list, watch, write and delete on the embedded server as on a real one."""

from __future__ import annotations

import functools
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import msgspec
import pytest
import trio
import yaml

from tests.apiserver.conftest import definition
from trioperator.apiserver import Cluster

SHAPE = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.posting.level = 0

@kopf.on.create("shapes")
def create_fn(spec, name, logger, **_):
    logger.info(f"And here we are! Creating: {spec}")
    return {"message": f"hello {name}"}

@kopf.on.update("shapes")
def update_fn(old, new, diff, logger, **_):
    logger.info(f"Updated: {diff}")

@kopf.on.delete("shapes")
def delete_fn(logger, **_):
    logger.info("And there we go.")

@kopf.timer("shapes", interval=1, initial_delay=0)
def tick(patch, retry, **_):
    patch.status["ticked"] = True
"""


@pytest.fixture
async def kubeconfig(cluster: Cluster, cluster_url: str, tmp_path: pathlib.Path) -> pathlib.Path:
    await cluster.apply(definition("shapes", "Shape", schema=SHAPE, subresources={"status": {}}))
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(cluster.kubeconfig(cluster_url)))
    return path


def needs(library: str) -> pytest.MarkDecorator:
    """Skip the test if the library is not installed (`nox -s clients` installs all)."""
    return pytest.mark.skipif(importlib.util.find_spec(library) is None, reason=f"{library} is not installed")


def shape(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "conformance.dev/v1", "kind": "Shape", "metadata": {"name": name}, "spec": spec}


async def use(library: str, kubeconfig: pathlib.Path) -> Any:
    """Run the library's program in its own process; return its output."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.apiserver.client_programs", library, str(kubeconfig)]
    with trio.fail_after(60):
        result = await trio.run_process(command, capture_stdout=True, cwd=pathlib.Path(__file__).parents[2])
    return msgspec.json.decode(result.stdout.splitlines()[-1])


@needs("kubernetes")
async def test_the_official_client_lists_watches_and_patches(kubeconfig: pathlib.Path) -> None:
    assert await use("kubernetes", kubeconfig) == [
        ["p"],
        ["MODIFIED", {"a": "b", "c": "d"}],
        ["DELETED", {"a": "b", "c": "d"}],
        4,
        [{"size": 2}, {"ready": True}],
        [404, "Not Found"],
    ]


@needs("kr8s")
async def test_kr8s_lists_watches_and_patches(kubeconfig: pathlib.Path) -> None:
    assert await use("kr8s", kubeconfig) == [["p"], {"a": "b"}, ["ADDED", 2], [False, False]]


@needs("kopf")
async def test_kopf_runs_an_operator_without_complaint(
    cluster: Cluster, kubeconfig: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "app.py").write_text(OPERATOR)
    command = [sys.executable, "-m", "kopf", "run", "--all-namespaces", "--standalone", "--verbose", "app.py"]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONWARNINGS": "ignore"}
    output = b""

    async def until(text: str) -> None:
        nonlocal output
        assert process.stdout is not None
        while text.encode() not in output:
            part = await process.stdout.receive_some()
            assert part, output.decode()
            output += part

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            run = functools.partial(trio.run_process, command, cwd=tmp_path, env=environment, check=False)
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            process = await nursery.start(functools.partial(run, **pipes))
            await until("Initial authentication has finished")
            await cluster.create(shape("s", size=1))
            await until("Creation is processed: 1 succeeded; 0 failed.")
            await until("Timer 'tick' succeeded.")
            await cluster.patch("shapes", "s", {"spec": {"size": 2}})
            await until("Updating is processed: 1 succeeded; 0 failed.")
            obj = await cluster.get("shapes", "s")
            await cluster.delete("shapes", "s")
            await until("Deleted, really deleted, and we are notified.")
            process.send_signal(signal.SIGTERM)
    assert obj["status"]["create_fn"] == {"message": "hello s"}
    assert obj["status"]["ticked"] is True
    complaints = [line for line in output.decode().splitlines() if "[WARNING" in line or "[ERROR" in line]
    assert complaints == []
    assert await cluster.find("shapes", "s") is None
