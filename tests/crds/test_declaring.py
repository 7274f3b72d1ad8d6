"""Tests for :mod:`trioperator.crds.declaring`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trioperator import crds
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._model.custom_kind import get_kind


def declare(api_version: str = "example.com/v1", **options: Any) -> type:
    class Thing(msgspec.Struct):
        spec: dict[str, str]

    return crds.kind(api_version, registry=OperatorRegistry(), **options)(Thing)


@pytest.mark.parametrize(
    ("kind", "plural"),
    [("Database", "databases"), ("Proxy", "proxies"), ("Gateway", "gateways"), ("Box", "boxes"), ("Class", "classes")],
)
def test_plurals_are_made_of_kinds(kind: str, plural: str) -> None:
    assert get_kind(declare(kind=kind)).plural == plural


@pytest.mark.parametrize("api_version", ["v1", "example/v1", "example.com/", "Example.com/v1", "example.com/V1"])
def test_a_kind_needs_a_group_and_a_version(api_version: str) -> None:
    with pytest.raises(ValueError, match=r"it must be like 'example.com/v1'"):
        declare(api_version)


def test_wrong_options_are_reported() -> None:
    with pytest.raises(TypeError, match=r"crds.kind has no option plurals \(did you mean plural\?\)"):
        declare(plurals="things")
    with pytest.raises(TypeError, match="short_names='db': it must be a list"):
        declare(short_names="db")
    with pytest.raises(ValueError, match="the kind 'thing'"):
        declare(kind="thing")
    with pytest.raises(ValueError, match="the name 'My_Things'"):
        declare(plural="My_Things")
    with pytest.raises(TypeError, match="list_map"):
        crds.list_map()


def test_a_class_that_is_derived_from_a_kind_is_none() -> None:
    class Derived(declare()):  # type: ignore[misc]  # a class made by a function
        pass

    with pytest.raises(TypeError, match="Derived declares no kind: decorate it with"):
        get_kind(Derived)


def test_a_class_that_is_declared_again_replaces_the_first() -> None:
    registry = OperatorRegistry()
    first, second = (msgspec.defstruct("A", ["spec"]) for _ in range(2))
    for cls in (first, second):
        crds.kind("example.com/v1", registry=registry)(cls)
    assert registry.kinds() == (second,)
