"""Tests for :mod:`trioperator._tooling.checking.reconciling`.

Handlers that do not say what children there are to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import trioperator
from trioperator._tooling.checking import Source, find_reconcile_problems


def find(load: Callable[..., Sequence[Source]], body: str, *, owns: str = "['configmaps']") -> list[str]:
    text = "\n    ".join(["def fn(spec):", *body.split("; ")])
    sources = load(app_under_check=f"import trioperator\n@trioperator.on.reconcile('widgets', owns={owns})\n{text}\n")
    problems = find_reconcile_problems(trioperator.get_default_registry(), sources)
    return [f"{problem.line}: {problem.message.partition(', which')[0]}" for problem in problems]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if not spec: return; return [{}]", "4: Handler 'fn' returns None"),
        ("if not spec: return None; return [{}]", "4: Handler 'fn' returns None"),
        ("print(spec)", "2: Handler 'fn' returns None"),
        ("if not spec: return; yield {}", "4: Handler 'fn' returns before it has yielded anything"),
    ],
)
def test_what_says_nothing_of_children_is_found(
    load: Callable[..., Sequence[Source]], body: str, expected: str
) -> None:
    assert find(load, body) == [expected]


@pytest.mark.parametrize(
    "body",
    [
        "return []",
        "return [{}] if spec else []",
        "yield {}; return",
        "yield []; return; yield {}",
        "for each in spec: yield each",
        "raise trioperator.Requeue(after=3)",
        "return list(map(lambda each: None, spec))",
    ],
)
def test_what_says_it_is_not(load: Callable[..., Sequence[Source]], body: str) -> None:
    assert find(load, body) == []


def test_handlers_without_children_may_return_none(load: Callable[..., Sequence[Source]]) -> None:
    assert find(load, "return", owns="[]") == []
