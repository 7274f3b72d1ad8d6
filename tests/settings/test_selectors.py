"""Tests for :mod:`trioperator.settings.selectors`: which objects of which kinds the API server sends."""

from __future__ import annotations

from typing import Any

import pytest

import trioperator
from trioperator import ConfigError, OperatorSettings, Resource
from trioperator._model.resource import Selector
from trioperator.settings.selectors import SelectorMapping

PODS = Resource("", "v1", "pods", kind="Pod", singular="pod", shortcuts=frozenset({"po"}))
WIDGETS = Resource("example.com", "v1beta1", "widgets", kind="Widget", preferred=False)


@pytest.mark.parametrize(
    "key",
    [
        "pods",
        "po",
        "Pod",
        ("v1", "pods"),
        ("", "v1", "pods"),
        trioperator.EVERYTHING,
        Selector.parse("pods"),
    ],
)
def test_a_kind_is_named_as_in_decorators(key: Any) -> None:
    selectors = SelectorMapping({key: "a=b"})
    assert selectors.collect(PODS) == ["a=b"]
    assert selectors[key] == "a=b"
    assert key in selectors
    del selectors[key]
    assert not selectors


def test_all_selectors_of_a_kind_are_collected_once_each_in_any_version() -> None:
    selectors = SelectorMapping({"widgets": "a=b"})
    selectors["example.com", trioperator.EVERYTHING] = " !c "
    selectors[trioperator.EVERYTHING] = "a=b"
    selectors["pods"] = "other"
    assert selectors.collect(WIDGETS) == ["a=b", "!c"]


@pytest.mark.parametrize("key", [lambda resource: True, 7, ("a", "b", "c", "d"), ""])
def test_other_keys_are_errors(key: Any) -> None:
    with pytest.raises(ConfigError, match="is no kind"):
        SelectorMapping()[key] = "a=b"


@pytest.mark.parametrize("value", ["", " ", None, {"a": "b"}])
def test_other_values_are_errors(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"must be a string such as 'tier=gold'"):
        SelectorMapping()["pods"] = value


def test_settings_take_mappings_and_copies_have_their_own() -> None:
    settings: Any = OperatorSettings()
    settings.watching.label_selectors = {"pods": "a=b"}
    copy = settings.copy()
    copy.watching.label_selectors["pods"] = "c=d"
    copy.watching.field_selectors["pods"] = "metadata.name=x"
    assert settings.watching.label_selectors["pods"] == "a=b"
    assert not settings.watching.field_selectors
    assert not OperatorSettings().watching.label_selectors
    assert repr(settings.watching.label_selectors) == "{'pods': 'a=b'}"
    with pytest.raises(ConfigError, match=r"settings\.watching\.label_selectors is 'a=b', but it must be a mapping"):
        settings.watching.label_selectors = "a=b"
