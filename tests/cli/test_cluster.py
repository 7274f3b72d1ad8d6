"""Tests for :mod:`trioperator.cli.cluster`."""

# ruff: noqa: ASYNC240 -- files are read while nothing else runs

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import pathlib
import ssl
import stat
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import httpx
import pytest
import trio

from trioperator.cli import root
from trioperator.cli.cluster import AuthorizationName, ClusterOptions, run_cluster, serve
from trioperator.cli.failures import USAGE_ERROR
from trioperator.cli.manifests import Manifest

CONFIG_MAP = Manifest(path="m", content={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class TestOptions:
    @pytest.fixture
    def parse(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ClusterOptions]:
        """Return a function that parses a command line and its environment variables."""

        def parse(*args: str, **variables: str) -> ClusterOptions:
            taken: list[ClusterOptions] = []

            def take(options: ClusterOptions, *, echo: Callable[[str], None]) -> int:
                taken.append(options)
                return 7

            monkeypatch.setattr("trioperator.cli.cluster.run_cluster", take)
            for name, value in variables.items():
                monkeypatch.setenv(f"TRIOPERATOR_CLUSTER_{name}", value)
            with pytest.raises(SystemExit) as caught:
                root.app(["cluster", *args], prog_name="trioperator")
            assert caught.value.code == (7 if taken else 2)
            if not taken:
                raise ValueError("wrong")
            return taken[0]

        return parse

    def test_no_option_is_required(self, parse: Callable[..., ClusterOptions]) -> None:
        assert parse() == ClusterOptions()

    def test_all_options(self, parse: Callable[..., ClusterOptions]) -> None:
        expected = ClusterOptions(
            host="::1",
            port=5,
            tls=False,
            data="d",
            kubeconfig="k",
            manifests=["a.yaml", "folder", "-"],
            authorization=AuthorizationName.RBAC,
            controllers="pods, workloads",
            print_assets="p",
            admin_token="t",
        )
        options = ("--host", "::1", "--port", "5", "--no-tls", "--data", "d", "--kubeconfig", "k")
        more = (
            "--authorization",
            "rbac",
            "--controllers",
            "pods, workloads",
            "--print-assets",
            "p",
            "--admin-token",
            "t",
        )
        manifests = ("--apply", "a.yaml", "--apply", "folder", "--apply", "-")
        assert parse(*options, *manifests, *more) == expected
        variables = {
            "HOST": "::1",
            "PORT": "5",
            "TLS": "no",
            "DATA": "d",
            "KUBECONFIG": "k",
            "APPLY": "a.yaml folder -",
            "AUTHORIZATION": "rbac",
            "CONTROLLERS": "pods, workloads",
            "PRINT_ASSETS": "p",
            "ADMIN_TOKEN": "t",
        }
        assert parse(**variables) == expected

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (("--port", "65536"), "65535"),
            (("--port", "x"), "--port"),
            (("--data",), "--data"),
            (("--authorization", "none"), "'none' is not one of 'rbac', 'always-allow'"),
            (("x.py",), "No such command 'x.py'"),
        ],
    )
    def test_usage_errors_are_reported(
        self,
        parse: Callable[..., ClusterOptions],
        capsys: pytest.CaptureFixture[str],
        args: tuple[str, ...],
        message: str,
    ) -> None:
        with pytest.raises(ValueError, match="wrong"):
            parse(*args)
        stderr = capsys.readouterr().err
        assert message in stderr
        assert "Traceback" not in stderr


@contextlib.asynccontextmanager
async def serving(options: ClusterOptions, *manifests: Manifest) -> AsyncIterator[str]:
    """Serve a cluster, and yield what it prints."""
    send, receive = trio.open_memory_channel[str](1)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(serve, options, manifests, echo=send.send_nowait))
            yield await receive.receive()
            nursery.cancel_scope.cancel()


def client_of(path: pathlib.Path) -> httpx.AsyncClient:
    """Return a client that is configured by the kubeconfig."""
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
async def test_it_prints_its_url_and_serves_the_manifests(kubeconfig: pathlib.Path, tls: bool) -> None:
    async with serving(ClusterOptions(tls=tls, kubeconfig=str(kubeconfig)), CONFIG_MAP) as printed:
        async with client_of(kubeconfig) as client:
            assert (await client.get(f"{CONFIG_MAPS}/a")).status_code == 200
            assert f"The API server is at {str(client.base_url).rstrip('/')}, " in printed
        assert f"    export KUBECONFIG={kubeconfig}\n" in printed
        assert "--data keeps them" in printed
    assert kubeconfig.exists()


