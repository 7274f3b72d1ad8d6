"""Conformance: duplicate fields in bodies are found, strictly and as warnings; the last one counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apiserver.conftest import GROUP, JSON, MERGE, STRATEGIC, Target
from trioperator.apiserver.bodies.duplicates import duplicate_fields

values = st.recursive(
    st.none() | st.text(max_size=4) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


@given(values, st.sampled_from([None, 1]), st.sampled_from([(",", ":"), (", ", " : ")]))
def test_what_python_encodes_has_no_duplicates(value: Any, indent: int | None, separators: tuple[str, str]) -> None:
    assert duplicate_fields(json.dumps(value, indent=indent, separators=separators).encode(), value) == []


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        (b'{"a":1,"a":2,"a":3}', ["a"]),
        (b'{"a" : 1 , "a" : 2}', ["a"]),
        (b'{"a":{"b":1,"b":2},"c":[{"d":1},{"d":1,"d":2}]}', ["a.b", "c[1].d"]),
        (b'{"a":1,"A":2,"b":"\\":"}', []),
    ],
)
def test_duplicates_have_paths(body: bytes, paths: list[str]) -> None:
    assert duplicate_fields(body, json.loads(body)) == paths


HEAD = f'"apiVersion":"{GROUP}/v1","kind":"Shape","metadata":{{"name":"a"}}'
SHAPE = f'{{{HEAD},"spec":{{"size":1,"size":2,"x":1}}}}'.encode()
CONFIG = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"1","a":"2"},"x":1,"x":2}'
UNKNOWN_FIRST = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"x":1,"data":{"a":"1","a":"2"}}'
YAML = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  a: '1'\n  a: '2'\n"


def quoted(text: str) -> str:
    return '299 - "{}"'.format(text.replace('"', '\\"'))


@pytest.mark.parametrize(
    ("plural", "body", "problems"),
    [
        ("shapes", SHAPE, ['duplicate field "spec.size"', 'unknown field "spec.x"']),
        ("configmaps", CONFIG, ['duplicate field "data.a"', 'unknown field "x"']),
        ("configmaps", UNKNOWN_FIRST, ['unknown field "x"', 'duplicate field "data.a"']),
    ],
)
async def test_duplicate_fields_of_objects_are_reported(
    target: Target, plural: str, body: bytes, problems: list[str]
) -> None:
    answer = await target.request("POST", target.path(plural), body, fieldValidation="Strict")
    assert answer.code == 400
    assert answer.message.endswith(f"strict decoding error: {', '.join(problems)}")
    answer = await target.request("POST", target.path(plural), body, dryRun="All", fieldValidation="Ignore")
    assert (answer.code, answer.headers.get_list("Warning")) == (201, [])
    answer = await target.request("POST", target.path(plural), body)
    assert sorted(answer.headers.get_list("Warning")) == sorted(quoted(text) for text in problems)


async def test_duplicate_keys_of_yaml_are_reported(target: Target) -> None:
    path, text = target.path("configmaps"), 'line 6: key "a" already set in map'
    answer = await target.request("POST", path, YAML, "application/yaml", fieldValidation="Strict")
    assert answer.message.endswith(f"strict decoding error: yaml: unmarshal errors:\n  {text}")
    answer = await target.request("POST", path, YAML, "application/yaml")
    assert answer.headers.get_list("Warning") == [quoted(text)]
    assert answer.content["data"] == {"a": "2"}


@pytest.mark.parametrize(
    ("body", "patch_type", "problems"),
    [
        (b'{"data":{"a":"1","a":"2"}}', MERGE, ['duplicate field "data.a"']),
        (b'{"data":{"a":"1","a":"2"},"x":1}', STRATEGIC, ['duplicate field "data.a"', 'unknown field "x"']),
        (
            b'[{"op":"add","path":"/data/a","value":"1","value":"2","x":1}]',
            JSON,
            ['json patch duplicate field "[0].value"', 'json patch unknown field "[0].x"'],
        ),
    ],
)
async def test_duplicate_fields_of_patches_are_reported(
    target: Target, body: bytes, patch_type: str, problems: list[str]
) -> None:
    await target.create("configmaps", "a", data={"b": "1"})
    path = target.path("configmaps", "a")
    answer = await target.request("PATCH", path, body, patch_type, fieldValidation="Strict")
    assert answer.code == 422
    assert answer.message.endswith(f"strict decoding error: {', '.join(problems)}")
    answer = await target.request("PATCH", path, body, patch_type)
    assert answer.content["data"] == {"a": "2", "b": "1"}
    assert sorted(answer.headers.get_list("Warning")) == [quoted(text) for text in problems]
