"""``python -m tests.world.withdrawing``: are Secrets that were withdrawn from namespaces ever back there?

ClusterSecret has a handler for the namespaces and one for the data. When both change in one write, the first one
deletes Secrets and patches the status, and the second one writes to the namespaces of the status: with an outdated
status, it would bring them back. On a real control plane if ``$KUBEBUILDER_ASSETS``
has its programs, else on the embedded server.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from typing import Any

import trio
import yaml

from tests.controlplane import ControlPlane
from tests.world.playing import make_native
from tests.world.sources import find_checkout
from trioperator import Client, configure, open_client
from trioperator.apiserver import Cluster, serve_cluster, write_kubeconfig
from trioperator.errors import NotFoundError

MODULES = {"kopf": "kopf", "bridge": "trioperator.kopf", "native": "trioperator"}
KIND = ("clustersecret.io/v1", "clustersecrets")


@contextlib.asynccontextmanager
async def open_server(folder: pathlib.Path) -> AsyncIterator[pathlib.Path]:
    """Run an API server in the block, and return the path of its kubeconfig."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        plane = ControlPlane(folder, pathlib.Path(assets))
        try:
            await trio.to_thread.run_sync(plane.start)
            yield plane.kubeconfig
        finally:
            await trio.to_thread.run_sync(plane.stop)
        return
    cluster = Cluster()
    async with trio.open_nursery() as nursery:
        url = str(await nursery.start(serve_cluster, cluster))
        write_kubeconfig(str(folder / "kubeconfig"), cluster.kubeconfig(url))
        yield folder / "kubeconfig"
        nursery.cancel_scope.cancel(reason="measured")


async def wait_served(client: Client) -> None:
    """Wait until the API server serves the kind: later than it says that the definition is established."""
    with trio.fail_after(30):
        while True:
            try:
                await client.list(*KIND)
            except NotFoundError:
                await trio.sleep(0.2)
            else:
                return


async def wait_started(client: Client) -> None:
    """Wait until the operator has handled the namespaces that there were: it would clone new Secrets into them."""
    for namespace in await client.list("namespaces"):
        await client.wait_for("namespaces", namespace["metadata"]["name"], condition=is_handled)


def is_handled(found: Mapping[str, Any] | None) -> bool:
    annotations = found["metadata"].get("annotations", {}) if found is not None else {}
    return any(name.endswith("/last-handled-configuration") for name in annotations)


async def change(client: Client, name: str) -> None:
    """Create a ClusterSecret, and change both of its fields at once when it is in its namespaces."""
    meta = {"name": name}
    obj = {"apiVersion": KIND[0], "kind": "ClusterSecret", "metadata": meta, "matchNamespace": ["a.*"]}
    await client.create({**obj, "data": {"key": "MQ=="}})
    for namespace in ("aa", "ab"):
        await client.wait_for("secrets", name, namespace=namespace, condition=lambda found: found is not None)
    await client.wait_for(*KIND, name, condition=lambda found: bool(found and found.get("status")))
    await client.patch(*KIND, name, merge={"matchNamespace": ["bb"], "data": {"key": "Mg=="}})
    await client.wait_for(
        "secrets", name, namespace="bb", condition=lambda found: found is not None and found["data"]["key"] == "Mg=="
    )


async def change_all(client: Client, process: trio.Process, rounds: int) -> None:
    """Change ClusterSecrets one by one. Raises EOFError if the operator ends meanwhile."""

    async def watch(process: trio.Process) -> None:
        raise EOFError(f"The operator has ended by itself, with {await process.wait()}.")

    with trio.fail_after(600):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, process)
            await wait_started(client)
            for number in range(rounds):
                await change(client, f"secret-{number}")
            await trio.sleep(5)  # for handlers that would bring them back late
            nursery.cancel_scope.cancel(reason="all are changed")


async def count_returned(mode: str, rounds: int, checkout: pathlib.Path, folder: pathlib.Path) -> int:
    """Return how many Secrets are in namespaces that they were withdrawn from."""
    async with open_server(folder) as kubeconfig, open_client(kubeconfig=kubeconfig) as client:
        for name in ("aa", "ab", "bb"):
            await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for crd in yaml.safe_load_all((checkout / "yaml/01_crd.yaml").read_text()):
            await client.create(crd)
        await wait_served(client)
        command = [sys.executable, "-m", MODULES[mode], "run", "--all-namespaces", "--standalone", "src/handlers.py"]
        env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        with (folder / "log").open("wb") as log:
            process = await trio.lowlevel.open_process(command, env=env, cwd=checkout, stdout=log, stderr=log)
            try:
                await change_all(client, process, rounds)
            finally:
                process.terminate()
                await process.wait()
        found: list[Any] = []
        for namespace in ("aa", "ab"):
            found += [
                s for s in await client.list("secrets", namespace=namespace) if "secret-" in s["metadata"]["name"]
            ]
    return len(found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.world.withdrawing")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--mode", choices=MODULES, default="bridge")
    options = parser.parse_args()
    configure(quiet=True)
    with tempfile.TemporaryDirectory() as scratch:
        checkout = find_checkout("zakkg3/ClusterSecret", pathlib.Path(scratch))
        if options.mode == "native":
            make_native(checkout.rglob("*.py"))
        folder = pathlib.Path(scratch, "server")
        folder.mkdir()
        try:
            returned = trio.run(count_returned, options.mode, options.rounds, checkout, folder)
        except BaseException:
            subprocess.run(["tail", "-n30", str(folder / "log")], check=False)
            raise
    print(f"{options.mode}: {returned} Secrets are back where {options.rounds} changes have withdrawn them.")
    sys.exit(bool(returned))


if __name__ == "__main__":
    main()
