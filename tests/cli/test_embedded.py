"""Tests for :mod:`trioperator.cli.embedded`."""

from __future__ import annotations

import base64
import functools
import json
import logging
import os
import pathlib
import re
import shutil
import ssl
from typing import Any

import httpx
import msgspec
import pytest
import trio

import trioperator
from trioperator import crds
from trioperator.apiserver import Cluster
from trioperator.cli.embedded import EmbeddedServer, run_embedded
from trioperator.cli.manifests import Manifest, load_manifests
from trioperator.errors import ConfigError

ASSETS = os.environ.get("KUBEBUILDER_ASSETS")
KUBECTL = shutil.which("kubectl", path=f"{ASSETS}{os.pathsep}{os.environ['PATH']}" if ASSETS else None)
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
CRD, OBJ = str(EXAMPLES / "crd.yaml"), str(EXAMPLES / "obj.yaml")


def leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        [error] = error.exceptions
    return error


class Operator:
    """Fake operator: reads from the API server, becomes ready, and ends on request."""

    def __init__(self) -> None:
        self.ready = trio.Event()
        self.stop = trio.Event()
        self.before: list[str] = []

    async def __call__(self, *, transport: httpx.AsyncBaseTransport, connection: Any, ready_flag: trio.Event) -> None:
        async with httpx.AsyncClient(transport=transport, base_url=connection.server) as client:
            for path in (
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                "/apis/kopf.dev/v1/kopfexamples",
                "/api/v1/namespaces/team",
            ):
                response = await client.get(path)
                found = response.json() if response.status_code == 200 else {"items": []}
                self.before += [item["metadata"]["name"] for item in found.get("items", [found])]
        ready_flag.set()
        self.ready.set()
        await self.stop.wait()


