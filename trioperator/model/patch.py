"""Patches: what is to be changed in an object. Merge patches are plain data, merged and applied by pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import msgspec

from trioperator.model.fields import FieldPath, ensure, remove, resolve
from trioperator.model.jsontypes import JsonObject

__all__ = [
    "Patch",
    "PatchFn",
    "apply_merge",
    "is_mapping",
    "json_patch",
    "merge_as_json_patch",
    "merge_patches",
    "preview",
    "split_status",
    "with_version_test",
]

PatchFn: TypeAlias = Callable[[dict[str, Any]], object]


class PatchView(MutableMapping[str, Any]):
    """Change one stanza of a patch: it comes into being with its first item, and goes with its last one."""

    __slots__ = ("_patch", "_path")

    def __init__(self, patch: dict[str, Any], path: FieldPath) -> None:
        self._patch = patch
        self._path = path

    def _target(self) -> Mapping[str, Any]:
        target = resolve(self._patch, self._path)
        return target if isinstance(target, Mapping) else {}

    def __getitem__(self, key: str) -> Any:
        return self._target()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        ensure(self._patch, (*self._path, key), value)

    def __delitem__(self, key: str) -> None:
        if key not in self._target():
            raise KeyError(key)
        remove(self._patch, (*self._path, key))

    def __iter__(self) -> Iterator[str]:
        return iter(self._target())

    def __len__(self) -> int:
        return len(self._target())

    def __repr__(self) -> str:
        return repr(dict(self._target()))


class PatchMeta(PatchView):
    """Change the metadata."""

    __slots__ = ()

    @property
    def labels(self) -> PatchView:
        """Change the labels."""
        return PatchView(self._patch, (*self._path, "labels"))

    @property
    def annotations(self) -> PatchView:
        """Change the annotations."""
        return PatchView(self._patch, (*self._path, "annotations"))


class Patch(dict[str, Any]):
    """Collect what a handler wants changed in its object.

    As a dictionary it is a merge patch (RFC 7386): None removes a field. ``fns`` are functions that change the newest
    object in place, and are called again when somebody else was faster.
    """

    __slots__ = ("fns",)

    def __init__(self, source: Mapping[str, Any] | None = None, /, *, fns: Sequence[PatchFn] = ()) -> None:
        super().__init__(source or ())
        self.fns: list[PatchFn] = list(fns)

    @property
    def meta(self) -> PatchMeta:
        """Change the metadata."""
        return PatchMeta(self, ("metadata",))

    @property
    def metadata(self) -> PatchMeta:
        """Change the metadata."""
        return PatchMeta(self, ("metadata",))

    @property
    def spec(self) -> PatchView:
        """Change the specification."""
        return PatchView(self, ("spec",))

    @property
    def status(self) -> PatchView:
        """Change the status."""
        return PatchView(self, ("status",))

    def __bool__(self) -> bool:
        return len(self) > 0 or bool(self.fns)

    def clear(self) -> None:
        """Want nothing any more."""
        super().clear()
        self.fns.clear()

    def as_json_patch(self, body: Mapping[str, Any] | None = None) -> list[JsonObject]:
        """Say as a JSON patch what is wanted of *body*, the functions included. The body is not changed."""
        before = dict(body or {})
        after = apply_merge(before, self)
        if self.fns:
            after = msgspec.json.decode(msgspec.json.encode(after))  # a copy through and through, for them to change
            for fn in self.fns:
                fn(after)
        return json_patch(before, after)


def preview(body: Mapping[str, Any], patch: Patch) -> Mapping[str, Any]:
    """Show an object as a patch will leave it. A function of it that fails is passed over here."""
    after: Mapping[str, Any] = apply_merge(body, patch)
    for fn in patch.fns:
        try:
            changed = msgspec.json.decode(msgspec.json.encode(after))
            fn(changed)
            after = msgspec.json.decode(msgspec.json.encode(changed))
        except Exception:  # noqa: BLE001 -- whoever stores the patch reports it
            continue
    return after


def is_mapping(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Tell whether a value is a mapping."""
    return type(value) is dict or isinstance(value, Mapping)  # the first is much faster to tell


def apply_merge(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386). The target is not changed; what the patch does not touch is shared with it."""
    if not is_mapping(patch):
        return patch
    merged = dict(target) if is_mapping(target) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply_merge(merged.get(key), value)
    return merged


def merge_patches(
    first: Mapping[str, Any], second: Mapping[str, Any], *, onto: Mapping[str, Any] | None = None
) -> JsonObject:
    """Make one merge patch that does what *first* and then *second* do. Neither is changed.

    One thing no merge patch can say of all objects: that a mapping goes and another comes in its place. This is what is
    meant where *first* removes a field (or makes it a scalar) and *second* puts a mapping there. It can be said of one
    object: with that as *onto*, what it has in the field is removed by name. Without, the two mappings are merged.
    """
    merged = dict(first)
    for key, value in second.items():
        before = merged.get(key)
        if not is_mapping(value):
            merged[key] = value
        elif is_mapping(before):
            merged[key] = merge_patches(before, value, onto=None if onto is None else _inner(onto, key))
        elif key in merged and onto is not None:
            merged[key] = _in_place_of(_inner(onto, key), apply_merge(None, value))
        else:
            merged[key] = value
    return merged


def _inner(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _in_place_of(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> JsonObject:
    """Make the merge patch that turns one mapping into another."""
    patch: JsonObject = dict.fromkeys(key for key in present if key not in wanted)
    for key, value in wanted.items():
        patch[key] = _in_place_of(_inner(present, key), value) if is_mapping(value) else value
    return patch


def split_status(patch: Mapping[str, Any]) -> tuple[JsonObject, JsonObject]:
    """Part a merge patch into what goes to the object and what goes to its status subresource.

    A status that is removed as a whole, or is no mapping, stays with the object: it is no patch of a status.
    """
    status = patch.get("status", {})
    if not is_mapping(status):
        return dict(patch), {}
    return {key: value for key, value in patch.items() if key != "status"}, dict(status)


def json_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[JsonObject]:
    """Make the JSON patch (RFC 6902) that leads from one object to another.

    No operation reaches from one top-level field into another, so that the status can be patched apart from the others.
    """
    import jsonpatch  # it takes longer to import than the whole model

    ops: list[JsonObject] = []
    for key in dict.fromkeys((*before, *after)):
        one, other = ({key: side[key]} if key in side else {} for side in (before, after))
        ops += jsonpatch.make_patch(one, other).patch
    return ops


def merge_as_json_patch(body: Mapping[str, Any], patch: Mapping[str, Any]) -> list[JsonObject]:
    """Say as a JSON patch what a merge patch does to an object that is known."""
    return list(_as_ops(body, patch, ""))


def _as_ops(target: Mapping[str, Any], patch: Mapping[str, Any], pointer: str) -> Iterator[JsonObject]:
    for key, value in patch.items():
        path = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
        present = target.get(key)
        if value is None:
            if key in target:
                yield {"op": "remove", "path": path}
        elif isinstance(value, Mapping) and isinstance(present, Mapping):
            yield from _as_ops(present, value, path)
        else:
            wanted = apply_merge(None, value)
            if key not in target or present != wanted or type(present) is not type(wanted):  # 1 is not true in JSON
                yield {"op": "replace" if key in target else "add", "path": path, "value": wanted}


def with_version_test(ops: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> list[JsonObject]:
    """Have a JSON patch hold only for the object in the version that is known."""
    version = (body.get("metadata") or {}).get("resourceVersion")
    test = [] if version is None else [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
    return [*test, *(dict(op) for op in ops)]
