"""Tests for :mod:`trioperator._webhooks.authority`: the CA of webhooks in a Secret."""

from __future__ import annotations

import base64
import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
import trustme
from cryptography import x509
from trio.testing import MockClock

import trioperator
from tests.webhooks.admission import MANAGED, deny, make_review, operating
from tests.webhooks.conversions import add_handlers, definition
from trioperator._concurrency.clock import find_clocks, wall_now
from trioperator._kube.api_client import ApiClient, open_client
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._webhooks.authority import Authorities, OwnAuthorities, SharedAuthorities, find_phase, find_step
from trioperator._webhooks.issuing import Authority, Validity, build_authority
from trioperator._webhooks.server import _TlsFiles
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError
from trioperator.settings import OperatorSettings
from trioperator.testing import Fault, FaultPlan, FaultyTransport

SECRET = "default/webhooks"
# OpenSSL's X509_V_FLAG_NO_CHECK_TIME: it has the real time, and certificates begin at the virtual one.
ANY_TIME = 0x200000


async def load_authority(client: ApiClient, secret: str) -> Authority:
    return (await SharedAuthorities(client, secret).find_phase()).issuer


@contextlib.asynccontextmanager
async def client_of(cluster: Cluster, plan: FaultPlan | None = None) -> AsyncIterator[ApiClient]:
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

    async def start(client: ApiClient) -> None:
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


NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def test_the_next_ca_is_known_then_trusted_then_used_and_then_alone() -> None:
    old, new = build_authority(NOW), build_authority(NOW + 250 * DAY)
    known = Authorities(old, new)
    seen = []
    for hours in (0, 23, 25, 47, 49, 71, 73):
        phase = find_phase(known, NOW + 250 * DAY + datetime.timedelta(hours=hours))
        seen.append((phase.issuer == new, old.certificate in phase.trusted, new.certificate in phase.trusted))
    assert seen == [
        *2 * [(False, True, False)],
        *2 * [(False, True, True)],
        *2 * [(True, True, True)],
        (True, False, True),
    ]


@pytest.mark.parametrize(
    ("age", "step"),
    [(-1, "replace"), (0, None), (243, None), (244, "announce"), (361, "announce"), (363, "replace"), (999, "replace")],
)
def test_a_ca_is_replaced_in_time_or_at_once_if_there_is_no_time(age: int, step: str | None) -> None:
    assert find_step(Authorities(build_authority(NOW)), NOW + age * DAY) == step


async def put(cluster: Cluster, organization: str) -> bytes:
    """Store a CA that lasts for centuries in the Secret; returns its certificate."""
    made = trustme.CA(organization_name=organization, organization_unit_name="admission webhooks")
    certificate, key = made.cert_pem.bytes(), made.private_key_pem.bytes()
    data = {"tls.crt": base64.b64encode(certificate).decode(), "tls.key": base64.b64encode(key).decode()}
    metadata = {"name": "webhooks", "namespace": "default"}
    await cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    return certificate


