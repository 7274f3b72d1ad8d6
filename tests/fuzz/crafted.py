"""Crafted requests of almost 3 MiB: whatever may be repeated in an object, a patch or a query, as often as it fits.

A scenario is a few requests, of which the first ones prepare what the last ones attack.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

SIZE: Final = 3 * 1024 * 1024 - 2000
CONFIG_MAPS: Final = "/api/v1/namespaces/default/configmaps"
FREES: Final = "/apis/conformance.dev/v1/namespaces/default/frees"
MARK: Final = "@@@"  # the place of the repetitions in a body

JSON, MERGE, STRATEGIC, JSON_PATCH, APPLY, YAML = (
    "application/json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
    "application/yaml",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """One request."""

    method: str
    path: str
    body: bytes = b""
    type: str = JSON
    head: str = ""  # further header lines

    def as_bytes(self) -> bytes:
        """Return the request as it is sent."""
        head = f"{self.method} {self.path} HTTP/1.1\r\nHost: x\r\nContent-Type: {self.type}\r\n{self.head}".encode(
            "latin-1"
        )
        return head + b"Content-Length: %d\r\n\r\n" % len(self.body) + self.body


Scenario = Callable[[], list[Sent]]


def fill(item: str, *, size: int = SIZE, count: int = 10**9, separator: str = ",") -> bytes:
    """Return as many items as fit into the size; ``%d`` in the item is its number."""
    if "%d" not in item:
        return separator.join([item] * min(size // (len(item) + len(separator)) or 1, count)).encode()
    parts, left = [], size
    for at in range(count):
        part = item.replace("%d", str(at))
        left -= len(part) + len(separator)
        if left < 0:
            break
        parts.append(part)
    return separator.join(parts).encode()


def put(obj: Any, repeated: bytes) -> bytes:
    """Return the JSON of the object, with the repetitions in the place of the mark: an item, or a field."""
    text = json.dumps(obj, separators=(",", ":")).encode()
    text = text.replace(f'"{MARK}":0'.encode(), repeated or b'"z":{}')
    return text.replace(f'"{MARK}"'.encode(), repeated)


LIST: Final = [MARK]
_ITEMS: Final = {
    "arrays": "[]",
    "objects": "{}",
    "zeros": "0",
    "fractions": "0.1",
    "exponents": "1e1",
    "big": "9223372036854775808",
    "texts": '""',
    "letters": '"a%d"',
    "nulls": "null",
    "fields": '{"a":0}',
    "named": '{"name":"a%d"}',
    "escapes": '"\\u0000\\ud83d\\ude00"',
}
_MAPS: Final = {
    "tiny": '"%d":""',
    "numbers": '"%d":1',
    "empty": '"%d":{}',
    "lists": '"a%d":[]',
    "null": '"%d":null',
    "same": '"a":"b"',
    "odd": '"%d/\\u0000 é":"\\u0000 é"',
    "labels": '"a.b/c%d":"d"',
    "upper": '"A_%d-":"-"',
    "nested": '"a%d":{"a":{"a":{"a":""}}}',
}
_META: Final = {
    "finalizers": ('"%d a"', '"a"', '"a.b/c%d"', '""', '"orphan","foregroundDeletion"'),
    "ownerReferences": (
        "{}",
        '{"apiVersion":"v1","kind":"Pod","name":"a%d","uid":"%d","controller":true}',
        '{"apiVersion":"v1","kind":"Pod","name":"a","uid":"u"}',
        '{"apiVersion":"v1","kind":"ConfigMap","name":"a%d","uid":"%d","blockOwnerDeletion":true}',
    ),
    "managedFields": (
        "{}",
        '{"manager":"m%d","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:a%d":{}}}',
        '{"manager":"m%d","operation":"Apply","apiVersion":"v%d","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}',
        '{"operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","time":"2024-01-01T00:00:00Z"}',
    ),
}
_FIELD_SETS: Final = (
    '"f:a%d":{}',
    '"k:{\\"a\\":%d}":{}',
    '"v:%d":{}',
    '"i:%d":{".":{}}',
    '"f:%d":{"f:a":{}}',
    '"%d":{}',
)


def _made(base: Any, path: str, body: bytes) -> list[Sent]:
    """Return the requests that create the object, and change it without its repetitions."""
    return [Sent("POST", path, put(base, b"")), Sent("PUT", f"{path}/big", body)]


def _half(repeated: bytes, size: int = SIZE // 2 - 200_000) -> bytes:
    return repeated[:size].rpartition(b",")[0]


def _changes(base: Any, path: str, repeated: bytes) -> list[Sent]:
    half = put(base, _half(repeated))
    return [
        Sent("POST", path, half),
        Sent("PUT", f"{path}/big", half),
        Sent("PATCH", f"{path}/big", half.replace(b"a", b"b"), MERGE),
        Sent("GET", path, head="Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"),
        Sent("GET", path, head="Accept: application/yaml\r\n"),
        Sent("DELETE", f"{path}/big", b'{"propagationPolicy":"Foreground"}'),
    ]


def _patch(kind: str) -> Callable[[Any, str, bytes], list[Sent]]:
    return lambda base, path, repeated: [
        Sent("POST", path, put(base, b"")),
        Sent("PATCH", f"{path}/big", put(base, repeated), kind),
    ]


def _apply(base: Any, path: str, repeated: bytes) -> list[Sent]:
    return [
        Sent("PATCH", f"{path}/big?fieldManager=m", put(base, _half(repeated)), APPLY),
        Sent("PATCH", f"{path}/big?fieldManager=n", put(base, repeated), APPLY),
        Sent("PATCH", f"{path}/big?fieldManager=n&force=1", put(base, _half(repeated).replace(b"a", b"b")), APPLY),
    ]


# The ways in which an object comes in.
_WAYS: Final[dict[str, Callable[[Any, str, bytes], list[Sent]]]] = {
    "create": lambda base, path, repeated: [Sent("POST", path, put(base, repeated))],
    "few": lambda base, path, repeated: [Sent("POST", path, put(base, _half(repeated, 900_000)))],
    "strict": lambda base, path, repeated: [Sent("POST", f"{path}?fieldValidation=Strict", put(base, repeated))],
    "update": lambda base, path, repeated: _made(base, path, put(base, repeated)),
    "update few": lambda base, path, repeated: _made(base, path, put(base, _half(repeated, 900_000))),
    "merge": _patch(MERGE),
    "strategic": _patch(STRATEGIC),
    "apply": _apply,
    "change": _changes,
}


def _ways(base: Any, path: str, item: str) -> Iterator[tuple[str, Scenario]]:
    for way, make in _WAYS.items():
        yield way, functools.partial(_build, make, base, path, item)


def _build(make: Callable[[Any, str, bytes], list[Sent]], base: Any, path: str, item: str) -> list[Sent]:
    return make(base, path, fill(item))


def _config_map(**fields: Any) -> dict[str, Any]:
    meta = {"name": "big", **fields.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **fields}


def _free(**fields: Any) -> dict[str, Any]:
    meta = {"name": "big", **fields.pop("metadata", {})}
    return {"apiVersion": "conformance.dev/v1", "kind": "Free", "metadata": meta, **fields}


def _metadata() -> Iterator[tuple[str, Scenario]]:
    for make, path in ((_config_map, CONFIG_MAPS), (_free, FREES)):
        for field, items in _META.items():
            for at, item in enumerate(items):
                for way, sent in _ways(make(metadata={field: LIST}), path, item):
                    yield f"{make.__name__} {field} {at} {way}", sent
        for field in ("labels", "annotations", "unknown"):
            for name, item in _MAPS.items():
                obj = make(metadata={MARK: 0} if field == "unknown" else {field: {MARK: 0}})
                for way, sent in _ways(obj, path, item):
                    yield f"{make.__name__} {field} {name} {way}", sent
        for at, item in enumerate(_FIELD_SETS):
            entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
            obj = make(metadata={"managedFields": [{**entry, "fieldsV1": {MARK: 0}}]})
            for way, sent in _ways(obj, path, item):
                if way != "apply":
                    yield f"{make.__name__} fields {at} {way}", sent


def _content() -> Iterator[tuple[str, Scenario]]:
    for name, item in _MAPS.items():
        for field in ("data", "binaryData"):
            for way, sent in _ways(_config_map(**{field: {MARK: 0}}), CONFIG_MAPS, item):
                yield f"ConfigMap {field} {name} {way}", sent
        for way, sent in _ways(_free(spec={MARK: 0}), FREES, item):
            yield f"Free {name} {way}", sent
        for way, sent in _ways(_free(**{MARK: 0}), FREES, item):
            yield f"Free top {name} {way}", sent
    for name, item in _ITEMS.items():
        for way, sent in _ways(_free(spec=LIST), FREES, item):
            yield f"Free list {name} {way}", sent
        for way, sent in _ways(_config_map(spec=LIST), CONFIG_MAPS, item):
            yield f"ConfigMap list {name} {way}", sent


def _operations(item: str, count: int) -> bytes:
    return b"[" + fill(item, count=count) + b"]"


_OPERATIONS: Final = {
    "add": '{"op":"add","path":"/spec/a%d","value":{}}',
    "add first": '{"op":"add","path":"/spec/list/0","value":1}',
    "add last": '{"op":"add","path":"/spec/list/-","value":1}',
    "remove": '{"op":"remove","path":"/spec/list/0"}',
    "replace": '{"op":"replace","path":"/spec/list","value":[1]}',
    "replace all": '{"op":"replace","path":"","value":{}}',
    "copy": '{"op":"copy","from":"/spec/list/0","path":"/spec/a%d"}',
    "copy all": '{"op":"copy","from":"/spec/list","path":"/spec/a%d"}',
    "move": '{"op":"move","from":"/spec/list","path":"/spec/b"},{"op":"move","from":"/spec/b","path":"/spec/list"}',
    "move first": '{"op":"move","from":"/spec/list/0","path":"/spec/list/-"}',
    "test": '{"op":"test","path":"/spec/list/0","value":1}',
    "test all": '{"op":"test","path":"/spec/list","value":[]}',
    "unknown": '{"op":"x","path":"/spec","a%d":1}',
    "deep": '{"op":"add","path":"/spec' + "/a" * 150 + '","value":1}',
    "none": "{}",
    "null": "null",
}


def _json_patches() -> Iterator[tuple[str, Scenario]]:
    for items in ("0", '""', "{}", '{"a":[]}'):
        for name, item in _OPERATIONS.items():
            for count in (9_990, 200_000):
                yield f"JSON patch {items} {name} {count}", functools.partial(_json_patch, items, item, count)
    for field in ("path", "from"):
        yield f"JSON patch long {field}", functools.partial(_long_json_patch, field)


def _json_patch(items: str, item: str, count: int) -> list[Sent]:
    made = put(_free(spec={"list": LIST}), fill(items, size=1_400_000, count=95_000))
    return [Sent("POST", FREES, made), Sent("PATCH", f"{FREES}/big", _operations(item, count), JSON_PATCH)]


def _long_json_patch(field: str) -> list[Sent]:
    operation = {"op": "move", "path": "/a", "from": "/b"} | {field: "/a" * 1_500_000}
    patch = json.dumps([operation]).encode()
    return [Sent("POST", FREES, put(_free(), b"")), Sent("PATCH", f"{FREES}/big", patch, JSON_PATCH)]


_PODS: Final = "/api/v1/namespaces/default/pods"
_CONTAINER: Final = {"name": "c", "image": "i"}
_MERGED: Final = {
    "env": '{"name":"a%d"}',
    "ports": '{"containerPort":%d}',
    "$setElementOrder/env": '{"name":"a%d"}',
    "$setElementOrder/ports": '{"containerPort":%d}',
    "$deleteFromPrimitiveList/args": '"%d"',
    "args": '"%d"',
    "volumeMounts": '{"mountPath":"%d"}',
}


def _strategic_patches() -> Iterator[tuple[str, Scenario]]:
    extras: tuple[dict[str, Any], ...] = ({}, {"env": [{"name": "z"}]}, {"$retainKeys": ["name"]})
    for field in _MERGED:
        for extra in extras:
            yield f"strategic {field} {len(extra)}", functools.partial(_strategic_patch, field, extra)
        if not field.startswith("$"):
            for directive in ("$setElementOrder", "$deleteFromPrimitiveList"):
                yield f"strategic again {field} {directive}", functools.partial(_strategic_again, field, directive)
    yield "strategic finalizers", _strategic_finalizers


def _strategic_patch(field: str, extra: dict[str, Any]) -> list[Sent]:
    pod = {"metadata": {"name": "big"}, "spec": {"containers": [_CONTAINER]}}
    patch = put({"spec": {"containers": [{"name": "c", **extra, field: LIST}]}}, fill(_MERGED[field], count=38_000))
    return [Sent("POST", _PODS, json.dumps(pod).encode()), Sent("PATCH", f"{_PODS}/big", patch, STRATEGIC)]


def _strategic_again(field: str, directive: str) -> list[Sent]:
    pod = {"metadata": {"name": "big"}, "spec": {"containers": [{**_CONTAINER, field: LIST}]}}
    some = fill(_MERGED[field], size=500_000)
    patch = put({"spec": {"containers": [{"name": "c", f"{directive}/{field}": LIST, field: []}]}}, some)
    return [Sent("POST", _PODS, put(pod, some)), Sent("PATCH", f"{_PODS}/big", patch, STRATEGIC)]


def _strategic_finalizers() -> list[Sent]:
    finalizers = fill('"a.b/c%d"', size=800_000)
    return [
        Sent("PATCH", f"{CONFIG_MAPS}/a", put({"metadata": {"finalizers": LIST}}, finalizers), STRATEGIC),
        Sent("POST", CONFIG_MAPS, put(_config_map(metadata={"finalizers": LIST}), finalizers)),
        Sent(
            "PATCH",
            f"{CONFIG_MAPS}/big",
            put({"metadata": {"$deleteFromPrimitiveList/finalizers": LIST}}, finalizers),
            STRATEGIC,
        ),
    ]


def _requests() -> Iterator[tuple[str, list[Sent]]]:
    size = 60_000
    for name, text in {
        "parameters": fill("a%d=b", size=size, separator="&"),
        "same": fill("labelSelector=a", size=size, separator="&"),
        "labels": b"labelSelector=" + fill("a%d", size=size),
        "in": b"labelSelector=a+in+(" + fill("a%d", size=size) + b")",
        "numbers": b"labelSelector=" + fill("a>%d", size=size),
        "long": b"labelSelector=" + b"a" * size,
        "prefix": b"labelSelector=" + b"a." * (size // 2) + b"/a",
        "fields": b"fieldSelector=" + fill("metadata.name!=a%d", size=size),
        "escapes": b"fieldSelector=metadata.name=" + b"%5C%5C" * (size // 6),
        "deep": b"fieldSelector=" + b"a." * (size // 2),
        "continue": b"continue=" + b"W1tb" * (size // 4),
        "version": b"resourceVersion=" + b"9" * size,
        "percent": b"labelSelector=" + b"%" * size,
        "manager": b"fieldManager=" + b"%01" * (size // 3),
        "dry": b"dryRun=" + b"%00" * (size // 3),
        "validation": b"fieldValidation=" + b"%22" * (size // 3),
    }.items():
        query = text.decode()
        yield f"query {name} list", [Sent("GET", f"{CONFIG_MAPS}?{query}"), Sent("GET", f"{FREES}?{query}")]
        yield f"query {name} watch", [Sent("GET", f"{CONFIG_MAPS}?watch=1&{query}")]
        yield f"query {name} create", [Sent("POST", f"{CONFIG_MAPS}?{query}", put(_config_map(), b""))]
        yield f"query {name} delete", [Sent("DELETE", f"{CONFIG_MAPS}?{query}")]
        yield f"query {name} apply", [Sent("PATCH", f"{CONFIG_MAPS}/a?{query}", put(_config_map(), b""), APPLY)]
    for name, path in {"slashes": "/" * size, "parts": "/a" * (size // 2), "escapes": "/%00%ff" * (size // 7)}.items():
        for base in ("", "/api", "/apis/apps/v1", CONFIG_MAPS, f"{CONFIG_MAPS}/a", "/openapi/v3/apis"):
            yield f"path {name} {base}", [Sent("GET", base + path[: size - 100]), Sent("DELETE", base + path)]
    heads = {
        "accept": "Accept: " + "application/json;as=Table;v=v2," * (size // 30),
        "parts": "Accept: application/json" + ";a=b" * (size // 4),
        "many": "\r\n".join(f"A{at}: b" for at in range(size // 12)),
        "groups": "\r\n".join(["Impersonate-User: a", *(f"Impersonate-Group: g{at}" for at in range(size // 30))]),
        "extra": "\r\n".join(["Impersonate-User: a", *(f"Impersonate-Extra-a{at}: b" for at in range(size // 30))]),
        "tag": "If-None-Match: " + '"a",' * (size // 4),
        "agent": "User-Agent: " + "\x01" * size,
        "type": "Content-Type: application/json" + ";a=b" * (size // 4),
    }
    for name, head in heads.items():
        for path in (CONFIG_MAPS, "/apis"):
            yield f"head {name} {path}", [Sent("GET", path, head=f"{head}\r\n")]


def _queries() -> Iterator[tuple[str, Scenario]]:
    for name, sent in _requests():
        yield name, functools.partial(list[Sent], sent)


def scenarios() -> Iterator[tuple[str, Scenario]]:
    """Yield all scenarios with their names."""
    makers: list[Callable[[], Iterator[tuple[str, Scenario]]]] = [
        _metadata,
        _content,
        _json_patches,
        _strategic_patches,
        _queries,
    ]
    for make in makers:
        yield from make()
