"""Credentials: reloaded when they are rejected or old, once for all requests, which never wait for one another."""

from __future__ import annotations

import datetime
import logging
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import trio.testing
import trustme
from trio.testing import MockClock

from tests.kube.conftest import ANSWER, Memory, Serve, Talk, answer_all, ok, status
from trioperator._concurrency.clock import wall_now
from trioperator._kube.api_client import ApiClient, log_in, open_client
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.watch import open_watch
from trioperator.errors import ApiError, ConfigError, ConnectionLostError, LoginError, UnauthorizedError
from trioperator.settings import OperatorSettings

pytestmark = pytest.mark.usefixtures("no_environment")


class Source:
    """A source of connections whose token can be rotated."""

    def __init__(self, token: str = "one") -> None:
        self.token = token
        self.calls = 0
        self.error: Exception | None = None

    def __call__(self) -> ConnectionInfo:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return ConnectionInfo(server="http://cluster", token=self.token)


def token_of(request: httpx.Request) -> str:
    return request.headers["authorization"].removeprefix("Bearer ")


def accepting(good: Callable[[], str | None]) -> Memory:
    """Return a server that accepts the token that *good* returns at that moment."""
    return Memory(lambda request: ok() if token_of(request) == good() else status(401, "who are you?"))


async def test_a_rejected_token_is_reloaded_at_once(autojump_clock: MockClock, settings: OperatorSettings) -> None:
    source = Source()
    memory = accepting(lambda: "two")
    async with open_client(source, settings=settings, transport=memory) as client:
        source.token = "two"
        await client.get("/x")
    assert [token_of(request) for request in memory.requests] == ["one", "two"]
    assert trio.current_time() == 0
    assert source.calls == 2


