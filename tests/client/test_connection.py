"""Tests for :mod:`trioperator.client.connection`: other client libraries use the operator's credentials."""

from __future__ import annotations

import base64
import importlib.util
import pathlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import trio

import trioperator
from tests.client.conftest import CONNECTION, config_map
from trioperator._kube.connection import load_connection
from trioperator.apiserver import Cluster, serve_cluster
from trioperator.client import SyncClient
from trioperator.client.connection import make_kubeconfig
from trioperator.errors import ConfigError

# They warn of servers that are newer than they are.
pytestmark = pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning")


KR8S_PROGRAM = """
import sys, trio, trioperator

def work(client):
    api = client.connection().for_kr8s()
    for each in api.get("configmaps", "one", namespace="default"):
        print(each.raw["data"]["key"])

async def main():
    async with trioperator.open_client(kubeconfig=sys.argv[1]) as client:
        await trio.to_thread.run_sync(work, trioperator.SyncClient(client))

trio.run(main)
"""


def needs(library: str) -> pytest.MarkDecorator:
    """Skip the test if the library is not installed (`nox -s clients` installs all)."""
    return pytest.mark.skipif(importlib.util.find_spec(library) is None, reason=f"{library} is not installed")


@pytest.fixture(params=[False, True], ids=["token", "certificate"])
async def served(
    cluster: Cluster, tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> AsyncIterator[pathlib.Path]:
    """Serve the cluster over TLS to those who have credentials, and return the path of a kubeconfig."""
    await cluster.create(config_map("one", key="value"))
    async with trio.open_nursery() as nursery:
        url = str(await nursery.start(lambda task_status: serve_tls(cluster, task_status)))
        path = tmp_path / "kubeconfig"
        path.write_bytes(msgspec.json.encode(cluster.kubeconfig(url, certificate=request.param)))
        yield path
        nursery.cancel_scope.cancel(reason="test ended")


async def serve_tls(cluster: Cluster, task_status: trio.TaskStatus[str]) -> None:
    await serve_cluster(cluster, tls=True, anonymous=False, task_status=task_status)


async def test_httpx_is_logged_in(served: pathlib.Path) -> None:
    async with trioperator.open_client(kubeconfig=served) as client:
        connection = await client.connection()
        async with connection.for_httpx() as http:
            found = (await http.get("/api/v1/namespaces/default/configmaps/one")).json()
    assert found["data"] == {"key": "value"}


async def test_httpx_in_threads_is_logged_in(served: pathlib.Path) -> None:
    def work() -> Any:
        with sync.connection().for_httpx() as http:
            return http.get("/api/v1/namespaces/default/configmaps/one").json()

    async with trioperator.open_client(kubeconfig=served) as client:
        sync = SyncClient(client)
        assert (await trio.to_thread.run_sync(work))["data"] == {"key": "value"}


async def test_httpx_works_in_memory(cluster: Cluster) -> None:
    await cluster.create(config_map("one", key="value"))
    async with trioperator.open_client(connection=CONNECTION, transport=cluster.transport()) as client:
        connection = await client.connection()
        async with connection.for_httpx() as http:
            found = (await http.get("/api/v1/namespaces/default/configmaps/one")).json()
    assert found["data"] == {"key": "value"}


async def test_httpx_sends_the_current_token(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    info = trioperator.ConnectionInfo(server="http://cluster", token_file=token)
    async with trioperator.open_client(connection=info, transport=cluster.transport()) as client:
        connection = await client.connection()
        async with connection.for_httpx() as http:
            for text in ("first", "second"):
                token.write_text(text)
                response = await http.get("/version")
                assert response.request.headers["Authorization"] == f"Bearer {text}"
            token.write_text("")  # while it is rewritten
            response = await http.get("/version")
            assert response.request.headers["Authorization"] == "Bearer first"
            assert "trioperator" not in response.request.headers["User-Agent"]


@needs("kubernetes")
async def test_the_official_client_is_logged_in(served: pathlib.Path) -> None:
    import kubernetes

    def work() -> Any:
        api = sync.connection().for_kubernetes()
        try:
            return kubernetes.client.CoreV1Api(api).read_namespaced_config_map("one", "default").data
        finally:
            api.rest_client.pool_manager.clear()

    async with trioperator.open_client(kubeconfig=served) as client:
        sync = SyncClient(client)
        assert await trio.to_thread.run_sync(work) == {"key": "value"}


@needs("kubernetes")
async def test_the_official_client_sends_the_current_token(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    info = trioperator.ConnectionInfo(server="http://127.0.0.1:1", token_file=token)
    async with trioperator.open_client(connection=info, transport=cluster.transport()) as client:
        api = (await client.connection()).for_kubernetes()
        for text in ("first", "second"):
            token.write_text(text)
            assert api.configuration.get_api_key_with_prefix("BearerToken") == f"Bearer {text}"
            assert api.configuration.api_key["authorization"] == f"Bearer {text}", "the key until version 36"
        token.write_text("")  # while it is rewritten
        assert api.configuration.get_api_key_with_prefix("BearerToken") == "Bearer second"


@needs("pykube")
async def test_pykube_is_logged_in(served: pathlib.Path) -> None:
    import pykube

    def work() -> Any:
        api = sync.connection().for_pykube()
        try:
            return pykube.ConfigMap.objects(api).filter(namespace="default").get(name="one").obj["data"]
        finally:
            api.session.close()

    async with trioperator.open_client(kubeconfig=served) as client:
        sync = SyncClient(client)
        assert await trio.to_thread.run_sync(work) == {"key": "value"}


@needs("lightkube")
@pytest.mark.parametrize("mode", ["async", "sync"])
async def test_lightkube_is_logged_in(served: pathlib.Path, mode: str) -> None:
    from lightkube.resources.core_v1 import ConfigMap

    def work() -> Any:
        api = sync.connection().for_lightkube()
        try:
            return api.get(ConfigMap, "one", namespace="default").data
        finally:
            api.close()

    async with trioperator.open_client(kubeconfig=served) as client:
        if mode == "sync":
            sync = SyncClient(client)
            assert await trio.to_thread.run_sync(work) == {"key": "value"}
            return
        api = (await client.connection()).for_lightkube()
        assert (await api.get(ConfigMap, "one", namespace="default")).data == {"key": "value"}
        await api.close()


@needs("lightkube")
async def test_lightkube_works_in_memory(cluster: Cluster) -> None:
    from lightkube import ApiError
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import ConfigMap

    async with trioperator.open_client(connection=CONNECTION, transport=cluster.transport()) as client:
        api = (await client.connection()).for_lightkube()
        await api.create(ConfigMap(metadata=ObjectMeta(name="one"), data={"key": "value"}))
        assert (await client.get("configmaps", "one"))["data"] == {"key": "value"}
        assert [found.data async for found in api.list(ConfigMap) if found.data] == [{"key": "value"}]
        with pytest.raises(ApiError, match='configmaps "two" not found'):
            await api.get(ConfigMap, "two")
        await api.close()


@needs("lightkube")
async def test_resources_of_lightkube_are_kinds(cluster: Cluster) -> None:
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import ConfigMap

    async with trioperator.open_client(connection=CONNECTION, transport=cluster.transport()) as client:
        made = ConfigMap(metadata=ObjectMeta(name="one"), data={"key": "value"})
        await client.apply(made)
        assert (await client.get(ConfigMap, "one"))["data"] == {"key": "value"}


@needs("kr8s")
async def test_kr8s_is_logged_in(served: pathlib.Path) -> None:
    async with trioperator.open_client(kubeconfig=served) as client:
        api = await (await client.connection()).for_kr8s()
        found = [each async for each in api.get("configmaps", "one", namespace="default")]
        assert found[0].raw["data"] == {"key": "value"}
        assert (await client.get(found[0]))["data"] == {"key": "value"}
        assert await client.list(type(found[0]))
        await api._session.aclose()


@needs("kr8s")
async def test_kr8s_in_threads_is_logged_in(served: pathlib.Path) -> None:
    # In a process of its own: its event loops and connections stay open.
    done = await trio.run_process([sys.executable, "-c", KR8S_PROGRAM, str(served)], capture_stdout=True)
    assert done.stdout == b"value\n"


def test_a_kubeconfig_has_everything_of_a_connection(tmp_path: pathlib.Path) -> None:
    pem = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
    (tmp_path / "cert").write_text(pem)
    (tmp_path / "token").write_text("secret")
    info = trioperator.ConnectionInfo(
        server="https://cluster:6443/base",
        ca_data=base64.b64encode(pem.encode()),
        certificate_path=tmp_path / "cert",
        private_key_path=tmp_path / "cert",
        token_file=tmp_path / "token",
        tls_server_name="kubernetes",
        proxy_url="http://proxy:3128",
        default_namespace="team",
    )
    path = tmp_path / "kubeconfig"
    path.write_bytes(msgspec.json.encode(make_kubeconfig(info)))
    read = load_connection([path])
    for name in ("server", "tls_server_name", "proxy_url", "default_namespace"):
        assert getattr(read, name) == getattr(info, name)
    assert read.authorization() == "Bearer secret"
    assert {read.ca_data, read.certificate_data, read.private_key_data} == {pem}


def test_a_kubeconfig_has_passwords() -> None:
    info = trioperator.ConnectionInfo(server="https://cluster", username="user", password="secret", insecure=True)
    (entry,) = make_kubeconfig(info)["users"]
    assert entry["user"] == {"username": "user", "password": "secret"}
    assert make_kubeconfig(info)["clusters"][0]["cluster"]["insecure-skip-tls-verify"] is True


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"scheme": "Digest", "token": "x"}, "scheme Digest"), ({"ca_path": "/nonexistent"}, "Cannot read")],
)
def test_what_kubeconfigs_do_not_know_is_an_error(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_kubeconfig(trioperator.ConnectionInfo(server="https://cluster", **fields))