async def test_by_default_the_kubeconfig_is_removed_with_the_server() -> None:
    async with serving(ClusterOptions()) as printed:
        path = pathlib.Path(printed.partition("KUBECONFIG=")[2].split()[0])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with client_of(path) as client:
            assert (await client.get("/readyz")).text == "ok"
    assert not path.parent.exists()


async def test_a_data_file_keeps_the_objects_and_the_ca(tmp_path: pathlib.Path, kubeconfig: pathlib.Path) -> None:
    options = ClusterOptions(data=str(tmp_path / "data"), kubeconfig=str(kubeconfig))
    async with serving(options, CONFIG_MAP) as printed:
        assert f"are kept in {tmp_path / 'data'}" in printed
        async with client_of(kubeconfig) as client:
            uid = (await client.get(f"{CONFIG_MAPS}/a")).json()["metadata"]["uid"]
    before = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["certificate-authority-data"]
    async with serving(options), client_of(kubeconfig) as client:
        assert (await client.get(f"{CONFIG_MAPS}/a")).json()["metadata"]["uid"] == uid
    after = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["certificate-authority-data"]
    assert after == before


async def test_it_has_its_own_service_and_component_statuses_that_can_only_be_read(kubeconfig: pathlib.Path) -> None:
    async with serving(ClusterOptions(kubeconfig=str(kubeconfig))), client_of(kubeconfig) as client:
        assert (await client.get("/api/v1/namespaces/default/services/kubernetes")).status_code == 200
        found = (await client.get("/api/v1/componentstatuses/scheduler")).json()
        assert found["conditions"] == [{"type": "Healthy", "status": "True"}]
        assert (await client.delete("/api/v1/componentstatuses/scheduler")).status_code == 405


@pytest.mark.parametrize("tls", [True, False])
async def test_requests_must_carry_the_token_of_the_kubeconfig(kubeconfig: pathlib.Path, tls: bool) -> None:
    async with serving(ClusterOptions(tls=tls, kubeconfig=str(kubeconfig))), client_of(kubeconfig) as client:
        assert (await client.get("/api/v1/namespaces")).status_code == 200
        for authorization in ("", "Bearer none", "Basic eDp5"):
            client.headers["Authorization"] = authorization
            for path in ("/api/v1/namespaces", "/readyz", "/none"):
                response = await client.get(path)
                assert (response.status_code, response.json()["reason"]) == (401, "Unauthorized")


async def test_authorization_can_be_rbac(kubeconfig: pathlib.Path) -> None:
    async with (
        serving(ClusterOptions(authorization=AuthorizationName.RBAC, kubeconfig=str(kubeconfig))),
        client_of(kubeconfig) as client,
    ):
        path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/view"
        assert (await client.get(path)).status_code == 200
        stranger = {"Impersonate-User": "stranger"}
        response = await client.get(path, headers=stranger)
        assert (response.status_code, response.json()["reason"]) == (403, "Forbidden")


async def test_controllers_run_on_request(kubeconfig: pathlib.Path) -> None:
    options = ClusterOptions(controllers="all", kubeconfig=str(kubeconfig))
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
async def test_it_listens_on_other_addresses(kubeconfig: pathlib.Path, host: str, shown: str) -> None:
    if host == "::" and not pathlib.Path("/proc/net/if_inet6").exists():
        pytest.skip("the machine has no IPv6")
    async with serving(ClusterOptions(host=host, kubeconfig=str(kubeconfig))) as printed:
        assert f"https://{shown}:" in printed
        async with client_of(kubeconfig) as client:
            assert (await client.get("/readyz")).text == "ok"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "/"}, "The data file / cannot be opened: it is not a regular file."),
        ({"kubeconfig": "/dev/null"}, "is not the kubeconfig of an embedded cluster"),
        ({"host": "nowhere.invalid"}, "cannot listen on nowhere.invalid:0: "),
        ({"controllers": "kubelet"}, "Unknown controller 'kubelet': choose from all, "),
        ({"manifests": ("nothing.yaml",)}, "Cannot read the manifests in nothing.yaml: No such file or directory."),
        ({"manifests": ("-",)}, "The API server rejected Pod A (document 1 of stdin): "),
    ],
)
def test_errors_are_one_line(
    options: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioperator.cli.cluster.configure", lambda **_: None)
    read, write = os.pipe()
    os.write(write, b"{apiVersion: v1, kind: Pod, metadata: {name: A}}")
    os.close(write)
    with os.fdopen(read) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert run_cluster(ClusterOptions(**options), echo=lambda _: None) == USAGE_ERROR
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert message in record.getMessage()
    assert "\n" not in record.getMessage()
    assert not record.exc_info
