"""An operator as in the walk-through of Kopf's manual: its client library is never configured, but used."""

from __future__ import annotations

import pathlib
import sys

import pytest
import trio

from tests.both.conftest import Server
from tests.both.kinds import CONFIGMAPS, WIDGETS, manifest
from tests.client.test_library_logins import needs
from tests.controlplane import ControlPlane
from tests.processes.conftest import environment

OPERATOR = """
import kubernetes
import IMPORTED as kopf

@kopf.on.create("widgets")
def create_fn(spec, namespace, **_):
    child = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"size": str(spec["size"])}}
    kopf.adopt(child)
    created = kubernetes.client.CoreV1Api().create_namespaced_config_map(namespace=namespace, body=child)
    return {"child": created.metadata.name}

def change(status, namespace, patch):
    api = kubernetes.client.CoreV1Api()
    api.patch_namespaced_config_map(name=status["create_fn"]["child"], namespace=namespace, body=patch)

@kopf.on.update("widgets")
def update_fn(spec, status, namespace, **_):
    change(status, namespace, {"data": {"size": str(spec["size"])}})

@kopf.on.field("widgets", field="metadata.labels")
def relabel(old, new, status, namespace, **_):
    if "create_fn" in status:
        labels = {**dict.fromkeys(old or {}), **(new or {})}
        change(status, namespace, {"metadata": {"labels": labels}})
"""


@needs("kubernetes")
@pytest.mark.parametrize(("module", "imported"), [("trioperator", "trioperator"), ("trioperator.kopf", "kopf")])
async def test_the_walkthrough_of_kopf_runs_as_it_stands(
    module: str, imported: str, server: Server, plane: ControlPlane | None, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "app.py").write_text(OPERATOR.replace("IMPORTED", imported))
    folder = tmp_path if plane is None else plane.folder
    env = environment(tmp_path, KUBECONFIG=str(folder / ("kubeconfig" if plane is None else "operator.kubeconfig")))
    command = [sys.executable, "-m", module, "run", "--standalone", "-n", server.namespace, "app.py"]
    with (tmp_path / "log").open("wb") as log, trio.fail_after(150):
        process = await trio.lowlevel.open_process(command, env=env, cwd=tmp_path, stdout=log, stderr=log)
        try:
            created = await server.create(WIDGETS, manifest(WIDGETS, "w", size=1))
            name = (await server.until(WIDGETS, "w", lambda body: body.get("status")))["status"]["create_fn"]["child"]
            child = await server.get(CONFIGMAPS, name)
            assert [owner["uid"] for owner in child["metadata"]["ownerReferences"]] == [created["metadata"]["uid"]]
            await server.patch(WIDGETS, "w", {"spec": {"size": 2}, "metadata": {"labels": {"app": "mine"}}})
            await server.until(CONFIGMAPS, name, lambda body: body["data"] == {"size": "2"})
            await server.until(CONFIGMAPS, name, lambda body: body["metadata"].get("labels") == {"app": "mine"})
            await server.patch(WIDGETS, "w", {"metadata": {"labels": {"app": None}}})
            await server.until(CONFIGMAPS, name, lambda body: not body["metadata"].get("labels"))
            await server.delete(WIDGETS, "w")
            await server.until_gone(CONFIGMAPS, name)
            process.terminate()
            assert await process.wait() == 0
        except BaseException:
            sys.stderr.write((tmp_path / "log").read_text())
            raise
        finally:
            if process.returncode is None:
                process.kill()
