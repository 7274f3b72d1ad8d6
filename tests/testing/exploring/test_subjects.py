"""Tests for :mod:`trioperator.testing.exploring.subjects`: which kinds are explored, and what is missing if none is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import trioperator
from tests.testing.exploring.operators import CRD, make_crd
from trioperator.errors import ConfigError
from trioperator.testing.exploring.subjects import Subject, World, find_subjects


def register(*kinds: str) -> trioperator.OperatorRegistry:
    registry = trioperator.OperatorRegistry()
    for kind in kinds:

        @trioperator.on.create(kind, registry=registry)
        def create_fn(**_: object) -> None: ...

    return registry


async def test_a_handled_kind_with_a_schema_is_a_subject() -> None:
    world, (subject,) = await find_subjects(register("webapps"), World(definitions=[CRD]))
    assert (subject.resource, subject.api_version, subject.kind) == ("webapps.example.com", "example.com/v1", "WebApp")
    assert list(subject.schema["properties"]) == ["spec"]
    assert subject.schema["required"] == ["spec"]
    assert subject.make_object({"spec": {}})["metadata"] == {"name": subject.name}
    assert list(world.definitions) == [CRD]


async def test_kinds_of_classes_are_subjects() -> None:
    registry = trioperator.OperatorRegistry()

    @trioperator.crds.kind("example.com/v1")
    class Website(msgspec.Struct):
        pages: int = 1

    @trioperator.on.create(Website, registry=registry)
    def create_fn(**_: object) -> None: ...

    world, (subject,) = await find_subjects(registry, World())
    assert subject.kind == "Website"
    assert len(world.definitions) == 1


async def find_with(*examples: dict[str, Any], crd: dict[str, Any], kinds: tuple[str, ...] = ()) -> Subject:
    _, (subject,) = await find_subjects(register("webapps"), World(definitions=[crd]), examples, kinds=kinds)
    return subject


async def test_a_kind_without_fields_needs_examples() -> None:
    crd = make_crd()
    subject = await find_with(crd=crd)
    with pytest.raises(ConfigError, match=r"schema of webapps\.example\.com has no fields.*--from FILE.*--kind KIND"):
        subject.check()
    example = {"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {"name": "a"}, "spec": {"size": 1}}
    subject = await find_with(example, crd=crd)
    assert subject.examples == [{"spec": {"size": 1}}]
    subject.check()


async def test_examples_of_other_kinds_are_objects_of_the_world() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    world, _ = await find_subjects(register("webapps"), World(definitions=[CRD]), [secret])
    assert world.objects == [secret]


@pytest.mark.parametrize("name", ["WebApp", "webapps", "webapps.example.com"])
async def test_kinds_are_chosen_by_any_name(name: str) -> None:
    assert (await find_with(crd=CRD, kinds=(name,))).kind == "WebApp"


async def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigError, match="no kind that is known: pass the definitions"):
        await find_subjects(register("webapps"), World())
    with pytest.raises(ConfigError, match="no such kind as others"):
        await find_with(crd=CRD, kinds=("others",))
    with pytest.raises(ConfigError, match="the operator handles pods"):
        await find_subjects(register("pods"), World())
    broken = {**CRD, "spec": {**CRD["spec"], "scope": "Nowhere"}}
    with pytest.raises(ConfigError, match=r"rejects the definition webapps\.example\.com"):
        await find_with(crd=broken)
