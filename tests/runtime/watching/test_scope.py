"""Tests for :mod:`trioperator._runtime.watching.scope`: which namespaces a scope includes, and observed items."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from trioperator._kube.objects import RawObject, parse_object
from trioperator._runtime.watching.scope import ObservedItems, Scope


def test_a_scope_has_exact_names() -> None:
    scope = Scope(clusterwide=False, namespaces=("a", "b-*", "!c", "d,e", re.compile("f")))
    assert scope.exact == {"a"}
    assert scope.includes("a")
    assert scope.includes("f")
    assert not Scope(clusterwide=False, namespaces=("a",)).includes("ab")
    assert Scope().includes("anything")


@pytest.mark.parametrize(
    "error",
    [RecursionError("deep"), msgspec.ValidationError("deep"), UnicodeDecodeError("utf-8", b"", 0, 1, "bad")],
)
def test_what_cannot_be_read_is_passed_over_and_stays_what_it_was(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    broken = False

    def extract(obj: RawObject) -> str:
        if broken:
            raise error
        return obj.resource_version

    items = ObservedItems(extract, lambda: None)
    items.observe(None, parse_object(b'{"metadata": {"name": "w", "resourceVersion": "1"}}'))
    broken = True
    key = items.observe("MODIFIED", parse_object(b'{"metadata": {"name": "w", "resourceVersion": "2"}}'))
    items.replace({key})
    assert list(items) == ["1"]
    assert "w cannot be read, and is passed over" in caplog.text


@pytest.mark.parametrize(
    ("namespaces", "exact"),
    [((), False), (("a",), True), (("a", "b"), True), (("a", "b*"), False), ((re.compile("a"),), False)],
)
def test_a_scope_is_exact_if_all_namespaces_are_named(namespaces: tuple[Any, ...], exact: bool) -> None:
    assert Scope(clusterwide=not namespaces, namespaces=namespaces).is_exact is exact
