"""Tests for :mod:`trioperator.testing.library_clients`: requests of client libraries stay in the process."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
from typing import Final

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.processes.conftest import environment
from tests.testing.exploring.operators import write_crd
from trioperator._concurrency.threads import run_in_thread
from trioperator.apiserver import Cluster
from trioperator.testing.library_clients import routed_libraries
from trioperator.testing.library_routes import routing_to

URL: Final = "http://cluster/api/v1/namespaces/default/configmaps"
HEAD: Final = """\
import kopf

def make(name, namespace, spec):
    doc = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
           "data": {"size": str(spec.get("size", 0))}}
    kopf.adopt(doc)
    return doc

"""
#: Handlers by the library that they use: each creates a ConfigMap, or changes it.
HANDLERS: Final = {
    "kubernetes": """
import kubernetes
import kubernetes.watch

kubernetes.config.load_incluster_config()

@kopf.on.create("webapps")
@kopf.on.update("webapps")
def deploy(name, namespace, spec, **_):
    api, doc = kubernetes.client.CoreV1Api(), make(name, namespace, spec)
    try:
        api.create_namespaced_config_map(namespace, doc)
    except kubernetes.client.ApiException as e:
        if e.status != 409:
            raise
        api.patch_namespaced_config_map(name, namespace, doc)
    for event in kubernetes.watch.Watch().stream(api.list_namespaced_config_map, namespace):
        if event["object"].metadata.name == name:
            break
""",
    "kubernetes in an async function": """
import kubernetes

@kopf.on.create("webapps")
@kopf.on.update("webapps")
async def deploy(name, namespace, spec, **_):
    api, doc = kubernetes.client.CoreV1Api(), make(name, namespace, spec)
    if [each for each in api.list_namespaced_config_map(namespace).items if each.metadata.name == name]:
        api.patch_namespaced_config_map(name, namespace, doc)
    else:
        api.create_namespaced_config_map(namespace, doc)
""",
    "kubernetes_asyncio": """
import kubernetes_asyncio.client
import kubernetes_asyncio.config
import kubernetes_asyncio.watch

@kopf.on.startup()
async def log_in(**_):
    await kubernetes_asyncio.config.load_kube_config()

@kopf.on.create("webapps")
@kopf.on.update("webapps")
async def deploy(name, namespace, spec, **_):
    async with kubernetes_asyncio.client.ApiClient() as http:
        api, doc = kubernetes_asyncio.client.CoreV1Api(http), make(name, namespace, spec)
        try:
            await api.create_namespaced_config_map(namespace, doc)
        except kubernetes_asyncio.client.ApiException as e:
            if e.status != 409:
                raise
            await api.patch_namespaced_config_map(name, namespace, doc)
        async for event in kubernetes_asyncio.watch.Watch().stream(api.list_namespaced_config_map, namespace):
            if event["object"].metadata.name == name:
                break
""",
    "pykube": """
@kopf.on.create("webapps")
@kopf.on.update("webapps")
def deploy(name, namespace, spec, **_):
    import pykube  # only here
    doc = make(name, namespace, spec)
    obj = pykube.ConfigMap(pykube.HTTPClient(pykube.KubeConfig.from_env()), doc)
    if obj.exists():
        obj.patch(doc)
    else:
        obj.create()
""",
    "kr8s": """
import kr8s.objects

@kopf.on.create("webapps")
@kopf.on.update("webapps")
def deploy(name, namespace, spec, **_):
    doc = make(name, namespace, spec)
    obj = kr8s.objects.ConfigMap(doc)
    if obj.exists():
        obj.patch(doc)
    else:
        obj.create()
""",
    "kr8s.asyncio": """
import kr8s.asyncio.objects

@kopf.on.create("webapps")
@kopf.on.update("webapps")
async def deploy(name, namespace, spec, **_):
    doc = make(name, namespace, spec)
    obj = await kr8s.asyncio.objects.ConfigMap(doc)
    if await obj.exists():
        await obj.patch(doc)
    else:
        await obj.create()
""",
    "lightkube": """
import lightkube
from lightkube.resources.core_v1 import ConfigMap

@kopf.on.create("webapps")
@kopf.on.update("webapps")
def deploy(name, namespace, spec, **_):
    lightkube.Client(field_manager="test").apply(ConfigMap.from_dict(make(name, namespace, spec)))
""",
    "lightkube, async": """
import lightkube
from lightkube.resources.core_v1 import ConfigMap

@kopf.on.create("webapps")
@kopf.on.update("webapps")
async def deploy(name, namespace, spec, **_):
    await lightkube.AsyncClient(field_manager="test").apply(ConfigMap.from_dict(make(name, namespace, spec)))
""",
}


def explore(folder: pathlib.Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Explore an operator for Kopf, in a process of its own."""
    (folder / "app.py").write_text(source)
    command = [sys.executable, "-W", "ignore", "-m", "trioperator.kopf", "explore", "app.py"]
    command += ["--crds", write_crd(folder), "--seconds", "300", *options]
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("library", HANDLERS)
def test_operators_with_other_clients_are_explored(library: str, tmp_path: pathlib.Path) -> None:
    name = library.partition(" ")[0].partition(".")[0].rstrip(",")
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    play = '[{"spec": {"size": 1}}, {"spec": {"size": 2}}]'
    done = explore(tmp_path, HEAD + HANDLERS[library], "--play", play, "--faults", "crash")
    assert done.returncode == 0, done.stdout + done.stderr  # a handler that fails would be a finding
    assert "no findings" in done.stdout


async def test_httpx_reaches_the_operators_transport(cluster: Cluster) -> None:
    with routed_libraries(), routing_to(cluster.transport()):
        async with httpx.AsyncClient() as client:
            made = await client.post(URL, json={"metadata": {"name": "one"}})
            assert made.json()["metadata"]["namespace"] == "default"

        def read() -> list[str]:
            with httpx.Client() as client:
                return [each["metadata"]["name"] for each in client.get(URL).json()["items"]]

        assert read() == await run_in_thread(read, limiter=trio.CapacityLimiter(1)) == ["one"]


async def test_a_watch_is_read_in_virtual_time(cluster: Cluster, autojump_clock: MockClock) -> None:
    def watch() -> list[bytes]:
        with httpx.Client(timeout=None) as client, client.stream("GET", f"{URL}?watch=1") as response:
            return [next(response.iter_bytes())]

    with routed_libraries(), routing_to(cluster.transport()):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(create_later, cluster)
            (found,) = await run_in_thread(watch, limiter=trio.CapacityLimiter(1))
    assert b'"late"' in found
    assert trio.current_time() >= 600


async def create_later(cluster: Cluster) -> None:
    """Create a ConfigMap in ten minutes."""
    await trio.sleep(600)
    await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}})


def test_all_is_as_before_and_libraries_that_come_later_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/mine")
    monkeypatch.delitem(sys.modules, "urllib3.connection", raising=False)
    send = httpx.AsyncHTTPTransport.handle_async_request
    with routed_libraries() as libraries:
        assert "/mine" not in sys.modules["os"].environ["KUBECONFIG"]
        assert httpx.AsyncHTTPTransport.handle_async_request is not send
        assert libraries.are_whole
        monkeypatch.setitem(sys.modules, "urllib3.connection", httpx)
        assert not libraries.are_whole
    assert sys.modules["os"].environ["KUBECONFIG"] == "/mine"
    assert httpx.AsyncHTTPTransport.handle_async_request is send
