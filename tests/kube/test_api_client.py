"""The client: what is retried and when, and which errors are raised. Time is virtual unless sockets matter."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import trio
import trio.testing
import trustme
from trio.testing import MockClock

from tests.cancelling import cancel_at_each_step
from tests.kube.conftest import ANSWER, Answer, Memory, Serve, Server, Talk, answer_all, client_of, ok, status, tunnel
from tests.levels import TOO_MANY
from trioperator._http.transport import BodyTooLargeError
from trioperator._kube.api_client import ApiClient, open_client
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.retry import JSON_PATCH
from trioperator._version import __version__
from trioperator.apiserver import Cluster
from trioperator.errors import (
    ConflictError,
    ConnectionLostError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    PausedError,
    ServerError,
    TooManyRequestsError,
)
from trioperator.settings import OperatorSettings
from trioperator.testing import Fault, FaultPlan, FaultyTransport

INFO = ConnectionInfo(server="http://cluster", token="t")
LOST = httpx.ReadError("lost")
NOT_REACHED = httpx.ConnectError("refused")


async def run(
    memory: Memory, settings: OperatorSettings, method: str = "GET", **kw: Any
) -> bytes | ConnectionLostError | ServerError | TooManyRequestsError:
    """Send one request through *memory*; return its result, or the error that could be retried."""
    async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
        try:
            return await client.request(method, "/x", **kw)
        except (ConnectionLostError, ServerError, TooManyRequestsError) as exc:
            return exc


class TestRetries:
    @pytest.mark.parametrize("method", ["GET", "PATCH", "PUT", "DELETE"])
    @pytest.mark.parametrize("trouble", [LOST, NOT_REACHED, status(500), status(503), status(429), OSError("x")])
    async def test_temporary_errors_are_retried_after_the_backoffs(
        self, autojump_clock: MockClock, settings: OperatorSettings, method: str, trouble: Answer
    ) -> None:
        settings.networking.error_backoffs = (1, 2, 5)
        memory = Memory([trouble, trouble, trouble, ok()])
        body = b'{"preconditions":{"uid":"1"}}' if method == "DELETE" else None
        assert await run(memory, settings, method, body=body) == b"{}"
        assert memory.times == [0, 1, 3, 8]

    async def test_the_last_error_is_raised_after_the_last_backoff(
        self, autojump_clock: MockClock, settings: OperatorSettings
    ) -> None:
        settings.networking.error_backoffs = (1, 2)
        memory = Memory([LOST, status(500, "first"), status(503, "last"), ok()])
        error = await run(memory, settings)
        assert str(error) == "HTTP 503: last"
        assert memory.times == [0, 1, 3]

    async def test_the_defaults_are_eight_more_attempts_in_54_seconds(self, autojump_clock: MockClock) -> None:
        memory = Memory([LOST])
        error = await run(memory, OperatorSettings())
        assert isinstance(error, ConnectionLostError)
        assert len(memory.times) == 9
        assert memory.times[-1] == 54

    @pytest.mark.parametrize(("trouble", "attempts"), [(LOST, 1), (status(500), 1), (NOT_REACHED, 2), (status(429), 2)])
    @pytest.mark.parametrize(
        ("method", "kw"),
        [
            ("POST", {"body": b"{}"}),
            ("DELETE", {}),
            ("PATCH", {"body": b'[{"op":"remove","path":"/a/0"}]', "content_type": JSON_PATCH}),
        ],
    )
    async def test_what_would_have_another_effect_is_retried_only_if_it_was_certainly_not_processed(
        self,
        autojump_clock: MockClock,
        settings: OperatorSettings,
        trouble: Answer,
        attempts: int,
        method: str,
        kw: dict[str, Any],
    ) -> None:
        memory = Memory([trouble, ok()])
        result = await run(memory, settings, method, **kw)
        assert len(memory.requests) == attempts
        assert (result == b"{}") == (attempts == 2)

    async def test_a_request_that_times_out_is_retried(
        self, autojump_clock: MockClock, settings: OperatorSettings
    ) -> None:
        async def hang(_: httpx.Request) -> httpx.Response:
            await trio.sleep_forever()
            raise AssertionError

        settings.networking.request_timeout = 30
        settings.networking.error_backoffs = (1,)
        memory = Memory(hang)
        error = await run(memory, settings)
        assert isinstance(error, ConnectionLostError)
        assert "GET /x: no response within 30 s" in str(error)
        assert memory.times == [0, 31]
        assert trio.current_time() == 61

    async def test_the_timeout_of_a_request_overrides_the_settings(
        self, autojump_clock: MockClock, settings: OperatorSettings
    ) -> None:
        async def hang(_: httpx.Request) -> httpx.Response:
            await trio.sleep_forever()
            raise AssertionError

        async with open_client(lambda: INFO, settings=settings, transport=Memory(hang)) as client:
            with pytest.raises(ConnectionLostError, match="no response within 2 s"):
                await client.retrying((), timeout=2).request("GET", "/x")
        assert trio.current_time() == 2

    async def test_a_post_that_timed_out_is_not_retried(
        self, autojump_clock: MockClock, settings: OperatorSettings
    ) -> None:
        async def hang(_: httpx.Request) -> httpx.Response:
            await trio.sleep_forever()
            raise AssertionError

        memory = Memory(hang)
        assert isinstance(await run(memory, settings, "POST"), ConnectionLostError)
        assert len(memory.requests) == 1

    @pytest.mark.parametrize(
        ("enforce", "own", "wanted", "waited"),
        [(False, 1, 7, 7), (False, 9, 7, 9), (True, 9, 7, 7), (True, 1, 7, 7), (True, 4, None, 4)],
    )
    async def test_retry_after_is_a_lower_bound_or_if_enforced_the_delay(
        self,
        autojump_clock: MockClock,
        settings: OperatorSettings,
        enforce: bool,
        own: float,
        wanted: float | None,
        waited: float,
    ) -> None:
        settings.networking.error_backoffs = (own,)
        settings.networking.enforce_retry_after = enforce
        for code in (429, 503):
            error = status(code, Retry_After=str(wanted)) if wanted is not None else status(code)
            memory = Memory([error, ok()])
            await run(memory, settings)
            assert memory.times[1] - memory.times[0] == waited

    async def test_the_details_of_a_status_can_set_the_delay_too(
        self, autojump_clock: MockClock, settings: OperatorSettings
    ) -> None:
        memory = Memory([status(429, details={"retryAfterSeconds": 20}), ok()])
        await run(memory, settings)
        assert memory.times == [0, 20]

    async def test_backoffs_that_can_be_iterated_again_are_for_each_request(
        self, autojump_clock: MockClock, settings: OperatorSettings
    ) -> None:
        class Twice:
            def __iter__(self) -> Iterator[float]:
                return iter((1, 1))

        settings.networking.error_backoffs = Twice()
        memory = Memory([LOST, LOST, ok(), LOST, LOST, ok()])
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            await client.request("GET", "/x")
            await client.request("GET", "/x")
        assert len(memory.requests) == 6

    async def test_retries_are_logged_without_secrets(
        self, autojump_clock: MockClock, settings: OperatorSettings, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        source = ConnectionInfo(server="http://cluster", token="s3cret")
        memory = Memory([LOST, status(401), ok()])
        async with open_client(lambda: source, settings=settings, transport=memory) as client:
            await client.request("GET", "/x", params={"continue": "t0ken"})
        assert "GET /x failed; retrying in 1 s: cluster: lost" in caplog.text
        assert "s3cret" not in caplog.text
        assert "t0ken" not in caplog.text

    async def test_an_api_server_that_cannot_be_reached_is_named_with_its_context(
        self, autojump_clock: MockClock, settings: OperatorSettings, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        source = ConnectionInfo(server="http://cluster:81", origin="context 'prod' of the/config")
        memory = Memory([NOT_REACHED, ok()])
        async with open_client(lambda: source, settings=settings, transport=memory) as client:
            await client.request("GET", "/x")
        [text] = [text for text in caplog.messages if text.startswith("Cannot reach")]
        start = "Cannot reach the API server http://cluster:81 (context 'prod' of the/config); retrying GET /x in 1 s: "
        assert text.startswith(start)

    async def test_many_requests_that_do_not_reach_the_server_do_not_flood_the_log(
        self, settings: OperatorSettings, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with open_client(lambda: INFO, settings=settings, transport=Memory([NOT_REACHED])) as client:
            async with trio.open_nursery() as nursery:

                async def get(target: ApiClient) -> None:
                    with pytest.raises(ConnectionLostError):
                        await target.get("/x")

                for _ in range(50):
                    nursery.start_soon(get, client)
                    nursery.start_soon(get, client.reserved())
            assert trio.current_time() == 54
            warnings = [text for text in caplog.messages if text.startswith("Cannot reach")]
            assert len(warnings) == 8  # as many as for one request


class TestErrorResponses:
    @pytest.mark.parametrize(
        ("code", "kind"), [(403, ForbiddenError), (404, NotFoundError), (409, ConflictError), (422, InvalidError)]
    )
    async def test_permanent_errors_are_raised_at_once(
        self, autojump_clock: MockClock, settings: OperatorSettings, code: int, kind: type[Exception]
    ) -> None:
        memory = Memory([status(code, "because", reason="Why", details={"name": "x"})])
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            with pytest.raises(kind, match=rf"HTTP {code} Why: because"):
                await client.get("/x")
        assert len(memory.requests) == 1

    async def test_a_redirect_is_not_followed(self, settings: OperatorSettings) -> None:
        memory = Memory([httpx.Response(302, headers={"Location": "http://evil/"})])
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            with pytest.raises(Exception, match=r"HTTP 302"):
                await client.get("/x")
        assert len(memory.requests) == 1

    @pytest.mark.parametrize("content", [b"<html>", b"[]", b"", b"\xff", b"1"])
    async def test_a_successful_response_that_is_not_an_object_is_a_lost_connection(
        self, settings: OperatorSettings, content: bytes
    ) -> None:
        memory = Memory([httpx.Response(200, content=content)])
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            with pytest.raises(ConnectionLostError, match=r"/x: the response is not"):
                await client.get("/x")
            with pytest.raises(ConnectionLostError, match=r"GET /x: the response is not a list"):
                await client.list_page("/x")


class TestRequests:
    @pytest.fixture
    def memory(self) -> Memory:
        return Memory([ok({"a": 1})])

    @pytest.fixture
    async def client(self, memory: Memory, settings: OperatorSettings) -> Any:
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            yield client

    async def test_a_request_has_the_expected_url_and_headers(self, memory: Memory, client: ApiClient) -> None:
        assert await client.get("/api/v1/pods", {"limit": 5, "watch": True, "none": None}) == {"a": 1}
        (request,) = memory.requests
        assert str(request.url) == "http://cluster/api/v1/pods?limit=5&watch=true"
        assert request.headers["user-agent"] == f"trioperator/{__version__}"
        assert request.headers["authorization"] == "Bearer t"
        assert request.headers["accept"] == "application/json"
        assert "content-type" not in request.headers

    async def test_a_body_is_json(self, memory: Memory, client: ApiClient) -> None:
        await client.post("/x", {"b": [2]})
        await client.put("/x", {"b": [3]})
        await client.delete("/x", body={"propagationPolicy": "Orphan"})
        assert [(each.method, each.content) for each in memory.requests] == [
            ("POST", b'{"b":[2]}'),
            ("PUT", b'{"b":[3]}'),
            ("DELETE", b'{"propagationPolicy":"Orphan"}'),
        ]
        assert {each.headers["content-type"] for each in memory.requests} == {"application/json"}

    async def test_a_patch_has_its_content_type_and_returns_bytes(self, memory: Memory, client: ApiClient) -> None:
        assert await client.patch("/x", {"spec": None}) == b'{"a":1}'
        assert await client.patch("/x", [{"op": "test"}], content_type=JSON_PATCH) == b'{"a":1}'
        merge, ops = memory.requests
        assert (merge.headers["content-type"], merge.content) == ("application/merge-patch+json", b'{"spec":null}')
        assert (ops.headers["content-type"], ops.content) == ("application/json-patch+json", b'[{"op":"test"}]')

    async def test_a_delete_without_options_has_no_body(self, memory: Memory, client: ApiClient) -> None:
        await client.delete("/x")
        assert memory.requests[0].content == b""

    async def test_the_transport_is_left_open(self, memory: Memory, settings: OperatorSettings) -> None:
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            await client.get("/x")
        assert not memory.closed

    async def test_a_server_behind_a_path_is_reached(self, memory: Memory, settings: OperatorSettings) -> None:
        info = ConnectionInfo(server="https://rancher/k8s/clusters/c-1/")
        async with open_client(lambda: info, settings=settings, transport=memory) as client:
            await client.get("/api/v1/pods")
        assert str(memory.requests[0].url) == "https://rancher/k8s/clusters/c-1/api/v1/pods"

    async def test_lists_come_in_pages(self, settings: OperatorSettings) -> None:
        pages = [
            {"kind": "PodList", "metadata": {"continue": "c==&"}, "items": [{"metadata": {"name": "a"}}]},
            {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": 1}}]},
        ]
        memory = Memory([ok(page) for page in pages])
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            first = await client.list_page("/pods", limit=1)
            second = await client.list_page("/pods", limit=1, continue_=first.next)
        assert [obj.name for obj in first.items] == ["a"]
        assert (second.items, second.next, second.resource_version) == ([], "", "7")
        assert memory.requests[0].url.params == httpx.QueryParams({"limit": "1"})
        assert memory.requests[1].url.params == httpx.QueryParams({"limit": "1", "continue": "c==&"})
        assert [broken.identity for broken in second.broken] == [None]

    async def test_a_response_above_the_limit_is_an_error_that_is_not_retried(self, settings: OperatorSettings) -> None:
        settings.networking.response_limit = 100
        memory = Memory([ok({"metadata": {"name": "x" * 100}})])
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            with pytest.raises(ConnectionLostError) as caught:
                await client.get("/pods/x")
        assert str(caught.value) == (
            "GET /pods/x: the response is larger than 100 bytes: raise settings.networking.response_limit."
        )
        assert len(memory.requests) == 1

    async def test_a_page_may_have_a_limit_of_its_own(self, settings: OperatorSettings) -> None:
        memory = Memory([ok({"kind": "PodList", "metadata": {}, "items": [{"metadata": {"name": "x" * 100}}]})] * 2)
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            with pytest.raises(BodyTooLargeError, match=r"GET /pods: the response is larger than 100 bytes"):
                await client.limiting(100).list_page("/pods", limit=500)
            assert len((await client.limiting(1000).list_page("/pods", limit=500)).items) == 1

    async def test_one_object_that_is_nested_too_deeply_does_not_keep_others_from_being_listed(
        self, settings: OperatorSettings
    ) -> None:
        deep = b'{"metadata": {"name": "deep", "uid": "u"}, "spec": ' + b"[" * TOO_MANY + b"]" * TOO_MANY + b"}"
        body = b'{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [{"metadata": {"name": "a"}}, %b]}'
        memory = Memory([httpx.Response(200, content=body % deep)])
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            page = await client.list_page("/pods")
        assert [obj.name for obj in page.items] == ["a"]
        assert [str(broken.identity) for broken in page.broken] == ["Pod deep"]

    @pytest.mark.parametrize("method", ["get", "delete"])
    async def test_an_object_that_is_nested_too_deeply_is_a_clear_error(
        self, settings: OperatorSettings, method: str
    ) -> None:
        memory = Memory([httpx.Response(200, content=b'{"a":' * TOO_MANY + b"1" + b"}" * TOO_MANY)])
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            with pytest.raises(ConnectionLostError, match=r"/x: the response is not JSON: .*(recursion|overflow)"):
                await getattr(client, method)("/x")

    async def test_a_list_can_be_whole(self, settings: OperatorSettings) -> None:
        memory = Memory([ok({"kind": "PodList", "metadata": {}, "items": None})])
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            await client.list_page("/pods", continue_="")
        assert memory.requests[0].url.query == b""


class Fence:
    """A fence that lets some calls pass."""

    def __init__(self, passes: int) -> None:
        self.passes = passes

    def __call__(self) -> None:
        self.passes -= 1
        if self.passes < 0:
            raise PausedError("others have taken over")


class TestFences:
    async def test_a_fence_is_asked_before_a_request_is_prepared_and_before_it_is_sent(
        self, settings: OperatorSettings
    ) -> None:
        memory = Memory([ok()])
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            for passes in (0, 1):
                with pytest.raises(PausedError):
                    await client.fenced(Fence(passes)).request("PATCH", "/x")
            assert memory.requests == []
            await client.fenced(Fence(2)).request("PATCH", "/x")
            await client.fenced(Fence(0)).request("GET", "/x")
        assert [request.method for request in memory.requests] == ["PATCH", "GET"]

    async def test_a_fence_is_asked_before_each_retry(
        self, autojump_clock: MockClock, settings: OperatorSettings
    ) -> None:
        memory = Memory([LOST])
        async with open_client(lambda: INFO, settings=settings, transport=memory) as client:
            with pytest.raises(PausedError):
                await client.fenced(Fence(5)).request("PATCH", "/x")
        assert len(memory.requests) == 2

    async def test_a_fence_is_asked_once_there_is_a_connection_by_a_proxy(
        self, serve: Serve, settings: OperatorSettings
    ) -> None:
        seen = []

        async def proxy(talk: Talk) -> None:
            while (request := await talk.request()) is not None:
                seen.append(request.method)
                await talk.send(ANSWER)

        server = await serve(proxy)
        info = ConnectionInfo(server="http://cluster.invalid", proxy_url=server.url)
        async with open_client(lambda: info, settings=settings) as client:
            with pytest.raises(PausedError):
                await client.fenced(Fence(2)).request("PATCH", "/x")
            assert seen == []
            await client.fenced(Fence(3)).request("PATCH", "/x")
        assert seen == ["PATCH"]

    async def test_a_fence_is_asked_when_a_request_reaches_the_server_in_memory(
        self, cluster: Cluster, autojump_clock: MockClock, settings: OperatorSettings
    ) -> None:
        plan = FaultPlan()
        plan.add(Fault.delay(before=30))
        transport = FaultyTransport(cluster.transport(), plan)

        def fence() -> None:
            if trio.current_time() >= 20:
                raise PausedError("others have taken over")

        info, patch = ConnectionInfo(server="http://cluster"), {"metadata": {"labels": {"late": "yes"}}}
        async with open_client(lambda: info, settings=settings, transport=transport) as client:
            with pytest.raises(PausedError):
                await client.fenced(fence).patch("/api/v1/namespaces/default", patch)
        assert "late" not in (await cluster.get("namespaces", "default"))["metadata"]["labels"]


class TestSockets:
    """What only real connections show."""

    async def test_requests_share_connections(self, serve: Serve, settings: OperatorSettings) -> None:
        server = await serve(answer_all)
        async with client_of(server, settings) as client:
            for _ in range(10):
                await client.patch("/x", {})
        assert server.connections == 1

    async def test_all_connections_are_closed_at_the_end(self, serve: Serve, settings: OperatorSettings) -> None:
        server = await serve(answer_all)
        async with client_of(server, settings) as client:
            await client.get("/x")
        await server.all_closed()

    async def test_a_request_whose_response_is_lost_is_retried(self, serve: Serve, settings: OperatorSettings) -> None:
        settings.networking.error_backoffs = (0.01, 0.01, 0.01)

        async def script(talk: Talk) -> None:
            await talk.request()
            match server.connections:
                case 1:
                    talk.reset()
                case 2:
                    await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
                case 3:
                    await talk.send(b"garbage\r\n\r\n")
                case _:
                    await talk.send(ANSWER)

        server = await serve(script)
        async with client_of(server, settings) as client:
            assert await client.get("/x") == {}
        assert server.connections == 4

    async def test_an_error_response_to_a_request_that_was_sent_twice_is_marked_as_repeated(
        self, serve: Serve, settings: OperatorSettings
    ) -> None:
        async def script(talk: Talk) -> None:
            while await talk.request() is not None:
                if server.connections == 1:
                    await talk.send(ANSWER)
                    await talk.request()
                    talk.reset()  # it may have been carried out
                    return
                await talk.send(b"HTTP/1.1 422 Unprocessable\r\nContent-Length: 2\r\n\r\n{}")

        server = await serve(script)
        async with client_of(server, settings) as client:
            await client.get("/x")
            for repeated in (True, False):
                with pytest.raises(InvalidError) as caught:
                    await client.patch("/x", [{"op": "test", "path": "/a", "value": 1}], content_type=JSON_PATCH)
                assert caught.value.repeated is repeated

    async def test_a_post_whose_response_is_lost_is_not_retried(self, serve: Serve, settings: OperatorSettings) -> None:
        settings.networking.error_backoffs = (0.01,)

        async def script(talk: Talk) -> None:
            await talk.request()

        server = await serve(script)
        async with client_of(server, settings) as client:
            with pytest.raises(ConnectionLostError, match=r"closed without a response"):
                await client.post("/x", {})
        assert server.connections == 1

    async def test_an_untrusted_certificate_is_an_error_at_once(
        self, serve: Serve, settings: OperatorSettings, server_tls: ssl.SSLContext
    ) -> None:
        settings.networking.error_backoffs = (3600,)
        server = await serve(answer_all, tls=server_tls)
        other = trustme.CA().cert_pem.bytes()
        with trio.fail_after(60):
            async with client_of(server, settings, ca_data=other) as client:
                with pytest.raises(ConnectionLostError, match=r"the server's certificate cannot be verified"):
                    await client.get("/x")
        assert server.connections == 1

    async def test_silence_meets_the_time_out(self, serve: Serve, settings: OperatorSettings) -> None:
        async def script(talk: Talk) -> None:
            await trio.sleep_forever()

        server = await serve(script)
        settings.networking.request_timeout = 0.05
        settings.networking.error_backoffs = ()
        async with client_of(server, settings) as client:
            with pytest.raises(ConnectionLostError, match=r"no response within 0.05 s"):
                await client.get("/x")

    async def test_a_handshake_without_end_meets_the_connect_timeout(
        self, serve: Serve, settings: OperatorSettings
    ) -> None:
        async def script(talk: Talk) -> None:
            await trio.sleep_forever()

        server = await serve(script)
        settings.networking.connect_timeout = 0.05
        settings.networking.error_backoffs = ()
        server.tls = True
        async with client_of(server, settings, insecure=True) as client:
            with pytest.raises(ConnectionLostError, match=r"no connection within 0.05 s"):
                await client.get("/x")

    @pytest.mark.parametrize("by_proxy", [False, True])
    async def test_connecting_takes_half_a_minute_at_most_and_a_response_takes_longer(
        self,
        by_proxy: bool,
        serve: Serve,
        settings: OperatorSettings,
        server_tls: ssl.SSLContext,
        ca_pem: str,
        mock_clock: MockClock,
    ) -> None:
        """A server, or a proxy, that accepts connections and then says nothing, as in an outage."""
        mock_clock.rate = 20

        async def script(talk: Talk) -> None:
            await talk.request()
            await trio.sleep(40)
            await talk.send(ANSWER)

        async def hang(talk: Talk) -> None:
            await trio.sleep_forever()

        settings.networking.error_backoffs = ()
        dead = await serve(hang)
        dead.tls = not by_proxy
        target = await serve(script, tls=server_tls)
        proxy = await serve(functools.partial(tunnel, target))
        url, proxy_url = ("https://cluster.invalid", dead.url) if by_proxy else (dead.url, None)
        info = ConnectionInfo(server=url, proxy_url=proxy_url, insecure=True)
        async with open_client(lambda: info, settings=settings) as client:
            with trio.fail_after(40), pytest.raises(ConnectionLostError, match=r"no connection within 30 s"):
                await client.get("/x")
        fields = {"ca_data": ca_pem, "proxy_url": proxy.url if by_proxy else None}
        async with client_of(target, settings, **fields) as client:
            assert await client.get("/x") == {}

    async def test_a_proxy_is_used_where_it_is_named(self, serve: Serve, settings: OperatorSettings) -> None:
        targets = []

        async def proxy(talk: Talk) -> None:
            while (request := await talk.request()) is not None:
                targets.append((request.method, request.target))
                await talk.send(ANSWER)

        server = await serve(proxy)
        info = ConnectionInfo(server="http://cluster.invalid:8080/base", proxy_url=server.url)
        async with open_client(lambda: info, settings=settings) as client:
            assert await client.get("/x", {"a": "b c"}) == {}
        assert targets == [("GET", "http://cluster.invalid:8080/base/x?a=b%20c")]

    @pytest.mark.parametrize("by", ["connection", "settings"])
    async def test_a_proxy_of_the_environment_is_used_where_that_is_trusted(
        self,
        serve: Serve,
        settings: OperatorSettings,
        monkeypatch: pytest.MonkeyPatch,
        no_environment: None,
        by: str,
    ) -> None:
        proxied = await serve(answer_all)
        direct = await serve(answer_all)
        monkeypatch.setenv("HTTP_PROXY", proxied.url)

        async def count(**fields: Any) -> tuple[int, int]:
            async with client_of(direct, settings, **fields) as client:
                await client.get("/x")
            return proxied.connections, direct.connections

        assert await count() == (0, 1)
        if by == "settings":
            settings.networking.trust_env = True
            assert await count() == (1, 1)
        else:
            assert await count(trust_env=True) == (1, 1)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert await count(trust_env=True) == (1, 2)

    async def test_an_error_response_of_a_proxy_is_a_lost_connection(
        self, serve: Serve, settings: OperatorSettings
    ) -> None:
        async def script(talk: Talk) -> None:
            await talk.request()
            await talk.answer(b"no", status=407)

        server = await serve(script)
        settings.networking.error_backoffs = ()
        info = ConnectionInfo(server="https://cluster.invalid", proxy_url=server.url, insecure=True)
        async with open_client(lambda: info, settings=settings) as client:
            with pytest.raises(ConnectionLostError, match=rf"cluster.invalid by the proxy {server.url}: 407"):
                await client.get("/x")

    @pytest.mark.parametrize("after_connect", [False, True])
    async def test_a_request_that_a_proxy_has_not_passed_on_is_sent_again_even_if_it_is_a_post(
        self,
        after_connect: bool,
        serve: Serve,
        settings: OperatorSettings,
        server_tls: ssl.SSLContext,
        ca_pem: str,
        autojump_clock: MockClock,
    ) -> None:
        target = await serve(answer_all, tls=server_tls)

        async def script(talk: Talk) -> None:
            if proxy.connections > 1:
                await tunnel(target, talk)
                return
            await talk.request()
            if after_connect:
                await talk.send(b"HTTP/1.1 200 OK\r\n\r\n")
                await talk._fill()  # the beginning of TLS
            talk.reset()

        proxy = await serve(script)
        async with client_of(target, settings, proxy_url=proxy.url, ca_data=ca_pem) as client:
            assert await client.post("/x", {}) == {}
        assert proxy.connections == 2

    async def test_a_tunnel_of_a_proxy_leads_to_the_server(
        self, serve: Serve, settings: OperatorSettings, server_tls: ssl.SSLContext, ca_pem: str
    ) -> None:
        target = await serve(answer_all, tls=server_tls)
        proxy = await serve(functools.partial(tunnel, target))
        async with client_of(target, settings, proxy_url=proxy.url, ca_data=ca_pem) as client:
            assert await client.get("/x") == {}
        assert (proxy.connections, target.connections) == (1, 1)

    async def test_the_system_detects_a_dead_proxy(self, serve: Serve, settings: OperatorSettings) -> None:
        proxy = await serve(answer_all)
        info = ConnectionInfo(server="http://cluster.invalid", proxy_url=proxy.url)
        async with open_client(lambda: info, settings=settings) as client:
            await client.get("/x")
            opened = [one for one in gc.get_objects() if issubclass(type(one), trio.socket.SocketType)]
            options = []
            for sock in opened:
                with contextlib.suppress(OSError):  # one that listens, or is closed
                    if sock.getpeername()[1] == proxy.port:
                        options.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
            assert options == [1]

    @pytest.mark.parametrize("by", ["nothing", "tunnel", "proxy"])
    async def test_a_request_that_is_cancelled_at_any_step_leaves_no_socket(
        self, by: str, serve: Serve, settings: OperatorSettings, server_tls: ssl.SSLContext, ca_pem: str
    ) -> None:
        target = await serve(answer_all, tls=None if by == "proxy" else server_tls)
        proxy = target if by == "proxy" else await serve(functools.partial(tunnel, target))
        fields = {"ca_data": ca_pem, "proxy_url": None if by == "nothing" else proxy.url}
        steps = 0
        async with contextlib.AsyncExitStack() as stack:

            async def get() -> None:
                client = await stack.enter_async_context(client_of(target, settings, **fields))
                await client.get("/x")

            async for is_cancelled in cancel_at_each_step(get):
                steps += 1
                if is_cancelled:
                    await target.all_closed()
                    await proxy.all_closed()
        assert steps > 5

    @pytest.mark.parametrize("by_proxy", [False, True])
    async def test_a_subclass_of_the_connection_may_have_an_ssl_context_of_its_own(
        self, by_proxy: bool, serve: Serve, settings: OperatorSettings, server_tls: ssl.SSLContext, ca_pem: str
    ) -> None:
        class Trusting(ConnectionInfo):
            def as_ssl_context(self) -> ssl.SSLContext:
                context = super().as_ssl_context()
                context.load_verify_locations(cadata=ca_pem)
                return context

        target = await serve(answer_all, tls=server_tls)
        proxy = await serve(functools.partial(tunnel, target))
        settings.networking.error_backoffs = ()
        proxy_url = proxy.url if by_proxy else None
        async with open_client(lambda: Trusting(server=target.url, proxy_url=proxy_url), settings=settings) as client:
            assert await client.get("/x") == {}
        async with client_of(target, settings, proxy_url=proxy_url) as client:
            with pytest.raises(ConnectionLostError, match="certificate cannot be verified"):
                await client.get("/x")

    @pytest.mark.parametrize("by_proxy", [False, True])
    async def test_the_server_must_have_a_certificate_for_the_tls_server_name(
        self, by_proxy: bool, serve: Serve, settings: OperatorSettings, ca: trustme.CA, ca_pem: str
    ) -> None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        ca.issue_cert("kubernetes.internal").configure_cert(tls)  # not for 127.0.0.1
        asked: list[str | None] = []
        tls.sni_callback = lambda _, name, __: asked.append(name)
        target = await serve(answer_all, tls=tls)
        proxy = await serve(functools.partial(tunnel, target))
        fields = {"ca_data": ca_pem, "proxy_url": proxy.url if by_proxy else None}
        settings.networking.error_backoffs = ()
        async with client_of(target, settings, tls_server_name="kubernetes.internal", **fields) as client:
            assert await client.get("/x") == {}
        assert asked == ["kubernetes.internal"]
        for name in (None, "other.internal"):
            async with client_of(target, settings, tls_server_name=name, **fields) as client:
                with pytest.raises(ConnectionLostError, match=r"certificate cannot be verified: .*(name|match)"):
                    await client.get("/x")
        assert proxy.connections == (3 if by_proxy else 0)

    async def test_the_error_of_an_unreachable_server_has_its_address(self, settings: OperatorSettings) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        await listeners[0].aclose()
        settings.networking.error_backoffs = ()
        async with client_of(Server(port=port, tls=False), settings) as client:
            with pytest.raises(ConnectionLostError, match=rf"Cannot connect to 127.0.0.1:{port}: connection refused"):
                await client.get("/x")
