"""Objects as the API server sent them: JSON bytes, of which only the identity is decoded until more is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import trio

from trioperator._kube.deep_json import DECODE_ERRORS, decode_shallow, split_items, split_members
from trioperator._model.lazy_object import LARGE, LazyObject, Soon


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
    remaining: int | None = msgspec.field(name="remainingItemCount", default=None)


class _List(msgspec.Struct):
    metadata: _ListMetadata
    kind: str | None = None
    api_version: str | None = msgspec.field(name="apiVersion", default=None)
    items: list[msgspec.Raw] | None = None


_decode_head: Final = msgspec.json.Decoder(_Head).decode
_decode_list: Final = msgspec.json.Decoder(_List).decode
_decode_any: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode

# Fields that are known of an object that cannot be read: all of these are strings.
_IDENTITY: Final = ("uid", "name", "namespace", "resourceVersion", "deletionTimestamp")


class RawObject(msgspec.Struct, eq=False, gc=False):
    """An object as ``raw`` JSON, and the few decoded fields that the runtime needs of every object.

    Absent strings are ``""``. ``kind`` and ``api_version`` are the list's if the object has none.
    """

    raw: bytes
    kind: str
    api_version: str
    uid: str
    name: str
    namespace: str
    resource_version: str
    generation: int | None
    deleting: bool

    def __repr__(self) -> str:
        return f"<RawObject {self} at {self.resource_version}>"

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def key(self) -> str:
        """The uid, or the name where an aggregated API has no uids."""
        return self.uid or f"{self.namespace}/{self.name}"

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

    def load(self) -> Mapping[str, Any]:
        """Decode the whole object. A large one is decoded again whenever it is used: only its JSON is kept."""
        if len(self.raw) < LARGE:
            return self.decode()
        added = {name: text for name, text in (("kind", self.kind), ("apiVersion", self.api_version)) if text}
        return LazyObject.of(self.raw, self.decode, soon=find_soon(), added=added)


def find_soon() -> Soon | None:
    """Return what calls functions when the current task waits; None outside of Trio."""
    try:
        return trio.lowlevel.current_trio_token().run_sync_soon
    except RuntimeError:
        return None


class BrokenObject(msgspec.Struct, frozen=True):
    """An object that cannot be read, and why; ``identity`` has only the metadata that tells which one it is, if any."""

    identity: RawObject | None
    problem: str


class Page(msgspec.Struct, kw_only=True):
    """One page of a list: objects, resource version, and the token of the next page (``""`` for the last page).

    ``broken`` are the objects that cannot be read, ``size`` is the size of the page in bytes. ``remaining`` is the
    number of objects after it; None if the server does not say that, as with selectors.
    """

    items: list[RawObject]
    resource_version: str
    next: str
    broken: list[BrokenObject]
    size: int
    remaining: int | None = None


def parse_object(raw: bytes, *, kind: str = "", api_version: str = "") -> RawObject:
    """Parse the metadata of an object. *raw* is kept, so it must not be a view of a larger buffer.

    Raises ``msgspec.ValidationError`` for invalid metadata, ``msgspec.DecodeError`` for invalid JSON.
    """
    try:
        head = _decode_head(raw)
    except RecursionError:
        raise msgspec.ValidationError("it is nested too deeply") from None
    metadata = head.metadata
    return RawObject(
        raw=raw,
        kind=head.kind or kind,
        api_version=head.api_version or api_version,
        uid=metadata.uid or "",
        name=metadata.name or "",
        namespace=metadata.namespace or "",
        resource_version=metadata.resource_version or "",
        generation=metadata.generation,
        deleting=metadata.deletion_timestamp is not None,
    )


def parse_identity(raw: bytes, *, kind: str = "", api_version: str = "") -> RawObject | None:
    """Return what is left of an object that cannot be read: which one it is. None if that cannot be read, either."""
    found: dict[str, Any] = {"kind": kind, "apiVersion": api_version}
    try:
        for name, value in split_members(raw):
            if name == "metadata":
                metadata = decode_shallow(value, _IDENTITY)
                found["metadata"] = {key: text for key, text in metadata.items() if isinstance(text, str)}
                break  # servers write the kind and the version before it
            if name in ("kind", "apiVersion"):
                found[name] = _decode_any(value)
        identity = parse_object(_encode(found))
    except DECODE_ERRORS:
        return None
    return identity if identity.name else None


def parse_page(body: bytes) -> Page:
    """Parse a list.

    Raises ``msgspec.DecodeError`` if it is not a Kubernetes list, RecursionError if any object is nested too deeply for
    the decoder: then :func:`parse_deep_page` takes it apart, which is slow.
    """
    return _parse_items(_decode_list(body), size=len(body))


def parse_deep_page(body: bytes) -> Page:
    """Parse a list object by object. Raises ``msgspec.DecodeError`` if it is not a Kubernetes list."""
    members = dict(split_members(body))
    items = members.pop("items", b"null")
    known = {name: msgspec.Raw(members[name]) for name in ("kind", "apiVersion", "metadata") if name in members}
    parsed = _decode_list(_encode(known))
    if items != b"null":
        parsed.items = [msgspec.Raw(item) for item in split_items(items)]
    return _parse_items(parsed, size=len(body))


def _parse_items(parsed: _List, *, size: int) -> Page:
    if parsed.kind == "Status":  # which would pass for an empty list
        raise msgspec.ValidationError("it is a Status")
    kind = (parsed.kind or "").removesuffix("List")
    api_version = parsed.api_version or ""
    items: list[RawObject] = []
    broken: list[BrokenObject] = []
    for item in parsed.items or ():
        raw = bytes(item)
        try:
            items.append(parse_object(raw, kind=kind, api_version=api_version))
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            broken.append(BrokenObject(parse_identity(raw, kind=kind, api_version=api_version), str(exc)))
    return Page(
        items=items,
        resource_version=parsed.metadata.resource_version or "",
        next=parsed.metadata.next or "",
        broken=broken,
        size=size,
        remaining=parsed.metadata.remaining,
    )
