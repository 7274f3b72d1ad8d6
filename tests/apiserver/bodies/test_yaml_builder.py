"""Building of YAML documents: aliases, merges and duplicates."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from trioperator.apiserver.bodies.yaml_builder import DocumentBuilder, DocumentError


def build(text: str) -> tuple[Any, list[str]]:
    loader: Any = yaml.SafeLoader(text)
    loader.get_event()
    loader.get_event()
    builder = DocumentBuilder(loader)
    return builder.build(), builder.duplicates


def test_aliases_are_copied() -> None:
    value, _ = build("a: &x {b: [1]}\nc: *x\n&k d: 1\n*k : 2")
    assert value["c"] == {"b": [1]}
    assert value["c"]["b"] is not value["a"]["b"]
    assert value["d"] == 2


def test_merges_take_effect_where_they_are() -> None:
    value, _ = build("b: &b {x: 1, z: 2}\nc: {<<: *b, x: 3}\nd: {x: 3, <<: *b}\ne: {<<: [*b, {x: 7, w: 8}]}")
    assert value["c"] == {"x": 3, "z": 2}
    assert value["d"] == {"x": 1, "z": 2}
    assert value["e"] == {"x": 1, "w": 8, "z": 2}


def test_duplicates_are_reported_with_the_line_of_the_value() -> None:
    assert build("a: 1\na:\n  {b: 2}\ntrue: 1\nyes: 2") == (
        {"a": {"b": 2}, "true": 2},
        ['line 3: key "a" already set in map', "line 5: key true already set in map"],
    )


@pytest.mark.parametrize("text", ["{[1]: a}", "{{a: 1}: b}", "a: &x [1]\n*x : 2"])
def test_keys_are_scalars(text: str) -> None:
    with pytest.raises(DocumentError, match="invalid map key"):
        build(text)
