"""Strategies for property tests: JSON objects as from the API server, small and likely to collide."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

#: No time limits: a busy machine is no reason to fail.
untimed = settings(deadline=None)

keys = st.sampled_from(["a", "b", "c", "a/b", "x~y", "spec"])
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "é"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)
objects = st.dictionaries(keys, values, max_size=4)
fields = st.lists(keys, min_size=1, max_size=3).map(tuple)


class Untouched:
    """Check that the block has not changed the values."""

    def __init__(self, *watched: Any) -> None:
        self._watched = watched
        self._before = copy.deepcopy(watched)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        assert self._watched == self._before


def without_nulls(value: Any) -> Any:
    """Remove the fields that are None, which counts as absent; keep lists."""
    if not isinstance(value, Mapping):
        return value
    return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
