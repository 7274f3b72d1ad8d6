"""Asyncio handlers on Trio: the scenarios of ``scenarios.py``, which run in another process."""

from __future__ import annotations

import functools
import json
import pathlib
import re
import subprocess
import sys

import pytest

import trioperator
from tests.processes.conftest import ROOT, environment
from trioperator._handling.declaring.registry import OperatorRegistry, handler_identity
from trioperator._handling.handlers.handler import derive_id, is_async, signature_of
from trioperator.kopf import bridge

NAMES = re.findall(
    r"@scenario\n(?:@.*\n)?async def (\w+)", (pathlib.Path(__file__).parent / "scenarios.py").read_text()
)


@functools.cache
def run_scenarios(home: pathlib.Path) -> dict[str, str | None]:
    command = [sys.executable, "-m", "tests.kopf.scenarios"]
    env = environment(home)
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    results: dict[str, str | None] = json.loads(done.stdout)
    return results


@pytest.mark.parametrize("name", NAMES)
def test_asyncio_handlers_work_as_in_kopf(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    problem = run_scenarios(tmp_path_factory.getbasetemp())[name]
    assert problem is None, problem


def test_all_scenarios_are_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert sorted(run_scenarios(tmp_path_factory.getbasetemp())) == sorted(NAMES)
    assert len(NAMES) > 10


async def handle(name: str, *, retry: int = 0, **_: object) -> None: ...


def test_an_adapted_handler_looks_like_its_function() -> None:
    adapted = bridge.adapt(handle)
    assert adapted is not handle
    assert is_async(adapted)
    assert derive_id(adapted) == "handle"
    assert signature_of(adapted) == signature_of(handle)


def test_a_function_is_adapted_once() -> None:
    assert bridge.adapt(handle) is bridge.adapt(handle)
    part = functools.partial(handle, name="x")
    assert bridge.adapt(part) is bridge.adapt(part)


def test_a_decorated_function_is_not_taken_for_the_one_that_it_wraps() -> None:
    inner = bridge.adapt(handle)

    @functools.wraps(handle)  # copies the attributes of the function
    async def outer(**kwargs: object) -> None: ...

    assert bridge.adapt(outer) is not inner


def test_methods_are_the_same_handler_each_time() -> None:
    class Operator:
        async def method(self, **_: object) -> None: ...

    operator, registry = Operator(), OperatorRegistry()
    for _ in "ab":
        trioperator.on.event("pods", id="x", registry=registry)(bridge.adapt(operator.method))
    first, second = registry
    assert handler_identity(first) == handler_identity(second)


def test_sync_functions_stay_as_they_are() -> None:
    def sync(**_: object) -> None: ...

    assert bridge.adapt(sync) is sync
    assert bridge.adapt(str) is str  # the decorator complains of it


def test_sync_functions_that_may_use_a_client_are_adapted_once() -> None:
    def sync(client: object = None, **_: object) -> None: ...

    adapted = bridge.adapt(sync)
    assert adapted is not sync
    assert adapted is bridge.adapt(sync)
    assert signature_of(adapted) == signature_of(sync)
