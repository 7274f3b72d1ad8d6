"""Tests for :mod:`trioperator._model.freed_memory`: what lists and objects have taken is returned to the system."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Callable

import pytest
from trio.testing import MockClock

from tests.runtime.conftest import CRD, settle, widget
from tests.runtime.watching.test_division import Stage, shards
from trioperator._model import freed_memory
from trioperator._model.freed_memory import leaving_room, order_room, return_memory
from trioperator.apiserver import Cluster
from trioperator.testing import Fault

LISTED = 1000


def resident() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have rules of their own")
def test_memory_between_what_is_still_used_is_returned() -> None:
    blocks = [b"x" * (3000 + number % 2) for number in range(10_000)]
    kept = blocks[::50]
    del blocks
    before = resident()
    return_memory()
    assert resident() < before - 2**22
    assert len(kept) == 200


class Library:
    """A C library that counts how often it is asked for the memory."""

    def __init__(self) -> None:
        self.trimmed = 0

    def malloc_trim(self, pad: int) -> None:
        assert pad == 0
        self.trimmed += 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    return library


async def test_memory_is_returned_after_each_large_list_and_at_no_other_time(
    library: Library, autojump_clock: MockClock
) -> None:
    stage = Stage(Cluster(seed=0))
    await stage.cluster.apply(CRD)
    for number in range(LISTED):
        await stage.cluster.create(widget(f"w{number}"))
    stage.division.select(shards(0, 1, 2, 3))
    async with stage.following() as reflector:
        await settle(1)
        assert library.trimmed == 1
        stage.plan.add(Fault.break_off(), watch=True, times=3)
        await stage.cluster.patch("widgets", "w1", {"spec": {"size": 2}})
        await settle(1000)
        assert library.trimmed == 1
        reflector.distrust()
        await settle(10)
    assert library.trimmed == 2


async def test_a_library_that_has_no_such_function_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    return_memory()


@pytest.mark.parametrize("shape", ["wide", "keys"])
@pytest.mark.skipif(platform.python_implementation() != "CPython", reason="others allocate in other ways")
def test_small_objects_that_live_on_keep_little_of_the_memory_of_huge_ones(shape: str) -> None:
    command = [sys.executable, "-m", "tests.model.huge_objects", shape]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONMALLOC"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=variables)
    assert float(done.stdout) <= 18  # else it is 28: what one of them takes


@pytest.mark.parametrize("use", [order_room, lambda: contextlib.ExitStack().enter_context(leaving_room())])
def test_no_room_is_made_where_the_memory_is_the_c_librarys(
    use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freed_memory, "IS_PLAIN", True)
    monkeypatch.setattr(freed_memory, "_ROOM", None)
    use()
