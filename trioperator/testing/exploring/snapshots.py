"""Snapshots: the objects that an operator has written, and in which of their fields two snapshots differ."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from trioperator.apiserver import Cluster

#: Objects by "Kind namespace/name", without what is never the same.
Snapshot: TypeAlias = Mapping[str, Mapping[str, Any]]
#: A kind, and the path of a field in its objects; indices of lists do not count.
Mask: TypeAlias = tuple[str, tuple[str, ...]]

#: Label that is set on an object as by somebody else, and removed in the end.
EDIT_LABEL: Final = "explored-by"
#: Stands for what is not there.
ABSENT: Final = "(absent)"

# Managers of those who are not the operator: the embedded controllers, and the one who plays.
_OTHERS: Final = frozenset({"kube-controller-manager", "unknown"})
_VOLATILE: Final = frozenset(
    {"uid", "resourceVersion", "generation", "observedGeneration", "creationTimestamp", "managedFields"}
)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
# Annotations by which the controllers of built-in kinds keep records of their own.
_RECORDS: Final = re.compile(r"(deployment|pv|volume|batch)(\.[a-z]+)?\.kubernetes\.io/")
#: Kinds of objects that say nothing about what an operator does, or that no two plays have the same.
UNCOMPARED: Final = frozenset(
    {"CustomResourceDefinition", "Event", "Lease", "Namespace", "KopfPeering", "ClusterKopfPeering"}
)
_WEBHOOKS: Final = "admissionregistration.k8s.io/"
# Groups whose objects have a status that others keep.
_BUILT_IN: Final = re.compile(r"(v1|(apps|batch|policy|autoscaling|[a-z.]+\.k8s\.io)/\w+)$")


class Seen(dict[str, Any]):
    """An object with the fields that its operator owns; *whole* is with all of them."""

    whole: Mapping[str, Any]


class Difference(NamedTuple):
    """A field in which two snapshots differ; the path is empty if the whole object is missing in one."""

    obj: str
    path: tuple[str | int, ...]
    found: Any
    expected: Any

    @property
    def mask(self) -> Mask:
        """The mask of this field in all objects of the kind."""
        return self.obj.partition(" ")[0], tuple("*" if isinstance(key, int) else key for key in self.path)

    @property
    def cause(self) -> str:
        """The key of differences with one cause: ``WebApp status.phase``, ``ConfigMap is missing``."""
        kind, path = self.mask
        if path:
            return f"{kind} {'.'.join(path[:4])}"
        return f"{kind} is {'missing' if self.found == ABSENT else 'extra'}"

    def __str__(self) -> str:
        if self.path:
            where = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.path).lstrip(".")
            return f"{self.obj}: {where} is {_show(self.found)}, and should be {_show(self.expected)}"
        return f"{self.obj} {'is missing' if self.found == ABSENT else 'should not be there'}"


def _show(value: Any) -> str:
    if value == ABSENT:
        return "absent"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}…"


def list_written(cluster: Cluster, before: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the objects that anybody but the embedded controllers and the one who plays has written.

    An object without content has no managers: it counts unless its uid is among those *before*.
    """
    return [obj for obj in cluster.objects(without=UNCOMPARED) if _is_written(obj, before)]


def _is_written(obj: Mapping[str, Any], before: Collection[str]) -> bool:
    if obj["kind"] in UNCOMPARED or str(obj["apiVersion"]).startswith(_WEBHOOKS):
        return False
    managers = {entry.get("manager", "") for entry in obj["metadata"].get("managedFields", ())}
    return not managers <= _OTHERS if managers else obj["metadata"]["uid"] not in before


