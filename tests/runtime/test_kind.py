"""Tests for :mod:`trioperator.runtime.kind`: what is known of a kind."""

from __future__ import annotations

import pytest

from trioperator.handling.registry import KindHandlers
from trioperator.model.resource import Resource
from trioperator.runtime.kind import Kind


@pytest.mark.parametrize(("subresources", "expected"), [(["status", "scale"], True), (["scale"], False), ([], False)])
def test_the_status_is_a_subresource_if_the_server_says_so(subresources: list[str], expected: bool) -> None:
    resource = Resource("example.com", "v1", "widgets", subresources=frozenset(subresources))
    assert Kind(resource, KindHandlers()).has_status is expected
