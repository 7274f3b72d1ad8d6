"""Tests for :mod:`trioperator.apiserver.model.finalizers`: unqualified finalizers of custom objects get warnings."""

from __future__ import annotations

import pytest

from tests.apiserver.conftest import Target
from trioperator.apiserver.model.finalizers import finalizer_warnings, is_standard_finalizer

TEXT = "to avoid accidental conflicts with other finalizer writers"


@pytest.mark.parametrize("name", ["a/b", "kubernetes", "orphan", "foregroundDeletion"])
def test_qualified_and_standard_finalizers_are_standard(name: str) -> None:
    assert is_standard_finalizer(name)
    assert finalizer_warnings({"finalizers": [name]}, None) == []


def test_only_new_finalizers_get_warnings() -> None:
    found = finalizer_warnings({"finalizers": ["old", "new"]}, {"finalizers": ["old"]})
    assert found == [f'metadata.finalizers: "new": prefer a domain-qualified finalizer name {TEXT}']
    assert finalizer_warnings({}, {"finalizers": ["old"]}) == []


async def test_unqualified_finalizers_of_custom_objects_get_warnings(target: Target) -> None:
    answer = await target.create("frees", "a", meta={"finalizers": ["x", "y.z", "q.r/s"]})
    assert answer.headers.get_list("Warning") == [
        f'299 - "metadata.finalizers: \\"x\\": prefer a domain-qualified finalizer name {TEXT}"',
        f'299 - "metadata.finalizers: \\"y.z\\": prefer a domain-qualified finalizer name including a path (/) {TEXT}"',
    ]
    answer = await target.merge(target.path("frees", "a"), {"metadata": {"labels": {"a": "b"}}})
    assert "Warning" not in answer.headers
    await target.merge(target.path("frees", "a"), {"metadata": {"finalizers": None}})
