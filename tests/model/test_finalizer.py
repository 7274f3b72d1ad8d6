"""Adding and removing finalizers."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.strategies import Untouched, untimed
from trioperator._model.finalizer import add_finalizer, has_finalizer, is_deleting, remove_finalizer

OURS = "example.com/finalizer"
others = st.lists(st.sampled_from(["a", "b", "c"]), unique=True)


def body_with(finalizers: list[str] | None) -> dict[str, Any]:
    return {"metadata": {"name": "x"} if finalizers is None else {"name": "x", "finalizers": finalizers}}


def test_an_object_with_a_deletion_timestamp_is_being_deleted() -> None:
    assert is_deleting({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}})
    assert not is_deleting({"metadata": {"deletionTimestamp": None}})
    assert not is_deleting({"metadata": {}})
    assert not is_deleting({})


@pytest.mark.parametrize("body", [{}, {"metadata": None}, {"metadata": {"finalizers": None}}, body_with(["other"])])
def test_a_missing_finalizer_is_neither_found_nor_removed(body: dict[str, Any]) -> None:
    assert not has_finalizer(body, OURS)
    assert remove_finalizer(body, OURS) == []


@given(others)
@untimed
def test_adding_keeps_finalizers_of_others(finalizers: list[str]) -> None:
    for body in [body_with(finalizers), *([] if finalizers else [body_with(None)])]:
        with Untouched(body):
            ops = add_finalizer(body, OURS)
            result = jsonpatch.apply_patch(body, ops)
        assert result["metadata"]["finalizers"] == [*finalizers, OURS]
        assert has_finalizer(result, OURS)
        assert add_finalizer(result, OURS) == []


@given(others, others)
@untimed
def test_removing_keeps_finalizers_of_others(before: list[str], after: list[str]) -> None:
    body = body_with([*before, OURS, *after])
    with Untouched(body):
        result = jsonpatch.apply_patch(body, remove_finalizer(body, OURS))
    assert result["metadata"].get("finalizers", []) == [*before, *after]
    assert not has_finalizer(result, OURS)


def test_removing_the_last_finalizer_removes_the_list() -> None:
    body = body_with([OURS])
    assert jsonpatch.apply_patch(body, remove_finalizer(body, OURS)) == body_with(None)


@pytest.mark.parametrize("meanwhile", [["other"], ["new", "other", OURS], ["other", "new"]])
def test_removing_fails_if_others_have_changed_the_list(meanwhile: list[str]) -> None:
    ops = remove_finalizer(body_with(["other", OURS]), OURS)
    with pytest.raises(jsonpatch.JsonPatchException):
        jsonpatch.apply_patch(body_with(meanwhile), ops)


def test_removing_the_last_finalizer_fails_if_others_have_added_theirs() -> None:
    ops = remove_finalizer(body_with([OURS]), OURS)
    with pytest.raises(jsonpatch.JsonPatchException):
        jsonpatch.apply_patch(body_with([OURS, "other"]), ops)
