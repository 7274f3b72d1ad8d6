"""Calls of asyncio, and of libraries that need it, in async handlers and in the functions that these call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trioperator._handling.calls.asyncio_advice import find_replacement
from trioperator._handling.handlers.handler import Handler
from trioperator._tooling.checking.async_code import find_async_code, walk_names
from trioperator._tooling.checking.problems import Problem
from trioperator._tooling.checking.sources import Source

_THREAD: Final = "a sync library in a sync handler, which runs in a thread"
# Libraries that work on asyncio only; parts of them come first.
_LIBRARIES: Final[Mapping[str, str]] = {
    "aioboto3": "boto3 in a sync handler, which runs in a thread",
    "aiobotocore": "botocore in a sync handler, which runs in a thread",
    "aiofiles": "trio.open_file() or trio.Path",
    "aiohttp.web": "Quart-Trio on hypercorn, or a sync server in a thread",
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
# Of kubernetes_asyncio: models and errors.
_DATA: Final = re.compile(r"(^|\.)(V\d\w*|\w+Exception)$")
# Of asyncio: what is as good on Trio.
_HARMLESS: Final = frozenset(
    {"iscoroutine", "iscoroutinefunction", "CancelledError", "TimeoutError", "InvalidStateError", "QueueFull"}
)


def find_asyncio_calls(handlers: Iterable[Handler], sources: Iterable[Source]) -> Iterator[Problem]:
    """Yield the calls that cannot work, as handlers run on Trio, each with its replacement."""
    for part in find_async_code(handlers, sources):
        found: set[tuple[int, str]] = set()
        for node in walk_names(part.source, part.function.body):
            name = part.source.resolve(node)
            text = describe_replacement(name) if name else None
            if name and text and (node.lineno, name) not in found:
                found.add((node.lineno, name))
                message = f"{part} uses {name}, and operators run on Trio: use {text} instead."
                yield Problem(check="asyncio", message=message, file=part.source.path, line=node.lineno)


def describe_replacement(name: str) -> str | None:
    """Return what replaces a dotted name on Trio; None if it works there, or says nothing."""
    package, _, rest = name.partition(".")
    if package == "asyncio":
        harmless = not rest or rest.partition(".")[0] in _HARMLESS
        return None if harmless else find_replacement(rest.partition(".")[0]) or "what Trio offers for it"
    if package == "kubernetes_asyncio" and _DATA.search(rest):
        return None
    known = (text for library, text in _LIBRARIES.items() if f"{name}.".startswith(f"{library}."))
    return next(known, None) if rest else None
