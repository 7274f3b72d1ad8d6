"""Tests for :mod:`trioperator.crds.comparison`: which changes break, and which do not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from tests.crds.classes import REGISTRY
from trioperator import crds
from trioperator.crds.comparison import compare_definitions

SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
        "name": {"type": "string", "maxLength": 9, "pattern": "^a"},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "maybe": {"type": "string", "nullable": True},
        "items": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "step": {"type": "integer", "multipleOf": 4},
    },
    "required": ["name"],
}


def make(spec: dict[str, Any] | None = None) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": copy.deepcopy(SPEC if spec is None else spec)}}
    names = {"kind": "Thing", "plural": "things", "singular": "thing", "shortNames": ["th"], "categories": ["all"]}
    versions = [
        {"name": "v2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
        {"name": "v1", "served": True, "storage": False, "schema": {"openAPIV3Schema": copy.deepcopy(schema)}},
    ]
    versions[0]["subresources"] = {"status": {}, "scale": {"specReplicasPath": ".spec.size"}}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    return {"kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"}, "spec": spec}


def changes(change: Callable[[dict[str, Any]], object]) -> list[str]:
    """Return what breaks by a change of a definition, without the definition's name."""
    old, new = make(), make()
    change(new["spec"])
    found = compare_definitions([old], [new])
    assert all(line.startswith("things.example.com: ") for line in found)
    return [line.removeprefix("things.example.com: ") for line in found]


def field(name: str, **values: Any) -> Callable[[dict[str, Any]], object]:
    """Return a change of a field of the stored version; None removes a key."""

    def change(spec: dict[str, Any]) -> None:
        schema = fields(spec)[name]
        schema.update(values)
        for key, value in values.items():
            if value is None:
                del schema[key]

    return change


def fields(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = stored(spec)["properties"]
    return found


def stored(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def swap_storage(spec: dict[str, Any]) -> None:
    for version in spec["versions"]:
        version["storage"] = not version["storage"]


def with_webhook(spec: dict[str, Any]) -> None:
    swap_storage(spec)
    spec["conversion"] = {"strategy": "Webhook"}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda s: s.update(scope="Cluster"), "the scope changes from Namespaced to Cluster"),
        (lambda s: s["names"].update(kind="Other"), "the kind changes from Thing to Other"),
        (lambda s: s["names"].update(singular="other"), "the singular changes from thing to other"),
        (lambda s: s["names"].pop("shortNames"), "the short name th is gone"),
        (lambda s: s["names"].update(categories=[]), "the category all is gone"),
        (lambda s: s["versions"].pop(), "the version v1 is gone, which clients may use"),
        (lambda s: s["versions"][1].update(served=False), "the version v1 is no longer served"),
        (lambda s: s["versions"][0].pop("subresources"), "v2: the subresource status is gone"),
        (lambda s: s["versions"][1].update(subresources={"status": {}}), "v1: the subresource status is new"),
        (lambda s: s["versions"][0]["subresources"]["scale"].update(specReplicasPath=".x"), "v2: the paths of the"),
        (swap_storage, "the storage version changes from v2 to v1 without a conversion"),
        (lambda s: fields(s).pop("size"), "v2.spec.size: the field is gone"),
        (lambda s: stored(s)["required"].append("mode"), "v2.spec.mode: the field is required now"),
        (field("size", type="string"), "v2.spec.size: the type changes from integer to string"),
        (field("size", default=None), "v2.spec.size: the default 1 is gone"),
        (field("size", minimum=2), "v2.spec.size: minimum changes from 1 to 2"),
        (field("size", exclusiveMinimum=True), "v2.spec.size: minimum changes from 1 to 1, exclusive"),
        (field("size", maximum=8), "v2.spec.size: maximum changes from 9 to 8"),
        (field("name", minLength=1), "v2.spec.name: minLength is 1 now"),
        (field("name", pattern="^b"), "v2.spec.name: pattern is '^b' now, and was '^a'"),
        (field("mode", format="ipv4"), "v2.spec.mode: format is 'ipv4' now"),
        (field("mode", enum=["a", "c"]), "v2.spec.mode: 'b' is no longer accepted"),
        (field("name", enum=["a"]), "v2.spec.name: only 'a' are accepted now"),
        (field("maybe", nullable=False), "v2.spec.maybe: null is no longer accepted"),
        (field("items", maxItems=2), "v2.spec.items: maxItems changes from 3 to 2"),
        (field("items", items={"type": "integer"}), "v2.spec.items[]: the type changes from string to integer"),
        (field("items", **{"x-kubernetes-list-type": "set"}), "v2.spec.items: x-kubernetes-list-type changes"),
        (field("map", additionalProperties={"type": "string"}), "v2.spec.map{}: the type changes"),
        (field("map", additionalProperties=None), "v2.spec.map: fields of any name were accepted"),
        (field("any", type="object"), "v2.spec.any: values of any type were accepted, and are object now"),
        (field("free", **{"x-kubernetes-preserve-unknown-fields": None}), "v2.spec.free: fields of any name"),
        (field("step", multipleOf=8), "v2.spec.step: multipleOf is 8 now, and was 4"),
        (field("size", **{"x-kubernetes-validations": [{"rule": "self > 1"}]}), "v2.spec.size: the rule 'self > 1'"),
    ],
)
def test_what_breaks_is_one_line(change: Callable[[dict[str, Any]], object], line: str) -> None:
    found = [each for each in changes(change) if "scale" not in each or "scale" in str(line) or "paths" in line]
    assert len(found) == 1, found
    assert found[0].startswith(line)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: None,
        lambda s: s["names"]["shortNames"].append("tg"),
        lambda s: s["versions"].append(s["versions"][1] | {"name": "v3"}),
        lambda s: s["versions"][0].update(additionalPrinterColumns=[], deprecated=True),
        lambda s: s["versions"][1].update(subresources={"scale": {}}),
        with_webhook,
        lambda s: fields(s).update(new={"type": "string"}),
        lambda s: (fields(s).update(new={"type": "string", "default": ""}), stored(s)["required"].append("new")),
        lambda s: stored(s).pop("required"),
        field("size", type="number", minimum=0, maximum=10, default=2),
        field("size", type=None, **{"x-kubernetes-int-or-string": True}),
        field("size", minimum=None, maximum=None),
        field("name", maxLength=10, pattern=None, minLength=0),
        field("mode", enum=["a", "b", "c"]),
        field("mode", enum=None, nullable=True),
        field("items", maxItems=4, description="x"),
        field("map", additionalProperties={"type": "number"}),
        field("size", type=None, **{"x-kubernetes-preserve-unknown-fields": True}),
        field("step", multipleOf=2),
    ],
)
def test_what_does_not_break(change: Callable[[dict[str, Any]], object]) -> None:
    assert changes(change) == []


