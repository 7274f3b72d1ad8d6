"""Tests for :mod:`trioperator.cli.serving`."""

# ruff: noqa: ASYNC240 -- files are looked at while nothing else runs

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import pathlib
import ssl
import stat
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
import trio

from trioperator.cli.failures import WRONG_USE
from trioperator.cli.manifests import Manifest
from trioperator.cli.serving import ClusterOptions, run_cluster, serve

CONFIG_MAP = Manifest(path="m", content={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@contextlib.asynccontextmanager
async def serving(options: ClusterOptions, *manifests: Manifest) -> AsyncIterator[str]:
    """Serve a cluster, and give what it tells."""
    send, receive = trio.open_memory_channel[str](1)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(serve, options, manifests, tell=send.send_nowait))
            yield await receive.receive()
            nursery.cancel_scope.cancel()


def client_of(path: pathlib.Path) -> httpx.AsyncClient:
    """Make a client by the kubeconfig."""
    config: dict[str, Any] = json.loads(path.read_text())
    server = config["clusters"][0]["cluster"]
    context: ssl.SSLContext | bool = True
    if authority := server.get("certificate-authority-data"):
        context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    return httpx.AsyncClient(base_url=server["server"], verify=context, headers=headers, timeout=60)


@pytest.fixture
def kubeconfig(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "kubeconfig"


@pytest.mark.parametrize("tls", [True, False])
async def test_it_tells_where_it_is_and_serves_the_manifests(kubeconfig: pathlib.Path, tls: bool) -> None:
    async with serving(ClusterOptions(tls=tls, kubeconfig=str(kubeconfig)), CONFIG_MAP) as told:
        async with client_of(kubeconfig) as client:
            assert (await client.get(f"{CONFIG_MAPS}/a")).status_code == 200
            assert f"The API server is at {str(client.base_url).rstrip('/')}, " in told
        assert f"    export KUBECONFIG={kubeconfig}\n" in told
        assert "--data keeps them" in told
    assert kubeconfig.exists()


async def test_by_default_the_kubeconfig_goes_with_the_server() -> None:
    async with serving(ClusterOptions()) as told:
        path = pathlib.Path(told.partition("KUBECONFIG=")[2].split()[0])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with client_of(path) as client:
            assert (await client.get("/readyz")).text == "ok"
    assert not path.parent.exists()


async def test_a_data_file_keeps_the_objects_and_who_is_trusted(
    tmp_path: pathlib.Path, kubeconfig: pathlib.Path
) -> None:
    options = ClusterOptions(data=str(tmp_path / "data"), kubeconfig=str(kubeconfig))
    async with serving(options, CONFIG_MAP) as told:
        assert f"are kept in {tmp_path / 'data'}" in told
        async with client_of(kubeconfig) as client:
            uid = (await client.get(f"{CONFIG_MAPS}/a")).json()["metadata"]["uid"]
    before = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["certificate-authority-data"]
    async with serving(options), client_of(kubeconfig) as client:
        assert (await client.get(f"{CONFIG_MAPS}/a")).json()["metadata"]["uid"] == uid
    after = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["certificate-authority-data"]
    assert after == before


@pytest.mark.parametrize("tls", [True, False])
async def test_nobody_gets_in_without_the_kubeconfig(kubeconfig: pathlib.Path, tls: bool) -> None:
    async with serving(ClusterOptions(tls=tls, kubeconfig=str(kubeconfig))), client_of(kubeconfig) as client:
        assert (await client.get("/api/v1/namespaces")).status_code == 200
        for authorization in ("", "Bearer none", "Basic eDp5"):
            client.headers["Authorization"] = authorization
            for path in ("/api/v1/namespaces", "/readyz", "/none"):
                response = await client.get(path)
                assert (response.status_code, response.json()["reason"]) == (401, "Unauthorized")


async def test_access_can_be_by_roles(kubeconfig: pathlib.Path) -> None:
    async with (
        serving(ClusterOptions(authorization="rbac", kubeconfig=str(kubeconfig))),
        client_of(kubeconfig) as client,
    ):
        path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/view"
        assert (await client.get(path)).status_code == 200
        stranger = {"Impersonate-User": "stranger"}
        response = await client.get(path, headers=stranger)
        assert (response.status_code, response.json()["reason"]) == (403, "Forbidden")


async def test_controllers_can_be_run(kubeconfig: pathlib.Path) -> None:
    options = ClusterOptions(controllers=("all",), kubeconfig=str(kubeconfig))
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    async with serving(options), client_of(kubeconfig) as client:
        assert (await client.post("/apis/apps/v1/namespaces/default/deployments", json=body)).status_code == 201
        with trio.CancelScope() as scope:
            query = {"watch": "1", "labelSelector": "a=b"}
            async with client.stream("GET", "/api/v1/namespaces/default/pods", params=query) as response:
                async for line in response.aiter_lines():
                    assert json.loads(line)["type"] == "ADDED"
                    scope.cancel()
        assert scope.cancelled_caught


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("localhost", "localhost")])
async def test_other_addresses_can_be_listened_on(kubeconfig: pathlib.Path, host: str, shown: str) -> None:
    if host == "::" and not pathlib.Path("/proc/net/if_inet6").exists():
        pytest.skip("the machine has no IPv6")
    async with serving(ClusterOptions(host=host, kubeconfig=str(kubeconfig))) as told:
        assert f"https://{shown}:" in told
        async with client_of(kubeconfig) as client:
            assert (await client.get("/readyz")).text == "ok"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "/"}, "The data file / cannot be opened: Is a directory."),
        ({"kubeconfig": "/dev/null"}, "is not the kubeconfig of an embedded cluster"),
        ({"host": "nowhere.invalid"}, "cannot listen on nowhere.invalid:0: "),
        ({"controllers": ("kubelet",)}, "There is no controller 'kubelet': there are all, "),
        ({"manifests": ("nothing.yaml",)}, "The manifests of nothing.yaml cannot be read: No such file or directory."),
        ({"manifests": ("-",)}, "The API server refuses Pod A (document 1 of the standard input): "),
    ],
)
def test_what_is_wrong_is_told_in_a_line(
    options: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioperator.cli.serving.configure", lambda **_: None)
    read, write = os.pipe()
    os.write(write, b"{apiVersion: v1, kind: Pod, metadata: {name: A}}")
    os.close(write)
    with os.fdopen(read) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert run_cluster(ClusterOptions(**options), tell=lambda _: None) == WRONG_USE
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert message in record.getMessage()
    assert "\n" not in record.getMessage()
    assert not record.exc_info
