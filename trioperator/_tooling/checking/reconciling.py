"""Reconcile handlers that may not say what children there are to be."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.handlers.handler import Handler
from trioperator._tooling.checking.problems import Problem, locate, problem_of
from trioperator._tooling.checking.sources import Source

_TEXT: Final = (
    "which is an error, as it does not say what children there are to be: {} [] if there are none, or return"
    " trioperator.Requeue(after=...) to leave them as they are."
)
_FUNCTIONS: Final = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


def find_reconcile_problems(handlers: Iterable[Handler], sources: Iterable[Source]) -> Iterator[Problem]:
    """Yield where reconcile handlers with ``owns=`` return None, or return before they have yielded anything."""
    by_path = {source.path: source for source in sources}
    for handler in handlers:
        path, line = locate(handler.fn)
        if not isinstance(handler, ReconcileHandler) or not handler.owns or path not in by_path:
            continue
        function = by_path[path].find_function(line)
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        nodes = list(_walk(function.body))
        yields = [node.lineno for node in nodes if isinstance(node, ast.Yield | ast.YieldFrom)]
        returns = [node for node in nodes if isinstance(node, ast.Return)]
        if not yields and not returns and not any(isinstance(node, ast.Raise) for node in nodes):
            yield problem_of("children", handler.fn, f"{handler} returns None, {_TEXT.format('return')}")
        for node in returns:
            if _is_silent(node) and not (yields and min(yields) < node.lineno):
                what = f"returns before it has yielded anything, {_TEXT.format('yield')}"
                text = what if yields else f"returns None, {_TEXT.format('return')}"
                yield Problem(check="children", message=f"{handler} {text}", file=path, line=node.lineno)


def _walk(nodes: Iterable[ast.AST]) -> Iterator[ast.expr | ast.stmt]:
    """Yield what is in a function itself, and not in functions within it."""
    for node in nodes:
        if isinstance(node, _FUNCTIONS):
            continue
        if isinstance(node, ast.expr | ast.stmt):
            yield node
        yield from _walk(ast.iter_child_nodes(node))


def _is_silent(node: ast.Return) -> bool:
    return node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
