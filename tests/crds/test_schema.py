"""Tests for :mod:`trioperator.crds.schema`: one constraint after the other, and what cannot be expressed."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import uuid
from typing import Annotated, Any, Literal, NamedTuple, cast

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest
import trio
from msgspec import Meta

from trioperator import crds
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator.apiserver import Cluster
from trioperator.crds.schema import make_schema
from trioperator.errors import ConfigError, InvalidError, PermanentError


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Point:
    """A point."""

    x: int
    y: int = 0


class Tagged(msgspec.Struct, tag="circle", tag_field="shape"):
    radius: float


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (bool, {"type": "boolean"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (str, {"type": "string"}),
        (Annotated[int, Meta(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
        (
            Annotated[float, Meta(gt=0, lt=1)],
            {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1, "exclusiveMaximum": True},
        ),
        (Annotated[int, Meta(multiple_of=5)], {"type": "integer", "multipleOf": 5}),
        (
            Annotated[str, Meta(min_length=1, max_length=3, pattern="^a")],
            {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^a"},
        ),
        (Annotated[str, Meta(description="A.", examples=["x"])], {"type": "string", "description": "A."}),
        (bytes, {"type": "string", "format": "byte"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.timedelta, {"type": "string"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (Annotated[str, crds.format_of("cidr")], {"type": "string", "format": "cidr"}),
        (int | None, {"type": "integer", "nullable": True}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a"] | None, {"type": "string", "enum": ["a"]}),
        (Level | None, {"type": "integer", "enum": [1, 2]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (crds.IntOrString, {"x-kubernetes-int-or-string": True}),
        (
            Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern="%$")] | None,
            {"x-kubernetes-int-or-string": True, "minimum": 0, "pattern": "%$", "nullable": True},
        ),
        (int | float, {"type": "number"}),
        (
            Annotated[list[int], Meta(min_length=1, max_length=2)],
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
        ),
        (set[str], {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            Annotated[dict[str, int], Meta(min_length=1, max_length=2)],
            {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2},
        ),
        (dict[str, Any], {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        (Any, {"x-kubernetes-preserve-unknown-fields": True}),
        (Any | None, {"x-kubernetes-preserve-unknown-fields": True}),
        (
            Annotated[dict[str, Any], crds.embedded_resource()],
            {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
        ),
        (
            Point,
            {
                "type": "object",
                "description": "A point.",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                "required": ["x"],
            },
        ),
        (
            Tagged,
            {
                "type": "object",
                "properties": {"shape": {"type": "string", "enum": ["circle"]}, "radius": {"type": "number"}},
                "required": ["radius", "shape"],
            },
        ),
        (
            Annotated[list[Point], crds.list_map("x", "y"), Meta(max_length=3)],
            {
                "type": "array",
                "items": make_schema(Point, "x"),
                "maxItems": 3,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["x", "y"],
            },
        ),
    ],
)
def test_constraints(annotation: Any, schema: dict[str, Any]) -> None:
    assert make_schema(annotation, "Kind.spec") == schema


class Tree(msgspec.Struct):
    children: list[Tree] = []


class Row(msgspec.Struct, array_like=True):
    a: int


class Pair(NamedTuple):
    a: int


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (int | bool, "Kind.spec is a union of types"),
        (list[str | Point], r"Kind.spec\[\] is a union of types"),
        (Literal["a", 1], "values of several types"),
        (dict[int, str], "keys are not plain strings"),
        (Tree, r"Kind.spec.children\[\] contains its own class Tree"),
        (Row, "Kind.spec is an array of different fields"),
        (Pair, "cannot express: NamedTupleType"),
        (complex, "Kind.spec has a type that .*CustomType"),
        (None, "cannot express: NoneType"),
        (Annotated[int, Meta(extra_json_schema={"deprecated": True})], "Kind.spec has deprecated in extra_json_schema"),
    ],
)
def test_what_a_crd_cannot_express_is_reported_with_its_path(annotation: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_schema(annotation, "Kind.spec")


class Nested(msgspec.Struct):
    name: str = "x"
    tags: list[str] = []
    when: float = msgspec.field(default_factory=lambda: 1.0)
    maybe: int | None = None


class Defaults(msgspec.Struct):
    nested: Nested = msgspec.field(default_factory=Nested)
    level: Level = Level.LOW


def test_defaults_are_those_that_are_the_same_each_time() -> None:
    schema = make_schema(Defaults, "Kind.spec")
    assert schema["properties"]["level"]["default"] == 1
    nested = schema["properties"]["nested"]
    assert nested["default"] == {"name": "x", "tags": [], "when": 1.0, "maybe": None}
    assert {name: each.get("default") for name, each in nested["properties"].items()} == {
        "name": "x",
        "tags": [],
        "when": None,
        "maybe": None,
    }
    assert "required" not in schema


class Ruled(msgspec.Struct):
    value: Annotated[int, crds.rules(crds.Rule(rule="self > 0", reason="FieldValueInvalid", field_path=".x"))]


crds.rule("self.value < 9")(Ruled)
crds.rule("self.value < 8", message="small")(Ruled)


def test_rules_of_fields_and_classes() -> None:
    schema = make_schema(Ruled, "Kind.spec")
    assert schema["x-kubernetes-validations"] == [
        {"rule": "self.value < 8", "message": "small"},
        {"rule": "self.value < 9"},
    ]
    assert schema["properties"]["value"]["x-kubernetes-validations"] == [
        {"rule": "self > 0", "reason": "FieldValueInvalid", "fieldPath": ".x"}
    ]


def _limit(kind: type, low: str, high: str) -> st.SearchStrategy[Any]:
    """Return annotations of a type with limits."""
    optional: dict[str, st.SearchStrategy[Any]] = {low: st.integers(0, 2), high: st.integers(1, 3)}
    limits = st.fixed_dictionaries({}, optional=optional)
    return limits.map(lambda given: Annotated[kind, cast(Any, Meta)(**given)] if given else kind)


ANNOTATIONS = st.recursive(
    st.one_of(
        _limit(int, "ge", "lt"),
        _limit(int, "gt", "le"),
        _limit(str, "min_length", "max_length"),
        st.sampled_from([bool, float, Any, crds.IntOrString, Literal["a", "b"], Literal[1, 2], Level]),
    ),
    lambda inner: st.one_of(
        inner.map(lambda item: list[item]),  # type: ignore[valid-type]  # made here
        inner.map(lambda item: dict[str, item]),  # type: ignore[valid-type]  # made here
        inner.map(lambda item: msgspec.defstruct("Inner", [("a", item), ("b", int, 1)])),
    ),
    max_leaves=3,
)
# Values at the limits.
SCALARS = (0, 1, 2, 3, "", "abc")
VALUES = st.recursive(
    st.one_of(st.integers(-1, 4), st.sampled_from(["", "a", "abcd", 0.5, True])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@hypothesis.settings(max_examples=50)
@hypothesis.given(ANNOTATIONS, st.lists(VALUES, min_size=1, max_size=5))
def test_the_server_accepts_what_the_class_accepts_and_nothing_else(annotation: Any, values: list[Any]) -> None:
    spec = msgspec.defstruct("Spec", [("x", annotation)])
    registry = OperatorRegistry()
    cls = crds.kind("example.com/v1", kind="Thing", registry=registry)(msgspec.defstruct("Thing", [("spec", spec)]))

    async def judge() -> None:
        cluster = Cluster()
        [definition] = crds.collect_definitions(registry)
        await cluster.apply(definition)
        for number, value in enumerate(
            [*values, *SCALARS, *([each] for each in SCALARS), *({"a": each} for each in SCALARS)]
        ):
            metadata = {"name": f"x-{number}", "namespace": "default"}
            obj = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, "spec": {"x": value}}
            assert await _accepts(cluster, obj) is _fits(cls, obj), (definition, value)

    trio.run(judge)


async def _accepts(cluster: Cluster, obj: dict[str, Any]) -> bool:
    try:
        await cluster.create(obj)
    except InvalidError:
        return False
    return True


def _fits(cls: type, obj: dict[str, Any]) -> bool:
    try:
        crds.decode(cls, obj)
    except PermanentError:
        return False
    return True
