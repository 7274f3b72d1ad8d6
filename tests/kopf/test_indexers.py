"""Kopf's holder of indices. How it is filled by an operator is tested by a scenario: see ``test_bridge.py``."""

from __future__ import annotations

import pytest

import trioperator
from trioperator.kopf.indexers import OperatorIndexers


def test_indices_are_those_of_the_registry_that_is_run() -> None:
    indexers, registry = OperatorIndexers(), trioperator.OperatorRegistry()
    indices = indexers.indices
    assert (len(indices), list(indices)) == (0, [])
    indices.registry = registry

    @trioperator.index("configmaps", registry=registry)
    def names(name: str, **_: object) -> dict[str, int]:
        return {name: 1}

    made = registry.make_indices()
    assert list(indices) == ["names"]
    assert indices["names"] is made["names"]
    with pytest.raises(KeyError):
        _ = indices["other"]
