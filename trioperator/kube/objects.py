"""Objects as the API server sent them: JSON bytes, of which only the identity is decoded until more is needed."""

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
    """An object as ``raw`` JSON, and the few decoded fields that the runtime needs of every object.

    Absent strings are ``""``. ``kind`` and ``api_version`` are the list's if the object has none.
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
        """Decode the whole object, a new one each time, with its kind and API version filled in."""
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
    """One page of a list: objects, resource version, and the token of the next page (``""`` for the last page).

    ``broken`` has an error message for each invalid object.
    """

    __slots__ = ("broken", "items", "next", "resource_version")

    def __init__(self, items: list[RawObject], *, resource_version: str, next: str, broken: list[str]) -> None:
        self.items = items
        self.resource_version = resource_version
        self.next = next
        self.broken = broken


def parse_object(raw: bytes, *, kind: str = "", api_version: str = "") -> RawObject:
    """Parse the metadata of an object. *raw* is kept, so it must not be a view of a larger buffer.

    Raises ``msgspec.ValidationError`` for invalid metadata, ``msgspec.DecodeError`` for invalid JSON.
    """
    try:
        head = _decode_head(raw)
    except RecursionError:
        raise msgspec.ValidationError("it is nested too deeply") from None
    return RawObject(raw, head, kind=kind, api_version=api_version)


def parse_page(body: bytes) -> Page:
    """Parse a list. Raises ``msgspec.DecodeError`` if it is not a Kubernetes list."""
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
