"""Tests for :mod:`trioperator.apiserver.serving.memory`: httpx reaches an API in the same process."""

from __future__ import annotations

import httpx
import pytest
import trio
from trio.testing import MockClock

from trioperator.apiserver.model.messages import Request, Response
from trioperator.apiserver.model.user import ADMIN, User
from trioperator.apiserver.serving.memory import MemoryTransport

ANNA = User(name="anna")


class Chunks:
    """A watch with these chunks, which then waits forever or ends."""

    def __init__(self, *chunks: bytes, is_endless: bool) -> None:
        self.chunks = list(chunks)
        self.is_endless = is_endless

    async def receive(self) -> bytes | None:
        if self.chunks:
            return self.chunks.pop(0)
        if self.is_endless:
            await trio.sleep_forever()
        return None


class Recorder:
    """An API that always returns the same response."""

    body_limit = 1000

    def __init__(self, response: Response) -> None:
        self.response = response
        self.requests: list[Request] = []
        self.is_closed = False

    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        return self.response

    async def aclose(self) -> None:
        self.is_closed = True


def client_of(api: Recorder, *, user: User = ADMIN, timeout: float | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=MemoryTransport(api, user), base_url="http://cluster", timeout=timeout)


async def test_a_request_arrives_with_the_headers_that_matter() -> None:
    api = Recorder(Response.of({"a": "b"}, 201))
    headers = {
        "Authorization": "Bearer x",
        "Content-Type": "application/json",
        "Accept": "text/plain",
        "User-Agent": "me",
    }
    async with client_of(api, user=ANNA) as client:
        response = await client.post("/api/v1/a%2Fb?x=1&y=&z=%20", content=b"{}", headers=headers)
    assert (response.status_code, response.json()) == (201, {"a": "b"})
    assert response.headers["Content-Length"] == str(len(response.content))
    (request,) = api.requests
    assert (request.method, request.path, request.body, request.user) == ("POST", "/api/v1/a%2Fb", b"{}", ANNA)
    assert request.query == {"x": "1", "y": "", "z": " "}
    sent = (request.authorization, request.content_type, request.accept, request.user_agent)
    assert sent == ("Bearer x", "application/json", "text/plain", "me")


async def test_impersonation_headers_arrive_in_lower_case_and_in_order() -> None:
    api = Recorder(Response.of({}))
    headers = [("Impersonate-User", "anna"), ("Impersonate-Group", "a"), ("Other", "x"), ("Impersonate-Group", "b")]
    async with client_of(api) as client:
        await client.get("/", headers=headers)
    groups = [("impersonate-group", "a"), ("impersonate-group", "b")]
    assert api.requests[0].impersonation == [("impersonate-user", "anna"), *groups]


async def test_a_head_request_gets_no_body() -> None:
    async with client_of(Recorder(Response(200, b"text", headers=[("Warning", "a\n b")]))) as client:
        response = await client.head("/")
    assert (response.content, response.headers["Warning"]) == (b"", "a b")


async def test_a_watch_is_streamed_until_it_ends() -> None:
    api = Recorder(Response(200, Chunks(b"one", b"two", is_endless=False)))
    async with client_of(api) as client, client.stream("GET", "/") as response:
        assert [chunk async for chunk in response.aiter_raw()] == [b"one", b"two"]


async def test_the_read_timeout_applies_to_each_chunk_of_a_watch(autojump_clock: MockClock) -> None:
    api = Recorder(Response(200, Chunks(b"one", is_endless=True)))
    began = trio.current_time()
    async with client_of(api, timeout=7) as client, client.stream("GET", "/") as response:
        chunks = response.aiter_raw()
        assert await anext(chunks) == b"one"
        with pytest.raises(httpx.ReadTimeout):
            await anext(chunks)
    assert trio.current_time() - began == pytest.approx(7)


async def test_closing_the_client_closes_the_connections_of_the_api() -> None:
    api = Recorder(Response.of({}))
    async with client_of(api):
        assert not api.is_closed
    assert api.is_closed
