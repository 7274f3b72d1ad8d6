"""Patches of objects: the ``patch`` argument of handlers, and pure functions that merge, apply and convert patches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec

from trioperator._model.fields import FieldPath, ensure, remove, resolve
from trioperator._model.jsontypes import JsonObject
from trioperator._model.lazy_object import decode_json

# Types of JSON values that are not mappings: looking a type up is much faster than asking an abstract class.
_PLAIN: Final = frozenset({str, int, float, bool, list, type(None)})
# Fields of the metadata that differ after each write.
_SERVER_FIELDS: Final = frozenset({"managedFields", "resourceVersion"})

PatchFn: TypeAlias = Callable[[dict[str, Any]], object]


class PatchView(MutableMapping[str, Any]):
    """Writable view of one section of a patch: added with its first item, removed with its last one."""

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
    """Writable view of the metadata of a patch."""

    __slots__ = ()

    @property
    def labels(self) -> PatchView:
        """Changes of the labels."""
        return PatchView(self._patch, (*self._path, "labels"))

    @property
    def annotations(self) -> PatchView:
        """Changes of the annotations."""
        return PatchView(self._patch, (*self._path, "annotations"))


class Patch(dict[str, Any]):
    """Changes of an object that a handler requests.

    As a dictionary it is a merge patch (RFC 7386): None removes a field. ``fns`` are functions that modify the newest
    object in place; they are called again after a conflict with another writer. *body* is the object that
    :meth:`as_json_patch` compares with by default.
    """

    __slots__ = ("_body", "fns")

    def __init__(
        self,
        source: Mapping[str, Any] | None = None,
        /,
        body: Mapping[str, Any] | None = None,
        fns: Iterable[PatchFn] = (),
    ) -> None:
        self.fns: list[PatchFn] = [*fns]
        self._body = body
        if source is not None:  # most have none
            super().__init__(source)
            if isinstance(source, Patch):
                self.fns = [*source.fns, *self.fns]

    @property
    def meta(self) -> PatchMeta:
        """Changes of the metadata."""
        return PatchMeta(self, ("metadata",))

    @property
    def metadata(self) -> PatchMeta:
        """Changes of the metadata."""
        return PatchMeta(self, ("metadata",))

    @property
    def spec(self) -> PatchView:
        """Changes of the specification."""
        return PatchView(self, ("spec",))

    @property
    def status(self) -> PatchView:
        """Changes of the status."""
        return PatchView(self, ("status",))

    def __bool__(self) -> bool:
        return len(self) > 0 or bool(self.fns)

    def clear(self) -> None:
        """Remove all changes, functions included."""
        super().clear()
        self.fns.clear()

    def store(self) -> Any:
        """Store the changes at once, and return the object's new body. The patch is empty after that.

        ::

            @trioperator.daemon("widgets")
            async def move(patch):
                patch.status["phase"] = "Moving"
                body = await patch.store()

        In sync functions, it blocks: ``body = patch.store()``. For daemons, timers and handlers of changes, whose
        patches are otherwise stored when they end. Raises PermanentError if the changes are not JSON-serializable,
        RuntimeError in all other functions.
        """
        raise RuntimeError("patch.store() is for daemons, timers and handlers of changes: this patch is stored later.")

    def as_json_patch(self, body: Mapping[str, Any] | None = None) -> list[JsonObject]:
        """Return the changes, functions included, as a JSON patch of *body*, by default the patch's own.

        The body is not changed. Without any, it is the patch of an empty object.
        """
        before = dict((self._body if body is None else body) or {})
        after = apply_merge(before, self)
        if self.fns:
            after = msgspec.json.decode(msgspec.json.encode(after))  # a deep copy
            for fn in self.fns:
                fn(after)
        return json_patch(before, after)


def preview(body: Mapping[str, Any], patch: Patch) -> Mapping[str, Any]:
    """Return an object with a patch applied. Functions of the patch that raise are skipped."""
    after: Mapping[str, Any] = apply_merge(body, patch)
    for fn in patch.fns:
        try:
            changed = msgspec.json.decode(msgspec.json.encode(after))
            fn(changed)
            after = msgspec.json.decode(msgspec.json.encode(changed))
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 -- reported when the patch is sent
            continue
    return after


def is_mapping(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a value is a mapping."""
    return type(value) is dict or (type(value) not in _PLAIN and isinstance(value, Mapping))


