"""Objects within custom objects (``x-kubernetes-embedded-resource``): their metadata is decoded and validated. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ..model.metadata import (
    check_common,
    clean_metadata,
    dns_1035_problem,
    label_problem,
    segment_problem,
)
from ..model.quoting import json_name
from ..model.status_causes import StatusCause, invalid_value, required
from ..model.structure import Structure
from ..model.unmarshal import UnmarshalError, unmarshal_metadata
from .correlation import part


class EmbeddedError(ValueError):
    """Raised when the head of an embedded object has the wrong type, with the message of the real server."""


def coerce_embedded(node: Structure, value: Any, unknown: list[str], path: str = "") -> Any:
    """Return the value with clean metadata in its embedded objects; add the paths of unknown fields to *unknown*.

    Raises EmbeddedError.
    """
    if not node.embedded_below:
        return value
    if isinstance(value, dict):
        result = _clean(value, unknown, path) if node.embedded else value
        for key, item in value.items():
            sub = part(node, key)
            if sub is not None:
                new = coerce_embedded(sub, item, unknown, f"{path}.{key}" if path else key)
                if new is not item:
                    result = dict(value) if result is value else result
                    result[key] = new
        return result
    if isinstance(value, list) and node.items is not None:
        items = [coerce_embedded(node.items, item, unknown, f"{path}[{at}]") for at, item in enumerate(value)]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _clean(obj: dict[str, Any], unknown: list[str], path: str) -> dict[str, Any]:
    for field in ("apiVersion", "kind"):
        if field in obj and not isinstance(obj[field], str):
            raise EmbeddedError(f"{path}.{field}: Invalid value: {_json(obj[field])}: must be a string")
    if "metadata" not in obj:
        return obj
    meta = {} if obj["metadata"] is None else obj["metadata"]
    try:
        if not isinstance(meta, dict):
            raise UnmarshalError(f"json: cannot unmarshal {json_name(meta)} into Go value of type v1.ObjectMeta")
        decoded = unmarshal_metadata(meta, unknown, f"{path}.metadata")
    except UnmarshalError as error:
        raise EmbeddedError(f"{path}.metadata: Invalid value: {_json(meta)}: {error}") from None
    return {**obj, "metadata": clean_metadata(decoded)}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def check_embedded(node: Structure, value: Any, path: str = "") -> Iterator[StatusCause]:
    """Yield the validation errors of embedded objects: of the value, and of its parts."""
    if not node.embedded_below:
        return
    if isinstance(value, dict):
        if node.embedded:
            yield from _check_head(value, f"{path}." if path else "")
        for key, item in value.items():
            sub = part(node, key)
            if sub is not None:
                yield from check_embedded(sub, item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and node.items is not None:
        for at, item in enumerate(value):
            yield from check_embedded(node.items, item, f"{path}[{at}]")


def _check_head(obj: Mapping[str, Any], prefix: str) -> Iterator[StatusCause]:
    yield from (required(f"{prefix}{name}") for name in ("apiVersion", "kind") if name not in obj)
    version, kind, meta = obj.get("apiVersion"), obj.get("kind"), obj.get("metadata")
    yield from (invalid_value(f"{prefix}{name}", "", "must not be empty") for name in _HEAD if obj.get(name) == "")
    if isinstance(version, str) and version.count("/") > 1:
        yield invalid_value(f"{prefix}apiVersion", version, f"unexpected GroupVersion string: {version}")
    if isinstance(kind, str) and kind and (problem := dns_1035_problem(kind.lower())):
        text = f"may have mixed case, but should otherwise match: {problem}"
        yield invalid_value(f"{prefix}kind", kind, text)
    if isinstance(meta, Mapping) and _is_decodable(meta):
        yield from _check_metadata(meta, prefix)


_HEAD = ("apiVersion", "kind")


def _is_decodable(meta: Mapping[str, Any]) -> bool:
    """Return whether the metadata has the right types; it may come from a default, which is not decoded."""
    try:
        unmarshal_metadata(meta, [])
    except UnmarshalError:
        return False
    return True


def _check_metadata(meta: Mapping[str, Any], prefix: str) -> Iterator[StatusCause]:
    for field in ("generateName", "name", "namespace"):
        problem = (label_problem if field == "namespace" else segment_problem)(meta.get(field) or "a")
        if problem:
            yield invalid_value(f"{prefix}metadata.{field}", meta[field], problem)
    for cause in check_common(meta):
        yield StatusCause(prefix + cause.field, cause.message, cause.reason)
