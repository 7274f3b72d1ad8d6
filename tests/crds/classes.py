"""Ten kinds whose classes have every constraint between them, with specs that the classes accept and refuse."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import uuid
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
from msgspec import Meta

from trioperator import crds
from trioperator._handling.declaring.registry import OperatorRegistry

GROUP = "typed.example.com"
REGISTRY = OperatorRegistry()


class Case(NamedTuple):
    """A class, with specs that it accepts, and specs that it and the API server refuse.

    ``denied`` are specs that only the API server refuses: by rules in CEL, and by lists whose items are not unique.
    """

    cls: type
    accepted: list[dict[str, Any]]
    refused: list[dict[str, Any]]
    denied: list[dict[str, Any]]


class NumbersSpec(msgspec.Struct):
    """Numbers with limits."""

    size: Annotated[int, Meta(ge=1, le=100)]
    """The size
    in GiB."""
    ratio: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    step: Annotated[int, Meta(multiple_of=5)] = 5
    either: int | float = 1
    level: Annotated[int, Meta(gt=-3, lt=3, description="How loud.")] | None = None


@crds.kind(f"{GROUP}/v1", registry=REGISTRY, columns=[crds.Column("Size", ".spec.size", priority=1)])
class Number(msgspec.Struct):
    """An object with numbers."""

    spec: NumbersSpec


class StringsSpec(msgspec.Struct, rename="camel"):
    short_name: Annotated[str, Meta(min_length=2, max_length=4)]
    slug: Annotated[str, Meta(pattern="^[a-z]+$")] = "abc"
    host: Annotated[str, crds.format_of("ipv4")] = "10.0.0.1"
    secret: bytes = b"abc"


@crds.kind(f"{GROUP}/v1", plural="texts", short_names=["txt"], categories=["typed"], registry=REGISTRY)
class Text(msgspec.Struct):
    spec: StringsSpec


class Color(enum.Enum):
    """The colour of a thing."""

    RED = "red"
    BLUE = "blue"


class ChoicesSpec(msgspec.Struct):
    mode: Literal["fast", "safe"]
    bits: Literal[32, 64] = 64
    color: Color = Color.RED
    maybe: Literal["a", "b"] | None = None
    none: Literal["x", None] = None
    both: Literal["p"] | Literal["q"] = "p"


@crds.kind(f"{GROUP}/v1", namespaced=False, registry=REGISTRY)
class Choice(msgspec.Struct):
    spec: ChoicesSpec


@dataclasses.dataclass
class Times:
    at: datetime.datetime
    day: datetime.date | None = None
    id: uuid.UUID | None = None
    price: decimal.Decimal | None = None
    wait: datetime.timedelta | None = None


@crds.kind(
    f"{GROUP}/v1beta1",
    plural="moments",
    kind="Moment",
    deprecated="moments are over",
    columns=[crds.Column("At", ".spec.at"), crds.Column("Age", ".metadata.creationTimestamp", type="date")],
    registry=REGISTRY,
)
@dataclasses.dataclass
class TimedObject:
    spec: Times


class Port(msgspec.Struct):
    name: str
    number: Annotated[int, Meta(ge=1, le=65535)]
    protocol: Literal["TCP", "UDP"] = "TCP"


class ListsSpec(msgspec.Struct):
    ports: Annotated[list[Port], Meta(min_length=1, max_length=3), crds.list_map("name")]
    tags: Annotated[set[Annotated[str, Meta(max_length=10)]], Meta(max_length=5)] = set()
    groups: Annotated[list[str], crds.list_set()] = []
    pair: tuple[int, ...] = (1, 2)
    matrix: list[list[int]] = msgspec.field(default_factory=list)


@crds.kind(f"{GROUP}/v1", plural="lists", registry=REGISTRY)
class Listing(msgspec.Struct):
    spec: ListsSpec


class MapsSpec(msgspec.Struct):
    limits: Annotated[dict[str, Annotated[int, Meta(ge=0)]], Meta(min_length=1, max_length=2)]
    nested: dict[str, dict[str, bool]] = {}
    free: dict[str, Any] = {}
    anything: Any = None


@crds.kind(f"{GROUP}/v1", plural="maps", registry=REGISTRY)
class Map(msgspec.Struct):
    spec: MapsSpec


class Rollout(msgspec.Struct, rename="camel"):
    max_surge: crds.IntOrString = "25%"
    port: Annotated[int, Meta(ge=1)] | Annotated[str, Meta(min_length=1)] = 1


class UnionsSpec(msgspec.Struct):
    rollout: Rollout = msgspec.field(default_factory=Rollout)
    target: crds.IntOrString | None = None


@crds.kind(f"{GROUP}/v1", plural="unions", kind="Union", registry=REGISTRY)
class UnionObject(msgspec.Struct):
    spec: UnionsSpec = msgspec.field(default_factory=UnionsSpec)


@crds.rule("self.min <= self.max", message="min must not exceed max")
class Range(msgspec.Struct):
    min: int
    max: int


class RulesSpec(msgspec.Struct):
    range: Range
    odd: Annotated[int, crds.rules(crds.Rule(rule="self % 2 == 1", message_expression="'it is even'"))] = 1


@crds.kind(f"{GROUP}/v1", plural="rules", registry=REGISTRY)
class Ruled(msgspec.Struct):
    spec: RulesSpec


class Extra(TypedDict):
    note: str


class TemplatesSpec(msgspec.Struct):
    template: Annotated[dict[str, Any], crds.embedded_resource()]
    options: Annotated[Extra, crds.preserve_unknown_fields()] | None = None


@crds.kind(f"{GROUP}/v1", registry=REGISTRY)
class Template(msgspec.Struct):
    metadata: crds.ObjectMeta
    spec: TemplatesSpec


class ScaledSpec(msgspec.Struct):
    replicas: Annotated[int, Meta(ge=0)] = 1


class ScaledStatus(msgspec.Struct):
    replicas: int = 0
    selector: str = ""


@crds.kind(
    f"{GROUP}/v1",
    plural="scaleds",
    scale=crds.Scale(selector=".status.selector"),
    columns=[
        crds.Column("Desired", ".spec.replicas", description="What is wanted."),
        crds.Column("Seen", ".status.replicas", format="int32"),
    ],
    registry=REGISTRY,
)
class Scaled(msgspec.Struct):
    spec: ScaledSpec
    status: ScaledStatus | None = None


_PORT = {"name": "http", "number": 80}
_POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"x": 1}}

CASES = (
    Case(
        Number,
        [{"size": 1}, {"size": 100, "ratio": 0.1, "step": 15, "either": 1.5, "level": None}, {"size": 5, "level": 2}],
        [
            {},
            {"size": 0},
            {"size": 101},
            {"size": "1"},
            {"size": 1.5},
            {"size": 1, "ratio": 0},
            {"size": 1, "ratio": 1},
            {"size": 1, "step": 4},
            {"size": 1, "either": "x"},
            {"size": 1, "level": 3},
            {"size": 1, "level": -3},
        ],
        [],
    ),
    Case(
        Text,
        [{"shortName": "ab"}, {"shortName": "äöüß", "slug": "x", "host": "1.2.3.4"}],
        [{"shortName": "a"}, {"shortName": "abcde"}, {"shortName": 12}, {"shortName": "ab", "slug": "A"}],
        [{"shortName": "ab", "host": "nowhere"}],
    ),
    Case(
        Choice,
        [{"mode": "fast"}, {"mode": "safe", "bits": 32, "color": "blue", "maybe": "a", "none": "x", "both": "q"}],
        [
            {"mode": "slow"},
            {"mode": None},
            {"mode": "fast", "bits": 16},
            {"mode": "fast", "color": "green"},
            {"mode": "fast", "maybe": "c"},
            {"mode": "fast", "none": "y"},
            {"mode": "fast", "both": "r"},
        ],
        [],
    ),
    Case(
        TimedObject,
        [
            {"at": "2026-01-02T03:04:05Z", "day": "2026-01-02", "price": "1.50", "wait": "PT5S"},
            {"at": "2026-01-02T03:04:05.5+02:00", "id": "12345678-1234-5678-1234-567812345678", "day": None},
        ],
        [
            {"at": "yesterday"},
            {"at": 5},
            {"at": "2026-01-02T03:04:05Z", "day": "soon"},
            {"at": "2026-01-02T03:04:05Z", "id": "none"},
        ],
        [],
    ),
    Case(
        Listing,
        [{"ports": [_PORT]}, {"ports": [_PORT, {**_PORT, "name": "b"}], "tags": ["a", "b"], "matrix": [[1], []]}],
        [
            {"ports": []},
            {"ports": [_PORT | {"name": str(n)} for n in range(4)]},
            {"ports": [{"name": "x"}]},
            {"ports": [_PORT | {"number": 0}]},
            {"ports": [_PORT], "tags": ["a" * 11]},
            {"ports": [_PORT], "pair": "1"},
            {"ports": [_PORT], "tags": list("abcdef")},
            {"ports": [_PORT], "matrix": [["1"]]},
        ],
        [{"ports": [_PORT, _PORT]}, {"ports": [_PORT], "tags": ["a", "a"]}, {"ports": [_PORT], "groups": ["a", "a"]}],
    ),
    Case(
        Map,
        [
            {"limits": {"a": 0}, "nested": {"x": {"y": True}}, "free": {"x": [1, {}]}, "anything": {"z": None}},
            {"limits": {"a": 1, "b": 2}, "anything": "text"},
        ],
        [
            {"limits": {}},
            {"limits": {"a": -1}},
            {"limits": {"a": 1, "b": 1, "c": 1}},
            {"limits": {"a": "1"}},
            {"limits": {"a": 1}, "nested": {"x": {"y": "z"}}},
            {"limits": {"a": 1}, "free": []},
        ],
        [],
    ),
    Case(
        UnionObject,
        [{}, {"rollout": {}}, {"rollout": {"maxSurge": 1, "port": "http"}, "target": None}, {"target": "x"}],
        [{"rollout": {"maxSurge": True}}, {"rollout": {"port": 0}}, {"rollout": {"port": ""}}, {"target": [1]}],
        [],
    ),
    Case(
        Ruled,
        [{"range": {"min": 1, "max": 1}, "odd": 3}],
        [{"range": {"min": 1}}, {"range": {"min": 1, "max": "2"}}],
        [{"range": {"min": 2, "max": 1}}, {"range": {"min": 1, "max": 1}, "odd": 2}],
    ),
    Case(
        Template,
        [
            {"template": _POD},
            {"template": _POD, "options": {"note": "x", "more": 1}},
            {"template": _POD, "options": None},
        ],
        [{"template": "x"}, {"template": _POD, "options": {}}, {"template": _POD, "options": {"note": 1}}],
        [{"template": {"kind": "Pod"}}],
    ),
    Case(Scaled, [{}, {"replicas": 0}], [{"replicas": -1}, {"replicas": "1"}], []),
)