def test_a_kind_that_is_gone_breaks_and_a_new_one_does_not() -> None:
    assert compare_definitions([], [make()]) == []
    assert compare_definitions([make()], []) == ["things.example.com: the definition is gone, and all objects with it"]


def test_definitions_of_classes_do_not_break_themselves() -> None:
    definitions = crds.collect_definitions(REGISTRY)
    assert compare_definitions(definitions, definitions) == []


LIMITS = st.fixed_dictionaries(
    {"type": st.just("integer")},
    optional={
        "minimum": st.integers(-3, 3),
        "maximum": st.integers(-3, 3),
        "exclusiveMinimum": st.booleans(),
        "exclusiveMaximum": st.booleans(),
        "multipleOf": st.integers(1, 3),
        "enum": st.lists(st.integers(-3, 3), min_size=1, unique=True),
        "nullable": st.booleans(),
    },
)


def accepts(schema: dict[str, Any], value: int | None) -> bool:
    if value is None:
        return bool(schema.get("nullable")) and "enum" not in schema
    low, high = schema.get("minimum"), schema.get("maximum")
    return (
        (low is None or value > low or (value == low and not schema.get("exclusiveMinimum")))
        and (high is None or value < high or (value == high and not schema.get("exclusiveMaximum")))
        and value % schema.get("multipleOf", 1) == 0
        and value in schema.get("enum", [value])
    )


@hypothesis.given(LIMITS, LIMITS)
def test_a_value_that_is_not_accepted_any_more_is_found(old: dict[str, Any], new: dict[str, Any]) -> None:
    lost = [value for value in (None, *range(-7, 8)) if accepts(old, value) and not accepts(new, value)]
    if lost:
        before, after = (make({"type": "object", "properties": {"x": schema}}) for schema in (old, new))
        assert compare_definitions([before], [after])
