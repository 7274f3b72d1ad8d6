"""Outlines of huge objects: whatever is told from them is the same as what the objects themselves tell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._model import lazy_object
from trioperator._model.diff import diff
from trioperator._model.lazy_object import LazyObject, are_equal, conserve, outline_of
from trioperator._model.patch import Patch, apply_merge, is_result, preview

KEYS = st.sampled_from(["a", "b", "c", "d"])
SCALARS = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x", "long enough to be no small value"])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))
OBJECTS = st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({"name": st.just("w")}, optional={"labels": st.dictionaries(KEYS, SCALARS)})},
    optional={"spec": VALUES, "status": VALUES},
)
PATCHES = st.dictionaries(st.sampled_from(["spec", "status"]), st.dictionaries(KEYS, VALUES, max_size=3) | SCALARS)
# Bytes that are decoded in an outline, and members of a mapping that is divided.
LIMITS = st.tuples(st.sampled_from([0, 20, 60]), st.sampled_from([2, 3, 64]))


@contextlib.contextmanager
def all_huge(limits: tuple[int, int]) -> Iterator[None]:
    """Let all objects be huge in the context, with these limits of their outlines."""
    with pytest.MonkeyPatch.context() as patching:
        for name, value in zip(("_BUDGET", "LARGE", "_MAX_MEMBERS"), (0, *limits), strict=True):
            patching.setattr(lazy_object, name, value)
        yield


def make_lazy(body: dict[str, Any]) -> LazyObject:
    raw = msgspec.json.encode(body)
    return LazyObject.of(raw, lambda: msgspec.json.decode(raw), soon=lambda _: None)


@given(body=OBJECTS, patch=PATCHES, limits=LIMITS)
def test_a_patch_makes_of_an_outline_what_it_makes_of_the_object(
    body: dict[str, Any], patch: dict[str, Any], limits: tuple[int, int]
) -> None:
    with all_huge(limits):
        found = make_lazy(body)
        assert dict(conserve(apply_merge(outline_of(found), patch), like=found)) == apply_merge(body, patch)


@given(body=OBJECTS, patch=PATCHES, limits=LIMITS)
def test_functions_of_patches_get_no_outlines(
    body: dict[str, Any], patch: dict[str, Any], limits: tuple[int, int]
) -> None:
    with all_huge(limits):
        found, given_bodies = make_lazy(body), list[dict[str, Any]]()
        preview(outline_of(found), Patch(patch, fns=[given_bodies.append]))
        assert given_bodies == [apply_merge(body, patch)]


@given(old=OBJECTS, new=OBJECTS, limits=LIMITS)
def test_differences_of_huge_objects_are_those_of_the_objects(
    old: dict[str, Any], new: dict[str, Any], limits: tuple[int, int]
) -> None:
    with all_huge(limits):
        assert diff(make_lazy(old), make_lazy(new)) == diff(old, new)
        assert diff(old, make_lazy(new)) == diff(old, new)
        assert are_equal(outline_of(make_lazy(old)), outline_of(make_lazy(new))) == (old == new)


@given(before=OBJECTS, patch=PATCHES, limits=LIMITS)
def test_an_object_that_is_not_the_result_of_a_patch_is_told_apart_by_outlines(
    before: dict[str, Any], patch: dict[str, Any], limits: tuple[int, int]
) -> None:
    with all_huge(limits):
        after = apply_merge(before, patch)
        other = {**after, "spec": {"other": True}}
        assert not is_result(outline_of(make_lazy(other)), outline_of(make_lazy(before)), patch)