def take_snapshot(
    cluster: Cluster, *, subject: str = "", anonymous: Collection[str] = (), before: Collection[str] = ()
) -> Snapshot:
    """Return the objects of the kind *subject*, and those that the operator has written.

    Objects of *anonymous* kinds are numbered in the order of their content, as their names are never the same. *before*
    are the uids of objects that were there before.
    """
    others = UNCOMPARED - {subject}
    objects = [obj for obj in cluster.objects(without=others) if obj["kind"] == subject or _is_written(obj, before)]
    generated = [obj for obj in objects if obj["kind"] in anonymous or obj["metadata"].get("generateName")]
    found = {_name(obj): obj for obj in objects if obj not in generated}
    names = {obj["metadata"]["uid"]: f"uid of {name}" for name, obj in found.items()}
    counts: dict[str, int] = {}
    for obj in sorted(generated, key=lambda obj: _rank(obj, names)):
        count = counts[obj["kind"]] = counts.get(obj["kind"], 0) + 1
        name = f"{obj['kind']} #{count}"
        names |= {obj["metadata"]["name"]: name, obj["metadata"]["uid"]: f"uid of {name}"}
        found[name] = obj
    return {name: _see(found[name], names, subject=subject) for name in sorted(found)}


def _rank(obj: dict[str, Any], names: Mapping[str, str]) -> tuple[str, int]:
    """Return the key to sort objects whose names are generated: their content, without their own names and uids."""
    meta = obj["metadata"]
    whole = _normalize(_without_records(obj), {**names, meta["name"]: "its name", meta["uid"]: "its uid"})
    rest = {key: value for key, value in whole.items() if key != "metadata"}
    content = [rest, *(whole["metadata"].get(key) for key in ("labels", "annotations"))]
    return msgspec.json.encode(content, order="sorted").decode(), int(meta.get("resourceVersion", 0))


def _see(obj: dict[str, Any], names: Mapping[str, str], *, subject: str) -> Seen:
    whole = _without_empty(_without_records(obj))
    if obj["kind"] != subject:
        whole = _without_label(whole)  # of the object, which its children get when they are adopted
    seen = Seen(_normalize(_keep_owned(whole) if _BUILT_IN.match(obj["apiVersion"]) else whole, names))
    seen.whole = _normalize(whole, names)
    return seen


def _name(obj: Mapping[str, Any]) -> str:
    meta = obj["metadata"]
    return f"{obj['kind']} {'/'.join(filter(None, (meta.get('namespace'), meta['name'])))}"


