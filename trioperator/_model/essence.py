"""Essence of an object: the fields that users change, without those that systems write. Pure; values are shared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trioperator._model.body import BodyEssence
from trioperator._model.fields import FieldPath, resolve

# Annotations with these prefixes or their subdomains belong to operators, even without the marker.
_OPERATORS = ("trioperator.dev", "kopf.zalando.org")
_SUBDOMAINS = tuple(f".{prefix}" for prefix in _OPERATORS)
_SYSTEM = frozenset({"apiVersion", "kind", "metadata", "status"})
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MARKER = "kopf-managed"
# Fields that count as absent if they are empty.
_STANZAS = (("metadata",), ("metadata", "annotations"), ("metadata", "labels"), ("status",))


def marker_key(prefix: str) -> str:
    """Return the annotation that marks all annotations of this prefix as an operator's (Kopf's convention)."""
    return f"{prefix}/{_MARKER}"


def build_essence(body: Mapping[str, Any], extra_fields: Iterable[FieldPath] = ()) -> BodyEssence:
    """Return the essence of an object, by Kopf's rules.

    It excludes the API version, the kind, the status, all metadata except labels and annotations, and the annotations
    of operators. *extra_fields* are always included.
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
        value = resolve(body, path) if path else None  # the root adds nothing
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
    """Set a value in the essence, copying the mappings on the way that are shared with the object."""
    for key in path[:-1]:
        inner = essence.get(key)
        essence[key] = dict(inner) if isinstance(inner, Mapping) else {}
        essence = essence[key]
    essence[path[-1]] = value
