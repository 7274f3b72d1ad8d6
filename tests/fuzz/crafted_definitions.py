"""Crafted custom resource definitions of almost 3 MiB, and objects whose validation by a definition multiplies."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

from tests.apiserver.conftest import definition
from tests.fuzz.crafted import APPLY, JSON, LIST, MARK, MERGE, SIZE, Scenario, Sent, fill, put

DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BIGS: Final = "/apis/conformance.dev/v1/namespaces/default/bigs"
_TABLE: Final = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"
_SIZE: Final = 1_400_000  # of a definition that is to be stored
_NAMES: Final = {"plural": "bigs", "singular": "big", "kind": "Big", "listKind": "BigList"}


def _root(spec: Any) -> dict[str, Any]:
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}


def _definition(spec: Any, **version: Any) -> dict[str, Any]:
    return definition("bigs", "Big", schema=_root(spec), **version)


_VERSIONS: Final = (
    '{"name":"v1%d","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}',
    '{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}',
    '{"name":"v1%d","served":true,"deprecated":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}',
)
_FIELDS: Final = {
    "columns": ("additionalPrinterColumns", '{"name":"a%d","type":"string","jsonPath":".spec.a%d"}'),
    "star columns": ("additionalPrinterColumns", '{"name":"a%d","type":"string","jsonPath":".spec[*][*][*]"}'),
    "bad columns": ("additionalPrinterColumns", "{}"),
    "long columns": ("additionalPrinterColumns", '{"name":"a","type":"date","jsonPath":"' + ".a" * 20_000 + '"}'),
    "fields": ("selectableFields", '{"jsonPath":".spec.a%d"}'),
    "bad fields": ("selectableFields", "{}"),
}
_PARTS: Final = {
    "properties": ('"%d":{"type":"string"}', {"type": "object", "properties": {MARK: 0}}),
    "untyped": ('"%d":{}', {"type": "object", "properties": {MARK: 0}}),
    "defaults": ('"%d":{"type":"string","default":"a"}', {"type": "object", "properties": {MARK: 0}}),
    "wrong defaults": ('"%d":{"type":"string","default":1}', {"type": "object", "properties": {MARK: 0}}),
    "formats": ('"%d":{"type":"string","format":"f%d"}', {"type": "object", "properties": {MARK: 0}}),
    "patterns": ('"%d":{"type":"string","pattern":"a{%d}"}', {"type": "object", "properties": {MARK: 0}}),
    "costly patterns": (
        '"%d":{"type":"string","pattern":"\\\\pL{1,1000}%d"}',
        {"type": "object", "properties": {MARK: 0}},
    ),
    "large patterns": (
        '"%d":{"type":"string","pattern":"((\\\\pL{9}){9}){9}%d"}',
        {"type": "object", "properties": {MARK: 0}},
    ),
    "bad patterns": ('"%d":{"type":"string","pattern":"(%d"}', {"type": "object", "properties": {MARK: 0}}),
    "sets": (
        '"%d":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}',
        {"type": "object", "properties": {MARK: 0}},
    ),
    "required": ('"%d"', {"type": "object", "required": LIST}),
    "enum": ('"%d"', {"type": "string", "enum": LIST}),
    "same enum": ('"a"', {"type": "string", "enum": LIST}),
    "all": ('{"minimum":%d}', {"type": "integer", "allOf": LIST}),
    "any": ('{"enum":["%d"]}', {"type": "string", "anyOf": LIST}),
    "one": ('{"pattern":"%d"}', {"type": "string", "oneOf": LIST}),
    "any type": ('{"type":"string"}', {"type": "string", "anyOf": LIST}),
    "any field": ('{"properties":{"a%d":{}}}', {"type": "object", "anyOf": LIST}),
    "rules": ('{"rule":"self.a == %d"}', {"type": "object", "x-kubernetes-validations": LIST}),
    "same rules": ('{"rule":"self.a == 1"}', {"type": "object", "x-kubernetes-validations": LIST}),
    "bad rules": ('{"rule":"x"}', {"type": "object", "x-kubernetes-validations": LIST}),
    "long rules": (
        '{"rule":"self.a == %d' + " || self.a == 1" * 2000 + '"}',
        {"type": "object", "x-kubernetes-validations": LIST},
    ),
    "time rules": (
        '{"rule":"self.a == %d"}',
        {
            "type": "object",
            "properties": {f"a{at}": {"type": "string", "format": "date"} for at in range(3000)},
            "x-kubernetes-validations": LIST,
        },
    ),
    "paths": ('{"rule":"true","fieldPath":".a%d"}', {"type": "object", "x-kubernetes-validations": LIST}),
    "keys": (
        '"%d"',
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": LIST,
            "items": {"type": "object"},
        },
    ),
    "unknown": ('"%d":1', {"type": "object", MARK: 0}),
}


def _deep(inner: Any, levels: int) -> Any:
    for at in range(levels):
        inner = {"type": "object", "default": {}, "properties": {f"a{at}": inner, "b": {"type": "string"}}}
    return inner


def _definitions() -> Iterator[tuple[str, Scenario]]:
    for size in (3_000_000, _SIZE, 200_000):
        for name in _FIELDS:
            yield f"definition {name} {size}", functools.partial(_version_with, name, size)
        for name, (_, schema) in _PARTS.items():
            yield f"definition {name} {size}", functools.partial(_schema_with, name, schema, size)
            if name in {"properties", "required", "any", "all", "rules", "defaults"}:
                yield f"definition deep {name} {size}", functools.partial(_schema_with, name, _deep(schema, 80), size)
        for at in range(len(_VERSIONS)):
            yield f"definition versions {at} {size}", functools.partial(_with_versions, at, size)
        for field in ("shortNames", "categories"):
            for item in ('"a%d"', '"A"'):
                yield f"definition {field} {item} {size}", functools.partial(_with_names, field, item, size)
        for field, item in (("storedVersions", '"v%d"'), ("conditions", "{}"), ("conditions", '{"type":"a%d"}')):
            yield f"definition {field} {item} {size}", functools.partial(_with_status, field, item, size)


def _version_with(name: str, size: int) -> list[Sent]:
    field, item = _FIELDS[name]
    obj = _definition({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, **{field: LIST})
    return _uses(put(obj, fill(item, size=size)))


def _schema_with(name: str, schema: Any, size: int) -> list[Sent]:
    return _uses(put(_definition(schema), fill(_PARTS[name][0], size=size)))


def _with_versions(at: int, size: int) -> list[Sent]:
    obj = _definition({"type": "object"})
    spec = {**obj["spec"], "versions": [*obj["spec"]["versions"], MARK]}
    return _uses(put({**obj, "spec": spec}, fill(_VERSIONS[at], size=size)))


def _with_names(field: str, item: str, size: int) -> list[Sent]:
    obj = _definition({"type": "object"})
    return _uses(put({**obj, "spec": {**obj["spec"], "names": {**_NAMES, field: LIST}}}, fill(item, size=size)))


def _with_status(field: str, item: str, size: int) -> list[Sent]:
    first, *others = _uses(put(_definition({"type": "object"}), b""))
    patch = put({"status": {field: LIST}}, fill(item, size=size))
    return [first, Sent("PATCH", f"{DEFINITIONS}/bigs.conformance.dev/status", patch, MERGE), *others]


def _uses(body: bytes) -> list[Sent]:
    one = f"{DEFINITIONS}/bigs.conformance.dev"
    big = b'{"apiVersion":"conformance.dev/v1","kind":"Big","metadata":{"name":"a"},"spec":{"a":1}}'
    return [
        Sent("POST", DEFINITIONS, body),
        Sent("PATCH", one, body, MERGE),
        Sent("PATCH", f"{one}?fieldManager=m&force=1", body, APPLY),
        Sent("GET", f"{DEFINITIONS}", head=_TABLE),
        Sent("POST", BIGS, big),
        Sent("PATCH", f"{BIGS}/a", b'{"spec":{"a":2,"b":"x"}}', MERGE),
        Sent("GET", BIGS, head=_TABLE),
        Sent("GET", "/openapi/v2"),
        Sent("GET", "/openapi/v3/apis/conformance.dev/v1"),
        Sent("GET", "/apis", head="Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList\r\n"),
        Sent("DELETE", one),
    ]


def _many(count: int, schema: Any) -> dict[str, Any]:
    return {f"a{at}": schema for at in range(count)}


_STRING: Final = {"type": "string"}
# Schemas of items or fields, and the items, of which there are as many as fit.
_PRODUCTS: Final[dict[str, tuple[Any, str]]] = {
    "defaults": ({"type": "object", "properties": _many(1000, {**_STRING, "default": "x"})}, "{}"),
    "large default": ({"type": "object", "properties": {"a": {**_STRING, "default": "x" * 500_000}}}, "{}"),
    "absent": ({"type": "object", "properties": _many(9_000, _STRING)}, "{}"),
    "required": ({"type": "object", "required": [f"a{at}" for at in range(20_000)]}, "{}"),
    "fulfilled": ({"type": "object", "required": ["a0"] * 20_000, "properties": {"a0": _STRING}}, '{"a0":""}'),
    "enum": ({**_STRING, "enum": [f"{at}" for at in range(50_000)]}, '"x"'),
    "found": ({**_STRING, "enum": [f"{at}" for at in range(50_000)]}, '"49999"'),
    "objects": ({"type": "object", "properties": {"a0": _STRING}, "enum": [{"a0": "b"}] * 9000}, '{"a0":"c"}'),
    "allOf": ({"type": "integer", "allOf": [{"minimum": 1}] * 4_900}, "0"),
    "anyOf": ({"type": "integer", "anyOf": [{"minimum": 1}] * 4_900}, "0"),
    "oneOf": ({"type": "integer", "oneOf": [{"minimum": 0}] * 4_900}, "0"),
    "not": ({"type": "integer", "allOf": [{"not": {"minimum": 1}}] * 3_000}, "0"),
    "patterns": ({**_STRING, "allOf": [{"pattern": f"^(a+)+{at}$"} for at in range(2000)]}, '"' + "a" * 100 + '"'),
    "pattern": ({**_STRING, "pattern": "^(a+)+$" + "x" * 100_000}, '"b"'),
    "formats": ({**_STRING, "format": "date-time"}, '"2024-01-01T00:00:00Z"'),
    "bad formats": ({**_STRING, "format": "hostname"}, '"a.b.c.d.e_"'),
    "types": ({"type": "integer"}, '"a"'),
    "sizes": ({**_STRING, "minLength": 5}, '"a"'),
    "rules": ({"type": "integer", "x-kubernetes-validations": [{"rule": "self >= 0"}]}, "0"),
    "violations": ({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}, "0"),
    "many rules": (
        {"type": "integer", "x-kubernetes-validations": [{"rule": f"self >= -{at}"} for at in range(300)]},
        "0",
    ),
    "messages": (
        {
            "type": "integer",
            "x-kubernetes-validations": [{"rule": "self > 0", "messageExpression": "'a' + string(self)"}],
        },
        "0",
    ),
    "embedded": (
        {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
        '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"a":"b"}}}',
    ),
    "bad embedded": (
        {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
        '{"metadata":{"labels":{"/":"/"}}}',
    ),
}
_EXPRESSIONS: Final = (
    "self.all(x, self.all(y, x == y))",
    "self.all(x, self.all(y, self.all(z, x == y)))",
    "self.map(x, self).size() > 0",
    "self.map(x, self.map(y, self)).size() > 0",
    "self.exists(x, self.exists(y, false))",
    "self.isSorted()",
    "self.map(x, string(x)).join(',').size() > 0",
    "(self + self + self + self).size() > 0",
    "self.sum() >= 0",
)
_TEXT_EXPRESSIONS: Final = (
    "self.replace('', self).size() > 0",
    "self.replace('a', self).size() > 0",
    "self.split('').size() > 0",
    "self.split('').join(self).size() > 0",
    "self.split('').all(x, self.contains(x))",
    "self.split('').all(x, self.matches('^(a+)+$'))",
    "self.matches('(.*a){20}b')",
    "self.matches(self)",
    "self.contains(self.substring(1) + 'b')",
    "self.lowerAscii().upperAscii().trim() == self",
    "self.find('(a+)+b') == ''",
    "self.findAll('a').size() > 0",
    "(self + self + self + self + self + self + self + self).size() > 0",
    "isQuantity(self) || isURL(self) || isIP(self) || isCIDR(self) || isSemver(self)",
    "self < self + 'a'",
    "self.indexOf(self.substring(2) + 'b') < 0",
    "self.split('a', 100000).map(x, x + self).size() > 0",
    "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, self.contains('b') == false)))",
)


def _products() -> Iterator[tuple[str, Scenario]]:
    for name, (schema, item) in _PRODUCTS.items():
        for kind in ("", "set", "map"):
            if kind != "map" or (schema["type"] == "object" and "a0" in schema.get("properties", ())):
                yield from _attacks(f"product {name} {kind}", _list_of(schema, kind), LIST, item)
        values = {"type": "object", "additionalProperties": schema}
        yield from _attacks(f"product {name} values", values, {MARK: 0}, f'"k%d":{item}')
        yield from _attacks(f"product {name} deep", _deep({"type": "array", "items": schema}, 60), _inner(60), item)
    for at, expression in enumerate(_EXPRESSIONS):
        schema = {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": expression}]}
        yield from _attacks(f"expression {at}", schema, LIST, "%d")
    for at, expression in enumerate(_TEXT_EXPRESSIONS):
        schema = {"type": "string", "x-kubernetes-validations": [{"rule": expression}]}
        yield from _attacks(f"text {at}", schema, MARK, '"' + "a" * 1_400_000 + '"')
        yield from _attacks(f"texts {at}", {"type": "array", "items": schema}, LIST, '"' + "a" * 1000 + '"')


def _list_of(schema: Any, kind: str) -> Any:
    """Return the schema of a list whose items have the schema."""
    if kind == "map":
        keys = {"x-kubernetes-list-map-keys": ["a0"], "x-kubernetes-list-type": kind}
        return {"type": "array", "items": {**schema, "required": ["a0"]}, **keys}
    if kind == "set" and schema["type"] == "object":
        schema = {**schema, "x-kubernetes-map-type": "atomic"}
    return {"type": "array", "items": schema, **({"x-kubernetes-list-type": kind} if kind else {})}


def _inner(levels: int) -> Any:
    value: Any = LIST
    for at in range(levels):
        value = {f"a{at}": value}
    return value


def _attacks(name: str, schema: Any, value: Any, item: str) -> Iterator[tuple[str, Scenario]]:
    for count in (10**9, 38_000, 20_000, 1_000):
        yield f"{name} {count}", functools.partial(_attack, schema, value, item, count)


def _attack(schema: Any, value: Any, item: str, count: int) -> list[Sent]:
    obj = {"apiVersion": "conformance.dev/v1", "kind": "Big", "metadata": {"name": "a"}, "spec": value}
    body = put(obj, fill(item, count=count, size=1_400_000 if count < 10**9 else SIZE))
    return [
        Sent("POST", DEFINITIONS, put(_definition(schema), b""), JSON),
        Sent("POST", BIGS, body),
        Sent("PATCH", f"{BIGS}/a?fieldManager=m", body, APPLY),
        Sent("PATCH", f"{BIGS}/a", b'{"metadata":{"labels":{"a":"b"}}}', MERGE),
        Sent("PUT", f"{BIGS}/a", body.replace(b'"metadata":{', b'"metadata":{"labels":{"c":"d"},')),
        Sent("GET", BIGS, head=_TABLE),
        Sent("DELETE", f"{DEFINITIONS}/bigs.conformance.dev"),
    ]


def scenarios() -> Iterator[tuple[str, Scenario]]:
    """Yield all scenarios with their names."""
    yield from _definitions()
    yield from _products()
