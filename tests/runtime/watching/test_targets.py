"""Tests for :mod:`trioperator._runtime.watching.targets`: what is to be watched."""

from __future__ import annotations

from typing import Any

import pytest

import trioperator
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._model.resource import Resource
from trioperator._reconciling.watches import RelatedKind, RelatedWatches, Selected
from trioperator._runtime.kind import Kind
from trioperator._runtime.watching.targets import Key, find_targets

SECRETS = Resource("", "v1", "secrets", kind="Secret")
NODES = Resource("", "v1", "nodes", kind="Node", namespaced=False)
A, B = (("a", "1"),), (("b", "2"),)


def places(resource: Resource) -> tuple[str | None, ...]:
    return (None,) if resource.namespaced is False else ("one", "two")


def related(*labels: tuple[tuple[str, str], ...]) -> list[RelatedKind]:
    watches = RelatedWatches([], settings=trioperator.OperatorSettings(), indices={}, memo=None)
    return [RelatedKind(watches, Selected(SECRETS, each)) for each in labels]


@pytest.mark.parametrize(
    ("handled", "labels", "watched"),
    [
        (True, [], [()]),
        (True, [A, B, ()], [()]),
        (False, [A, B, ()], [()]),
        (False, [A], [A]),
        (False, [A, B], [A, B]),
        (False, [], []),
    ],
)
def test_all_that_read_a_kind_share_its_watches_unless_all_want_few_of_many(
    handled: bool, labels: list[Any], watched: list[Any]
) -> None:
    kinds = related(*labels)
    targets = find_targets([Kind(SECRETS, KindHandlers())] if handled else [], kinds, places)
    assert set(targets) == {Key(SECRETS, place, each, handled) for each in watched for place in ("one", "two")}
    for key, target in targets.items():
        assert set(target.related) == {kind for kind in kinds if not key.labels or kind.labels == key.labels}
        assert (target.kind is not None) == handled


def test_cluster_scoped_kinds_are_watched_once() -> None:
    assert list(find_targets([Kind(NODES, KindHandlers())], [], places)) == [Key(NODES, None)]
