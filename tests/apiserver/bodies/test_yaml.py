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
        (b"2: a\ntrue: b\n1.5: c\n2001-01-01: d", {"2": "a", "true": "b", "1.5": "c", "2001-01-01": "d"}),
    ],
)
def test_values_that_json_can_represent_are_decoded(body: bytes, value: Any) -> None:
    assert load_yaml(body) == (value, [])


def test_the_last_of_duplicate_keys_wins() -> None:
    assert load_yaml(b'{"a": 1,\n"a": 2}') == ({"a": 2}, ['line 2: key "a" already set in map'])


def test_an_alias_is_decoded_once() -> None:
    assert load_yaml(b"a: &x {b: 1}\nc: *x") == ({"a": {"b": 1}, "c": {"b": 1}}, [])


@pytest.mark.parametrize("body", [b"{x", b"a: b: c", b"\xff", b"\x00", b"a: *b", b"a: &a [*a]", b"{<<: 5}"])
def test_invalid_yaml_is_rejected(body: bytes) -> None:
    with pytest.raises(YamlError, match="yaml: "):
        load_yaml(body)


def test_only_the_first_document_of_a_body_counts() -> None:
    assert load_yaml(b"--- 1\n--- {") == (1, [])


@pytest.mark.parametrize("count", [211, 10_001, 100_000])
@pytest.mark.parametrize("text", ["[", "a: [", '{"a":', "- "])
def test_deep_nesting_is_rejected(text: str, count: int) -> None:
    with pytest.raises(YamlError, match=r"exceeded max(imum nesting)? depth"):
        load_yaml(text.encode() * count)


def test_nesting_up_to_the_limit_is_accepted() -> None:
    value, _ = load_yaml(b"- " * 200)
    for _ in range(199):
        (value,) = value
    assert value == [None]


def bomb(width: int, levels: int) -> bytes:
    lines = [f"a0: &a0 [{','.join('x' * width)}]"]
    lines += [f"a{at}: &a{at} [{','.join([f'*a{at - 1}'] * width)}]" for at in range(1, levels)]
    return "\n".join(lines).encode()


def test_aliases_that_expand_to_too_much_are_rejected() -> None:
    with pytest.raises(YamlError, match="exceeded max number of 40000 fields and items"):
        load_yaml(bomb(10, 30))
    value, _ = load_yaml(bomb(10, 3))
    assert value["a2"] == [[list("xxxxxxxxxx")] * 10] * 10


def test_aliases_cannot_nest_too_deeply() -> None:
    text = "a0: &a0 [x]\n" + "\n".join(f"a{at}: &a{at} [[[*a{at - 1}]]]" for at in range(1, 80))
    with pytest.raises(YamlError, match="exceeded max depth"):
        load_yaml(text.encode())


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


def test_aliases_are_copied() -> None:
    value, _ = load_yaml(b"a: &x {b: [1]}\nc: *x\n&k d: 1\n*k : 2")
    assert value["c"] == {"b": [1]}
    assert value["c"]["b"] is not value["a"]["b"]
    assert value["d"] == 2


def test_merges_take_effect_where_they_are() -> None:
    text = b"b: &b {x: 1, z: 2}\nc: {<<: *b, x: 3}\nd: {x: 3, <<: *b}\ne: {<<: [*b, {x: 7, w: 8}]}"
    value, _ = load_yaml(text)
    assert value["c"] == {"x": 3, "z": 2}
    assert value["d"] == {"x": 1, "z": 2}
    assert value["e"] == {"x": 1, "w": 8, "z": 2}


def test_duplicates_are_reported_with_the_line_of_the_value() -> None:
    assert load_yaml(b"a: 1\na:\n  {b: 2}\ntrue: 1\nyes: 2") == (
        {"a": {"b": 2}, "true": 2},
        ['line 3: key "a" already set in map', 'line 5: key "true" already set in map'],
    )


@pytest.mark.parametrize("text", ["{[1]: a}", "{{a: 1}: b}", "a: &x [1]\n*x : 2", "null: 1"])
def test_keys_are_scalars(text: str) -> None:
    with pytest.raises(YamlError, match="invalid map key"):
        load_yaml(text.encode())