def apply_merge(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386), and return the result. The target is not changed; untouched values are shared."""
    if type(patch) is not dict and not is_mapping(patch):
        return patch
    if type(target) is msgspec.Raw:  # a large value in an outline
        target = decode_json(target)
    merged = dict(target) if type(target) is dict or is_mapping(target) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value if type(value) in _PLAIN else apply_merge(merged.get(key), value)
    return merged


def merging(patch: Mapping[str, Any]) -> PatchFn:
    """Return a function of patches that applies a merge patch."""

    def merge(body: dict[str, Any]) -> None:
        merged = apply_merge(body, patch)
        body.clear()
        body.update(merged)

    return merge


def find_unmet(
    wanted: Mapping[str, Any], written: Mapping[str, Any], path: tuple[str, ...] = ()
) -> list[tuple[str, ...]]:
    """Return the fields of an object that are not as a merge patch wants them."""
    unmet: list[tuple[str, ...]] = []
    for key, value in wanted.items():
        kept = written.get(key)
        if type(value) is dict and type(kept) is dict:
            unmet += find_unmet(value, kept, (*path, key))
        elif type(value) not in _PLAIN and is_mapping(value) and (is_mapping(kept) or (kept is None and value)):
            unmet += find_unmet(value, kept or {}, (*path, key))
        elif kept != value or isinstance(kept, bool) is not isinstance(value, bool):  # 1 is not true in JSON
            unmet.append((*path, key))
    return unmet


def is_result(after: Mapping[str, Any], before: Mapping[str, Any], patch: Mapping[str, Any]) -> bool:
    """Return whether an object is what a merge patch makes of it, but for what the server alone writes."""
    return _drop_server_fields(after) == _drop_server_fields(apply_merge(before, patch))


def _drop_server_fields(body: Mapping[str, Any]) -> JsonObject:
    metadata = dict(body["metadata"])
    for key in _SERVER_FIELDS:
        metadata.pop(key, None)
    return {**body, "metadata": metadata}


def merge_patches(
    first: Mapping[str, Any], second: Mapping[str, Any], *, onto: Mapping[str, Any] | None = None
) -> JsonObject:
    """Return one merge patch that has the effect of *first* followed by *second*. Neither is changed.

    A merge patch cannot replace a mapping by another in general, which is the effect if *first* removes a field (or
    sets a scalar) and *second* sets a mapping there. It can for a given object: with *onto*, the keys which that object
    has in the field are removed by name. Without it, the two mappings are merged.
    """
    merged = dict(first)
    for key, value in second.items():
        before = merged.get(key)
        if not is_mapping(value):
            merged[key] = value
        elif is_mapping(before):
            merged[key] = merge_patches(before, value, onto=None if onto is None else _inner(onto, key))
        elif key in merged and onto is not None:
            merged[key] = _replacement(_inner(onto, key), apply_merge(None, value))
        else:
            merged[key] = value
    return merged


def _inner(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _replacement(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> JsonObject:
    """Return the merge patch that turns one mapping into another."""
    patch: JsonObject = dict.fromkeys(key for key in present if key not in wanted)
    for key, value in wanted.items():
        patch[key] = _replacement(_inner(present, key), value) if is_mapping(value) else value
    return patch


def split_status(patch: Mapping[str, Any]) -> tuple[JsonObject, JsonObject]:
    """Split a merge patch into one for the object and one for its status subresource.

    A status that is None or not a mapping stays in the first one.
    """
    status = patch.get("status")
    if not is_mapping(status):
        return dict(patch), {}
    return {key: value for key, value in patch.items() if key != "status"}, dict(status)


def json_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[JsonObject]:
    """Return the JSON patch (RFC 6902) that turns one object into another.

    No operation moves values between top-level fields, so the status can be patched separately.
    """
    import jsonpatch  # slower to import than the whole model

    ops: list[JsonObject] = []
    for key in dict.fromkeys((*before, *after)):
        one, other = ({key: side[key]} if key in side else {} for side in (before, after))
        ops += jsonpatch.make_patch(one, other).patch
    return ops


def merge_as_json_patch(body: Mapping[str, Any], patch: Mapping[str, Any]) -> list[JsonObject]:
    """Return the JSON patch with the effect of a merge patch on the given object."""
    return list(_as_ops(body, patch, ""))


def _as_ops(target: Mapping[str, Any], patch: Mapping[str, Any], pointer: str) -> Iterator[JsonObject]:
    import jsonpointer  # needed for conditional patches only

    for key, value in patch.items():
        path = f"{pointer}/{jsonpointer.escape(key)}"
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


def merge_as_additions(body: Mapping[str, Any], patch: Mapping[str, Any]) -> list[JsonObject] | None:
    """Return the JSON patch with the effect of a merge patch on a later state of the object, too; None if none has it.

    It fails if the parent of the fields no longer exists.
    """
    ops: list[JsonObject] = []
    return ops if _add_ops(body, patch, "", ops) else None


def _add_ops(target: Any, patch: Mapping[str, Any], pointer: str, ops: list[JsonObject]) -> bool:
    """Add the operations for a section that is in the object; return whether they suffice."""
    import jsonpointer

    for key, value in patch.items():
        path = f"{pointer}/{jsonpointer.escape(key)}"
        if not isinstance(value, Mapping):
            if value is None:  # removing a field fails if it is not there
                return False
            ops.append({"op": "add", "path": path, "value": value})
            continue
        present = target.get(key)  # of an empty mapping there is no operation, which would fail if it is not there
        if not (value and isinstance(present, Mapping) and _add_ops(present, value, path, ops)):
            return False
    return True


def with_version_test(ops: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> list[JsonObject]:
    """Return a JSON patch that fails unless the object still has the given resource version."""
    version = (body.get("metadata") or {}).get("resourceVersion")
    test = [] if version is None else [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
    return [*test, *map(dict, ops)]
