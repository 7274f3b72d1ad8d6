"""Names of Kopf that do not exist here."""

from __future__ import annotations

import importlib

import pytest

import trioperator
from trioperator._kopf_names import _MISSING


@pytest.mark.parametrize("module", ["trioperator", "trioperator.on"])
@pytest.mark.parametrize("name", ["AiohttpSession", "KopfRunner", "spawn_tasks"])
def test_a_missing_name_of_kopf_is_explained(module: str, name: str) -> None:
    with pytest.raises(AttributeError, match=f"^Kopf's {name} does not exist"):
        getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("module", ["trioperator", "trioperator.on"])
def test_other_names_are_unknown_as_in_any_module(module: str) -> None:
    with pytest.raises(AttributeError, match=f"^module '{module}' has no attribute 'nothing'"):
        getattr(importlib.import_module(module), "nothing")  # noqa: B009


def test_no_name_is_called_missing_that_exists() -> None:
    assert [name for name in _MISSING if name in trioperator.__all__] == []


def test_attributes_can_be_asked_for() -> None:
    assert not hasattr(trioperator, "KopfRunner")
    assert getattr(trioperator, "KopfRunner", None) is None


def test_names_that_are_loaded_on_first_use_are_listed() -> None:
    assert set(trioperator.__all__) <= set(dir(trioperator))