def _without_records(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what the controllers of built-in kinds note on it."""
    if _BUILT_IN.match(obj["apiVersion"]):
        obj = {key: value for key, value in obj.items() if key != "status"}
    meta = obj["metadata"]
    if annotations := meta.get("annotations"):
        meta = _with(meta, "annotations", {key: value for key, value in annotations.items() if not _RECORDS.match(key)})
    if obj["kind"] == "Job" and (labels := meta.get("labels")):  # without any, it gets those of its pods
        of_pods = obj["spec"]["template"].get("metadata", {}).get("labels", {})
        meta = _with(meta, "labels", dict(labels.items() - of_pods.items()))
    return {**obj, "metadata": meta}


def _with(meta: dict[str, Any], key: str, kept: dict[str, str]) -> dict[str, Any]:
    return {**meta, key: kept} if kept else {k: v for k, v in meta.items() if k != key}


def _without_label(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_label(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_label(item) for key, item in value.items() if key != EDIT_LABEL and item != {EDIT_LABEL: "x"}}


def _without_empty(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object without empty maps in its status, as patches leave them where they remove the last field."""
    if not isinstance(status := obj.get("status"), dict):
        return obj
    kept = _prune(status)
    return {**obj, "status": kept} if kept else {key: value for key, value in obj.items() if key != "status"}


def _prune(value: dict[str, Any]) -> dict[str, Any]:
    pruned = {key: _prune(item) if isinstance(item, dict) else item for key, item in value.items()}
    return {key: item for key, item in pruned.items() if item != {}}


def _keep_owned(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object without the fields that its operator has not applied, if it applies server-side.

    Defaults that were set at the creation stay, whatever becomes of the fields that they followed from.
    """
    own = [entry for entry in obj["metadata"].get("managedFields", ()) if entry.get("manager") not in _OTHERS]
    if not own or any(entry.get("operation") != "Apply" for entry in own):
        return obj
    fields = [entry.get("fieldsV1", {}) for entry in own]
    fields += [{"f:data": each["f:stringData"]} for each in fields if "f:stringData" in each]  # of a Secret
    kept = {key: _filter(value, [each.get(f"f:{key}") for each in fields]) for key, value in obj.items()}
    return {**kept, **{key: obj[key] for key in ("apiVersion", "kind", "metadata")}}


def _filter(value: Any, owned: Sequence[Mapping[str, Any] | None]) -> Any:
    """Return the parts of a value that one of the managers owns."""
    present = [each for each in owned if each is not None]
    if any(not each or set(each) == {"."} for each in present):
        return value
    if isinstance(value, dict):
        inner = {key: [each.get(f"f:{key}") for each in present] for key in value}
        return {k: _filter(v, inner[k]) for k, v in value.items() if any(each is not None for each in inner[k])}
    if isinstance(value, list):
        return [_filter(item, found) for item in value if any(found := [_find_item(item, each) for each in present])]
    return value


def _find_item(item: Any, owned: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the owned part of an item of a list, found by its keys or its value."""
    for key, fields in owned.items():
        if key.startswith("k:") and isinstance(item, dict):
            keys = msgspec.json.decode(key[2:])
            if all(item.get(name) == wanted for name, wanted in keys.items()):
                return fields or {".": {}}
        elif key.startswith("v:") and msgspec.json.decode(key[2:]) == item:
            return {".": {}}
    return None


def _normalize(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _normalize(item, names) for key, item in value.items() if key not in _VOLATILE}
    if isinstance(value, list):
        return [_normalize(item, names) for item in value]
    if not isinstance(value, str):
        return value
    if value.startswith("{"):  # JSON in an annotation, such as the last-handled configuration
        with contextlib.suppress(msgspec.DecodeError):
            return _normalize(msgspec.json.decode(value), names)
    return names.get(value) or _TIME.sub("<time>", value)


def compare(found: Snapshot, expected: Snapshot, *, masks: Collection[Mask] = ()) -> list[Difference]:
    """Return in which fields two snapshots differ, but for those that are masked."""
    differences: list[Difference] = []
    for name in sorted(found.keys() | expected.keys()):
        if name not in found or name not in expected:
            differences.append(
                Difference(name, (), ABSENT, expected[name])
                if name not in found
                else Difference(name, (), found[name], ABSENT)
            )
        else:
            pairs = _compare_values(found[name], expected[name], ())
            differences += (
                Difference(name, path, one, other)
                for path, one, other in pairs
                if not (ABSENT in (one, other) and _is_same_in_whole(found[name], expected[name], path))
            )
    return [each for each in _without_copies(differences) if not is_masked(each.mask, masks)]


def _without_copies(differences: Sequence[Difference]) -> list[Difference]:
    """Return the differences, but for those of the last-handled configuration where the object's own field differs."""
    copies = [each for each in differences if each.path[:2] == ("metadata", "annotations") and len(each.path) > 3]
    own = [each for each in differences if each not in copies]
    told = {(each.obj, each.path[:length]) for each in own for length in range(len(each.path) + 1)}
    return [each for each in differences if each not in copies or (each.obj, each.path[3:]) not in told]


def _is_same_in_whole(one: Mapping[str, Any], other: Mapping[str, Any], path: tuple[str | int, ...]) -> bool:
    """Return whether a field is the same in two objects, though somebody else owns it in one of them."""
    if not (isinstance(one, Seen) and isinstance(other, Seen)):
        return False
    values: list[Any] = [one.whole, other.whole]
    for key in path:
        try:
            values = [value[key] for value in values]
        except (KeyError, IndexError, TypeError):
            return False
    return bool(values[0] == values[1])


def is_masked(mask: Mask, masks: Collection[Mask]) -> bool:
    """Return whether a field, or one that it is in, is masked."""
    kind, path = mask
    return any((kind, path[:length]) in masks for length in range(len(path) + 1))


def _compare_values(
    found: Any, expected: Any, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    if found == expected:
        return
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        for key in sorted(found.keys() | expected.keys()):
            yield from _compare_values(found.get(key, ABSENT), expected.get(key, ABSENT), (*path, key))
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from _compare_values(one, other, (*path, index))
    else:
        yield path, found, expected
