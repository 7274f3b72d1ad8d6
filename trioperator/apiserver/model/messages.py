"""Requests and responses, independent of the transport, and the log of requests."""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from .user import ANONYMOUS, User

IMPERSONATION: Final = b"impersonate-"
_WARNINGS_LIMIT: Final = 4096  # characters of all warnings of a request, before each is cut
_WARNING_LIMIT: Final = 256
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_VIEWERS: Final = ("curl", "Wget", "Mozilla/5.0")
_encode: Final = msgspec.json.Encoder().encode


@dataclasses.dataclass(slots=True, kw_only=True)
class Request:
    """A request, with the headers that matter."""

    method: str
    path: str
    query: Mapping[str, str] = dataclasses.field(default_factory=dict)
    accept: str = ""
    if_none_match: str = ""
    content_type: str = ""
    user_agent: str = ""
    upgrade: str = ""  # the protocol that the client would rather speak
    authorization: str = ""
    user: User = ANONYMOUS  # authenticated by the transport; later by credentials
    impersonation: Sequence[tuple[str, str]] = ()  # the headers that begin with Impersonate-, in lower case
    body: bytes = b""
    warnings: list[str] = dataclasses.field(default_factory=list)  # for the client
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)  # audit annotations of webhooks

    @property
    def media_type(self) -> str:
        """The media type of the body, without its parameters."""
        return self.content_type.partition(";")[0].strip()

    @property
    def is_pretty(self) -> bool:
        """Whether the response shall be indented: as a parameter says, or for tools that show it as it is."""
        wanted = self.query.get("pretty")
        return wanted in _TRUE if wanted else self.user_agent.startswith(_VIEWERS)


class Stream(Protocol):
    """A response body that is sent in chunks until it ends: a watch."""

    async def receive(self) -> bytes | None:
        """Return the next chunk, or None at the end."""
        ...


@dataclasses.dataclass(slots=True)
class Response:
    """One response: a complete body, or a stream."""

    status: int
    body: bytes | Stream
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, content: Any, status: int = 200) -> Response:
        """Return a response whose body is the content as JSON."""
        return cls(status, _encode(content))


class Handler(Protocol):
    """Whatever answers requests: how the transports see the API."""

    body_limit: int  # bytes

    async def handle(self, request: Request) -> Response:
        """Return the response to the request. Never raises for what a client sends."""
        ...

    async def aclose(self) -> None:
        """Close idle connections to webhooks."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """Log entry of one request, in the terms of Kubernetes and of HTTP."""

    time: float
    method: str
    path: str
    query: Mapping[str, str]
    user_agent: str
    status: int
    verb: str = ""  # get, list, watch, create, update, patch, delete, deletecollection; "" for documents
    resource: str = ""  # "pods", "deployments.apps"
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    content_type: str = ""
    size: int = 0  # bytes of the request's body
    user: str = ""  # user name
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)  # what webhooks noted for an audit


def warning_headers(warnings: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield a ``Warning`` header for each distinct warning; long ones are truncated."""
    texts = [" ".join(_CONTROL.sub(" ", text).split()) for text in dict.fromkeys(warnings) if text.strip()]
    if sum(map(len, texts)) > _WARNINGS_LIMIT:
        texts = [text[:_WARNING_LIMIT] for text in texts]
    size = 0
    for text in texts:
        if size >= _WARNINGS_LIMIT:
            break
        size += len(text)
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        yield "Warning", f'299 - "{escaped}"'


class RequestLog:
    """The latest requests, in order: a sequence of :class:`RequestRecord` with filters and counts."""

    def __init__(self, limit: int) -> None:
        self._records: deque[RequestRecord] = deque(maxlen=limit)

    def __iter__(self) -> Iterator[RequestRecord]:
        return iter(tuple(self._records))

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> RequestRecord:
        return self._records[index]

    def add(self, record: RequestRecord) -> None:
        """Append a record; the oldest is dropped when there are too many."""
        self._records.append(record)

    def clear(self) -> None:
        """Remove all records."""
        self._records.clear()

    def select(self, **wanted: object) -> list[RequestRecord]:
        """Return the records whose fields have these values: ``select(verb="patch", resource="pods")``.

        The group of a resource may be left out.
        """
        return [record for record in self._records if all(_fits(record, key, value) for key, value in wanted.items())]

    def count(self, **wanted: object) -> int:
        """Return the number of records whose fields have these values."""
        return len(self.select(**wanted))

    def verbs(self, **wanted: object) -> dict[str, int]:
        """Return the number of records whose fields have these values, by verb."""
        counts: dict[str, int] = {}
        for record in self.select(**wanted):
            counts[record.verb] = counts.get(record.verb, 0) + 1
        return counts


def _fits(record: RequestRecord, field: str, value: object) -> bool:
    own = getattr(record, field)
    if field == "resource" and isinstance(value, str) and "." not in value:
        own = own.partition(".")[0]
    return bool(own == value)
