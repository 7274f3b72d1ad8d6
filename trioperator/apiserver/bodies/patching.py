"""Patches: JSON patch (RFC 6902) and strategic merge patch. Pure.

Objects are never changed in place: results share unchanged parts with them.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from trioperator.errors import ApiError

from ..model.errors import bad_request, internal_error, unsupported_media_type
from ..model.kind_schemas import Node, resolve
from ..model.kinds import Kind
from ..model.nesting import BODY_DEPTH_LIMIT, TOO_DEEP, depth_of
from ..model.quoting import go_text

MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

_OPERATIONS_LIMIT: Final = 10_000
_COPY_LIMIT: Final = 3 * 1024 * 1024  # bytes of JSON that the operations of one patch copy

_REMOVED: Final = object()
_NO_KEY: Final = object()
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class SentPatch(NamedTuple):
    """A patch as it was sent, with its media type."""

    type: str
    body: bytes


def check_type(kind: Kind, patch_type: str) -> None:
    """Raise ApiError (415) if the kind does not support this type of patch."""
    accepted = (JSON, MERGE, *(() if kind.custom else (STRATEGIC,)), APPLY)
    if patch_type not in accepted:
        raise unsupported_media_type(accepted)


def without_nulls_in_lists(patch: Any, *, is_in_list: bool = False) -> Any:
    """Return the merge patch without null fields of objects in lists, which the real server removes, too."""
    if isinstance(patch, dict):
        items = patch.items()
        return {
            key: without_nulls_in_lists(value, is_in_list=is_in_list)
            for key, value in items
            if value is not None or not is_in_list
        }
    return [without_nulls_in_lists(item, is_in_list=True) for item in patch] if isinstance(patch, list) else patch


def apply_json_patch(raw: bytes, operations: Any) -> Any:
    """Return the document whose JSON is *raw*, changed by the operations.

    Raises ApiError (422) if an operation cannot be applied or a test fails.
    """
    if not isinstance(operations, list) or not all(isinstance(item, dict) for item in operations):
        name = "object" if isinstance(operations, dict) else "value"
        text = f"json: cannot unmarshal {name} into Go value of type []handlers.jsonPatchOp"
        raise bad_request(f"error decoding patch: {text}")
    if len(operations) > _OPERATIONS_LIMIT:
        limit = f"The allowed maximum operations in a JSON patch is {_OPERATIONS_LIMIT}, got {len(operations)}"
        raise ApiError.of(f"Request entity too large: {limit}", status=413, reason="RequestEntityTooLarge")
    try:
        return _apply_operations(raw, operations)
    except ValueError:
        text = "the server rejected our request due to an error in our request"
        raise ApiError.of(text, status=422, reason="Invalid") from None


def apply_operations(obj: Mapping[str, Any], operations: Iterable[Mapping[str, Any]]) -> Any:
    """Return an object, changed by the operations of a webhook or a policy. Raises ServerError (500) if one fails."""
    try:
        return _apply_operations(msgspec.json.encode(obj), operations)
    except ValueError as error:
        raise internal_error(str(error)) from None


def _apply_operations(raw: bytes, operations: Iterable[Mapping[str, Any]]) -> Any:
    """Return the document whose JSON is *raw*, changed by the operations. Raises ValueError if one fails."""
    import jsonpatch
    import jsonpointer

    document = msgspec.json.decode(raw)
    copied = 0
    try:
        for operation in operations:
            value = operation.get("value")
            if operation.get("op") in {"copy", "move"}:
                value = jsonpointer.resolve_pointer(document, operation["from"], None)
                copied += len(msgspec.json.encode(value)) if operation["op"] == "copy" else 0
            if copied > _COPY_LIMIT:
                text = f"the accumulated size increase of copy is {copied}, exceeding the limit {_COPY_LIMIT}"
                raise ValueError(f"Unable to complete the copy, {text}")
            if str(operation.get("path")).count("/") + depth_of(value) > BODY_DEPTH_LIMIT:
                raise ValueError(TOO_DEEP)
            document = jsonpatch.apply_patch(document, _lenient_operation(operation, document), in_place=True)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, LookupError) as error:
        raise ValueError(str(error)) from None
    return document


def _lenient_operation(operation: Mapping[str, Any], document: Any) -> list[dict[str, Any]]:
    """Return the operation as the real server understands it, which is more lenient than the standard.

    A missing value is null, a missing field tests equal to null, and replacing a missing field adds it.
    """
    import jsonpointer

    lenient = dict(operation)
    name = lenient.get("op")
    if name in {"add", "replace", "test"}:
        lenient.setdefault("value", None)
    if name == "replace" and _is_missing(document, lenient.get("path")):
        lenient["op"] = "add"
    elif name == "test" and lenient["value"] is None and _is_missing(document, lenient.get("path")):
        return []
    elif name == "copy":
        missing = _is_missing(document, lenient.get("from"))
        value = None if missing else jsonpointer.resolve_pointer(document, lenient["from"])
        lenient |= {"op": "add", "value": msgspec.json.decode(msgspec.json.encode(value))}
    return [lenient]


def _is_missing(document: Any, path: Any) -> bool:
    """Return whether the parent of the path is an object without this field."""
    import jsonpointer

    if not path:
        return False
    parent, field = jsonpointer.JsonPointer(path).to_last(document)
    return isinstance(parent, dict) and field not in parent


def apply_strategic_patch(target: Any, patch: Any, schema: Node | None) -> Any:
    """Return *target*, an object of a built-in kind with this schema, after the strategic merge patch."""
    return _merge_object(target, patch, schema)


def _merge_object(target: Any, patch: Mapping[str, Any], node: Node | None) -> Any:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive is not None and directive != "merge":
        raise ApiError.of(f"unknown patch type: {go_text(directive)} in map: {go_text(patch)}", status=500)
    result = _merge_fields(_retain_keys(target, patch), patch, node)
    for key, order in patch.items():
        name = key.partition("/")[2]
        if key.startswith("$setElementOrder/") and isinstance(result.get(name), list) and isinstance(order, list):
            merge_key = _merge_key(_field(node, name))
            if isinstance(sent := patch.get(name), list):
                _check_order(sent, order, merge_key)
            old = target.get(name) if isinstance(target, dict) else None
            result[name] = _sort_items(result[name], order, old, merge_key)
    return result


def _retain_keys(target: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the target, restricted to the ``$retainKeys`` of the patch, if any."""
    result = dict(target) if isinstance(target, dict) else {}
    if (retain := patch.get("$retainKeys")) is not None:
        given = [key for key, value in patch.items() if value is not None and not key.startswith("$")]
        if not isinstance(retain, list) or any(key not in retain for key in given):
            raise bad_request("invalid patch format of retainKeys")
        result = {key: value for key, value in result.items() if key in retain}
    return result


