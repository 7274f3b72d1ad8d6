"""Objects as the server sent them: bytes, of which only the head is decoded until somebody wants the rest."""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["Page", "RawObject", "parse_object", "parse_page"]


class _Metadata(msgspec.Struct, gc=False):
    uid: str | None = None
    name: str | None = None
    namespace: str | None = None
    resource_version: str | None = msgspec.field(name="resourceVersion", default=None)
    generation: int | None = None
    deletion_timestamp: str | None = msgspec.field(name="deletionTimestamp", default=None)


class _Head(msgspec.Struct, gc=False):
    metadata: _Metadata
    kind: str | None = None
    api_version: str | None = msgspec.field(name="apiVersion", default=None)


class _ListMetadata(msgspec.Struct):
    resource_version: str | None = msgspec.field(name="resourceVersion", default=None)
    next: str | None = msgspec.field(name="continue", default=None)


class _List(msgspec.Struct):
    metadata: _ListMetadata
    kind: str | None = None
    api_version: str | None = msgspec.field(name="apiVersion", default=None)
    items: list[msgspec.Raw] | None = None


_decode_head: Final = msgspec.json.Decoder(_Head).decode
_decode_list: Final = msgspec.json.Decoder(_List).decode
_decode_any: Final = msgspec.json.Decoder().decode


class RawObject:
    """One object: its ``raw`` JSON, a copy of its own, and the few fields that the machinery steers by.

    Texts that are absent are ``""``. ``kind`` and ``api_version`` are the list's where the object has none itself.
    """

    __slots__ = ("api_version", "deleting", "generation", "kind", "name", "namespace", "raw", "resource_version", "uid")

    def __init__(self, raw: bytes, head: _Head, *, kind: str, api_version: str) -> None:
        metadata = head.metadata
        self.raw = raw
        self.kind = head.kind or kind
        self.api_version = head.api_version or api_version
        self.uid = metadata.uid or ""
        self.name = metadata.name or ""
        self.namespace = metadata.namespace or ""
        self.resource_version = metadata.resource_version or ""
        self.generation = metadata.generation
        self.deleting = metadata.deletion_timestamp is not None

    def __repr__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"<RawObject {self.kind} {place} at {self.resource_version}>"

    def decode(self) -> dict[str, Any]:
        """Give the whole object, a new one each time, with its kind and API version filled in."""
        try:
            body: dict[str, Any] = _decode_any(self.raw)
        except RecursionError:
            raise msgspec.ValidationError("it is nested too deeply") from None
        if self.kind and not body.get("kind"):
            body["kind"] = self.kind
        if self.api_version and not body.get("apiVersion"):
            body["apiVersion"] = self.api_version
        return body


class Page:
    """One page of a list: its objects, the list's resource version, and the token of the next page, ``""`` at the end.

    ``broken`` says for each object that could not be taken what is wrong with it.
    """

    __slots__ = ("broken", "items", "next", "resource_version")

    def __init__(self, items: list[RawObject], *, resource_version: str, next: str, broken: list[str]) -> None:
        self.items = items
        self.resource_version = resource_version
        self.next = next
        self.broken = broken


def parse_object(raw: bytes, *, kind: str = "", api_version: str = "") -> RawObject:
    """Take the head of an object. *raw* must be bytes that nobody else holds a view of.

    Raises ``msgspec.ValidationError`` for an object with a head that is none, ``msgspec.DecodeError`` for broken JSON.
    """
    try:
        head = _decode_head(raw)
    except RecursionError:
        raise msgspec.ValidationError("it is nested too deeply") from None
    return RawObject(raw, head, kind=kind, api_version=api_version)


def parse_page(body: bytes) -> Page:
    """Take a list apart. Raises ``msgspec.DecodeError`` where it is no list of Kubernetes."""
    parsed = _decode_list(body)
    kind = (parsed.kind or "").removesuffix("List")
    items: list[RawObject] = []
    broken: list[str] = []
    for raw in parsed.items or ():
        try:
            items.append(parse_object(bytes(raw), kind=kind, api_version=parsed.api_version or ""))
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            broken.append(str(exc))
    return Page(
        items,
        resource_version=parsed.metadata.resource_version or "",
        next=parsed.metadata.next or "",
        broken=broken,
    )
