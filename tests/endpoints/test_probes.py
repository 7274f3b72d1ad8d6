"""Tests for :mod:`trioperator._endpoints.probes`: reports in virtual time, HTTP on real sockets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from tests.http.attacks import ATTACKS
from tests.soak.ports import Attack
from trioperator._endpoints.probes import Prober, ProbeReport, serve_probes
from trioperator._http import server_connection
from trioperator._http.endpoint import parse_endpoint
from trioperator.errors import ActivityError, ConfigError


class Probes:
    """A probe that counts its calls and returns or raises ``result``."""

    def __init__(self, result: Any = None, *, seconds: float = 0) -> None:
        self.calls = 0
        self.called = trio.Event()
        self.result = {"now": 1} if result is None else result
        self.seconds = seconds

    async def __call__(self) -> Mapping[str, Any]:
        self.calls += 1
        self.called.set()
        if self.seconds:
            await trio.sleep(self.seconds)
        if isinstance(self.result, Exception):
            raise self.result
        result: Mapping[str, Any] = self.result
        return result


async def _talk(url: str, data: bytes) -> bytes:
    """Send the bytes, and return what the server sends until it closes the connection."""
    endpoint = parse_endpoint(url)
    received = b""
    async with await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream:
        await stream.send_all(data)
        async for chunk in stream:
            received += chunk
    return received


class TestProber:
    async def test_a_report_is_cached_for_ten_seconds(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        probes = Probes()
        prober = Prober(probes)
        nursery.start_soon(prober.serve)
        first = await prober.get()
        assert first == ProbeReport(healthy=True, content=b'{"now":1}')
        probes.result = {"now": 2}
        await trio.sleep(9.9)
        assert await prober.get() is first
        await trio.sleep(0.1)
        assert (await prober.get()).content == b'{"now":2}'
        assert probes.calls == 2

    async def test_concurrent_requests_share_a_report(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        probes = Probes(seconds=3)
        prober = Prober(probes)
        nursery.start_soon(prober.serve)
        async with trio.open_nursery() as askers:
            for _ in range(10):
                askers.start_soon(prober.get)
        assert probes.calls == 1
        assert trio.current_time() == 3

    async def test_nothing_is_probed_without_a_request(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        probes = Probes()
        nursery.start_soon(Prober(probes).serve)
        await trio.sleep(1000)
        assert probes.calls == 0

    async def test_a_request_that_times_out_leaves_a_report_for_the_next(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        probes = Probes(seconds=3)
        prober = Prober(probes)
        nursery.start_soon(prober.serve)
        for second in (1, 2):  # a kubelet waits for a second
            with trio.move_on_after(1) as scope:
                await prober.get()
            assert scope.cancelled_caught
            assert trio.current_time() == second
        await trio.sleep(1.5)
        with trio.move_on_after(1):
            assert (await prober.get()).healthy
        assert probes.calls == 1

    async def test_probes_slower_than_the_cache_time_are_reported(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        prober = Prober(Probes(seconds=60))
        nursery.start_soon(prober.serve)
        assert (await prober.get()).healthy
        assert trio.current_time() == 60

    async def test_a_failure_is_reported_and_the_next_report_may_be_healthy(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        probes = Probes(ActivityError("it failed: db: password", failures={"db": OSError("password"), "x": KeyError()}))
        prober = Prober(probes)
        nursery.start_soon(prober.serve)
        report = await prober.get()
        assert report == ProbeReport(
            healthy=False, content=b'{"error":"The probe handlers have failed: db: OSError; x: KeyError"}'
        )
        probes.result = {}
        assert await prober.get() is report
        await trio.sleep(10)
        assert await prober.get() == ProbeReport(healthy=True, content=b"{}")
        assert caplog.messages == ["The health probe failed: it failed: db: password"]
        assert not caplog.records[0].exc_info

    async def test_an_unexpected_error_is_reported_and_logged_with_its_traceback(
        self, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
    ) -> None:
        prober = Prober(Probes(RuntimeError("half \ud800")))
        nursery.start_soon(prober.serve)
        report = await prober.get()
        assert report == ProbeReport(healthy=False, content=b'{"error":"The probe has failed: RuntimeError"}')
        assert caplog.records[0].exc_info

    async def test_a_result_that_is_not_json_serializable_is_converted_to_a_string(self, nursery: trio.Nursery) -> None:
        prober = Prober(Probes({"x": ValueError("text")}))
        nursery.start_soon(prober.serve)
        assert await prober.get() == ProbeReport(healthy=True, content=b'{"x":"text"}')


class TestServeProbes:
    async def test_results_are_json(self, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        url = await nursery.start(serve_probes, "http://127.0.0.1:0/healthz", Probes({"a": [1], "b": None}))
        assert caplog.messages[-1] == f"Serving health status at {url}"
        async with httpx.AsyncClient(timeout=60) as client:
            response = await client.get(url)
        assert response.status_code == 200
        assert response.json() == {"a": [1], "b": None}
        assert response.headers["content-type"] == "application/json"

    async def test_no_probe_handlers_are_an_empty_object(self, nursery: trio.Nursery) -> None:
        url = await nursery.start(serve_probes, "http://127.0.0.1:0/", Probes({}))
        async with httpx.AsyncClient(timeout=60) as client:
            response = await client.get(url)
        assert (response.status_code, response.json()) == (200, {})

    async def test_a_failure_is_http_500(self, nursery: trio.Nursery) -> None:
        error = ActivityError("bad: password", failures={"bad": ValueError("password")})
        url = await nursery.start(serve_probes, "http://127.0.0.1:0/healthz", Probes(error))
        async with httpx.AsyncClient(timeout=60) as client:
            response = await client.get(url)
        assert (response.status_code, response.json()) == (
            500,
            {"error": "The probe handlers have failed: bad: ValueError"},
        )

    async def test_only_its_path_is_served(self, nursery: trio.Nursery) -> None:
        probes = Probes()
        url = await nursery.start(serve_probes, "http://127.0.0.1:0/healthz", probes)
        async with httpx.AsyncClient(timeout=60) as client:
            assert (await client.get(f"{url}z")).status_code == 404
            assert (await client.get(url.removesuffix("healthz"))).status_code == 404
            assert (await client.post(url)).status_code == 405
            assert probes.calls == 0
            assert (await client.head(url)).status_code == 200

    async def test_a_bad_endpoint_is_rejected(self) -> None:
        with pytest.raises(ConfigError, match="http://"):
            await serve_probes("https://localhost/", Probes())

    async def test_the_server_stops_while_probes_hang(self) -> None:
        probes = Probes(seconds=10**6)
        statuses: list[int] = []

        async def ask(url: str) -> None:
            async with httpx.AsyncClient(timeout=60) as client:
                statuses.append((await client.get(url, timeout=30)).status_code)

        with trio.fail_after(60):
            async with trio.open_nursery() as clients, trio.open_nursery() as serving:
                url = await serving.start(serve_probes, "http://127.0.0.1:0/healthz", probes)
                clients.start_soon(ask, url)
                await probes.called.wait()
                serving.cancel_scope.cancel(reason="the test")
        assert statuses == [500]

    async def test_a_body_is_limited_in_size_and_time(
        self, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = await nursery.start(serve_probes, "http://127.0.0.1:0/healthz", Probes())
        large = bytes(1_000_000)

        async def stream(data: bytes) -> AsyncIterator[bytes]:
            yield data

        async with httpx.AsyncClient(timeout=None) as client:
            assert (await client.request("GET", url, content=b"small")).status_code == 200
            assert (await client.request("GET", url, content=large)).status_code == 413
            assert (await client.request("GET", url, content=stream(large))).status_code == 413
        monkeypatch.setattr(server_connection, "_RECEIVING", 0.1)
        unfinished = b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"
        assert (await _talk(url, unfinished)).startswith(b"HTTP/1.1 408 ")

    @pytest.mark.parametrize("version", [b"1.0", b"1.1"])
    async def test_the_connection_is_closed_where_it_is_not_kept_alive(
        self, version: bytes, nursery: trio.Nursery
    ) -> None:
        url = await nursery.start(serve_probes, "http://127.0.0.1:0/", Probes())
        with trio.fail_after(4):  # less than an idle connection has
            received = await _talk(url, b"GET / HTTP/%s\r\nHost: x\r\nConnection: close\r\n\r\n" % version)
        assert received.endswith(b'{"now":1}')

    async def test_a_connection_that_is_kept_alive_is_closed_when_it_is_idle(
        self, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
    ) -> None:
        endpoint = parse_endpoint(await nursery.start(serve_probes, "http://127.0.0.1:0/", Probes()))
        received, closed = b"", trio.Event()

        async def receive(stream: trio.SocketStream) -> None:
            nonlocal received
            async for chunk in stream:
                received += chunk
            closed.set()

        async with await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream:
            nursery.start_soon(receive, stream)
            for number in (1, 2):
                await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                while received.count(b'{"now":1}') < number:
                    await trio.testing.wait_all_tasks_blocked(0.01)
            for _ in range(30):  # time does not pass by itself
                mock_clock.jump(1)
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert closed.is_set()

    async def test_probes_are_answered_under_attack(self, nursery: trio.Nursery) -> None:
        url = await nursery.start(serve_probes, "http://127.0.0.1:0/healthz", Probes())
        attack = Attack(parse_endpoint(url), seed=1, patience=20)
        await attack.run(connections=30, seconds=1)
        assert attack.problems == []
        assert attack.latencies

    @pytest.mark.parametrize("seconds", [0, 0.2])
    async def test_attacks_leave_the_probes_alive_and_the_log_empty(
        self, nursery: trio.Nursery, seconds: float, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("WARNING")
        url = await nursery.start(serve_probes, "http://127.0.0.1:0/", Probes(seconds=seconds))
        port = httpx.URL(url).port
        assert port is not None
        probe = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        for attack in ATTACKS.values():
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                with contextlib.suppress(trio.BrokenResourceError), trio.move_on_after(5):
                    await stream.send_all(attack)
                    await stream.send_eof()
                    while await stream.receive_some():
                        pass
            assert (await _talk(url, probe)).endswith(b'{"now":1}')
        assert caplog.messages == []
