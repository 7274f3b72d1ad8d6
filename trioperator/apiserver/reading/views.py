"""Representations of objects and lists: whole, metadata only, or a table; as JSON or YAML. Pure."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from trioperator.errors import ApiError

from ..builtin.events import as_served
from ..model.errors import bad_request
from ..model.kinds import Kind
from ..model.quoting import quote
from ..store.storage import Stored
from .tables import partial_metadata, render_table

_INCLUDED: Final = frozenset({"", "Metadata", "Object", "None"})
_encode: Final = msgspec.json.Encoder().encode


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """One representation of objects."""

    form: str = "object"  # object, table, metadata
    include: str = "Metadata"  # of tables: what each row contains
    now: Callable[[], datetime.datetime] | None = None

    @property
    def is_plain(self) -> bool:
        """Return whether objects are served whole."""
        return self.form == "object"

    def render(self, kind: Kind, stored: Stored, *, head: bool = True) -> bytes:
        """Return the JSON of the object in this representation."""
        if self.form == "object":
            return encode_object(kind, stored)
        if self.form == "metadata":
            return _encode(partial_metadata(stored.obj))
        meta = {"resourceVersion": stored.obj["metadata"]["resourceVersion"]}
        table = self._table(kind, [stored], meta)
        return _encode(table if head else {**table, "columnDefinitions": []})

    def render_list(self, kind: Kind, items: Sequence[Stored], meta: dict[str, Any]) -> bytes:
        """Return the JSON of the list in this representation."""
        if self.form == "table":
            return _encode(self._table(kind, items, meta))
        if self.form == "metadata":
            metas = [partial_metadata(stored.obj) for stored in items]
            return _encode(
                {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": metas}
            )
        head = _encode({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": meta})
        return b'%b,"items":[%b]}' % (head[:-1], b",".join([_item(kind, stored) for stored in items]))

    def _table(self, kind: Kind, items: Sequence[Stored], meta: dict[str, Any]) -> dict[str, Any]:
        assert self.now is not None
        objects = [stored.obj for stored in items]
        return render_table(kind, objects, meta=meta, now=self.now(), include=self.include)


def encode_object(kind: Kind, stored: Stored) -> bytes:
    """Return the JSON of the object in the version of the kind."""
    if stored.raw.startswith(kind.head):
        return stored.raw
    return _encode(as_served(kind, stored.obj))


def _item(kind: Kind, stored: Stored) -> bytes:
    raw = encode_object(kind, stored)
    if kind.custom is None and raw.startswith(kind.head):
        return b"{" + raw[len(kind.head) :]  # items of built-in lists have no apiVersion and kind
    return raw


def negotiate(accept: str, *, include: str, now: Callable[[], datetime.datetime]) -> tuple[View, bool]:
    """Return the representation that the Accept header requests, and whether as YAML. Raises ApiError (406)."""
    if not accept or accept == "application/json":
        return _PLAIN, False
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        options = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media not in {"application/json", "*/*", "application/*", "application/yaml"}:
            continue
        match options.get("as"):
            case None:
                return _PLAIN, media == "application/yaml"
            case "Table" if options.get("v") == "v1":
                if include not in _INCLUDED:
                    text = f"Invalid value: {quote(include)}: must be 'Metadata', 'Object', 'None', or empty"
                    raise bad_request(f"Unable to convert to Table as requested: includeObject: {text}")
                return View("table", include or "Metadata", now), media == "application/yaml"
            case "PartialObjectMetadata" | "PartialObjectMetadataList" if options.get("v") == "v1":
                return View("metadata"), media == "application/yaml"
    text = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml"
    raise ApiError.of(text, status=406, reason="NotAcceptable")


_PLAIN: Final = View()
