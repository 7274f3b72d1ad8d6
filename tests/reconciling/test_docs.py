"""The snippets of docs/reconcile.md declare handlers that an operator accepts."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

import trioperator
from trioperator.handling.reconciling import ReconcileHandler

PAGE = (pathlib.Path(trioperator.__file__).parents[1] / "docs" / "reconcile.md").read_text()
SNIPPETS = [part.split("```", 1)[0] for part in PAGE.split("```python\n")[1:]]


@pytest.fixture
def registry() -> Iterator[trioperator.OperatorRegistry]:
    before = trioperator.get_default_registry()
    fresh = trioperator.OperatorRegistry()
    trioperator.set_default_registry(fresh)
    yield fresh
    trioperator.set_default_registry(before)


@pytest.mark.parametrize("snippet", [each for each in SNIPPETS if "@trioperator.on" in each])
def test_the_handlers_of_the_page_can_be_declared(snippet: str, registry: trioperator.OperatorRegistry) -> None:
    exec(compile(snippet, "docs/reconcile.md", "exec"), {"trioperator": trioperator})
    registry.check()
    assert any(isinstance(handler, ReconcileHandler) for handler in registry)


def test_the_first_handler_of_the_page_returns_children(registry: trioperator.OperatorRegistry) -> None:
    exec(compile(SNIPPETS[0], "docs/reconcile.md", "exec"), {})
    (handler,) = registry
    desired: Any = handler.fn(name="shop", spec={"image": "nginx", "port": 80})
    assert [child.manifest["kind"] for child in desired.children] == ["Deployment", "Service"]


@pytest.mark.parametrize("snippet", [each for each in SNIPPETS if "@trioperator.on" not in each])
def test_all_other_snippets_are_python(snippet: str) -> None:
    compile(f"def function():\n    {snippet.replace(chr(10), chr(10) + '    ')}", "docs/reconcile.md", "exec")
