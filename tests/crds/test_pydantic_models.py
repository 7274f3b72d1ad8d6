"""Tests for :mod:`trioperator.crds.pydantic_models`."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest

from trioperator import crds
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator.apiserver import Cluster
from trioperator.crds.schema import make_schema
from trioperator.errors import ApiError, ConfigError, PermanentError

pydantic = pytest.importorskip("pydantic")

from pydantic import BaseModel, ConfigDict, Field  # noqa: E402 -- skipped above without it

REGISTRY = OperatorRegistry()


class Port(BaseModel):
    """A port."""

    number: int = Field(ge=1, le=65535)
    protocol: Literal["TCP", "UDP"] = "TCP"


@crds.rule("self.size < 50", message="too much")
class Spec(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, populate_by_name=True)

    size: int = Field(gt=0, multiple_of=2)
    """The size in GiB."""
    host_name: str | None = Field(None, alias="hostName", pattern="^[a-z]+$")
    ports: list[Port] = Field([], max_length=2, json_schema_extra=crds.list_map("number").extra_json_schema)
    main: Port | None = None
    tags: set[str] = set()
    limits: dict[str, Annotated[int, Field(ge=0)]] = {}
    surge: int | str = 1
    free: dict[str, Any] = {}
    anything: Any = None
    at: datetime.datetime | None = None


@crds.kind("pydantic.example.com/v1", registry=REGISTRY)
class Database(BaseModel):
    """A database."""

    spec: Spec


def test_models_have_structural_schemas() -> None:
    schema = make_schema(Spec, "Database.spec")
    port = {
        "type": "object",
        "description": "A port.",
        "properties": {
            "number": {"type": "integer", "minimum": 1, "maximum": 65535},
            "protocol": {"type": "string", "enum": ["TCP", "UDP"], "default": "TCP"},
        },
        "required": ["number"],
    }
    assert schema == {
        "type": "object",
        "required": ["size"],
        "x-kubernetes-validations": [{"rule": "self.size < 50", "message": "too much"}],
        "properties": {
            "size": {
                "type": "integer",
                "minimum": 0,
                "exclusiveMinimum": True,
                "multipleOf": 2,
                "description": "The size in GiB.",
            },
            "hostName": {"type": "string", "pattern": "^[a-z]+$", "nullable": True},
            "ports": {
                "type": "array",
                "items": port,
                "default": [],
                "maxItems": 2,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["number"],
            },
            "main": port | {"nullable": True},
            "tags": {"type": "array", "items": {"type": "string"}, "default": [], "x-kubernetes-list-type": "set"},
            "limits": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}, "default": {}},
            "surge": {"x-kubernetes-int-or-string": True, "default": 1},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": {}},
            "anything": {"x-kubernetes-preserve-unknown-fields": True},
            "at": {"type": "string", "format": "date-time", "nullable": True},
        },
    }


async def test_the_server_refuses_what_a_model_refuses(cluster: Cluster) -> None:
    [definition] = crds.collect_definitions(REGISTRY)
    await cluster.apply(definition)

    async def create(name: str, spec: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "default"}
        obj = {"apiVersion": "pydantic.example.com/v1", "kind": "Database", "metadata": metadata, "spec": spec}
        return await cluster.create(obj)

    created = await create("good", {"size": 2, "hostName": "a", "ports": [{"number": 1}], "main": None})
    found = crds.decode(Database, created)
    assert (found.spec.size, found.spec.host_name, found.spec.ports[0].protocol) == (2, "a", "TCP")
    assert crds.encode(found.spec)["hostName"] == "a"
    wrong: list[dict[str, Any]] = [{}, {"size": 1}, {"size": 2, "hostName": "A"}, {"size": 2, "ports": [{"number": 0}]}]
    for number, spec in enumerate(wrong):
        with pytest.raises(PermanentError, match=r"^It is not a valid Spec: "):
            crds.decode(Spec, spec)
        with pytest.raises(ApiError):
            await create(f"bad-{number}", spec)


def test_models_within_other_classes() -> None:
    class Outer(msgspec.Struct):
        port: Port

    assert make_schema(Outer, "Kind")["properties"]["port"]["required"] == ["number"]


class Tree(BaseModel):
    children: list[Tree] = []


class Pair(BaseModel):
    pair: tuple[int, str]


class Mixed(BaseModel):
    port: Port | int


class Foreign(BaseModel):
    size: Annotated[int, msgspec.Meta(ge=1)]


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (Tree, "contains its own class Tree"),
        (Pair, r"Kind.pair has prefixItems"),
        (Mixed, "Kind.port is a union of types"),
        (Foreign, "Kind.size has an annotation of msgspec's"),
    ],
)
def test_what_a_crd_cannot_express_is_reported(model: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_schema(model, "Kind")