class TestRunEmbedded:
    async def test_crds_are_applied_before_it_starts_and_objects_when_it_is_ready(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        team = Manifest(path="t", content={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        operator = Operator()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    run_embedded, operator, EmbeddedServer(manifests=[*load_manifests([OBJ, CRD]), team])
                )
                await operator.ready.wait()
                await trio.testing.wait_all_tasks_blocked(0.01)
                operator.stop.set()
        assert operator.before == ["kopfexamples.kopf.dev", "team"]
        assert [message for message in caplog.messages if message.startswith("Applied ")] == [
            f"Applied CustomResourceDefinition kopfexamples.kopf.dev (document 1 of {CRD}).",
            "Applied Namespace team (document 1 of t).",
            f"Applied KopfExample kopf-example-1 (document 1 of {OBJ}).",
        ]

    async def test_kinds_that_classes_declare_are_defined_unless_a_manifest_does(self) -> None:
        def load() -> None:
            for name in ("Thing", "KopfExample"):
                cls = msgspec.defstruct(name, [("spec", dict[str, str])])
                crds.kind("kopf.dev/v1")(cls)

        operator, before = Operator(), trioperator.get_default_registry()
        trioperator.set_default_registry(trioperator.OperatorRegistry())
        try:
            with trio.fail_after(60):
                async with trio.open_nursery() as nursery:
                    run = functools.partial(
                        run_embedded, operator, EmbeddedServer(manifests=load_manifests([OBJ, CRD])), load=load
                    )
                    nursery.start_soon(run)
                    await operator.ready.wait()
                    operator.stop.set()
        finally:
            trioperator.set_default_registry(before)
        assert operator.before == ["kopfexamples.kopf.dev", "things.kopf.dev"]

    async def test_what_reloads_defines_the_kinds_of_classes_whenever_they_change(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        before = trioperator.get_default_registry()
        fields: list[list[str]] = []

        async def operate(*, define_kinds: Any, transport: httpx.AsyncBaseTransport, **_: Any) -> None:
            for names in (["one"], ["one"], ["one", "two"]):
                trioperator.set_default_registry(trioperator.OperatorRegistry())
                spec = msgspec.defstruct("Spec", [(name, str) for name in names])
                crds.kind("kopf.dev/v1")(msgspec.defstruct("Thing", [("spec", spec)]))
                await define_kinds()
                async with httpx.AsyncClient(transport=transport, base_url="http://embedded") as client:
                    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.kopf.dev"
                    [version] = (await client.get(path)).json()["spec"]["versions"]
                fields.append(list(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]))

        try:
            with trio.fail_after(60):
                await run_embedded(operate, EmbeddedServer(), reloads=True)
        finally:
            trioperator.set_default_registry(before)
        assert fields == [["one"], ["one"], ["one", "two"]]
        applied = "Applied CustomResourceDefinition things.kopf.dev (document 1 of the classes)."
        assert caplog.messages.count(applied) == 2

    async def test_clients_in_the_process_use_it_while_it_runs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUBECONFIG", "/of/the/user")
        operator = Operator()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_embedded, operator, EmbeddedServer())
                await operator.ready.wait()
                assert os.environ["KUBECONFIG"] != "/of/the/user"
                operator.stop.set()
        assert os.environ["KUBECONFIG"] == "/of/the/user"

    async def test_the_kubeconfig_can_be_kept_in_a_file(self, tmp_path: pathlib.Path) -> None:
        path, operator = tmp_path / "kubeconfig", Operator()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(functools.partial(run_embedded, operator, EmbeddedServer(kubeconfig=str(path))))
                await operator.ready.wait()
                assert os.environ["KUBECONFIG"] == str(path)
                operator.stop.set()
        assert json.loads(path.read_text())["current-context"] == "embedded"

    async def test_handlers_are_loaded_when_clients_can_be_configured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUBECONFIG", "/of/the/user")
        found: list[str] = []

        def load() -> None:
            found.append(json.loads(pathlib.Path(os.environ["KUBECONFIG"]).read_text())["current-context"])
            raise ConfigError("no handlers")

        with pytest.RaisesGroup(pytest.RaisesExc(ConfigError, match="no handlers"), flatten_subgroups=True):
            await run_embedded(Operator(), EmbeddedServer(), load=load)
        assert found == ["embedded"]
        assert os.environ["KUBECONFIG"] == "/of/the/user"

    async def test_other_processes_can_use_the_server_while_the_operator_runs(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        operator = Operator()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_embedded, operator, EmbeddedServer())
                await operator.ready.wait()
                [message] = [message for message in caplog.messages if "--kubeconfig=" in message]
                path = pathlib.Path(message.partition("--kubeconfig=")[2].split()[0])
                config = json.loads(await trio.Path(path).read_text())
                server = config["clusters"][0]["cluster"]
                url = server["server"]
                assert url in message
                authority = base64.b64decode(server["certificate-authority-data"]).decode()
                context = ssl.create_default_context(cadata=authority)
                async with httpx.AsyncClient(base_url=url, verify=context, timeout=60) as client:
                    assert (await client.get("/api/v1/namespaces/default")).status_code == 401
                    client.headers["Authorization"] = f"Bearer {config['users'][0]['user']['token']}"
                    assert (await client.get("/api/v1/namespaces/default")).status_code == 200
                operator.stop.set()
        assert not await trio.Path(path).parent.exists()
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get("/")

    @pytest.mark.skipif(KUBECTL is None, reason="put kubectl on PATH, or its folder into KUBEBUILDER_ASSETS")
    async def test_kubectl_works_as_the_log_says(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        operator = Operator()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_embedded, operator, EmbeddedServer())
                await operator.ready.wait()
                [option] = re.findall(r"kubectl (--kubeconfig=\S+)", caplog.text)
                command = [str(KUBECTL), option, "get", "namespaces", "--output=name"]
                result = await trio.run_process(command, capture_stdout=True)
                operator.stop.set()
        assert b"namespace/default\n" in result.stdout

    async def test_controllers_run_with_it(self) -> None:
        nodes: list[str] = []

        async def operate(*, transport: httpx.AsyncBaseTransport, connection: Any, ready_flag: trio.Event) -> None:
            async with httpx.AsyncClient(transport=transport, base_url=connection.server) as client:
                found = (await client.get("/api/v1/nodes")).json()["items"]
                nodes.extend(item["metadata"]["name"] for item in found)

        await run_embedded(operate, EmbeddedServer(controllers=["pods"]))
        assert nodes == ["embedded"]

    async def test_unknown_controllers_are_an_error(self) -> None:
        with pytest.raises(ConfigError, match="Unknown controller 'podz'"):
            await run_embedded(Operator(), EmbeddedServer(controllers=["podz"]))

    async def test_no_records_of_requests_are_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clusters: list[Cluster] = []

        class Observed(Cluster):
            def __init__(self, **options: Any) -> None:
                super().__init__(**options)
                clusters.append(self)

        async def operate(*, transport: httpx.AsyncBaseTransport, connection: Any, ready_flag: trio.Event) -> None:
            async with httpx.AsyncClient(transport=transport, base_url=connection.server) as client:
                assert (await client.get("/version")).status_code == 200

        monkeypatch.setattr("trioperator.cli.embedded.Cluster", Observed)
        await run_embedded(operate, EmbeddedServer())
        assert [len(cluster.requests) for cluster in clusters] == [0]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ({"apiVersion": "x.dev/v1", "kind": "X", "metadata": {"name": "x"}}, "apply its CustomResourceDefinition"),
            ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "A B"}}, "metadata.name: Invalid value"),
        ],
    )
    async def test_a_manifest_that_is_rejected_ends_the_operator(self, content: dict[str, Any], message: str) -> None:
        with trio.fail_after(60), pytest.raises(BaseExceptionGroup) as caught:
            await run_embedded(Operator(), EmbeddedServer(manifests=[Manifest(path="m.yaml", content=content)]))
        error = leaf(caught.value)
        assert isinstance(error, ConfigError)
        assert str(error).startswith(
            f"The API server rejected {content['kind']} {content['metadata']['name']} (document 1 of m.yaml): "
        )
        assert message in str(error)

    async def test_the_error_of_an_operator_is_raised(self) -> None:
        async def fail(**_: Any) -> None:
            raise ValueError("bad")

        with trio.fail_after(60), pytest.raises(BaseExceptionGroup) as caught:
            await run_embedded(fail, EmbeddedServer())
        assert isinstance(leaf(caught.value), ValueError)

    async def test_a_port_in_use_is_an_error(self) -> None:
        with trio.socket.socket() as sock:
            await sock.bind(("127.0.0.1", 0))
            sock.listen()
            with trio.fail_after(60), pytest.raises(BaseExceptionGroup) as caught:
                await run_embedded(Operator(), EmbeddedServer(port=sock.getsockname()[1]))
        assert isinstance(leaf(caught.value), ConfigError)

    async def test_a_real_operator_handles_the_objects(self) -> None:
        registry = trioperator.OperatorRegistry()
        handled = trio.Event()
        names: list[str | None] = []

        @trioperator.on.create("kopfexamples", registry=registry)
        async def create_fn(name: str | None, **_: Any) -> None:
            names.append(name)
            handled.set()

        async def operate(**options: Any) -> None:
            await trioperator.operator(registry=registry, stop_flag=handled, clusterwide=True, **options)

        with trio.fail_after(60):
            await run_embedded(operate, EmbeddedServer(manifests=load_manifests([CRD, OBJ])))
        assert names == ["kopf-example-1"]
