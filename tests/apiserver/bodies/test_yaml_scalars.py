"""Scalars of YAML: the same values as on the real server, where these cases were tried."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.apiserver.bodies.yaml_scalars import key_of, scalar_value

TAG = "tag:yaml.org,2002:"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", True),
        ("Off", False),
        ("~", None),
        ("", None),
        ("010", 8),
        ("0o10", 8),
        ("0b11", 3),
        ("-0x1F", -31),
        ("1_000", 1000),
        ("08", 8),
        ("1:30", "1:30"),
        ("18446744073709551615", 18446744073709551615.0),
        ("9" * 23, 1e23),
        ("9" * 5000, "9" * 5000),
        ("1e3", 1000),
        ("1e400", "1e400"),
        (".5", 0.5),
        ("5.", 5),
        (".x", ".x"),
        ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
        ("+", "+"),
    ],
)
def test_plain_scalars_are_resolved_as_on_the_real_server(text: str, value: Any) -> None:
    found = scalar_value(text, None, is_plain=True)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "tag", "value"),
    [
        ("5", "str", "5"),
        ("5", "int", 5),
        ("1", "float", 1),
        ("true", "bool", True),
        ("2001-01-01", "timestamp", "2001-01-01"),
        ("aGVsbG8=", "binary", "aGVsbG8="),
        ("5", "set", "5"),
    ],
)
def test_tags_decide(text: str, tag: str, value: Any) -> None:
    assert scalar_value(text, TAG + tag, is_plain=False) == value


@pytest.mark.parametrize("text", [".inf", "-.Inf", ".nan"])
def test_infinities_are_not_json(text: str) -> None:
    with pytest.raises(ValueError, match="json: unsupported value: "):
        scalar_value(text, None, is_plain=True)


def test_a_quoted_scalar_is_a_string() -> None:
    assert scalar_value("5", None, is_plain=False) == "5"


def test_keys_are_strings_in_json() -> None:
    assert [key_of(value) for value in (16, True, "a")] == ["16", "true", "a"]