def _merge_fields(result: dict[str, Any], patch: Mapping[str, Any], node: Node | None) -> dict[str, Any]:
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            gone = _Identities(value)
            result[name] = [item for item in result.get(name) or () if item not in gone]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merge_object(result.get(key), value, _field(node, key))
        elif isinstance(value, list):
            result[key] = _merge_list(result.get(key), value, _field(node, key))
        else:
            result[key] = value
    return result


def _field(node: Node | None, name: str) -> Node | None:
    if node is None:
        return None
    found = (node.get("properties") or {}).get(name) or node.get("additionalProperties")
    return resolve(found) if isinstance(found, Mapping) else None


def _merge_key(node: Node | None) -> str | None:
    """Return the merge key of the list, empty for scalar items; None if the list is replaced."""
    if node is None or "merge" not in node.get("x-kubernetes-patch-strategy", "").split(","):
        return None
    return str(node.get("x-kubernetes-patch-merge-key", ""))


def _merge_list(target: Any, patch: list[Any], node: Node | None) -> list[Any]:
    key = _merge_key(node)
    current: list[Any] = list(target) if isinstance(target, list) else []
    if key is None or node is None:
        return [item for item in patch if not _is_directive(item, "replace")]
    if not key:
        known = _Identities(current)
        merged = current + [item for item in patch if item not in known]
        return _sort_items(merged, patch, target, key)
    if any(_is_directive(item, "replace") for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and "$patch" in item)]
    return _sort_items(_merge_items(current, patch, key, resolve(node["items"])), patch, target, key)


