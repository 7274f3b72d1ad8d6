"""Tests for :mod:`trioperator._tooling.checking.sources`: what names in a source stand for."""

from __future__ import annotations

import ast

import pytest

from trioperator._tooling.checking.sources import Source


def resolve(text: str, *, module: str = "pkg.mod", path: str = "pkg/mod.py") -> str | None:
    """Return what the last expression of a source resolves to."""
    source = Source.parse(module, path, text)
    last = source.tree.body[-1]
    assert isinstance(last, ast.Expr)
    return source.resolve(last.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import asyncio\nasyncio.sleep", "asyncio.sleep"),
        ("import asyncio as aio\naio.sleep", "asyncio.sleep"),
        ("import redis.asyncio\nredis.asyncio.Redis", "redis.asyncio.Redis"),
        ("from asyncio import sleep as nap\nnap", "asyncio.sleep"),
        ("from asyncio import locks\nlocks.Lock", "asyncio.locks.Lock"),
        ("from . import helpers\nhelpers.fetch", "pkg.helpers.fetch"),
        ("from .helpers import fetch\nfetch", "pkg.helpers.fetch"),
        ("from ..other import fetch\nfetch", "other.fetch"),
        ("import asyncio\nlock = asyncio.Lock()\nlock.acquire", "asyncio.Lock.acquire"),
        ("unknown.name", None),
        ("(lambda: 1)", None),
    ],
)
def test_names_stand_for_what_is_imported(text: str, name: str | None) -> None:
    assert resolve(text) == name


def test_relative_imports_of_a_package_are_from_itself() -> None:
    assert resolve("from .a import b\nb", module="pkg", path="pkg/__init__.py") == "pkg.a.b"


def test_a_function_is_found_by_the_line_of_its_first_decorator() -> None:
    source = Source.parse("m", "m.py", "import x\n\n@x.one\n@x.two\nasync def fn(): pass\n")
    function = source.find_function(3)
    assert function is not None
    assert function.name == "fn"
    assert source.find_function(5) is None


@pytest.mark.parametrize("text", ["def (", b"a = '\x00'", b"# coding: nonsense\n"])
def test_what_is_no_python_raises(text: str | bytes) -> None:
    with pytest.raises((SyntaxError, ValueError)):
        Source.parse("m", "m.py", text)
