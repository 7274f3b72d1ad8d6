"""Tests for :mod:`trioperator._webhooks.server`, on real sockets with real TLS."""

from __future__ import annotations

import base64
import contextlib
import pathlib
import shutil
import ssl
from typing import Any

import httpx
import msgspec
import pytest
import trio
import trustme
from trio.testing import MockClock, wait_all_tasks_blocked

import trioperator
from tests.http.attacks import ATTACKS
from tests.webhooks.admission import make_review
from tests.webhooks.serving import Serving, serving, until, write_pair
from trioperator._webhooks.app import MAX_BODY
from trioperator.errors import ConfigError

# A request that fails leaves behind httpx's generator for its body.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored .*<async_generator object ByteStream:pytest.PytestUnraisableExceptionWarning"
)
CLIENTS = trustme.CA()
OTHERS = trustme.CA()


async def test_an_own_certificate_is_trusted_by_its_own_ca(tmp_path: pathlib.Path) -> None:
    dump = tmp_path / "dump.pem"
    async with serving(trioperator.WebhookServer(path="/hooks", extra_sans=["extra.test"], cadump=dump)) as state:
        response = await state.ask("/a/spec.x")
        assert response.json()["response"]["allowed"]
        assert state.url.startswith("https://localhost:")
        assert state.url.endswith("/hooks")
        assert dump.read_bytes() == base64.b64decode(state.addresses[0]["caBundle"])
    (hints,) = state.calls
    assert (hints["webhook"], hints["sslpeer"]) == ("a/spec.x", None)
    assert hints["headers"]["Content-Type"] == "application/json"


async def test_the_host_is_in_the_url_and_in_the_certificate() -> None:
    server = trioperator.WebhookServer(addr="127.0.0.1", host="hooks.test", extra_sans=["extra.test"])
    async with serving(server) as state:
        port = state.url.removeprefix("https://hooks.test:")
        for name in ("hooks.test", "127.0.0.1", "extra.test"):
            tcp = await trio.open_tcp_stream("127.0.0.1", int(port))
            named = trio.SSLStream(tcp, state.trust(), server_hostname=name, https_compatible=True)
            await named.do_handshake()
            await trio.aclose_forcefully(named)


async def test_a_host_of_the_cluster_is_a_service_for_the_api_server() -> None:
    server = trioperator.WebhookServer(addr="127.0.0.1", host="hooks.ns.svc", path="some/hooks")
    async with serving(server) as state:
        service = state.addresses[0]["service"]
        assert "url" not in state.addresses[0]
        assert service == {"namespace": "ns", "name": "hooks", "port": service["port"], "path": "/some/hooks"}
        tcp = await trio.open_tcp_stream("127.0.0.1", service["port"])
        named = trio.SSLStream(tcp, state.trust(), server_hostname="hooks.ns.svc", https_compatible=True)
        await named.do_handshake()
        await trio.aclose_forcefully(named)


async def test_without_tls_it_serves_plain_http() -> None:
    async with serving(trioperator.WebhookServer(insecure=True)) as state, httpx.AsyncClient() as http:
        assert state.url.startswith("http://localhost:")
        assert "caBundle" not in state.addresses[0]
        assert (await http.post(state.url, json=make_review())).status_code == 200


async def test_a_given_context_is_used() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    OTHERS.issue_cert("localhost").configure_cert(context)
    async with serving(trioperator.WebhookServer(context=context, cadata=OTHERS.cert_pem.bytes())) as state:
        assert (await state.ask()).status_code == 200


@pytest.mark.parametrize("option", ["verify_cafile", "verify_cadata", "cafile"])
async def test_client_certificates_are_verified_and_passed_on(option: str, tmp_path: pathlib.Path) -> None:
    CLIENTS.cert_pem.write_to_path(str(tmp_path / "clients.pem"))
    value: Any = CLIENTS.cert_pem.bytes() if option == "verify_cadata" else tmp_path / "clients.pem"
    options: dict[str, Any] = {option: value}
    async with serving(trioperator.WebhookServer(**options)) as state:
        await state.ask()
        await state.ask(client=CLIENTS.issue_cert("apiserver@example.com", common_name="apiserver"))
        with pytest.raises((httpx.HTTPError, ssl.SSLError)):
            await state.ask(client=OTHERS.issue_cert("apiserver@example.com"))
    none, peer = [call["sslpeer"] for call in state.calls]
    assert none is None
    assert (("commonName", "apiserver"),) in peer["subject"]


async def test_client_certificates_can_be_required() -> None:
    options: dict[str, Any] = {"verify_cadata": CLIENTS.cert_pem.bytes(), "verify_mode": ssl.CERT_REQUIRED}
    async with serving(trioperator.WebhookServer(**options)) as state:
        with pytest.raises((httpx.HTTPError, ssl.SSLError)):
            await state.ask()
        assert (await state.ask(client=CLIENTS.issue_cert("a@example.com"))).status_code == 200
    assert len(state.calls) == 1


