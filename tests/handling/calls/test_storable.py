"""What handlers want stored: the field that cannot be is named."""

from __future__ import annotations

import datetime
import types
import uuid
from typing import Any

import pytest

from trioperator._handling.calls.storable import check_storable, describe_unserializable
from trioperator._model.body import Body
from trioperator._model.patch import Patch
from trioperator.errors import PermanentError


class Broken(dict[str, Any]):
    """A mapping that fails."""

    def items(self) -> Any:
        raise ZeroDivisionError


ENDLESS: dict[str, Any] = {}
ENDLESS["again"] = ENDLESS


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"x": object()}, "x is of the type object"),
        ({"a": 1, "b": [0, {"c": object()}]}, "b[1].c is of the type object"),
        ([{"c": len}], "[0].c is of the type builtin_function_or_method"),
        (object(), "it is of the type object"),
        ({("a", 1): 2}, "it has a key of the type tuple"),
        ({"x": {("a", 1): 2}}, "x has a key of the type tuple"),
        ({"spec": Body({"spec": {"a": 1}}).spec}, "spec is of the type Spec"),
        ({"x": "\ud800"}, "x is of the type str"),
        ({"x": [1.0, float("nan")]}, "x[1] is nan"),
        ({"x": object(), "y": Broken()}, "x is of the type object"),
        (Broken(x=object()), "it cannot be read: ZeroDivisionError()"),
    ],
)
def test_the_first_value_that_cannot_be_stored_is_named(value: Any, problem: str) -> None:
    assert describe_unserializable(value) == problem


def test_endless_data_are_named_up_to_a_limit() -> None:
    problem = describe_unserializable(ENDLESS)
    assert problem.startswith("again.again.")
    assert problem.endswith("… is nested too deeply, or contains itself")
    assert len(problem) < 200


@pytest.mark.parametrize(
    "result",
    [
        None,
        0,
        "text",
        {"at": datetime.datetime.now(datetime.UTC), "id": uuid.uuid4(), "set": {1}},
        types.MappingProxyType({"a": 1}),
        Body({"spec": {"a": 1}}).spec,
    ],
)
def test_what_can_be_stored_passes(result: Any) -> None:
    patch = Patch({"spec": {"a": 1}})
    check_storable(patch, result)
    assert patch == {"spec": {"a": 1}}


def test_a_result_that_cannot_be_stored_leaves_the_patch_alone() -> None:
    patch = Patch({"spec": {"a": 1}})
    with pytest.raises(PermanentError, match=r"The result is not JSON-serializable: x is of the type object\."):
        check_storable(patch, {"x": object()})
    assert patch == {"spec": {"a": 1}}


def test_a_patch_that_cannot_be_stored_is_cleared_but_for_its_functions() -> None:
    patch = Patch({"spec": {"a": object()}}, fns=[dict.clear])
    with pytest.raises(PermanentError, match=r"The patch is not JSON-serializable: spec\.a is of the type object\."):
        check_storable(patch, None)
    assert (dict(patch), patch.fns) == ({}, [dict.clear])
