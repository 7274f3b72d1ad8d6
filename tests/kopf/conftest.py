"""``import kopf`` in tests: it must mean afterwards what it meant before."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry, set_default_registry


@pytest.fixture(autouse=True)
def _everything_is_restored() -> Iterator[None]:
    before, finders = {name for name in sys.modules if name.partition(".")[0] == "kopf"}, list(sys.meta_path)
    registry = get_default_registry()
    set_default_registry(OperatorRegistry())
    yield
    set_default_registry(registry)
    assert list(sys.meta_path) == finders
    assert {name for name in sys.modules if name.partition(".")[0] == "kopf"} == before
