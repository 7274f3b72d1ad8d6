"""Tests for :mod:`trioperator._tooling.checking.event_loop`.

What holds up the event loop, and what is never awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest

import trioperator
from trioperator._tooling.checking import Source, find_event_loop_problems

Load: TypeAlias = Callable[..., Sequence[Source]]

HEAD = """\
import subprocess, time
import trio, trioperator
async def fetch(): await trio.sleep(0)
async def generate(): yield 1
"""


def find(load: Load, body: str, *, arguments: str = "client, patch, **_", decorator: str = "on.create") -> list[str]:
    text = f"{HEAD}\n@trioperator.{decorator}('widgets')\nasync def fn({arguments}):\n    {body}\n"
    sources = load(app_under_check=text)
    problems = find_event_loop_problems(trioperator.get_default_registry(), sources)
    return [f"{problem.line}: {problem.message}" for problem in problems]


@pytest.mark.parametrize(
    ("body", "called", "replacement"),
    [
        ("time.sleep(1)", "time.sleep", "await trio.sleep()"),
        ("from time import sleep as doze; doze(1)", "time.sleep", "await trio.sleep()"),
        ("print(subprocess.run(['ls']).stdout)", "subprocess.run", "await trio.run_process()"),
        ("import requests; requests.get('http://a').json()", "requests.get", "httpx.AsyncClient"),
        ("import urllib.request; urllib.request.urlopen('http://a')", "urllib.request.urlopen", "httpx.AsyncClient"),
    ],
)
def test_calls_that_block_in_async_handlers_are_found(load: Load, body: str, called: str, replacement: str) -> None:
    [text] = find(load, body)
    assert text.startswith(f"8: Handler 'fn' calls {called}, which holds up all other handlers: use {replacement}")


@pytest.mark.parametrize(
    ("body", "called"),
    [
        ("client.apply({})", "client.apply"),
        ("if patch: client.delete('pods', 'a')", "client.delete"),
        ("phase = client.get('pods', 'a')['status']", "client.get"),
        ("print(client.get('pods', 'a').get('status'))", "client.get"),
        ("patch.store()", "patch.store"),
        ("trio.sleep(1)", "trio.sleep"),
        ("fetch()", "fetch"),
    ],
)
def test_a_forgotten_await_is_found(load: Load, body: str, called: str) -> None:
    assert find(load, body) == [f"8: Handler 'fn' calls {called}() without await, so that nothing happens."]


def test_a_forgotten_await_of_the_stop_flag_is_found(load: Load) -> None:
    [text] = find(load, "while not stopped: stopped.wait(5)", arguments="stopped, **_", decorator="daemon")
    assert "stopped.wait() without await" in text


@pytest.mark.parametrize(
    "body",
    [
        "await trio.to_thread.run_sync(time.sleep, 1)",
        "await trio.to_thread.run_sync(lambda: time.sleep(1))",
        "def work(): time.sleep(1)",
        "await client.apply({})",
        "(await client.get('pods', 'a'))['status']",
        "apply = client.apply({}); await apply",
        "async with trio.open_nursery() as nursery: nursery.start_soon(client.apply, {})",
        "async for _ in client.watch('pods'): pass",
        "async for _ in generate(): pass",
        "patch['status'] = {}; patch.update({}); patch.status.setdefault('a', 1)",
        "client.logger.info('it')",
    ],
)
def test_what_works_is_left_alone(load: Load, body: str) -> None:
    assert find(load, body) == []


def test_clients_of_others_may_have_sync_methods(load: Load) -> None:
    assert find(load, "import boto3; client = boto3.client('s3'); client.delete('a')", arguments="**_") == []


def test_sync_handlers_may_block_and_await_nothing(load: Load) -> None:
    text = f"{HEAD}\n@trioperator.on.create('widgets')\ndef fn(client):\n    time.sleep(1); client.apply({{}})\n"
    sources = load(app_under_check=text)
    assert list(find_event_loop_problems(trioperator.get_default_registry(), sources)) == []


def test_functions_that_handlers_call_are_searched(load: Load) -> None:
    text = f"{HEAD}async def slow(): time.sleep(1)\n\n@trioperator.on.create('a')\nasync def fn(): await slow()\n"
    [problem] = find_event_loop_problems(trioperator.get_default_registry(), load(app_under_check=text))
    assert problem.message.startswith("slow(), which Handler 'fn' calls, calls time.sleep")