async def test_replicas_replace_their_ca_every_year_and_trust_each_other_all_the_time(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await put(cluster, "trioperator")
    async with client_of(cluster) as client:
        replicas = [SharedAuthorities(client, SECRET) for _ in range(2)]
        issuers: list[Authority] = []
        for day in range(2 * 365):
            phases = [await replica.find_phase() for replica in replicas]
            for phase in phases:
                assert all(phase.issuer.certificate.strip() in other.trusted for other in phases)
                if phase.issuer not in issuers:
                    issuers.append(phase.issuer)
            if day % 33 == 0:
                replicas[0] = SharedAuthorities(client, SECRET)  # it restarts
            await trio.sleep(DAY.total_seconds())
            ends = Validity.read(issuers[-1].certificate).end
            assert ends > wall_now() + 100 * DAY
    assert len(issuers) == 4, "the first one at once, and then one in two thirds of a year"
    secret = await cluster.get("secrets", "webhooks")
    assert set(secret["data"]) == {"tls.crt", "tls.key"}
    assert len([each for each in cluster.requests if each.method == "PATCH"]) <= 8


async def test_a_ca_that_others_have_made_is_left_to_them(cluster: Cluster, autojump_clock: MockClock) -> None:
    certificate = await put(cluster, "bank")
    async with client_of(cluster) as client:
        replica = SharedAuthorities(client, SECRET)
        for _ in range(1000):
            assert (await replica.find_phase()).trusted == certificate
            await trio.sleep(24 * 3600)


async def test_a_ca_that_may_not_be_replaced_works_on_and_is_complained_of(
    cluster: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = await put(cluster, "trioperator")
    plan = FaultPlan()
    plan.add(Fault.status(403, reason="Forbidden"), method="PATCH")
    async with client_of(cluster, plan) as client:
        replica = SharedAuthorities(client, SECRET)
        for _ in range(24 * 60):
            assert (await replica.find_phase()).trusted == certificate
            await trio.sleep(60)
    assert 4 <= caplog.text.count("cannot be replaced, which takes the rights") <= 5, "not each minute"


async def test_a_ca_of_others_whose_secret_is_deleted_is_left_to_them(
    cluster: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    before = await put(cluster, "bank")
    async with client_of(cluster) as client:
        replica = SharedAuthorities(client, SECRET)
        assert (await replica.find_phase()).trusted == before
        await cluster.delete("secrets", "webhooks")
        for _ in range(2 * 60):
            await trio.sleep(60)
            assert (await replica.find_phase()).trusted == before
        after = await put(cluster, "bank")
        assert (await replica.find_phase()).trusted == after
    assert caplog.text.count("cannot be read; the CA stays as it is") == 1


async def test_a_server_renews_its_certificate_and_its_ca_for_years(autojump_clock: MockClock) -> None:
    server = trioperator.WebhookServer(host="hooks.ns.svc")
    server.file_check_interval = 3600 * 6  # more than is allowed: else there would be a million checks
    tls = await _TlsFiles.load(server)
    trusted = [tls.authority or b""]

    async def replace(old: str, new: str) -> None:
        assert base64.b64decode(old) == trusted[-1]
        trusted.append(base64.b64decode(new))

    server.replace_authority = replace
    chains: list[bytes] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tls.wait_for_authority)
        for _ in range(3 * 365 * 2):
            await trio.sleep(12 * 3600)
            assert tls._made is not None
            chain = tls._made[0]
            chains += [] if chain in chains else [chain]
            leaf = x509.load_pem_x509_certificate(chain)
            issuers = x509.load_pem_x509_certificates(trusted[-1])
            (issuer,) = (each for each in issuers if each.subject == leaf.issuer)
            leaf.verify_directly_issued_by(issuer)
            assert min(leaf.not_valid_after_utc, issuer.not_valid_after_utc) > wall_now() + 25 * DAY
        nursery.cancel_scope.cancel()
    assert 15 <= len(chains) <= 30
    assert len(trusted) == 1 + 2 * 4, "each of four times both, then the new one"


@pytest.mark.parametrize("days", [-400, -1, 400])
async def test_a_server_whose_clock_is_set_has_a_certificate_that_is_valid_soon(
    days: int, cluster: Cluster, autojump_clock: MockClock
) -> None:
    server = trioperator.WebhookServer(host="hooks.ns.svc", ca_secret=SECRET)
    async with client_of(cluster) as client, trio.open_nursery() as nursery:
        await server.inspect_cluster(client)
        tls = await _TlsFiles.load(server)
        server.replace_authority = do_nothing
        nursery.start_soon(tls.wait_for_authority)
        shift_wall(days * DAY)
        await trio.sleep(90)
        assert tls._made is not None
        for certificate in tls._made:
            if b"BEGIN CERTIFICATE" in certificate:
                loaded = x509.load_pem_x509_certificate(certificate)
                assert loaded.not_valid_before_utc < wall_now() < loaded.not_valid_after_utc
        nursery.cancel_scope.cancel()


async def do_nothing(old: str, new: str) -> None:
    """Take over a CA at once."""


def shift_wall(by: datetime.timedelta) -> None:
    epochs = find_clocks()
    assert epochs.virtual is not None
    epochs.virtual += by.total_seconds()


async def test_own_authorities_are_for_their_hosts() -> None:
    phase = await OwnAuthorities(["hooks.ns.svc"]).find_phase()
    found = x509.load_pem_x509_certificate(phase.trusted).extensions.get_extension_for_class(x509.NameConstraints)
    assert found.value.permitted_subtrees == [x509.DNSName("hooks.ns.svc")]


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


class Replica(trioperator.WebhookServer):
    """A webhook server behind a Service, and what it serves."""

    def __init__(self, **options: Any) -> None:
        super().__init__(host="hooks.default.svc", ca_secret=SECRET, **options)
        self.files: Any = None
        self._tried: dict[tuple[ssl.SSLContext, bytes], bool] = {}

    async def _serve(self, *args: Any, tls: Any, **options: Any) -> None:
        self.files = tls
        await super()._serve(*args, tls=tls, **options)

    def _make_client_config(self, *args: Any) -> trioperator.WebhookClientConfig:
        config = super()._make_client_config(*args)
        assert config["service"] is not None
        config["service"]["port"] = 443  # which all replicas have
        return config

    def accepts(self, bundle: bytes) -> bool:
        """Return whether clients that trust these CAs can shake hands with this server, in memory."""
        tried = (self.files.context, bundle)
        if tried not in self._tried:
            self._tried[tried] = self._shake_hands(*tried)
        return self._tried[tried]

    @staticmethod
    def _shake_hands(context: ssl.SSLContext, bundle: bytes) -> bool:
        requests, responses = ssl.MemoryBIO(), ssl.MemoryBIO()
        trusting = ssl.create_default_context(cadata=bundle.decode())
        trusting.verify_flags |= ANY_TIME
        client = trusting.wrap_bio(responses, requests, server_hostname="hooks.default.svc")
        for side in 3 * (client, context.wrap_bio(requests, responses, server_side=True)):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
        return True


class Watcher:
    """An API server that takes up changes of addresses with a delay, and calls each replica by each, each second."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.replicas: list[Replica] = []
        self.refused: list[float] = []

    async def watch(self) -> None:
        bundles: list[list[bytes]] = []
        while True:
            bundles.append(await find_bundles(self._cluster))
            calls = [(replica, bundle) for replica in self.replicas for bundle in bundles[-5:][0]]
            self.refused += [trio.current_time() for replica, bundle in calls if not replica.accepts(bundle)]
            await trio.sleep(1)

    @contextlib.asynccontextmanager
    async def running(self, registry: trioperator.OperatorRegistry, identity: str) -> AsyncIterator[Replica]:
        """Run a replica in the block; it is called when it has been ready for a while."""
        replica, settings = Replica(), trioperator.OperatorSettings()
        settings.admission.managed_conversions = True
        async with operating(self._cluster, registry, server=replica, identity=identity, settings=settings):
            await trio.sleep(5)
            self.replicas.append(replica)
            yield replica


async def find_bundles(cluster: Cluster) -> list[bytes]:
    """Return the CAs that API servers trust for reviews, and for conversions."""
    (hook,) = (await cluster.get("validatingwebhookconfigurations", MANAGED))["webhooks"]
    conversion = (await cluster.get("crd", "widgets.example.com"))["spec"]["conversion"]
    configs = (hook["clientConfig"], conversion["webhook"]["clientConfig"])
    return [base64.b64decode(config["caBundle"]).strip() for config in configs]


async def find_issuer(cluster: Cluster) -> bytes:
    secret = await cluster.get("secrets", "webhooks")
    return base64.b64decode(secret["data"]["tls.crt"])


@pytest.mark.parametrize("restarts", [False, True])
async def test_replicas_follow_a_new_ca_in_place_of_a_deleted_one_without_a_refused_review(
    restarts: bool,
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    add_handlers(registry, "v1_to_v2", "v2_to_v1")
    api_server = Watcher(cluster)
    await cluster.apply(definition("v1", "v2"))
    async with (
        cluster.client(),
        api_server.running(registry, "a"),
        api_server.running(registry, "b"),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(api_server.watch)
        before = await find_issuer(cluster)
        await trio.sleep(100)
        await cluster.delete("secrets", "webhooks")
        async with contextlib.AsyncExitStack() as stack:
            if restarts:
                await stack.enter_async_context(api_server.running(registry, "c"))
            await trio.sleep(1000)
            after = await find_issuer(cluster)
            assert after != before
            assert api_server.refused == []
            for replica in api_server.replicas:
                assert replica.accepts(after)
                assert not replica.accepts(before)
            assert await find_bundles(cluster) == 2 * [after.strip()]
        nursery.cancel_scope.cancel()
    assert caplog.text == ""


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
