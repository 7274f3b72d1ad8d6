"""Tests for :mod:`trioperator.testing.effects`: what is outside of the cluster in plays."""

from __future__ import annotations

import httpx
import pytest
import trio

from trioperator._concurrency.threads import run_in_thread
from trioperator.testing import effects
from trioperator.testing.exploring.outside import refuse_outside_calls


def respond(request: httpx.Request) -> httpx.Response:
    kept = effects.store("dns")
    if request.method != "GET":
        kept[request.url.path] = request.content.decode()
    return httpx.Response(200, json=kept)


@pytest.fixture(autouse=True)
def fakes() -> None:
    effects.fake("https://dns.example.com/", respond)


async def test_fakes_respond_to_httpx_in_plays_and_keep_what_is_sent() -> None:
    with effects.play_outside() as outside:
        async with httpx.AsyncClient() as http:
            await http.put("https://dns.example.com/a", content="1")
            assert (await http.get("https://dns.example.com/a")).json() == {"/a": "1"}
        assert outside.stores == {"dns": {"/a": "1"}}
        assert outside.calls == 1
    with effects.play_outside() as outside:
        assert outside.stores == {}


def test_sync_clients_are_answered_too() -> None:
    with effects.play_outside() as outside:
        httpx.post("https://dns.example.com/a", content="1")
    assert outside.counts == {"POST https://dns.example.com/a": 1}


def test_posts_with_the_same_idempotency_key_count_once() -> None:
    with effects.play_outside() as outside:
        for key in ["1", "1", "2", "", ""]:
            httpx.post("https://dns.example.com/a", headers={"Idempotency-Key": key} if key else {})
        httpx.post("https://dns.example.com/b", headers={"Idempotency-Key": "1"})
    assert outside.counts == {"POST https://dns.example.com/a": 4, "POST https://dns.example.com/b": 1}


def test_what_is_recorded_is_counted_by_key() -> None:
    with effects.play_outside() as outside:
        effects.record("mail", "a@example.com")
        effects.record("mail", "a@example.com")
    assert outside.counts == {"mail a@example.com": 2}


async def test_calls_that_change_something_pass_the_hook() -> None:
    async def lose(send: object) -> httpx.Response:
        raise httpx.ReadError("lost")

    with effects.play_outside() as outside:
        outside.on_call = lose
        async with httpx.AsyncClient() as http:
            await http.get("https://dns.example.com/a")
            with pytest.raises(httpx.ReadError):
                await http.put("https://dns.example.com/a", content="1")


async def test_calls_of_sync_handlers_pass_the_hook_too() -> None:
    async def lose(send: object) -> httpx.Response:
        raise httpx.ReadError("lost")

    def call() -> None:
        with pytest.raises(httpx.ReadError):
            httpx.post("https://dns.example.com/a")
        assert httpx.get("https://dns.example.com/a").json() == {}

    with effects.play_outside() as outside:
        outside.on_call = lose
        await run_in_thread(call, limiter=trio.CapacityLimiter(1))
        assert outside.calls == 0


def test_a_host_whose_name_only_begins_alike_is_not_faked() -> None:
    with effects.play_outside(), refuse_outside_calls() as refused, pytest.raises(Exception, match="outside"):
        httpx.get("https://dns.example.com.others.example/a")
    assert len(refused) == 1
