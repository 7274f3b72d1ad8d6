"""Tests for :mod:`trioperator.reconciling.related`; what children cost in memory is measured here, too."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest

from trioperator.kube.objects import RawObject, parse_object
from trioperator.model.resource import Resource
from trioperator.reconciling.related import RelatedCache, RelatedRecord

DEPLOYMENTS = Resource("apps", "v1", "deployments", kind="Deployment")


class Seen:
    """An observer that counts."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, bool]] = []
        self.removals: list[str] = []
        self.completions = 0

    def changed(self, record: RelatedRecord, before: RelatedRecord | None, obj: RawObject) -> None:
        self.changes.append((obj.name, before is not None))

    def removed(self, record: RelatedRecord) -> None:
        self.removals.append(record.name)

    def completed(self) -> None:
        self.completions += 1


def encode(name: str = "web", version: int = 1, *, uid: str = "", owners: tuple[str, ...] = (), **fields: Any) -> bytes:
    managed = [
        {"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {field: {}}}}
        for manager, operation, field in fields.get("managed", ())
    ]
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "ownerReferences": [{"uid": owner, "name": "x", "kind": "X", "apiVersion": "v1"} for owner in owners],
        "managedFields": managed,
    }
    return msgspec.json.encode({"metadata": metadata, "spec": {"a": 1}})


def make(name: str = "web", version: int = 1, **options: Any) -> RawObject:
    return parse_object(encode(name, version, **options), kind="Deployment", api_version="apps/v1")


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def cache(seen: Seen) -> RelatedCache:
    return RelatedCache(DEPLOYMENTS, None, manager="me", whole=False, observer=seen)


def test_objects_are_found_by_name_and_by_owner(cache: RelatedCache) -> None:
    cache.observe(None, make("a", owners=("one", "two")))
    cache.observe("ADDED", make("b", owners=("one",)))
    assert [record.name for record in cache.owned_by("one")] == ["a", "b"]
    assert [record.name for record in cache.owned_by("two")] == ["a"]
    cache.observe("MODIFIED", make("a", 2, owners=("two",)))
    assert [record.name for record in cache.owned_by("one")] == ["b"]
    found = cache.find("default", "a")
    assert found is not None
    assert found.version == 2
    assert cache.find("other", "a") is None


def test_the_digest_is_of_the_fields_that_this_operator_has_applied(cache: RelatedCache) -> None:
    def digest(version: int, *managed: tuple[str, str, str]) -> int | None:
        cache.observe("MODIFIED", make(version=version, managed=managed))
        record = cache.find("default", "web")
        assert record is not None
        return record.fields

    mine = ("me", "Apply", "f:a")
    first = digest(1, mine)
    assert first is not None
    assert digest(2, mine, ("other", "Update", "f:b")) == first
    assert digest(3, ("me", "Apply", "f:b"), ("other", "Update", "f:a")) not in (first, None)
    assert digest(4, ("me", "Update", "f:a")) is None


def test_the_echo_of_an_own_write_is_no_news(cache: RelatedCache, seen: Seen) -> None:
    cache.take_written(encode(version=5))
    cache.observe("ADDED", make(version=5))
    cache.observe("MODIFIED", make(version=4))
    assert seen.changes == []
    cache.observe("MODIFIED", make(version=6))
    assert seen.changes == [("web", True)]
    assert cache.take_written(encode(version=5)).version == 5
    found = cache.find("default", "web")
    assert found is not None
    assert found.version == 6, "a response may be late"


def test_deletions_and_what_is_not_listed_any_more_are_removals(cache: RelatedCache, seen: Seen) -> None:
    for name in "abc":
        cache.observe(None, make(name))
    cache.replace({"uid-a", "uid-b"})
    assert seen.removals == ["c"]
    cache.observe("DELETED", make("a", 9))
    cache.observe("DELETED", make("unknown", 9))
    assert seen.removals == ["c", "a"]
    cache.replace({"uid-b"})
    assert seen.completions == 1, "only of the first list"


def test_a_successor_of_the_same_name_survives_the_end_of_its_predecessor(cache: RelatedCache) -> None:
    cache.observe(None, make(uid="old", owners=("x",)))
    cache.take_written(encode(version=3, uid="new", owners=("x",)))
    cache.observe("DELETED", make(version=2, uid="old", owners=("x",)))
    found = cache.find("default", "web")
    assert found is not None
    assert found.uid == "new"
    assert cache.owned_by("x") == (found,)


def test_only_whole_objects_can_be_decoded(seen: Seen, cache: RelatedCache) -> None:
    cache.observe(None, make())
    whole = RelatedCache(DEPLOYMENTS, None, manager="me", whole=True, observer=seen)
    whole.observe(None, make())
    small, big = cache.find("default", "web"), whole.find("default", "web")
    assert small is not None
    assert big is not None
    assert small.decode() == {}
    assert (big.decode()["kind"], big.decode()["spec"]) == ("Deployment", {"a": 1})


def test_a_child_takes_at_most_one_and_a_half_kib(cache: RelatedCache) -> None:
    count, managed = 900, [("me", "Apply", "f:a")]
    raws = [encode(f"child-{number}", owners=(f"owner-{number // 3}",), managed=managed) for number in range(count)]
    tracemalloc.start()
    try:
        for raw in raws:
            cache.observe(None, parse_object(raw))
        each = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
    assert each < 1536
