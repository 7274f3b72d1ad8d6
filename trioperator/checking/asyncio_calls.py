"""Calls of asyncio, and of libraries that need it, in async handlers and in the functions that these call."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trioperator.checking.problems import Problem, locate
from trioperator.checking.sources import Function, Source
from trioperator.handling.asyncio_advice import find_replacement
from trioperator.handling.handler import Handler

__all__ = ["find_asyncio_calls"]

_THREAD: Final = "a sync library in a sync handler, which runs in a thread"
# Libraries that work on asyncio only.
_LIBRARIES: Final[Mapping[str, str]] = {
    "aioboto3": "boto3 in a sync handler, which runs in a thread",
    "aiobotocore": "botocore in a sync handler, which runs in a thread",
    "aiofiles": "trio.open_file() or trio.Path",
    "aiohttp": "httpx.AsyncClient",
    "aiokafka": _THREAD,
    "aiomysql": _THREAD,
    "aiopg": _THREAD,
    "aioredis": _THREAD,
    "aiosqlite": _THREAD,
    "asyncpg": _THREAD,
    "kubernetes_asyncio": "the argument client, or trioperator.open_client()",
    "motor": _THREAD,
    "nats": _THREAD,
    "redis.asyncio": _THREAD,
    "uvloop": "nothing: Trio has its own event loop",
}
# Of asyncio: what runs an event loop of its own, so that all that it is passed may use asyncio.
_RUNNERS: Final = frozenset({"asyncio.run", "asyncio.Runner", "aiorun.run"})
# Of asyncio: what is as good on Trio.
_HARMLESS: Final = frozenset(
    {"iscoroutine", "iscoroutinefunction", "CancelledError", "TimeoutError", "InvalidStateError", "QueueFull"}
)


def find_asyncio_calls(handlers: Iterable[Handler], sources: Iterable[Source]) -> Iterator[Problem]:
    """Yield the calls that cannot work, as handlers run on Trio, each with its replacement."""
    sources = list(sources)
    by_path = {source.path: source for source in sources}
    by_module = {source.module: source for source in sources}
    seen: set[ast.AST] = set()
    for handler in handlers:
        path, line = locate(handler.fn)
        source = by_path.get(path)
        function = source.find_function(line) if source is not None and handler.is_async else None
        if source is not None and isinstance(function, ast.AsyncFunctionDef):
            yield from _Search(handler, by_module, seen).search(source, function)


class _Search:
    """Search from one handler through the functions that it refers to; ``seen`` are those of all searches."""

    def __init__(self, handler: Handler, modules: Mapping[str, Source], seen: set[ast.AST]) -> None:
        self._handler = handler
        self._modules = modules
        self._seen = seen

    def search(self, source: Source, function: Function) -> Iterator[Problem]:
        if function in self._seen:
            return
        self._seen.add(function)
        called: list[tuple[Source, Function]] = []
        found: set[tuple[int, str]] = set()
        for node in _walk(source, function.body):
            name = source.resolve(node)
            text = _advise(name) if name else None
            if name and text and (node.lineno, name) not in found:
                found.add((node.lineno, name))
                message = f"{self._describe(function)} uses {name}, and operators run on Trio: use {text} instead."
                yield Problem(check="asyncio", message=message, file=source.path, line=node.lineno)
            target = self._find_function(source, node, name)
            if target is not None:
                called.append(target)
        for target in called:
            yield from self.search(*target)

    def _describe(self, function: Function) -> str:
        own = function.name == getattr(self._handler.fn, "__name__", None)
        return str(self._handler) if own else f"{function.name}(), which {self._handler} calls,"

    def _find_function(self, source: Source, node: ast.expr, name: str | None) -> tuple[Source, Function] | None:
        """Return the async function of the project that an expression refers to."""
        if name:
            module, _, attribute = name.rpartition(".")
            source = self._modules.get(module, source)
            found = source.functions.get(attribute) if source.module == module else None
        elif isinstance(node, ast.Name):
            found = source.functions.get(node.id)
        else:
            own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
            found = source.functions.get(node.attr) if own and isinstance(node, ast.Attribute) else None
        return (source, found) if isinstance(found, ast.AsyncFunctionDef) else None


def _walk(source: Source, nodes: Iterable[ast.AST]) -> Iterator[ast.Name | ast.Attribute]:
    """Yield the names that async code uses, each as long as it is: sync functions within it may run in threads."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ExceptHandler):
            yield from _walk(source, node.body if isinstance(node, ast.ExceptHandler) else ())
        elif isinstance(node, ast.Call) and source.resolve(node.func) in _RUNNERS:
            continue
        elif isinstance(node, ast.Name | ast.Attribute):
            yield node
            yield from _walk(source, () if source.resolve(node) else ast.iter_child_nodes(node))
        else:
            yield from _walk(source, ast.iter_child_nodes(node))


def _advise(name: str) -> str | None:
    """Return what replaces a dotted name on Trio; None if it works there, or says nothing."""
    package, _, rest = name.partition(".")
    if package == "asyncio":
        harmless = not rest or rest.partition(".")[0] in _HARMLESS
        return None if harmless else find_replacement(rest.partition(".")[0]) or "what Trio offers for it"
    known = (text for library, text in _LIBRARIES.items() if f"{name}.".startswith(f"{library}."))
    return next(known, None) if rest else None