async def test_a_hundred_concurrent_rejections_reload_the_credentials_once(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    source = Source()
    memory = accepting(lambda: source.token)
    async with open_client(source, settings=settings, transport=memory) as client:
        await client.get("/x")
        calls = source.calls
        source.token = "two"
        async with trio.open_nursery() as requests:
            for _ in range(100):
                requests.start_soon(client.get, "/x")
    assert source.calls == calls + 1
    assert len(memory.requests) == 1 + 100 + 100


async def test_all_requests_wait_while_one_renews_the_credentials(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    source = Source()
    memory = accepting(lambda: "one" if trio.current_time() < 1 or trio.current_time() > 20 else None)
    async with open_client(source, settings=settings, transport=memory) as client:
        await client.get("/x")
        await trio.sleep(5)
        calls = source.calls
        async with trio.open_nursery() as requests:
            for number in range(50):
                requests.start_soon(client.get, f"/{number}")
        assert trio.current_time() < 31
        assert source.calls == calls + 6
    # 50 were on their way; then some with fresh credentials, with pauses that grow; then all that had to wait.
    assert sorted({time for time in memory.times if 5 <= time < 21}) == [5, 5.5, 6.5, 8.5, 12.5, 20.5]
    assert all(memory.times.count(time) <= 50 for time in (5.5, 6.5, 8.5, 12.5))


@pytest.mark.parametrize("path", ["/hung", "/watch"])
async def test_a_request_that_hangs_after_a_rejection_holds_up_no_other(
    autojump_clock: MockClock, settings: OperatorSettings, path: str
) -> None:
    source = Source()

    async def respond(request: httpx.Request) -> httpx.Response:
        if token_of(request) != "two":
            return status(401)
        if request.url.path == path:
            await trio.sleep(50)
        return ok()

    async def watch() -> None:
        async with open_watch(client, path, resource_version="1"):
            pass

    async with open_client(source, settings=settings, transport=Memory(respond)) as client:
        source.token = "two"
        async with trio.open_nursery() as requests:
            if path == "/watch":
                requests.start_soon(watch)
            else:
                requests.start_soon(client.get, path)
            await trio.testing.wait_all_tasks_blocked()
            for number in range(5):
                await client.get(f"/{number}")
            assert trio.current_time() == 0
        assert trio.current_time() == 50
    assert source.calls == 2


async def test_connections_are_loaded_in_a_thread(autojump_clock: MockClock, settings: OperatorSettings) -> None:
    threads = []

    class Slow(Source):
        def __call__(self) -> ConnectionInfo:
            threads.append(threading.current_thread() is threading.main_thread())
            trio.from_thread.run_sync(loop_is_free.set)
            return super().__call__()

    loop_is_free = trio.Event()
    source = Slow()
    memory = accepting(lambda: "two")
    async with open_client(source, settings=settings, transport=memory) as client:
        source.token = "two"
        await client.get("/x")
    assert threads == [False, False]
    assert loop_is_free.is_set()


async def test_a_file_that_is_never_read_to_its_end_leaves_the_current_credentials(
    settings: OperatorSettings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioperator._kube.credential_store._SOURCE_TIMEOUT", 0.1)
    release = threading.Event()
    expiration = wall_now() - datetime.timedelta(seconds=10)
    calls = 0

    def source() -> ConnectionInfo:
        nonlocal calls
        calls += 1
        if calls > 1:
            release.wait()
        return ConnectionInfo(server="http://cluster", token="one", expiration=expiration)

    memory = Memory([ok()])
    async with open_client(source, settings=settings, transport=memory) as client:
        await trio.sleep(1.1)
        with trio.fail_after(5):
            await client.get("/x")
            await client.get("/x")
        release.set()
    assert caplog.text.count("keeping the current ones: The credentials were not loaded within 0.1 s") == 1
    assert len(memory.requests) == 2


async def test_a_new_request_waits_too(autojump_clock: MockClock, settings: OperatorSettings) -> None:
    memory = accepting(lambda: "one" if trio.current_time() < 1 or trio.current_time() > 20 else None)
    async with open_client(Source(), settings=settings, transport=memory) as client:
        await client.get("/x")
        await trio.sleep(5)
        async with trio.open_nursery() as requests:
            requests.start_soon(client.get, "/first")
            await trio.sleep(10)  # in the middle of a pause
            requests.start_soon(client.get, "/second")
            await trio.testing.wait_all_tasks_blocked()
            assert {request.url.path for request in memory.requests} == {"/x", "/first"}
    assert "/second" in {request.url.path for request in memory.requests}


async def test_seconds_of_rejections_are_survived(autojump_clock: MockClock, settings: OperatorSettings) -> None:
    memory = accepting(lambda: "one" if trio.current_time() < 1 or trio.current_time() > 40 else None)
    async with open_client(Source(), settings=settings, transport=memory) as client:
        await client.get("/x")
        await trio.sleep(5)
        assert await client.get("/x") == {}
        assert 40 < trio.current_time() <= 50


async def test_credentials_that_were_never_accepted_are_an_error_after_a_few_attempts(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    source = Source()
    memory = accepting(lambda: None)
    async with open_client(source, settings=settings, transport=memory) as client:
        with pytest.raises(LoginError, match=r"The API server http://cluster rejected the credentials: who are you?"):
            await client.get("/x")
    assert trio.current_time() < 10
    assert 3 <= len(memory.requests) <= 10


async def test_all_waiting_requests_fail_if_credentials_were_never_accepted(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    failed = 0

    async def ask(client: ApiClient) -> None:
        nonlocal failed
        with pytest.raises(LoginError):
            await client.get("/x")
        failed += 1

    async with (
        open_client(Source(), settings=settings, transport=accepting(lambda: None)) as client,
        trio.open_nursery() as requests,
    ):
        for _ in range(5):
            requests.start_soon(ask, client)
    assert failed == 5
    assert trio.current_time() < 10


async def test_a_forbidden_request_counts_as_a_login(autojump_clock: MockClock, settings: OperatorSettings) -> None:
    answers = Memory([status(403), status(401), status(401), status(401), status(401), status(401), status(401), ok()])
    async with open_client(Source(), settings=settings, transport=answers) as client:
        with pytest.raises(Exception, match=r"403"):
            await client.get("/x")
        assert await client.get("/x") == {}


@pytest.mark.parametrize("path", ["/x", "/api/v1/namespaces/default/secrets/some"])
async def test_a_webhook_that_denies_with_401_says_nothing_about_the_credentials(
    autojump_clock: MockClock, settings: OperatorSettings, path: str
) -> None:
    source = Source()
    answers = Memory([ok(), status(401, 'admission webhook "a.example.com" denied the request: not now'), ok()])
    async with open_client(source, settings=settings, transport=answers) as client:
        await client.get("/y")
        with pytest.raises(ApiError, match=r"HTTP 401") as caught:
            await client.patch(path, {})
        assert not isinstance(caught.value, UnauthorizedError)
        assert await client.get("/y") == {}
    assert source.calls == 1
    assert trio.current_time() < 1


async def test_one_endpoint_that_rejects_all_credentials_does_not_stop_the_others(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    memory = Memory(lambda request: status(401, "not here") if request.url.path == "/broken" else ok())
    done = 0

    async def work(client: ApiClient) -> None:
        nonlocal done
        for _ in range(100):
            await client.get("/fine")
            done += 1
            await trio.sleep(0.1)

    async with (
        open_client(Source(), settings=settings, transport=memory) as client,
        trio.open_nursery() as requests,
    ):
        requests.start_soon(work, client)
        with pytest.raises(UnauthorizedError, match=r"not here"):
            await client.get("/broken")
        assert trio.current_time() < 5
    assert sum(request.url.path == "/broken" for request in memory.requests) <= 4
    assert done == 100
    assert trio.current_time() < 20


async def test_one_request_does_not_wait_for_ever(autojump_clock: MockClock, settings: OperatorSettings) -> None:
    memory = accepting(lambda: "one" if trio.current_time() < 1 else None)
    async with open_client(Source(), settings=settings, transport=memory) as client:
        await client.get("/x")
        await trio.sleep(5)
        with pytest.raises(UnauthorizedError):
            await client.get("/x")
        assert 40 <= trio.current_time() <= 120


async def test_a_rejection_of_replaced_credentials_is_ignored(
    autojump_clock: MockClock, settings: OperatorSettings, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source()

    async def respond(request: httpx.Request) -> httpx.Response:
        token = token_of(request)
        if request.url.path == "/slow" and token == "one":
            await trio.sleep(3)
        return ok() if token == "two" else status(401)

    memory = Memory(respond)
    async with open_client(source, settings=settings, transport=memory) as client:
        source.token = "two"
        async with trio.open_nursery() as requests:
            requests.start_soon(client.get, "/slow")
            await trio.testing.wait_all_tasks_blocked()  # it is on its way, with the old token
            await client.get("/x")
    assert source.calls == 2
    assert caplog.text.count("rejected the credentials") == 1


async def test_another_request_takes_over_from_a_cancelled_one(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    memory = accepting(lambda: "one" if trio.current_time() < 1 or trio.current_time() > 12 else None)
    async with open_client(Source(), settings=settings, transport=memory) as client:
        await client.get("/x")
        await trio.sleep(5)
        async with trio.open_nursery() as requests:
            requests.start_soon(client.get, "/y")
            with trio.move_on_after(0.2):
                await client.get("/z")
        assert trio.current_time() < 25


async def test_a_source_that_fails_leaves_the_current_credentials(
    autojump_clock: MockClock, settings: OperatorSettings, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source()
    memory = accepting(lambda: "one" if not 1 < trio.current_time() < 10 else None)
    async with open_client(source, settings=settings, transport=memory) as client:
        await client.get("/x")
        source.error = ConfigError("kubeconfig: half a file")
        await trio.sleep(5)
        await client.get("/x")
    assert "keeping the current ones: kubeconfig: half a file" in caplog.text


def test_an_invalid_connection_is_an_error_before_any_request(settings: OperatorSettings) -> None:
    async def open_it() -> None:
        async with open_client(lambda: ConnectionInfo(server="nonsense"), settings=settings):
            raise AssertionError

    with pytest.raises(ConfigError, match=r"nonsense"):
        trio.run(open_it)


async def test_a_token_file_is_read_again_after_a_minute_and_not_before(
    autojump_clock: MockClock, settings: OperatorSettings, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    memory = Memory([ok()])
    info = ConnectionInfo(server="http://cluster", token_file=path)
    async with open_client(lambda: info, settings=settings, transport=memory) as client:
        await client.get("/x")
        path.write_text("two")
        await trio.sleep(59)
        await client.get("/x")
        await trio.sleep(2)
        await client.get("/x")
    assert [token_of(request) for request in memory.requests] == ["one", "one", "two"]


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_text("\n")])
async def test_a_token_file_that_is_absent_or_empty_for_a_moment_does_no_harm(
    change: Callable[[Path], object], autojump_clock: MockClock, settings: OperatorSettings, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    memory = Memory([ok()])
    info = ConnectionInfo(server="http://cluster", token_file=path)
    async with open_client(lambda: info, settings=settings, transport=memory) as client:
        change(path)
        await trio.sleep(61)
        await client.get("/x")
        path.write_text("two")
        await trio.sleep(11)
        await client.get("/x")
    assert [token_of(request) for request in memory.requests] == ["one", "two"]


async def test_a_source_without_files_is_not_loaded_again(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    source = Source()
    async with open_client(source, settings=settings, transport=Memory([ok()])) as client:
        for _ in range(5):
            await client.get("/x")
            await trio.sleep(3600)
    assert source.calls == 1


@pytest.mark.parametrize("naive", [False, True])
async def test_an_expired_connection_is_loaded_again(
    autojump_clock: MockClock, settings: OperatorSettings, naive: bool
) -> None:
    calls = 0
    start = wall_now()

    def source() -> ConnectionInfo:
        nonlocal calls
        calls += 1
        expiration = start + datetime.timedelta(seconds=100 * calls)
        return ConnectionInfo(
            server="http://cluster", expiration=expiration.replace(tzinfo=None) if naive else expiration
        )

    async with open_client(source, settings=settings, transport=Memory([ok()])) as client:
        await trio.sleep(99)
        await client.get("/x")
        assert calls == 1
        await trio.sleep(2)
        await client.get("/x")
        assert calls == 2


async def test_rejections_are_logged_without_secrets(
    autojump_clock: MockClock, settings: OperatorSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    source = Source("s3cret")
    async with open_client(source, settings=settings, transport=accepting(lambda: "n3w")) as client:
        source.token = "n3w"
        await client.get("/x")
    assert "rejected the credentials (HTTP 401): they are wrong or have expired; reloading them" in caplog.text
    assert "accepts the credentials again" in caplog.text
    assert "s3cret" not in caplog.text
    assert "n3w" not in caplog.text


async def test_credentials_that_would_lose_encryption_are_not_taken_over(
    autojump_clock: MockClock, settings: OperatorSettings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.networking.error_backoffs = ()
    expiration = wall_now() + datetime.timedelta(seconds=10)
    info = [ConnectionInfo(server="https://127.0.0.1:1", token="one", insecure=True, expiration=expiration)]
    async with open_client(lambda: info[0], settings=settings) as client:
        info[0] = ConnectionInfo(server="http://cluster", token="two")
        await trio.sleep(11)
        with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1"):
            await client.get("/x")
    assert "keeping the current ones: The credentials for http://cluster would be sent" in caplog.text


class TestSockets:
    """What only real connections show."""

    async def test_a_rotated_token_keeps_the_connections_but_the_one_with_the_401(
        self, serve: Serve, settings: OperatorSettings
    ) -> None:
        tokens = []

        async def script(talk: Talk) -> None:
            while (request := await talk.request()) is not None:
                tokens.append(request.headers["authorization"])
                if request.headers["authorization"] == "Bearer two":
                    await talk.send(ANSWER)
                else:
                    await talk.answer({"kind": "Status"}, status=401)

        server = await serve(script)
        info = [ConnectionInfo(server=server.url, token="one")]
        async with open_client(lambda: info[0], settings=settings) as client:
            info[0] = ConnectionInfo(server=server.url, token="two")
            await client.get("/x")
            await client.get("/x")
        assert tokens == ["Bearer one", "Bearer two", "Bearer two"]
        assert server.connections == 2

    async def test_credentials_that_one_of_several_servers_rejects_are_tried_at_another_one(
        self, serve: Serve, settings: OperatorSettings
    ) -> None:
        answered: list[str] = []

        async def script(talk: Talk) -> None:
            is_first = server.connections == 1  # a load balancer has chosen the server that knows no such token
            while (request := await talk.request()) is not None:
                answered.append(request.target)
                await talk.answer({"kind": "Status"}, status=401 if is_first else 200)

        server = await serve(script)
        async with open_client(lambda: ConnectionInfo(server=server.url, token="one"), settings=settings) as client:
            await client.get("/x")
            await client.get("/y")
        assert answered == ["/x", "/x", "/y"]
        assert server.connections == 2

    async def test_a_rotated_ca_means_new_connections_and_running_watches_continue(
        self,
        serve: Serve,
        settings: OperatorSettings,
        ca_pem: str,
        server_tls: ssl.SSLContext,
        tmp_path: Path,
    ) -> None:
        settings.networking.error_backoffs = ()
        go = trio.Event()

        async def script(talk: Talk) -> None:
            while (request := await talk.request()) is not None:
                if request.target.startswith("/watch"):
                    await talk.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    await go.wait()
                    line = b'{"type":"ADDED","object":{"metadata":{"name":"x"}}}\n'
                    await talk.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(line), line))
                else:
                    await talk.send(ANSWER)

        server = await serve(script, tls=server_tls)
        path = tmp_path / "ca.pem"
        path.write_text(ca_pem)
        info = ConnectionInfo(server=server.url, ca_path=path)
        async with open_client(lambda: info, settings=settings) as client:
            await client.get("/x")
            async with open_watch(client, "/watch", resource_version="1") as watch:
                # The server's CA is no longer trusted, as new connections show.
                path.write_text(trustme.CA().cert_pem.bytes().decode())
                await client.credentials.reload()
                with pytest.raises(ConnectionLostError, match=r"certificate cannot be verified"):
                    await client.get("/x")
                path.write_text(ca_pem)
                await client.credentials.reload()
                await client.get("/x")
                go.set()
                with trio.fail_after(60):
                    assert [line.object.name async for line in watch] == ["x"]

    @pytest.mark.parametrize("served", [False, True])
    async def test_the_login_is_asked_for_another_ca_when_a_server_is_not_trusted(
        self,
        serve: Serve,
        settings: OperatorSettings,
        ca_pem: str,
        server_tls: ssl.SSLContext,
        mock_clock: MockClock,
        served: bool,
    ) -> None:
        server = await serve(answer_all, tls=server_tls)
        known, logins = trustme.CA().cert_pem.bytes(), 0

        def log_in() -> ConnectionInfo:
            nonlocal logins
            logins += 1
            return ConnectionInfo(server=server.url, ca_data=known)

        async with open_client(log_in, settings=settings) as client, trio.open_nursery() as nursery:
            if served:
                nursery.start_soon(client.credentials.serve)
            for expected in (1, 1, 2, 2):
                with pytest.raises(ConnectionLostError, match=r"certificate cannot be verified"):
                    await client.get("/x")
                assert logins == expected, "at most every ten seconds"
                mock_clock.jump(6)
            known = ca_pem.encode()
            await client.get("/x")
            await client.get("/x")
            assert logins == 3
            nursery.cancel_scope.cancel()

    async def test_an_unchanged_ca_keeps_the_connections(
        self, serve: Serve, settings: OperatorSettings, ca_pem: str, server_tls: ssl.SSLContext, tmp_path: Path
    ) -> None:
        server = await serve(answer_all, tls=server_tls)
        path = tmp_path / "ca.pem"
        path.write_text(ca_pem)
        info = ConnectionInfo(server=server.url, ca_path=path)
        async with open_client(lambda: info, settings=settings) as client:
            await client.get("/x")
            path.write_text(ca_pem)
            await client.credentials.reload()
            await client.get("/x")
        assert server.connections == 1


class Vault:
    """A login with several credentials, and a server that accepts some of their tokens."""

    def __init__(self, *infos: ConnectionInfo) -> None:
        self.infos = list(infos)
        self.logins = 0
        self.running = 0
        self.release: trio.Event | None = None
        self.error: Exception | None = None
        self.good: set[str] = set()
        self.memory = Memory(lambda request: ok() if token_of(request) in self.good else status(401))

    async def __call__(self) -> list[ConnectionInfo]:
        self.logins += 1
        self.running += 1
        assert self.running == 1, "two logins at a time"
        if self.release is not None:
            await self.release.wait()
        self.running -= 1
        if self.error is not None:
            raise self.error
        return self.infos

    @property
    def tokens(self) -> list[str]:
        return [token_of(request) for request in self.memory.requests]


def some(token: str, priority: int = 0, **fields: Any) -> ConnectionInfo:
    return ConnectionInfo(server="http://cluster", token=token, priority=priority, **fields)


async def test_credentials_are_tried_by_priority_without_a_pause(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    vault = Vault(some("low", -1), some("high", 20), some("mid", 10))
    vault.good = {"low"}
    async with log_in(vault, settings=settings, transport=vault.memory) as client:
        await client.get("/x")
        await client.get("/x")
    assert vault.tokens == ["high", "mid", "low", "low"]
    assert (vault.logins, trio.current_time()) == (1, 0)


async def test_credentials_of_equal_priority_are_tried_in_random_order(settings: OperatorSettings) -> None:
    first = set()
    for _ in range(50):
        vault = Vault(some("a"), some("b"))
        vault.good = {"a", "b"}
        async with log_in(vault, settings=settings, transport=vault.memory) as client:
            await client.get("/x")
            await client.get("/x")
        assert len(set(vault.tokens)) == 1
        first.add(vault.tokens[0])
    assert first == {"a", "b"}


async def test_there_is_one_login_when_all_credentials_are_rejected_and_the_rejected_come_last(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    vault = Vault(some("broken", 20), some("one", 10))
    vault.good = {"one"}
    async with log_in(vault, settings=settings, transport=vault.memory) as client:
        await client.get("/x")
        vault.good = {"two"}
        vault.infos = [some("broken", 20), some("two", 10)]
        async with trio.open_nursery() as requests:
            for _ in range(50):
                requests.start_soon(client.get, "/y")
    assert vault.logins == 2
    assert vault.tokens == ["broken", "one", *["one"] * 50, *["two"] * 50]


async def test_a_blocked_login_holds_requests_and_ends_none(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    vault = Vault(some("one"))
    vault.good = {"one"}
    done = 0

    async def ask() -> None:
        nonlocal done
        await client.get("/y")
        done += 1

    async with log_in(vault, settings=settings, transport=vault.memory) as client:
        await client.get("/x")
        vault.good, vault.infos, vault.release = {"two"}, [some("two")], trio.Event()
        async with trio.open_nursery() as requests:
            for _ in range(20):
                requests.start_soon(ask)
            await trio.sleep(3600)
            assert done == 0
            assert vault.tokens.count("one") == 21
            vault.release.set()
        assert done == 20
    assert vault.logins == 2


async def test_a_login_that_does_not_end_is_reported_now_and_then(
    autojump_clock: MockClock, settings: OperatorSettings, caplog: pytest.LogCaptureFixture
) -> None:
    vault = Vault(some("one"))
    vault.good = {"one"}
    async with log_in(vault, settings=settings, transport=vault.memory) as client:
        await client.get("/x")
        vault.good, vault.infos, vault.release = {"two"}, [some("two")], trio.Event()
        async with trio.open_nursery() as requests:
            requests.start_soon(client.get, "/y")
            await trio.sleep(9)
            assert "so far" not in caplog.text
            await trio.sleep(2 + 60)
            warnings = [record.getMessage() for record in caplog.records if "so far" in record.getMessage()]
            assert [text.partition(":")[0] for text in warnings] == [
                "The login has taken 10 s so far",
                "The login has taken 70 s so far",
            ]
            vault.release.set()
        await trio.sleep(100)
        assert caplog.text.count("so far") == 2


async def test_expired_and_unusable_credentials_are_skipped(
    autojump_clock: MockClock, settings: OperatorSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    past = wall_now() - datetime.timedelta(seconds=1)
    absent = ConnectionInfo(server="http://cluster", token_file=tmp_path / "absent", priority=2)
    vault = Vault(some("old", 3, expiration=past), absent, some("good", 1))
    vault.good = {"good"}
    async with log_in(vault, settings=settings, transport=vault.memory) as client:
        await client.get("/x")
    assert vault.tokens == ["good"]
    assert (
        "Cannot use the credentials for http://cluster; trying the next ones: Cannot read the token file" in caplog.text
    )


async def test_next_credentials_that_cannot_be_used_lead_to_a_login(
    autojump_clock: MockClock, settings: OperatorSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    absent = ConnectionInfo(server="http://cluster", token_file=tmp_path / "absent", priority=-1)
    vault = Vault(some("one"), absent)
    vault.good = {"two"}
    async with log_in(vault, settings=settings, transport=vault.memory) as client:
        vault.infos = [some("two")]
        await client.get("/x")
    assert vault.logins == 2
    assert "Cannot use the next credentials: Cannot read the token file" in caplog.text


async def test_many_rejected_credentials_are_all_tried_before_the_login_fails(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    vault = Vault(*(some(f"t{number}") for number in range(30)))
    async with log_in(vault, settings=settings, transport=vault.memory) as client:
        with pytest.raises(LoginError):
            await client.get("/x")
    assert len(set(vault.tokens)) == 30
    assert vault.logins == 6


@pytest.mark.parametrize("error", [LoginError("no credentials"), ConfigError("half a file")])
async def test_a_first_login_that_fails_is_an_error(settings: OperatorSettings, error: Exception) -> None:
    vault = Vault()
    vault.error = error
    with pytest.raises(type(error), match=str(error)):
        async with log_in(vault, settings=settings, transport=vault.memory):
            raise AssertionError


async def test_a_login_without_credentials_is_an_error(settings: OperatorSettings) -> None:
    vault = Vault()
    with pytest.raises(LoginError, match="There are no credentials"):
        async with log_in(vault, settings=settings, transport=vault.memory):
            raise AssertionError


class Rotation(Vault):
    """A login whose token is valid for 100 seconds."""

    async def __call__(self) -> list[ConnectionInfo]:
        await super().__call__()
        token = f"t{trio.current_time():g}"
        self.good.add(token)
        return [some(token, expiration=wall_now() + datetime.timedelta(seconds=100))]


async def test_credentials_are_renewed_before_they_expire_while_requests_go_on(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    vault = Rotation()
    async with (
        log_in(vault, settings=settings, transport=vault.memory) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.credentials.serve)
        await trio.sleep(79)
        assert vault.logins == 1
        vault.release = trio.Event()
        await trio.sleep(2)
        assert vault.logins == 2
        await client.get("/x")  # with the current credentials, as they are still valid
        assert trio.current_time() == 81
        vault.release.set()
        await trio.sleep(1)
        vault.release = None
        await client.get("/x")
        await trio.sleep(1000)
        nursery.cancel_scope.cancel()
    assert vault.tokens == ["t0", "t81"]
    assert 12 <= vault.logins <= 15


async def test_requests_wait_for_a_renewal_once_the_credentials_have_expired(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    vault = Rotation()
    async with (
        log_in(vault, settings=settings, transport=vault.memory) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.credentials.serve)
        vault.release = trio.Event()
        await trio.sleep(150)
        nursery.start_soon(client.get, "/x")
        await trio.sleep(50)
        assert vault.tokens == []
        vault.release.set()
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert vault.tokens == ["t200"]


async def test_requests_go_on_with_old_files_during_a_renewal(
    autojump_clock: MockClock, settings: OperatorSettings, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    expiration = wall_now() + datetime.timedelta(seconds=100)
    vault = Vault(ConnectionInfo(server="http://cluster", token_file=path, expiration=expiration))
    vault.good = {"one", "two"}
    async with (
        log_in(vault, settings=settings, transport=vault.memory) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.credentials.serve)
        vault.release = trio.Event()
        await trio.sleep(85)  # the renewal is under way, and the files are older than a minute
        path.write_text("two")
        with trio.fail_after(1):
            await client.get("/x")
        nursery.cancel_scope.cancel()
    assert vault.tokens == ["one"]


async def test_a_renewal_that_fails_is_tried_again(
    autojump_clock: MockClock, settings: OperatorSettings, caplog: pytest.LogCaptureFixture
) -> None:
    vault = Rotation()
    async with (
        log_in(vault, settings=settings, transport=vault.memory) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.credentials.serve)
        vault.error = LoginError("no answer")
        await trio.sleep(95)
        vault.error = None
        await trio.sleep(10)
        await client.get("/x")
        nursery.cancel_scope.cancel()
    assert vault.tokens == ["t100"]
    assert caplog.text.count("keeping the current ones: no answer") == 2


async def test_a_renewal_that_fails_after_the_end_of_the_credentials_is_tried_again_every_ten_seconds(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    vault = Rotation()
    async with (
        log_in(vault, settings=settings, transport=vault.memory) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.credentials.serve)
        await trio.sleep(50)
        vault.error, vault.logins = LoginError("no answer"), 0
        for _ in range(400):
            await client.get("/x")
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert 30 <= vault.logins <= 41


async def test_files_are_read_again_without_a_login(
    autojump_clock: MockClock, settings: OperatorSettings, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    expiration = wall_now() + datetime.timedelta(seconds=300)
    vault = Vault(ConnectionInfo(server="http://cluster", token_file=path, expiration=expiration))
    vault.good = {"one", "two"}
    async with log_in(vault, settings=settings, transport=vault.memory) as client:
        await client.get("/x")
        path.write_text("two")
        await trio.sleep(61)
        await client.get("/x")
        assert vault.logins == 1
        await trio.sleep(240)
        await client.get("/x")
    assert vault.tokens == ["one", "two", "two"]
    assert vault.logins == 2


async def test_an_api_server_whose_certificate_is_not_verified_is_warned_of_once(
    settings: OperatorSettings, caplog: pytest.LogCaptureFixture
) -> None:
    info = ConnectionInfo(server="https://cluster", insecure=True)
    async with open_client(lambda: info, settings=settings, transport=Memory([ok()])) as client:
        await client.request("GET", "/x")
        await client.request("GET", "/y")
    assert caplog.messages == [
        "The certificate of the API server https://cluster is not verified: it may be anybody's."
    ]


async def test_responses_to_requests_from_before_rejections_do_not_end_others_sooner(
    autojump_clock: MockClock, settings: OperatorSettings
) -> None:
    async def respond(request: httpx.Request) -> httpx.Response:
        if 1 < trio.current_time() < 40:
            return status(401)
        if request.url.path.startswith("/slow"):
            await trio.sleep(int(request.url.path.removeprefix("/slow/")))  # authenticated at its beginning
        return ok()

    async with open_client(Source(), settings=settings, transport=Memory(respond)) as client:
        await client.get("/x")
        async with trio.open_nursery() as requests:
            for seconds in range(2, 22):
                requests.start_soon(client.get, f"/slow/{seconds}")
            await trio.sleep(1.5)
            assert await client.get("/x") == {}
        assert 40 < trio.current_time() <= 55