async def test_certificates_that_are_replaced_are_reloaded_without_a_failed_review(tmp_path: pathlib.Path) -> None:
    files = write_pair(tmp_path, OTHERS)
    statuses: list[int] = []
    async with serving(trioperator.WebhookServer(**files, file_check_interval=0.05)) as state:
        serials: set[str] = set()

        async def ask_on() -> None:
            while not (len(serials) == 2 and len(statuses) > 2):
                statuses.append((await state.ask()).status_code)

        async def look() -> None:
            stream = await trio.open_ssl_over_tcp_stream(
                "localhost", int(state.url.rpartition(":")[2]), ssl_context=state.trust(), https_compatible=True
            )
            await stream.do_handshake()
            serials.add(stream.getpeercert()["serialNumber"])
            await trio.aclose_forcefully(stream)

        async with trio.open_nursery() as clients:
            clients.start_soon(ask_on)
            await look()
            write_pair(tmp_path, OTHERS)
            while len(serials) < 2:
                await look()
        assert len(state.addresses) == 1
    assert set(statuses) == {200}


async def test_a_new_ca_is_a_new_address_and_reviews_in_progress_are_answered(tmp_path: pathlib.Path) -> None:
    both = tmp_path / "ca.pem"
    files = write_pair(tmp_path, OTHERS)
    async with serving(trioperator.WebhookServer(**files, file_check_interval=0.05)) as state:
        state.seconds = 0.5
        statuses: list[int] = []

        async def ask() -> None:
            statuses.append((await state.ask()).status_code)

        async with trio.open_nursery() as clients:
            clients.start_soon(ask)
            await until(lambda: state.calls)
            both.write_bytes(OTHERS.cert_pem.bytes() + CLIENTS.cert_pem.bytes())
            await until(lambda: len(state.addresses) == 2)
            clients.start_soon(ask)
        assert statuses == [200, 200]
        assert base64.b64decode(state.addresses[1]["caBundle"]) == both.read_bytes()
        assert state.addresses[0]["url"] == state.addresses[1]["url"]


class Trust:
    """What API servers trust, who are told with a delay, and the certificate that is served at each time."""

    def __init__(self, server: trioperator.WebhookServer, state: Serving) -> None:
        self._server = server
        self._state = state
        self.steps: list[tuple[list[str], str]] = []
        self.hold = trio.Event()
        server.replace_authority = self.replace

    async def replace(self, old: str, new: str) -> None:
        assert old == self._state.addresses[-1]["caBundle"]
        await self.hold.wait()
        self._state.addresses.append({**self._state.addresses[-1], "caBundle": new})
        self.steps.append((self.names, await self.look()))

    @property
    def names(self) -> list[str]:
        """The organizations of the CAs that are trusted."""
        context = ssl.create_default_context(cadata=base64.b64decode(self._state.addresses[-1]["caBundle"]).decode())
        return [_find_organization(ca["subject"]) for ca in context.get_ca_certs()]

    async def look(self) -> str:
        """Return the organization of the CA whose certificate is served."""
        stream = await trio.open_ssl_over_tcp_stream(
            "localhost",
            int(self._state.url.rpartition(":")[2]),
            ssl_context=self._state.trust(),
            https_compatible=True,
        )
        await stream.do_handshake()
        issuer = stream.getpeercert()["issuer"]
        await trio.aclose_forcefully(stream)
        return _find_organization(issuer)


def _find_organization(name: Any) -> str:
    return str(dict(part[0] for part in name)["organizationName"])


async def test_a_certificate_by_a_new_ca_is_served_when_api_servers_trust_it_and_the_old_ca_is_dropped_last(
    tmp_path: pathlib.Path,
) -> None:
    first, second = trustme.CA(organization_name="first"), trustme.CA(organization_name="second")
    dump = tmp_path / "dump.pem"
    files = write_pair(tmp_path, first)
    server = trioperator.WebhookServer(**files, cadump=dump, file_check_interval=0.02)
    async with serving(server) as state:
        trust = Trust(server, state)
        write_pair(tmp_path, second)
        await until(lambda: dump.read_bytes().count(b"BEGIN CERTIFICATE") == 2)
        assert await trust.look() == "first"
        trust.hold.set()
        await until(lambda: len(trust.steps) == 2)
        assert trust.steps == [(["first", "second"], "first"), (["second"], "second")]
        assert dump.read_bytes() == second.cert_pem.bytes()
        assert (await state.ask()).status_code == 200


