"""YAML as the API takes it."""

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
def test_what_json_can_say_is_said(body: bytes, value: Any) -> None:
    assert load_yaml(body) == (value, [])


def test_of_repeated_keys_the_last_one_counts() -> None:
    assert load_yaml(b'{"a": 1,\n"a": 2}') == ({"a": 2}, ['line 2: key "a" already set in map'])


def test_an_alias_is_looked_at_once() -> None:
    assert load_yaml(b"a: &x {b: 1}\nc: *x") == ({"a": {"b": 1}, "c": {"b": 1}}, [])


@pytest.mark.parametrize(
    "body", [b"{x", b"a: b: c", b"\xff", b"!!python/object:os.system {}", b"--- 1\n--- 2", b"\x00"]
)
def test_what_is_not_yaml_is_refused(body: bytes) -> None:
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
def test_a_text_may_have_several_documents(text: str, documents: list[Any]) -> None:
    assert load_documents(text) == documents


def test_one_document_that_is_not_yaml_spoils_them_all() -> None:
    with pytest.raises(YamlError, match="yaml: line 3: "):
        load_documents("a: 1\n---\nb: [")
