"""Tests for :mod:`trioperator._tooling.checking.asyncio_calls`.

What cannot work on Trio is found before it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest

import trioperator
from trioperator._tooling.checking import Source, find_asyncio_calls

Load: TypeAlias = Callable[..., Sequence[Source]]

HEAD = """\
import asyncio, contextlib
import trioperator
"""


def find(load: Load, **texts: str) -> list[str]:
    sources = load(**texts)
    problems = find_asyncio_calls(trioperator.get_default_registry(), sources)
    return [f"{problem.line}: {problem.message}" for problem in problems]


def handle(body: str) -> str:
    return f"{HEAD}\n@trioperator.on.create('widgets')\nasync def fn(**_):\n    {body}\n"


@pytest.mark.parametrize(
    ("body", "used", "replacement"),
    [
        ("await asyncio.sleep(1)", "asyncio.sleep", "trio.sleep()"),
        ("return await asyncio.gather(a, b)", "asyncio.gather", "a nursery: trio.open_nursery()"),
        ("async with asyncio.TaskGroup() as group: pass", "asyncio.TaskGroup", "a nursery: "),
        ("async with asyncio.timeout(1): pass", "asyncio.timeout", "trio.fail_after()"),
        ("lock = asyncio.Lock()", "asyncio.Lock", "trio.Lock"),
        ("asyncio.get_running_loop().call_soon(print)", "asyncio.get_running_loop", "a nursery for its tasks"),
        ("asyncio.something_new()", "asyncio.something_new", "what Trio offers for it"),
        ("import aiohttp; aiohttp.ClientSession()", "aiohttp.ClientSession", "httpx.AsyncClient"),
        ("from kubernetes_asyncio import client; client.CoreV1Api()", "kubernetes_asyncio.client.CoreV1Api", "the arg"),
        ("from redis.asyncio import Redis; Redis()", "redis.asyncio.Redis", "a sync library"),
    ],
)
def test_calls_in_async_handlers_are_found_with_their_replacement(
    load: Load, body: str, used: str, replacement: str
) -> None:
    [text] = find(load, app_under_check=handle(body))
    assert text.startswith(f"6: Handler 'fn' uses {used}, and operators run on Trio: use {replacement}")


@pytest.mark.parametrize(
    "body",
    [
        "import trio; await trio.sleep(1)",
        "asyncio.run(main())",
        "asyncio.iscoroutinefunction(print)",
        "import redis; redis.Redis()",
        "(lambda: asyncio.sleep(1))",
        "def inner(): asyncio.get_event_loop()",
    ],
)
def test_what_works_is_left_alone(load: Load, body: str) -> None:
    assert find(load, app_under_check=handle(body)) == []


def test_sync_handlers_may_run_asyncio_in_their_threads(load: Load) -> None:
    assert find(load, app_under_check=handle("asyncio.sleep(1)").replace("async def", "def")) == []


def test_functions_that_no_handler_uses_are_left_alone(load: Load) -> None:
    assert find(load, app_under_check=f"{HEAD}\nasync def main(): await asyncio.sleep(1)\n") == []


def test_functions_that_handlers_call_are_searched_also_in_other_modules(load: Load) -> None:
    functions = "async def fetch(): await deeper()\nasync def deeper(): await lock.acquire()\n"
    helpers = f"{HEAD}\nlock = asyncio.Lock()\n{functions}"
    app = f"import helpers_under_check\n{handle('await helpers_under_check.fetch()')}"
    [text] = find(load, helpers_under_check=helpers, app_under_check=app)
    assert text.startswith("6: deeper(), which Handler 'fn' calls, uses asyncio.Lock.acquire")
    assert text.endswith("use trio.Lock instead.")


def test_recursion_ends_and_each_line_is_reported_once(load: Load) -> None:
    again = f"{handle('await fn(); await asyncio.sleep(1); await asyncio.sleep(2)')}"
    assert len(find(load, app_under_check=f"{again}\ntrioperator.on.update('widgets')(fn)\n")) == 1
