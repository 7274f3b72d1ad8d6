"""Calls in async handlers that block the event loop, and coroutines that nobody awaits."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trioperator._handling.handlers.handler import Handler
from trioperator._tooling.checking.async_code import AsyncCode, find_async_code, find_called_function
from trioperator._tooling.checking.problems import Problem
from trioperator._tooling.checking.sources import Source
from trioperator.client import Client

_HTTPX: Final = "httpx.AsyncClient, or a sync handler, which runs in a thread"
_PROCESS: Final = "await trio.run_process()"
# Functions and packages that block, with what to use in async code.
_BLOCKING: Final[Mapping[str, str]] = {
    "httpx.delete": _HTTPX,
    "httpx.get": _HTTPX,
    "httpx.patch": _HTTPX,
    "httpx.post": _HTTPX,
    "httpx.put": _HTTPX,
    "httpx.request": _HTTPX,
    "os.system": _PROCESS,
    "requests": _HTTPX,
    "subprocess.call": _PROCESS,
    "subprocess.check_call": _PROCESS,
    "subprocess.check_output": _PROCESS,
    "subprocess.run": _PROCESS,
    "time.sleep": "await trio.sleep()",
    "urllib.request.urlopen": _HTTPX,
    "urllib3.request": _HTTPX,
}
# Coroutine functions of the arguments of async handlers.
_COROUTINES: Final[Mapping[str, frozenset[str]]] = {
    "client": frozenset(name for name, _ in inspect.getmembers(Client, inspect.iscoroutinefunction) if name[0] != "_"),
    "patch": frozenset({"store"}),
    "stopped": frozenset({"wait"}),
}


def find_event_loop_problems(handlers: Iterable[Handler], sources: Iterable[Source]) -> Iterator[Problem]:
    """Yield calls that hold up all other handlers, and calls of coroutine functions that do nothing."""
    sources = list(sources)
    modules = {source.module: source for source in sources}
    for code in find_async_code(handlers, sources):
        for node in _walk(code.function.body):
            message = None
            if isinstance(node, ast.Call):
                message = _describe_blocking(code, node)
            elif isinstance(node, ast.Expr | ast.Attribute | ast.Subscript) and isinstance(node.value, ast.Call):
                message = _describe_forgotten(code, node.value, modules)
            if message:
                yield Problem(check="event-loop", message=message, file=code.source.path, line=node.lineno)


def _walk(nodes: Iterable[ast.AST]) -> Iterator[ast.Call | ast.Expr | ast.Attribute | ast.Subscript]:
    """Yield what may be a mistake in async code itself: functions within it may run in threads, or be awaited."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Call | ast.Expr | ast.Attribute | ast.Subscript):
            yield node
        yield from _walk(ast.iter_child_nodes(node))


def _describe_blocking(code: AsyncCode, call: ast.Call) -> str | None:
    name = code.source.resolve(call.func)
    known = (text for blocking, text in _BLOCKING.items() if f"{name}.".startswith(f"{blocking}."))
    text = next(known, None)
    return f"{code} calls {name}, which holds up all other handlers: use {text}." if text else None


def _describe_forgotten(code: AsyncCode, call: ast.Call, modules: Mapping[str, Source]) -> str | None:
    """Return what is wrong with a call whose result is dropped or looked into, if that is a coroutine."""
    if _is_coroutine_function(code, call.func, modules):
        return f"{code} calls {ast.unparse(call.func)}() without await, so that nothing happens."
    return None


def _is_coroutine_function(code: AsyncCode, called: ast.expr, modules: Mapping[str, Source]) -> bool:
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and _is_argument(code, called.value.id):
        return called.attr in _COROUTINES.get(called.value.id, ())
    name = code.source.resolve(called)
    module, _, attribute = (name or "").rpartition(".")
    if inspect.iscoroutinefunction(getattr(sys.modules.get(module), attribute, None)):
        return True
    found = find_called_function(code.source, called, modules)
    return found is not None and not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(found[1]))


def _is_argument(code: AsyncCode, name: str) -> bool:
    """Return whether a name is an argument that the operator passes, and not a variable of the function."""
    arguments = code.function.args
    names = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    return code.is_handler and name in names
