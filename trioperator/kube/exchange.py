"""The seam between the client and what carries its requests.

An :class:`Exchange` sends one request and gives its :class:`Reply`. There are two: the project's own HTTP/1.1
transport (:mod:`trioperator.kube.transport`), and any transport of httpx (:mod:`trioperator.kube.bridge`): a proxy's,
the embedded server's. Nothing here retries, logs, or knows of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from trioperator.errors import ConnectionLostError

__all__ = ["MAX_BODY", "MAX_HEAD", "Exchange", "Headers", "Reply", "TransportError", "find_header"]

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

# The biggest head of a response: nobody's is near, and net/http of Go takes no bigger ones either.
MAX_HEAD: Final = 1024 * 1024
# The biggest body that is read as a whole, in bytes. Lists are paged, so that a page near this size is an accident.
MAX_BODY: Final = 1024 * 1024 * 1024


class TransportError(ConnectionLostError):
    """Say what went wrong on the way to the server or back.

    ``reached`` tells whether the server may have got the request: where it is false, even a POST can be sent again.
    ``final`` tells that the same request will fail the same way (a certificate that does not fit, a body too big).
    """

    def __init__(self, message: str, *, reached: bool, final: bool = False) -> None:
        super().__init__(message)
        self.reached = reached
        self.final = final


class Reply(Protocol):
    """The response to one request: its head, and its body while it arrives."""

    @property
    def status(self) -> int:
        """The HTTP status code."""

    @property
    def headers(self) -> Headers:
        """The header lines as they came: names in any case."""

    @property
    def repeated(self) -> bool:
        """Whether the request was sent twice, as the first connection was lost: the server may have done it twice."""

    async def receive(self) -> bytes:
        """Give the next part of the body, ``b""`` after its last one.

        Raises TransportError where the body stops before its end.
        """

    async def read(self, limit: int = MAX_BODY) -> bytes:
        """Give the whole rest of the body, and free the connection. At most *limit* bytes, else TransportError."""

    async def aclose(self) -> None:
        """Let go of the response, wherever it is. It can be called again."""


class Exchange(Protocol):
    """What carries requests to one API server."""

    async def send(
        self,
        method: str,
        target: str,
        *,
        headers: Headers,
        body: bytes | None = None,
        streaming: bool = False,
        connect_timeout: float | None = None,
    ) -> Reply:
        """Send a request, and give its reply as soon as its head is there.

        *target* is the path and the query, ready for the wire. A *streaming* reply has a connection of its own, which
        takes no place from other requests. *connect_timeout* is in seconds. Raises TransportError.
        """

    def retire(self) -> bool:
        """Drop idle connections, and keep no new ones: replies that are under way go on to their end.

        Tell whether nothing is left to be closed.
        """

    async def aclose(self) -> None:
        """Drop all connections."""


def find_header(headers: Headers, name: bytes) -> str | None:
    """Give the value of the header *name* (in lower case), or None."""
    for key, value in headers:
        if key.lower() == name:
            return value.decode("latin-1").strip()
    return None
