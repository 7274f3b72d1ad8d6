"""Literals of objects become maps."""

from __future__ import annotations

import pytest

from trioperator.apiserver.custom.cel_objects import plain_literals


@pytest.mark.parametrize(
    ("expression", "plain"),
    [
        ("Object{spec: Object.spec{replicas: 3}}", '{"spec": {"replicas": 3}}'),
        ("Object{a: {b: c, 'd': e}, f: g(h, i)}", '{"a": {b: c, \'d\': e}, "f": g(h, i)}'),
        ("x ? Object{} : Object{a: [Object.a{b: 1}, Object.a{b: 2}]}", 'x ? {} : {"a": [{"b": 1}, {"b": 2}]}'),
        ('[JSONPatch{op: "add", path: "/a:b"}]', '[{"op": "add", "path": "/a:b"}]'),
        ("'Object{a: 1}' + \"JSONPatch{b: 2}\"", "'Object{a: 1}' + \"JSONPatch{b: 2}\""),
    ],
)
def test_typed_literals_become_maps(expression: str, plain: str) -> None:
    assert plain_literals(expression) == plain
