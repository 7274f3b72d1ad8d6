"""Admission control, Startup and Health-checks of Kopf's documentation, on the embedded cluster."""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import pathlib
import random
import re
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import trio
import trustme
from trio.testing import MockClock

import trioperator as kopf
from tests.seeds.conftest import CRD, example, operating
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError

MANAGED = "auto.kopf.dev"


class MyTunnel(httpx.AsyncBaseTransport):
    """A custom server, as in "Custom servers/tunnels": the API server reaches it in memory."""

    async def __call__(self, fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        self.fn = fn
        yield {"url": "https://tunnel.test"}
        await trio.sleep_forever()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        review, headers = json.loads(await request.aread()), dict(request.headers)
        handler_id = request.url.path.removeprefix("/")
        response = await self.fn(review, webhook=handler_id, headers=headers, sslpeer=None)
        return httpx.Response(200, json=response)


@contextlib.asynccontextmanager
async def tunnelled() -> AsyncIterator[Cluster]:
    """Run an operator with the default registry behind the tunnel."""
    tunnel = MyTunnel()

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.admission.server = tunnel
        settings.admission.managed = MANAGED

    cluster = Cluster(webhooks={"tunnel.test": tunnel})
    await cluster.apply(CRD)
    async with operating(cluster):
        yield cluster


async def create(cluster: Cluster, **spec: Any) -> tuple[Any, list[str]]:
    """Create an object; return the response and the warnings."""
    async with cluster.client() as client:
        path = "/apis/kopf.dev/v1/namespaces/default/kopfexamples"
        response = await client.post(path, json=example(f"kex-{random.random()}", **spec))
    warnings = [text.partition('"')[2].rstrip('"') for text in response.headers.get_list("warning")]
    return response.json(), [warning.replace('\\"', '"') for warning in warnings]


async def test_validation_handlers_deny_and_warn(autojump_clock: MockClock) -> None:
    @kopf.on.validate("kopfexamples")
    def say_hello(warnings: list[str], **_: Any) -> None:
        warnings.append("Verified with the operator's hook.")

    @kopf.on.validate("kopfexamples")
    def check_numbers(spec: kopf.Spec, **_: Any) -> None:
        if not isinstance(spec.get("numbers", []), list):
            raise kopf.AdmissionError("Numbers must be a list if present.")

    @kopf.on.validate("kopfexamples")
    def convertible_numbers(spec: kopf.Spec, warnings: list[str], **_: Any) -> None:
        if isinstance(spec.get("numbers", []), list):
            for val in spec.get("numbers", []):
                if not isinstance(val, float):
                    try:
                        float(val)
                    except ValueError:
                        raise kopf.AdmissionError(f"Cannot convert {val!r} to a number.") from None
                    else:
                        warnings.append(f"{val!r} is not a number but can be converted.")

    @kopf.on.validate("kopfexamples")
    def numbers_range(spec: kopf.Spec, **_: Any) -> None:
        if isinstance(spec.get("numbers", []), list):  # noqa: SIM102 -- as in the example
            if not all(0 <= float(val) <= 100 for val in spec.get("numbers", [])):
                raise kopf.AdmissionError("Numbers must be below 0..100.", code=499)

    async with tunnelled() as cluster:
        created, warnings = await create(cluster, numbers=[1.5, "2"])
        assert created["kind"] == "KopfExample"
        # Validating webhooks are called concurrently.
        assert set(warnings) == {"Verified with the operator's hook.", "'2' is not a number but can be converted."}
        denied, _ = await create(cluster, numbers="1")
        assert (denied["code"], "Numbers must be a list if present." in denied["message"]) == (500, True)
        denied, _ = await create(cluster, numbers=[101])
        assert (denied["code"], "Numbers must be below 0..100." in denied["message"]) == (499, True)


async def test_mutation_handlers_change_the_object(autojump_clock: MockClock) -> None:
    @kopf.on.mutate("kopfexamples")
    def ensure_default_numbers(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
        if "numbers" not in spec:
            patch.spec["numbers"] = [1, 2, 3]

    @kopf.on.mutate("kopfexamples")
    def convert_numbers_if_possible(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
        if "numbers" in spec and isinstance(spec.get("numbers"), list):
            patch.spec["numbers"] = [_maybe_number(v) for v in spec["numbers"]]

    def _maybe_number(v: Any) -> Any:
        try:
            return float(v)
        except ValueError:
            return v

    async with tunnelled() as cluster:
        created, _ = await create(cluster)
        assert created["spec"] == {"numbers": [1, 2, 3]}
        created, _ = await create(cluster, numbers=["1", "x"])
        assert created["spec"] == {"numbers": [1.0, "x"]}


async def test_warnings_and_errors_reach_the_client(autojump_clock: MockClock) -> None:
    @kopf.on.validate("kopfexamples")
    def ensure_default_numbers(spec: kopf.Spec, warnings: list[str], **_: Any) -> None:
        if spec.get("field") == "value":
            warnings.append("The default value is used. It is okay but worth changing.")

    @kopf.on.validate("kopfexamples", id="validate1")
    def validate1(spec: kopf.Spec, **_: Any) -> None:
        if spec.get("field") == "bad":
            raise kopf.AdmissionError("Meh! I don't like it. Change the field.", code=400)

    async with tunnelled() as cluster:
        _, warnings = await create(cluster, field="value")
        assert warnings == ["The default value is used. It is okay but worth changing."]
        denied, _ = await create(cluster, field="bad")
        expected = (
            'admission webhook "validate1.auto.kopf.dev" denied the request: Meh! I don\'t like it. Change the field.'
        )
        assert (denied["code"], denied["message"]) == (400, expected)


async def test_a_function_may_be_a_tunnel_too(kex: Cluster, autojump_clock: MockClock) -> None:
    fns: list[kopf.WebhookFn] = []

    async def mytunnel(fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        fns.append(fn)
        client_config = kopf.WebhookClientConfig(url="https://mytunnel.test")
        yield client_config
        await trio.Event().wait()

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.admission.server = mytunnel  # no arguments!

    @kopf.on.validate("kex")
    def check(**_: Any) -> None: ...

    async with operating(kex):
        response = await fns[0](REVIEW)
    assert response["response"]["allowed"]


class MyTunnel1(kopf.WebhookServer):
    """By inheritance."""

    async def __call__(self, fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        async with contextlib.aclosing(super().__call__(fn)) as client_configs:  # type: ignore[type-var]
            async for client_config in client_configs:
                yield client_config


class MyTunnel2:
    """By composition, and with a resource to be cleaned up."""

    cleaned = False

    async def __aenter__(self) -> MyTunnel2:
        return self

    async def __aexit__(self, *_: object) -> bool:
        self.cleaned = True
        return False

    async def __call__(self, fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
        server = kopf.WebhookServer()
        async with contextlib.aclosing(server(fn)) as client_configs:  # type: ignore[type-var]
            async for client_config in client_configs:
                yield client_config


def with_files(folder: pathlib.Path) -> kopf.WebhookServer:
    made = trustme.CA()
    cert = made.issue_cert("localhost")
    made.cert_pem.write_to_path(str(folder / "ca.pem"))
    (folder / "cert.pem").write_bytes(b"".join(part.bytes() for part in cert.cert_chain_pems))
    (folder / "pkey.pem").write_bytes(cert.private_key_pem.bytes())
    return kopf.WebhookServer(
        cafile=folder / "ca.pem", certfile=folder / "cert.pem", pkeyfile=folder / "pkey.pem", password="..."
    )


SERVERS: dict[str, Callable[[pathlib.Path], Any]] = {
    "self-signed": lambda folder: kopf.WebhookServer(),
    "dumped": lambda folder: kopf.WebhookServer(cadump=folder / "selfsigned.pem"),
    "files": with_files,
    "inheritance": lambda folder: MyTunnel1(),
    "composition": lambda folder: MyTunnel2(),
}


@pytest.mark.parametrize("kind", SERVERS)
async def test_the_api_server_calls_webhooks_over_tls(kind: str, kex: Cluster, tmp_path: pathlib.Path) -> None:
    server = SERVERS[kind](tmp_path)

    @kopf.on.startup()
    def config(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.admission.server = server
        settings.admission.managed = MANAGED

    @kopf.on.validate("kopfexamples")
    async def check(**_: Any) -> None:
        raise kopf.AdmissionError("It was called.")

    async with kex.client(), operating(kex):  # the client closes the connections of the API server
        with pytest.raises(ApiError, match=r"It was called\."):
            await kex.create(example())
        if kind == "dumped":
            assert (tmp_path / "selfsigned.pem").read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert kind != "composition" or server.cleaned


async def test_without_tls_a_server_is_for_debugging(kex: Cluster) -> None:
    addresses: list[str] = []

    class Debugged(kopf.WebhookServer):
        async def __call__(self, fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
            async with contextlib.aclosing(super().__call__(fn)) as client_configs:  # type: ignore[type-var]
                async for client_config in client_configs:
                    addresses.append(client_config["url"] or "")
                    yield client_config

    @kopf.on.startup()
    def config(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.admission.server = Debugged(insecure=True)

    @kopf.on.validate("kex")
    async def check(**_: Any) -> None: ...

    async with operating(kex), httpx.AsyncClient() as client:
        response = await client.post(addresses[0], json=REVIEW)
    assert (addresses[0].startswith("http://"), response.json()["response"]["allowed"]) == (True, True)


REVIEW: dict[str, Any] = {
    "kind": "AdmissionReview",
    "apiVersion": "admission.k8s.io/v1",
    "request": {
        "uid": "1ca13837-ad60-4c9e-abb8-86f29d6c0e84",
        "kind": {"group": "kopf.dev", "version": "v1", "kind": "KopfExample"},
        "resource": {"group": "kopf.dev", "version": "v1", "resource": "kopfexamples"},
        "name": "kopf-example-1",
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]},
        "object": example("kopf-example-1"),
        "oldObject": None,
        "dryRun": True,
    },
}


async def test_clients_are_known_by_their_headers_and_certificates(kex: Cluster, tmp_path: pathlib.Path) -> None:
    certificate = trustme.CA()  # is its own CA, as in the example
    certificate.cert_pem.write_to_path(str(tmp_path / "client-cert.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "client-key.pem"))

    @kopf.on.startup()
    def config(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.admission.managed = MANAGED
        settings.admission.server = kopf.WebhookServer(cafile=str(tmp_path / "client-cert.pem"))

    @kopf.on.validate("kex")
    async def show_auth(
        headers: kopf.Headers, sslpeer: kopf.SSLPeer, warnings: list[str], dryrun: bool, **_: Any
    ) -> None:
        warnings += [headers["Authorization"], dict(sslpeer["subject"][0])["organizationName"], str(dryrun)]

    async with operating(kex):
        (hook,) = (await kex.get("validatingwebhookconfigurations", MANAGED))["webhooks"]
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # curl --insecure
        context.load_cert_chain(tmp_path / "client-cert.pem", tmp_path / "client-key.pem")
        async with httpx.AsyncClient(verify=context, auth=("ussser", "passsw")) as client:
            response = await client.post(hook["clientConfig"]["url"], json=REVIEW)
    authorization, organization, dryrun = response.json()["response"]["warnings"]
    assert (authorization, organization[:7], dryrun) == ("Basic dXNzc2VyOnBhc3Nzdw==", "trustme", "True")


@pytest.mark.parametrize("environment", [None, "prod"])
def test_servers_are_chosen_by_the_environment(environment: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if environment is None:
        monkeypatch.delenv("ENVIRONMENT", raising=False)
    else:
        monkeypatch.setenv("ENVIRONMENT", environment)

    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        if os.environ.get("ENVIRONMENT") is None:
            settings.admission.server = kopf.WebhookK3dServer(port=54321)
            settings.admission.managed = MANAGED
        else:
            settings.admission.server = kopf.WebhookServer(addr="0.0.0.0", port=8080)
            settings.admission.managed = MANAGED

    settings = kopf.OperatorSettings()
    configure(settings)
    assert settings.admission.server.port == (54321 if environment is None else 8080)


# ------------------------------------------------------------------------------- Startup, Shutdown, Health-checks


async def test_a_startup_handler_creates_primitives_and_a_cleanup_handler_is_called(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    made: list[Any] = []

    @kopf.on.startup()
    async def startup_fn(logger: kopf.Logger, **kwargs: Any) -> None:
        made.append(trio.Lock())  # of asyncio in the example

    @kopf.on.cleanup()
    async def cleanup_fn(logger: kopf.Logger, **kwargs: Any) -> None:
        made.clear()

    @kopf.on.create("kopfexamples")
    async def create_fn(**_: Any) -> None: ...

    async with operating(kex):
        assert len(made) == 1
    assert made == []


async def test_probes_are_the_response_of_the_liveness_endpoint(kex: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    @kopf.on.probe(id="now")
    def get_current_timestamp(**kwargs: Any) -> str:
        return datetime.datetime.now(datetime.UTC).isoformat()

    @kopf.on.probe(id="random")
    def get_random_value(**kwargs: Any) -> int:
        return random.randint(0, 1_000_000)

    @kopf.on.probe(id="nothing")
    async def check_silently(**kwargs: Any) -> None: ...

    @kopf.on.create("kopfexamples")
    async def create_fn(**_: Any) -> None: ...

    caplog.set_level(logging.INFO)
    async with operating(kex, liveness_endpoint="http://127.0.0.1:0/healthz"), httpx.AsyncClient() as client:
        (url,) = re.findall(r"Serving health status at (http://\S+)", caplog.text)
        content = (await client.get(url)).json()
    assert datetime.datetime.fromisoformat(content["now"]).tzinfo is not None
    assert 0 <= content["random"] <= 1_000_000
    assert content.keys() == {"now", "random"}
