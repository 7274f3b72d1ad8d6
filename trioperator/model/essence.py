"""The essence of an object: what its users may change, without what systems write. Pure, and shares what it keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trioperator.model.body import BodyEssence
from trioperator.model.fields import FieldPath, resolve

__all__ = ["build_essence", "marker_key"]

# Annotations with these prefixes, or with a subdomain of them, are operators' own, whether marked as such or not.
_OPERATORS = ("trioperator.dev", "kopf.zalando.org")
_SUBDOMAINS = tuple(f".{prefix}" for prefix in _OPERATORS)
_SYSTEM = frozenset({"apiVersion", "kind", "metadata", "status"})
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MARKER = "kopf-managed"
# What is the same as absent where it is empty.
_STANZAS = (("metadata",), ("metadata", "annotations"), ("metadata", "labels"), ("status",))


def marker_key(prefix: str) -> str:
    """Name the annotation that says: all annotations of this prefix are an operator's own (Kopf's convention)."""
    return f"{prefix}/{_MARKER}"


def build_essence(body: Mapping[str, Any], extra_fields: Iterable[FieldPath] = ()) -> BodyEssence:
    """Reduce an object to its essence.

    Left out are the API version, the kind, the status, and all metadata but labels and annotations; of these, those
    of operators. The *extra_fields* are kept, wherever they are and whatever is in them. The rules are those of Kopf.
    """
    essence: BodyEssence = {key: value for key, value in body.items() if key not in _SYSTEM}
    source = body.get("metadata") or {}
    metadata: dict[str, Any] = {}
    if source.get("labels"):
        metadata["labels"] = source["labels"]
    annotations = _foreign_annotations(source.get("annotations"))
    if annotations:
        metadata["annotations"] = annotations
    if metadata:
        essence["metadata"] = metadata
    for path in extra_fields:
        value = resolve(body, path) if path else None  # of the root nothing is missing that could matter
        if value is not None and (value != {} or path not in _STANZAS):
            _put(essence, path, value)
    return essence


def _foreign_annotations(annotations: Mapping[str, str] | None) -> dict[str, str] | None:
    if not annotations:
        return None
    managed = {key.partition("/")[0] for key in annotations if key.endswith(f"/{_MARKER}")}
    kept = {}
    for key, value in annotations.items():
        prefix, slash, _ = key.partition("/")
        operators = slash and (prefix in managed or prefix in _OPERATORS or prefix.endswith(_SUBDOMAINS))
        if not operators and key != _APPLIED:
            kept[key] = value
    return kept


def _put(essence: dict[str, Any], path: FieldPath, value: Any) -> None:
    """Put a value into the essence, copying what is shared with the object on the way."""
    for key in path[:-1]:
        inner = essence.get(key)
        essence[key] = dict(inner) if isinstance(inner, Mapping) else {}
        essence = essence[key]
    essence[path[-1]] = value
