"""Async handlers and the async functions of the project that they call: what runs on the event loop."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trioperator._handling.handlers.handler import Handler
from trioperator._tooling.checking.problems import locate
from trioperator._tooling.checking.sources import Source

# Functions that run an asyncio event loop of their own, so that their arguments may use asyncio.
_RUNNERS: Final = frozenset({"asyncio.run", "asyncio.Runner", "aiorun.run"})


@dataclasses.dataclass(frozen=True, slots=True)
class AsyncCode:
    """An async function, and the first handler by which it is reached."""

    handler: Handler
    source: Source
    function: ast.AsyncFunctionDef

    @property
    def is_handler(self) -> bool:
        """Whether it is the handler itself, which is called with the arguments of handlers."""
        return self.function.name == getattr(self.handler.fn, "__name__", None)

    def __str__(self) -> str:
        return str(self.handler) if self.is_handler else f"{self.function.name}(), which {self.handler} calls,"


def find_async_code(handlers: Iterable[Handler], sources: Iterable[Source]) -> Iterator[AsyncCode]:
    """Yield each async function that handlers reach by the names in their code, once."""
    by_path = {source.path: source for source in sources}
    by_module = {source.module: source for source in by_path.values()}
    seen: set[ast.AST] = set()
    for handler in handlers:
        path, line = locate(handler.fn)
        source = by_path.get(path)
        function = source.find_function(line) if source is not None and handler.is_async else None
        if source is not None and isinstance(function, ast.AsyncFunctionDef):
            yield from _search(AsyncCode(handler, source, function), by_module, seen)


def _search(code: AsyncCode, modules: Mapping[str, Source], seen: set[ast.AST]) -> Iterator[AsyncCode]:
    if code.function in seen:
        return
    seen.add(code.function)
    yield code
    for node in walk_names(code.source, code.function.body):
        target = find_called_function(code.source, node, modules)
        if target is not None:
            yield from _search(AsyncCode(code.handler, *target), modules, seen)


def find_called_function(
    source: Source, node: ast.expr, modules: Mapping[str, Source]
) -> tuple[Source, ast.AsyncFunctionDef] | None:
    """Return the async function of the project that an expression refers to, with its source, if any."""
    name = source.resolve(node)
    if name:
        module, _, attribute = name.rpartition(".")
        source = modules.get(module, source)
        found = source.functions.get(attribute) if source.module == module else None
    elif isinstance(node, ast.Name):
        found = source.functions.get(node.id)
    else:
        own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        found = source.functions.get(node.attr) if own and isinstance(node, ast.Attribute) else None
    return (source, found) if isinstance(found, ast.AsyncFunctionDef) else None


def walk_names(source: Source, nodes: Iterable[ast.AST]) -> Iterator[ast.Name | ast.Attribute]:
    """Yield the names that async code uses, each as long as it is: sync functions within it may run in threads."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ExceptHandler):
            yield from walk_names(source, node.body if isinstance(node, ast.ExceptHandler) else ())
        elif isinstance(node, ast.Call) and source.resolve(node.func) in _RUNNERS:
            continue
        elif isinstance(node, ast.Name | ast.Attribute):
            yield node
            yield from walk_names(source, () if source.resolve(node) else ast.iter_child_nodes(node))
        else:
            yield from walk_names(source, ast.iter_child_nodes(node))
