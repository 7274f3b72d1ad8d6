"""Tests for :mod:`trioperator._tooling.checking.async_code`: what runs on the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import trioperator
from trioperator._tooling.checking.async_code import find_async_code
from trioperator._tooling.checking.sources import Source

Load: TypeAlias = Callable[..., Sequence[Source]]

TEXT = """\
import trio, trioperator

async def unused(): pass
async def deepest(): await first()
async def helper(): await deepest()

class Tools:
    async def method(self): await helper()

@trioperator.on.create("widgets")
async def first(): await helper()

@trioperator.on.update("widgets")
async def second(): await helper()

@trioperator.on.delete("widgets")
def third(): helper()
"""


def test_each_async_function_is_found_once_with_the_handler_that_reaches_it(load: Load) -> None:
    found = list(find_async_code(trioperator.get_default_registry(), load(app_under_check=TEXT)))
    assert [str(code) for code in found] == [
        "Handler 'first'",
        "helper(), which Handler 'first' calls,",
        "deepest(), which Handler 'first' calls,",
        "Handler 'second'",
    ]
    assert [code.is_handler for code in found] == [True, False, False, True]
