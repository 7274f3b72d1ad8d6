"""ASGI: the types of its messages, and lifespans of applications that have nothing to do when a server starts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

import msgspec

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
AsgiApp: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

#: The extension of a scope with the client's verified certificate, as from ``getpeercert()``; None without one.
SSL_PEER: Final = "trioperator.sslpeer"
#: The extension of a scope with a function for an application that has received the body: unless it responds within
#: the time of a :class:`TimeLimit`, it is cancelled, and the server responds. That takes no cancel scope of its own.
LIMIT: Final = "trioperator.limit"


class TimeLimit(msgspec.Struct, eq=False):
    """The *seconds* for a response. When they are over, it is the JSON that *make_late* returns, or else HTTP 504."""

    seconds: float
    make_late: Callable[[], bytes | None] = lambda: None


#: The limit of the response in progress: whoever is cancelled by it may know what to say.
current_limit: Final[ContextVar[TimeLimit | None]] = ContextVar("trioperator-limit", default=None)


async def accept_lifespan(receive: Receive, send: Send) -> None:
    """Accept the start and the end of a server, and return after that."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


async def respond(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """Send a response, with the length of its body. Servers leave out the body for HEAD requests."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
