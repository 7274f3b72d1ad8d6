"""JSON patches of mutating webhooks, with the error messages of the real server. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..bodies.patching import PatchLimitError, PatchLimits, apply_operation
from ..model.errors import internal_error


def apply_operations(obj: Mapping[str, Any], operations: Sequence[Mapping[str, Any]]) -> Any:
    """Return the object with the patch applied. Raises 500 if that fails."""
    document: Any = msgspec.json.decode(msgspec.json.encode(obj))
    limits = PatchLimits()
    for operation in operations:
        try:
            document = apply_operation(document, operation, limits)
        except ValueError as error:
            is_limit = isinstance(error, PatchLimitError)
            raise internal_error(str(error) if is_limit else _problem(operation, document)) from None
    return document


def _problem(operation: Mapping[str, Any], document: Any) -> str:
    name, path = operation.get("op"), str(operation.get("path") or "")
    source = str(operation.get("from") or "")
    if name not in {"add", "copy", "move", "remove", "replace", "test"}:
        return f"Unexpected kind: {name}"
    if name == "test":
        return f"testing value {path} failed: test failed"
    place = source if name in {"copy", "move"} else path
    if not _has_parent(document, place):
        shown = f'"{path}"' if name in {"add", "remove"} else place
        return f"{name} operation does not apply: doc is missing path: {shown}: missing value"
    field = place.rpartition("/")[2]
    if name in {"move", "remove"}:
        shown = field if name == "move" else path
        return f"error in {name} for path: '{shown}': Unable to remove nonexistent key: {field}: missing value"
    return f"error in {name} for path: '{path}': Unable to access invalid index: {field}: invalid index referenced"


def _has_parent(document: Any, path: str) -> bool:
    import jsonpointer

    try:
        jsonpointer.JsonPointer(path.rpartition("/")[0]).resolve(document)
    except jsonpointer.JsonPointerException:
        return False
    return True
