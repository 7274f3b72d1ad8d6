"""Tests for :mod:`trioperator._handling.reviews.conversion`."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trioperator
from trioperator import crds
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.reviews.conversion import ConversionHandler, build_converted, find_chain
from trioperator._model.body import Body
from trioperator._model.patch import Patch
from trioperator._model.resource import Selector

VERSIONS = ["v1", "v2", "v3", "v4"]


def handler(from_version: str, to_version: str) -> ConversionHandler:
    return ConversionHandler(
        fn=print,
        id=f"{from_version}-{to_version}",
        selector=Selector.parse("widgets"),
        from_version=from_version,
        to_version=to_version,
    )


def widget(**more: Any) -> dict[str, Any]:
    metadata = {"name": "w", "uid": "u", "resourceVersion": "5", "labels": {"a": "b"}}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": 1}, **more}


def names(*steps: tuple[str, str], from_: str, to: str) -> list[str] | None:
    chain = find_chain([handler(*step) for step in steps], from_, to)
    return None if chain is None else [each.id for each in chain]


def test_a_chain_is_as_short_as_possible() -> None:
    steps = [("v1", "v2"), ("v2", "v3"), ("v3", "v4"), ("v2", "v4")]
    assert names(*steps, from_="v1", to="v4") == ["v1-v2", "v2-v4"]


def test_of_several_short_chains_the_first_declared_one_is_taken() -> None:
    steps = [("v1", "v3"), ("v1", "v2"), ("v2", "v4"), ("v3", "v4")]
    assert names(*steps, from_="v1", to="v4") == ["v1-v3", "v3-v4"]


def test_there_may_be_no_chain_and_none_is_needed_within_a_version() -> None:
    assert names(("v1", "v2"), from_="v2", to="v1") is None
    assert names(from_="v1", to="v1") == []


@settings(max_examples=50)
@given(st.sets(st.sampled_from([*itertools.permutations(VERSIONS, 2)])).map(sorted))
def test_chains_connect_whatever_can_be_reached(steps: list[tuple[str, str]]) -> None:
    handlers = [handler(*step) for step in steps]
    reached = {(version, version) for version in VERSIONS}
    for _ in VERSIONS:
        reached |= {(a, d) for (a, b), (c, d) in itertools.product(reached, steps) if b == c}
    for from_, to in itertools.product(VERSIONS, repeat=2):
        chain = find_chain(handlers, from_, to)
        assert (chain is not None) == ((from_, to) in reached)
        versions = [from_, *(each.to_version for each in chain or ())]
        assert [each.from_version for each in chain or ()] == versions[:-1]
        assert chain is None or versions[-1] == to


def test_a_patch_changes_a_copy_of_the_object() -> None:
    before = widget()
    patch = Patch({"spec": {"size": None, "width": 1}}, fns=[lambda body: body["spec"].update(height=2)])
    after, dropped = build_converted(before, None, patch, "example.com/v2")
    assert (after["apiVersion"], after["kind"]) == ("example.com/v2", "Widget")
    assert after["spec"] == {"width": 1, "height": 2}
    assert (before, dropped) == (widget(), [])


def test_a_returned_object_takes_the_place_of_the_object() -> None:
    body = Body(widget(status={"ready": True}))
    result = {**body, "kind": "Other", "spec": {"inner": body.spec}}
    after, _ = build_converted(widget(), result, Patch({"spec": {"more": 1}}), "example.com/v2")
    assert after == widget(apiVersion="example.com/v2", spec={"inner": {"size": 1}, "more": 1}, status={"ready": True})


def test_what_is_not_returned_of_the_metadata_is_kept() -> None:
    after, dropped = build_converted(widget(), {"spec": {}}, Patch(), "example.com/v2")
    assert (after["metadata"], dropped) == (widget()["metadata"], [])


def test_only_labels_and_annotations_may_change() -> None:
    changes = {"name": "x", "labels": {"a": None, "c": "d"}, "annotations": {"e": "f"}, "finalizers": ["g"]}
    after, dropped = build_converted(widget(), None, Patch({"metadata": changes}), "example.com/v2")
    expected = {"name": "w", "uid": "u", "resourceVersion": "5", "labels": {"c": "d"}, "annotations": {"e": "f"}}
    assert (after["metadata"], dropped) == (expected, ["name", "finalizers"])


def test_labels_can_be_removed() -> None:
    after, _ = build_converted(widget(), None, Patch({"metadata": {"labels": None}}), "example.com/v2")
    assert "labels" not in after["metadata"]


@pytest.mark.parametrize(
    ("result", "match"),
    [
        ("text", "it is of the type str: return the converted object, or None"),
        ({"metadata": []}, "its metadata are of the type list"),
        ({"spec": {"x": object()}}, "an object of the type object is not JSON-serializable"),
        ({"metadata": {"labels": {"a": 1}}}, "the values of its labels are not all strings"),
        ({"metadata": {"annotations": "x"}}, "the values of its annotations are not all strings"),
    ],
)
def test_what_is_no_object_is_rejected(result: Any, match: str) -> None:
    with pytest.raises(TypeError, match=match):
        build_converted(widget(), result, Patch(), "example.com/v2")


def test_a_number_that_is_none_is_rejected_wherever_it_comes_from() -> None:
    nan = float("nan")
    patches = [Patch({"spec": {"size": nan}}), Patch(fns=[lambda body: body["spec"].update(size=nan)])]
    for result, patch in [({"spec": {"size": nan}}, Patch()), *((None, patch) for patch in patches)]:
        with pytest.raises(ValueError, match=r"spec\.size is nan, which is no number in JSON"):
            build_converted(widget(), result, patch, "example.com/v2")


UNUSED = OperatorRegistry()


class NewSpec(msgspec.Struct):
    width: int
    depth: int | None = None


@crds.kind("example.com/v2", kind="Widget", storage=True, registry=UNUSED)
class NewWidget(msgspec.Struct):
    spec: NewSpec
    metadata: crds.ObjectMeta = crds.ObjectMeta()
    status: dict[str, int] | None = None


@crds.kind("example.com/v1", kind="Widget", registry=UNUSED)
class OldWidget(msgspec.Struct):
    spec: dict[str, int]


def test_a_typed_result_is_the_object_with_the_metadata_that_it_had() -> None:
    result = NewWidget(NewSpec(3), status={"y": 2})
    after, dropped = build_converted(widget(status={"x": 1}), result, Patch(), "example.com/v2")
    assert after == {**widget(), "apiVersion": "example.com/v2", "spec": {"width": 3}, "status": {"y": 2}}
    assert dropped == []


def test_a_typed_result_may_change_labels_and_annotations() -> None:
    metadata = crds.ObjectMeta(name="other", labels={"c": "d"}, annotations={"e": "f"})
    patch = Patch({"metadata": {"labels": {"g": "h"}}})
    after, dropped = build_converted(widget(), NewWidget(NewSpec(3), metadata), patch, "example.com/v2")
    assert after["metadata"] == {
        **widget()["metadata"],
        "labels": {"c": "d", "g": "h"},
        "annotations": {"e": "f"},
    }
    assert dropped == ["name"]


def test_a_typed_result_of_another_version_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"it is a OldWidget, which is example.com/v1: return example.com/v2"):
        build_converted(widget(), OldWidget({}), Patch(), "example.com/v2")


def test_typed_conversions_need_the_class_of_the_version() -> None:
    async def up(body: NewWidget) -> None: ...

    async def untyped(body: Any) -> None: ...

    with pytest.raises(TypeError, match=r"no class declares widgets.v3.example.com: declare it first"):
        trioperator.on.convert(NewWidget, from_="v3", to="v2", registry=UNUSED)(up)
    trioperator.on.convert(NewWidget, from_="v3", to="v2", registry=OperatorRegistry())(untyped)
    with pytest.raises(TypeError, match=r"up has body: NewWidget, but the kind has OldWidget there"):
        trioperator.on.convert(NewWidget, from_="v1", to="v2", registry=UNUSED)(up)
