"""Tests for :mod:`trioperator.web.authority`: the CA of webhooks in a Secret."""

from __future__ import annotations

import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio

import trioperator
from tests.web.admission import MANAGED, deny, make_review, operating
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError
from trioperator.kube.client import Client, open_client
from trioperator.kube.connection_info import ConnectionInfo
from trioperator.settings import OperatorSettings
from trioperator.testing import Fault, FaultPlan, FaultyTransport
from trioperator.web.authority import load_authority

SECRET = "default/webhooks"


@contextlib.asynccontextmanager
async def client_of(cluster: Cluster, plan: FaultPlan | None = None) -> AsyncIterator[Client]:
    transport = cluster.transport()
    if plan is not None:
        transport = FaultyTransport(transport, plan)
    info = ConnectionInfo(server="http://embedded")
    async with open_client(lambda: info, settings=OperatorSettings(), transport=transport) as client:
        yield client


async def test_a_ca_is_created_once_and_found_again(cluster: Cluster) -> None:
    async with client_of(cluster) as client:
        first = await load_authority(client, SECRET)
        assert await load_authority(client, SECRET) == first
    secret = await cluster.get("secrets", "webhooks")
    assert secret["type"] == "kubernetes.io/tls"
    assert base64.b64decode(secret["data"]["tls.crt"]) == first.certificate


async def test_of_two_creators_one_takes_the_ca_of_the_other(cluster: Cluster) -> None:
    missed = FaultPlan()
    missed.add(Fault.status(404), method="GET", path="secrets/webhooks", times=1)
    async with client_of(cluster) as fast, client_of(cluster, missed) as slow:
        first = await load_authority(fast, SECRET)
        assert await load_authority(slow, SECRET) == first
    assert len([record for record in cluster.requests if record.method == "POST"]) == 2


async def test_replicas_that_start_together_have_the_same_ca(cluster: Cluster) -> None:
    found: list[Any] = []

    async def start(client: Client) -> None:
        found.append(await load_authority(client, SECRET))

    async with client_of(cluster) as client, trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(start, client)
    assert found == [found[0]] * 5


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"tls.crt": "eA==", "tls.key": "eA=="},
        {"tls.crt": base64.b64encode(b"x").decode()},
    ],
)
async def test_a_secret_without_a_ca_is_explained(data: dict[str, str], cluster: Cluster) -> None:
    metadata = {"name": "webhooks", "namespace": "default"}
    await cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    async with client_of(cluster) as client:
        with pytest.raises(ConfigError, match=r"^The Secret default/webhooks contains no CA: "):
            await load_authority(client, SECRET)


async def test_a_key_of_another_certificate_is_rejected(cluster: Cluster) -> None:
    async with client_of(cluster) as client:
        await load_authority(client, SECRET)
        other = await load_authority(client, "default/other")
        key = base64.b64encode(other.key).decode()
        await cluster.patch("secrets", "webhooks", {"data": {"tls.key": key}})
        with pytest.raises(ConfigError, match="contains no CA"):
            await load_authority(client, SECRET)


@pytest.fixture
def registry() -> trioperator.OperatorRegistry:
    registry = trioperator.OperatorRegistry()

    @trioperator.on.validate("widgets", id="check", persistent=True, registry=registry)
    async def check(**_: Any) -> None:
        raise trioperator.AdmissionError("no", code=418)

    return registry


@pytest.mark.parametrize("kind", [trioperator.WebhookServer, trioperator.WebhookAutoServer])
async def test_the_ca_of_the_configuration_stays_over_restarts(
    kind: type[trioperator.WebhookServer], cluster: Cluster, registry: trioperator.OperatorRegistry
) -> None:
    bundles = []
    async with cluster.client():
        for _ in range(2):
            async with operating(cluster, registry, server=kind(ca_secret=SECRET)):
                (hook,) = (await cluster.get("validatingwebhookconfigurations", MANAGED))["webhooks"]
                error = await deny(cluster)
                assert error is not None
                assert error.status == 418
                bundles.append(hook["clientConfig"]["caBundle"])
    assert bundles[0] == bundles[1]


async def test_a_replica_is_trusted_by_the_ca_of_another(
    cluster: Cluster, registry: trioperator.OperatorRegistry
) -> None:
    addresses: list[Any] = []

    class Server(trioperator.WebhookServer):
        async def __call__(self, fn: Any) -> AsyncIterator[trioperator.WebhookClientConfig]:
            generator: Any = super().__call__(fn)
            async with contextlib.aclosing(generator):
                async for address in generator:
                    addresses.append(address)
                    yield address

    one, two = (operating(cluster, registry, server=Server(ca_secret=SECRET), managed=None) for _ in range(2))
    async with one, two:
        authority = base64.b64decode(addresses[0]["caBundle"]).decode()
        async with httpx.AsyncClient(verify=ssl.create_default_context(cadata=authority)) as client:
            response = await client.post(addresses[1]["url"], json=make_review())
    assert response.json()["response"]["status"]["code"] == 418
    assert addresses[0]["url"] != addresses[1]["url"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"ca_secret": "webhooks"}, "it must be 'namespace/name'"),
        ({"ca_secret": SECRET, "insecure": True}, "use one or the other"),
        ({"ca_secret": SECRET, "certfile": "x"}, "use one or the other"),
    ],
)
def test_a_secret_is_for_own_certificates_only(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        trioperator.WebhookServer(**options)


async def test_a_server_in_a_custom_server_needs_the_client_first() -> None:
    async def fn(*_: Any, **__: Any) -> Any: ...

    with pytest.raises(ConfigError, match=r"await its inspect_cluster\(client\) before"):
        await anext(trioperator.WebhookServer(ca_secret=SECRET)(fn))
