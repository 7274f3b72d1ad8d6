"""``python -m tests.soak migration``: thousands of objects get another storage version on a real control plane, while
the command that migrates them is killed again and again. All must be written in it, few of them twice.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import pathlib
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import trio

import trioperator
from tests.bench.servers import find_assets
from tests.controlplane import ControlPlane

_NAME = "boxes.example.com"
_KIND = "boxes.v2.example.com"
_OPEN = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
# Objects that are created at the same time.
_CREATORS = 20


def define(storage: str) -> dict[str, Any]:
    """Return the CRD with this storage version."""
    versions = [{"name": name, "served": True, "storage": name == storage, "schema": _OPEN} for name in ("v1", "v2")]
    names = {"kind": "Box", "plural": "boxes", "singular": "box"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": _NAME},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions},
    }


@contextlib.asynccontextmanager
async def running(assets: pathlib.Path) -> AsyncIterator[ControlPlane]:
    """Run a control plane with the CRD, whose storage version is the old one."""
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(pathlib.Path(folder), assets)
        try:
            await trio.to_thread.run_sync(plane.start)
            plane.apply(define("v1"))
            plane.kubectl("wait", "--for=condition=Established", f"crd/{_NAME}")
            yield plane
        finally:
            plane.stop()


async def fill(plane: ControlPlane, count: int) -> None:
    """Create the objects."""
    numbers = iter(range(count))

    async def create(client: trioperator.Client) -> None:
        for number in numbers:
            metadata = {"name": f"box-{number:05}", "namespace": "default"}
            await client.create({"apiVersion": "example.com/v1", "kind": "Box", "metadata": metadata})

    async with trioperator.open_client(kubeconfig=plane.kubeconfig) as client, trio.open_nursery() as nursery:
        for _ in range(_CREATORS):
            nursery.start_soon(create, client)


async def find_versions(plane: ControlPlane) -> dict[str, str]:
    """Return the resource versions of the objects, by their names."""
    async with trioperator.open_client(kubeconfig=plane.kubeconfig) as client:
        found = [obj["metadata"] async for obj in client.iterate(_KIND, all_namespaces=True)]
    return {each["name"]: each["resourceVersion"] for each in found}


async def migrate(plane: ControlPlane, *, rate: float, seconds: float) -> int:
    """Run the command, kill it after a while unless it has ended, and return its exit code."""
    command = [sys.executable, "-m", "trioperator", "crds", f"--crd={_NAME}", "--migrate", f"--rate={rate:g}"]
    environment = {**os.environ, "KUBECONFIG": str(plane.folder / "operator.kubeconfig")}
    process = await trio.lowlevel.open_process(command, env=environment, stdout=None)
    with trio.move_on_after(seconds):
        return await process.wait()
    process.kill()
    return await process.wait()


async def run(objects: int, kills: int, rate: float) -> list[str]:
    """Return what is wrong."""
    assets = find_assets()
    if assets is None:
        sys.exit("set KUBEBUILDER_ASSETS")
    async with running(assets) as plane:
        await fill(plane, objects)
        before = await find_versions(plane)
        plane.apply(define("v2"))
        seconds = 12 + objects / rate / (kills + 1)  # at first, the command waits for 10 s
        for number in range(kills):
            code = await migrate(plane, rate=rate, seconds=seconds if number == 0 else seconds - 9)
            print(f"killed, or ended with {code}")
        code = await migrate(plane, rate=rate, seconds=3600)
        after = await find_versions(plane)
        stored = plane.get("crd", _NAME)["status"]["storedVersions"]
        writes = len([each for each in plane.requests(verb="update") if each["objectRef"]["resource"] == "boxes"])
    unchanged = [name for name, version in before.items() if after.get(name) == version]
    print(f"{objects} objects, {writes} writes ({writes / objects:.3f} each), stored versions: {stored}")
    problems = {
        f"The command ended with {code}.": code != 0,
        f"{len(before)} objects were there, and {len(after)} are.": not len(before) == len(after) == objects,
        f"{len(unchanged)} objects were not written.": bool(unchanged),
        f"The stored versions are {stored}.": stored != ["v2"],
        f"There were {writes} writes.": writes > 1.1 * objects,
    }
    return [problem for problem, is_true in problems.items() if is_true]


def main(arguments: list[str]) -> int:
    """Run it, and print what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak migration", description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rate", type=float, default=200)
    options = parser.parse_args(arguments)
    problems = trio.run(functools.partial(run, options.objects, options.kills, options.rate))
    print("\n".join(problems) or "Nothing is wrong.")
    return bool(problems)