async def test_files_that_do_not_fit_yet_are_not_taken(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = write_pair(tmp_path, OTHERS)
    async with serving(trioperator.WebhookServer(**files, file_check_interval=0.05)) as state:
        (tmp_path / "key.pem").write_bytes(OTHERS.issue_cert("localhost").private_key_pem.bytes())
        await until(lambda: "are not reloaded yet: The certificate and the private key" in caplog.text)
        (tmp_path / "cert.pem").unlink()
        await until(lambda: "cannot be read: No such file" in caplog.text)
        assert (await state.ask()).status_code == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 70_000}, "from 0 to 65535"),
        ({"file_check_interval": 301}, "at most 300 seconds"),
        ({"file_check_interval": 0}, "more than 0"),
        ({"cafile": "a", "cadata": b"b"}, "use one or the other"),
        ({"pkeyfile": "a"}, "without certfile"),
    ],
)
def test_wrong_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trioperator.WebhookServer(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"certfile": "/nowhere.pem"}, "The file '/nowhere.pem' cannot be read"),
        ({"verify_cadata": "junk"}, "The CA of client certificates cannot be loaded"),
        ({"addr": "203.0.113.1"}, "Cannot listen"),
    ],
)
async def test_a_server_that_cannot_start_is_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(ConfigError, match=message), flatten_subgroups=True):
        async with serving(trioperator.WebhookServer(**options)):
            pass


def test_a_certificate_can_be_built_alone() -> None:
    chain, key = trioperator.WebhookServer.build_certificate(["localhost"], password="x")
    assert chain.count(b"BEGIN CERTIFICATE") == 2
    assert b"ENCRYPTED" in key


async def test_large_and_malformed_requests_are_refused() -> None:
    async with serving(trioperator.WebhookServer()) as state:
        async with httpx.AsyncClient(verify=state.trust(), timeout=30) as http:
            assert (await http.post(state.url, content=b'"' + b"x" * MAX_BODY + b'"')).status_code == 413
            assert (await http.post(state.url, content=b"{")).status_code == 400
            assert (await http.get(state.url)).status_code == 405
        assert state.calls == []
        assert (await state.ask()).status_code == 200


async def test_attacks_within_and_without_tls_end_their_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(trioperator.WebhookServer()) as state:
        port = int(state.url.rpartition(":")[2])

        async def attack(data: bytes, *, tls: bool) -> None:
            with contextlib.suppress(trio.BrokenResourceError, OSError), trio.move_on_after(3):
                tcp = await trio.open_tcp_stream("localhost", port)
                stream: Any = tcp
                async with tcp:
                    if tls:
                        stream = trio.SSLStream(tcp, state.trust(), server_hostname="localhost", https_compatible=True)
                    await stream.send_all(data)
                    while await stream.receive_some():
                        pass

        async with trio.open_nursery() as clients:
            for data in ATTACKS.values():
                for tls in (True, False):
                    clients.start_soon(lambda data=data, tls=tls: attack(data, tls=tls))  # type: ignore[misc]
        assert (await state.ask()).status_code == 200
    assert [record for record in caplog.records if record.levelname not in ("DEBUG", "INFO")] == []


async def test_a_hundred_slow_reviews_hold_up_no_others() -> None:
    async with serving(trioperator.WebhookServer()) as state:
        state.seconds = 3600
        async with (
            trio.open_nursery() as clients,
            httpx.AsyncClient(verify=state.trust(), timeout=None, limits=httpx.Limits(max_connections=200)) as http,
        ):
            for _ in range(100):
                clients.start_soon(lambda: http.post(state.url, json=make_review()))
            await until(lambda: len(state.calls) == 100)
            state.seconds = 0
            with trio.fail_after(20):
                assert (await state.ask()).status_code == 200
            clients.cancel_scope.cancel()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="install openssl")
async def test_a_connection_stays_open_for_longer_than_api_servers_keep_it_idle(mock_clock: MockClock) -> None:
    body = msgspec.json.encode(make_review())
    request = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with serving(trioperator.WebhookServer(insecure=True, addr="127.0.0.1"), seconds=600) as state:
        stream = await trio.open_tcp_stream("127.0.0.1", httpx.URL(state.url).port or 0)
        async with stream:
            for _ in range(3):
                await stream.send_all(request)
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
                mock_clock.jump(91)  # seconds; Go's http.DefaultTransport.IdleConnTimeout is 90
                await wait_all_tasks_blocked()


async def test_clients_cannot_renegotiate() -> None:
    async with serving(trioperator.WebhookServer()) as state:
        port = state.url.rpartition(":")[2]
        command = ["openssl", "s_client", "-tls1_2", "-connect", f"localhost:{port}"]
        done = await trio.run_process(command, stdin=b"R\n", capture_stdout=True, capture_stderr=True, check=False)
        assert b"RENEGOTIATING" in done.stderr
        assert b"no renegotiation" in done.stderr
        assert (await state.ask()).status_code == 200
