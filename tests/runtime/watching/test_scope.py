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


def make_object(version: int, uid: str = "u") -> RawObject:
    return parse_object(f'{{"metadata": {{"name": "w", "uid": "{uid}", "resourceVersion": "{version}"}}}}'.encode())


def test_an_object_that_is_listed_in_an_older_version_shows_that_etcd_was_restored() -> None:
    restores: list[int] = []
    items = ObservedItems(lambda obj: obj.resource_version, lambda: None)
    items.report_restores(lambda: restores.append(1))
    items.observe(None, make_object(5))
    items.observe("MODIFIED", make_object(7))
    assert not restores
    items.observe(None, make_object(6))
    assert restores == [1]


def test_an_object_that_was_created_anew_or_comes_by_a_list_that_is_taken_as_it_is_shows_no_restore() -> None:
    items = ObservedItems(lambda obj: obj.resource_version, lambda: None)
    items.report_restores(pytest.fail)
    items.observe(None, make_object(5))
    items.observe("MODIFIED", make_object(4))  # an event that has come twice
    items.observe("DELETED", make_object(9))
    items.observe(None, make_object(3))
    items.replace({items.observe(None, make_object(8))})
    items.replace({items.observe(None, make_object(2, "v"))})
    items.observe(None, make_object(6))
    items.rewind()
    items.observe(None, make_object(1))


@pytest.mark.parametrize(
    ("namespaces", "exact"),
    [((), False), (("a",), True), (("a", "b"), True), (("a", "b*"), False), ((re.compile("a"),), False)],
)
def test_a_scope_is_exact_if_all_namespaces_are_named(namespaces: tuple[Any, ...], exact: bool) -> None:
    assert Scope(clusterwide=not namespaces, namespaces=namespaces).is_exact is exact