def _merge_items(current: list[Any], patch: list[Any], key: str, node: Node) -> list[Any]:
    """Merge the items of the patch into those with the same keys."""
    places = _Identities(item.get(key) if isinstance(item, dict) else _NO_KEY for item in current)
    merged: list[Any] = list(current)
    for item in patch:
        _check_item(item, key, current)
        index = places.find(item[key])
        if _is_directive(item, "delete"):
            if index is not None:
                merged[index] = _REMOVED
                places.discard(item[key])
        elif index is None:
            places.add(item[key], len(merged))
            merged.append(_merge_object(None, item, node))
        else:
            merged[index] = _merge_object(merged[index], item, node)
    return [item for item in merged if item is not _REMOVED]


class _Identities:
    """The places of values in a list, found in constant time; of values that are no scalars, by their JSON."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._places: dict[Any, list[int]] = {}
        for at, value in enumerate(values):
            self.add(value, at)

    def __contains__(self, value: Any) -> bool:
        return self.find(value) is not None

    def find(self, value: Any) -> int | None:
        """Return the first place of the value, or None."""
        found = self._places.get(_hashable(value))
        return found[0] if found else None

    def add(self, value: Any, place: int) -> None:
        """Add a place of the value, behind those that are known."""
        self._places.setdefault(_hashable(value), []).append(place)

    def discard(self, value: Any) -> None:
        """Forget the first place of the value."""
        del self._places[_hashable(value)][:1]


def _hashable(value: Any) -> Any:
    return _encode(value) if isinstance(value, (dict, list)) else value


def _check_item(item: Any, key: str, current: list[Any]) -> None:
    if not isinstance(item, dict):
        text = f"list element types are not identical: {go_text([current, [item]])}"
        raise ApiError.of(text, status=500)
    if key not in item:
        raise ApiError.of(f"map: {go_text(item)} does not contain declared merge key: {key}", status=500)


def _is_directive(item: Any, directive: str) -> bool:
    return isinstance(item, dict) and item.get("$patch") == directive


def _sort_items(items: list[Any], order: list[Any], old: Any, key: str | None) -> list[Any]:
    """Sort the items by ``$setElementOrder``; unnamed items stay in front of the items that they preceded."""

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = _Identities(identity(item) for item in order)
    places = _Identities(identity(item) for item in old) if isinstance(old, list) else _Identities(())
    named = [item for item in items if identity(item) in wanted]
    named.sort(key=lambda item: wanted.find(identity(item)) or 0)
    others = collections.deque(item for item in items if identity(item) not in wanted)
    result: list[Any] = []
    for item in named:
        place = places.find(identity(item))
        while others and place is not None and (before := places.find(identity(others[0]))) is not None:
            if before >= place:
                break
            result.append(others.popleft())
        result.append(item)
    return [*result, *others]


def _check_order(patch: list[Any], order: list[Any], key: str | None) -> None:
    """Raise ApiError if the items of the patch are not in the order of its ``$setElementOrder``."""
    items = [item for item in patch if not _is_directive(item, "delete")]
    left = iter(item.get(key) if key and isinstance(item, dict) else item for item in order)
    if not all((item.get(key) if key and isinstance(item, dict) else item) in left for item in items):
        text = f"The order in patch list:\n{go_text(items)}\n doesn't match $setElementOrder list:\n{go_text(order)}\n"
        raise ApiError.of(text, status=500)
