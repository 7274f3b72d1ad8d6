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
        "v1/pods",
        lambda resource: resource.plural == "pods",
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


@pytest.mark.parametrize("key", [7, ("a", "b", "c", "d"), ""])
def test_other_keys_are_errors(key: Any) -> None:
    with pytest.raises(ConfigError, match="does not select a kind"):
        SelectorMapping()[key] = "a=b"


@pytest.mark.parametrize("value", ["", " ", None, {"a": "b"}])
def test_other_values_are_errors(value: Any) -> None:
    with pytest.raises(ConfigError, match="must be a non-empty string"):
        SelectorMapping()["pods"] = value


@pytest.mark.parametrize(
    "value",
    ["a", "!a", "a=b", "a==b", "a = b", "a!=b", "a=", "a in (b,c)", "x.io/a notin (b, c), !d", "a>1,b < 2", "a in ()"],
)
def test_label_selectors_of_the_api_server_are_accepted(value: str) -> None:
    watching: Any = OperatorSettings().watching
    watching.label_selectors["pods"] = value
    assert watching.label_selectors["pods"] == value


@pytest.mark.parametrize("value", ["status.phase!=Succeeded", "metadata.name=x,a.b==y", r"metadata.name=a\,b"])
def test_field_selectors_of_the_api_server_are_accepted(value: str) -> None:
    watching: Any = OperatorSettings().watching
    watching.field_selectors["pods"] = value
    assert watching.field_selectors["pods"] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("label_selectors", "a b"),
        ("label_selectors", "a=b c"),
        ("label_selectors", "a,"),
        ("label_selectors", "a in (b"),
        ("label_selectors", "-a=b"),
        ("label_selectors", f"{'a' * 64}=b"),
        ("field_selectors", "status.phase"),
        ("field_selectors", "=a"),
        ("field_selectors", "a in (b,c)"),
        ("shard_selectors", "0x0-0x8"),
        ("shard_selectors", "shardRange(object.metadata.uid, '0x0', '0x8000000000000000')"),
    ],
)
def test_a_selector_that_no_api_server_accepts_is_an_error_where_it_is_set(name: str, value: str) -> None:
    watching: Any = OperatorSettings().watching
    with pytest.raises(ConfigError, match="The selector for 'pods' cannot work"):
        getattr(watching, name)["pods"] = value
    with pytest.raises(ConfigError, match="The selector for 'pods' cannot work"):
        setattr(watching, name, {"pods": value})
    with pytest.raises(ConfigError, match="The selector for 'pods' cannot work"):
        getattr(watching.__class__(), name)["pods"] = value


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
