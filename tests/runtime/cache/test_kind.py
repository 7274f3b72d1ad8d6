"""Tests for :mod:`trioperator._runtime.cache.kind`: what is known of a kind."""

from __future__ import annotations

import pytest

from trioperator._handling.declaring.registry import KindHandlers
from trioperator._model.resource import Resource
from trioperator._runtime.cache.kind import Kind, Memory


@pytest.mark.parametrize(("subresources", "expected"), [(["status", "scale"], True), (["scale"], False), ([], False)])
def test_the_status_is_a_subresource_if_the_server_says_so(subresources: list[str], expected: bool) -> None:
    resource = Resource("example.com", "v1", "widgets", subresources=frozenset(subresources))
    assert Kind(resource, KindHandlers()).has_status is expected


def test_what_two_versions_remember_of_an_object_is_joined() -> None:
    own = Memory("memo", initial=True, deletion_handled=True, resumed=frozenset("a"))
    other = Memory("other", initial=False, ended=frozenset("d"), resumed=frozenset("b"))
    for joined, memo in ((own.join(other), "memo"), (other.join(own), "other")):
        assert (joined.memo, joined.initial, joined.ended) == (memo, False, frozenset("d"))
        assert joined.deletion_handled
        assert joined.resumed == frozenset("ab")


def test_objects_of_which_nothing_special_is_known_share_one_memory() -> None:
    old, new = Memory(None, initial=True), Memory(None, initial=False)
    assert old.join(new) is new
    assert new.join(old) is new
    special = Memory(None, initial=True, ended=frozenset("d"), resumed=frozenset("a"))
    assert old.join(special) is special
    assert new.join(special) not in {old, new, special}


def test_which_version_is_known_elsewhere_is_not_handed_on() -> None:
    behind, known = Memory(None, initial=True, known_elsewhere=7), Memory(None, initial=False, resumed=frozenset("a"))
    assert (known.join(behind).known_elsewhere, behind.join(known).known_elsewhere) == (-1, 7)
    assert behind.join(known).resumed == frozenset("a")
