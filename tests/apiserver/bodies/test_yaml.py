"""YAML that the API accepts."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.apiserver.bodies.yaml import YamlError, load_documents, load_yaml


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"", None),
        (b'{"a": [1, 2.5, true, null]}', {"a": [1, 2.5, True, None]}),
        (b"a: 2001-01-01\nb: 2001-01-01T00:00:00Z", {"a": "2001-01-01", "b": "2001-01-01T00:00:00Z"}),
        (b"{a: 1.0, b: x}", {"a": 1, "b": "x"}),
        (b"2: a\ntrue: b\nnull: c", {"2": "a", "true": "b", "null": "c"}),
    ],
)
def test_values_that_json_can_represent_are_decoded(body: bytes, value: Any) -> None:
    assert load_yaml(body) == (value, [])


def test_the_last_of_duplicate_keys_wins() -> None:
    assert load_yaml(b'{"a": 1,\n"a": 2}') == ({"a": 2}, ['line 2: key "a" already set in map'])


def test_an_alias_is_decoded_once() -> None:
    assert load_yaml(b"a: &x {b: 1}\nc: *x") == ({"a": {"b": 1}, "c": {"b": 1}}, [])


@pytest.mark.parametrize(
    "body", [b"{x", b"a: b: c", b"\xff", b"!!python/object:os.system {}", b"--- 1\n--- 2", b"\x00"]
)
def test_invalid_yaml_is_rejected(body: bytes) -> None:
    with pytest.raises(YamlError, match="yaml: "):
        load_yaml(body)


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("", []),
        ("---\n# nothing\n---\na: 2001-01-01\n", [None, {"a": "2001-01-01"}]),
        ('{"a": 1}\n---\n[true]', [{"a": 1}, [True]]),
    ],
)
def test_a_string_may_contain_several_documents(text: str, documents: list[Any]) -> None:
    assert load_documents(text) == documents


def test_one_invalid_document_makes_all_invalid() -> None:
    with pytest.raises(YamlError, match="yaml: line 3: "):
        load_documents("a: 1\n---\nb: [")
