"""Tests for :mod:`trioperator._reconciling.related`; what children cost in memory is measured here, too."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest

from trioperator._kube.objects import RawObject, parse_object
from trioperator._model.resource import Resource
from trioperator._reconciling.related import RelatedCache, RelatedRecord, Target, Writer, read_record

DEPLOYMENTS = Resource("apps", "v1", "deployments", kind="Deployment")


class Seen:
    """An observer that counts."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, bool]] = []
        self.writers: list[str | None] = []
        self.former: list[tuple[str, ...]] = []
        self.removals: list[str] = []
        self.completions = 0

    def changed(
        self, record: RelatedRecord, before: RelatedRecord | None, obj: RawObject, *, writer: Writer | None = None
    ) -> None:
        self.changes.append((obj.name, before is not None))
        self.writers.append(None if writer is None else writer.uid)
        self.former.append(() if before is None else before.owners)

    def removed(self, record: RelatedRecord, obj: RawObject | None = None) -> None:
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
        "labels": fields.get("labels"),
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


def write(cache: RelatedCache, raw: bytes, *, by: str = "me") -> RelatedRecord:
    with cache.writing(Writer("handler", by, Target("default", by))) as own:
        return cache.take_written(raw, own)


def is_deleting(cache: RelatedCache) -> bool:
    found = cache.find("default", "web")
    assert found is not None
    return found.deleting


def test_the_echo_of_an_own_write_is_no_news_to_its_writer(cache: RelatedCache, seen: Seen) -> None:
    write(cache, encode(version=5))
    assert seen.changes == [], "the watch shows it, and what is indexed by it then"
    cache.observe("ADDED", make(version=5))
    cache.observe("MODIFIED", make(version=5))
    cache.observe("MODIFIED", make(version=4))
    assert seen.changes == [("web", False)]
    assert seen.writers == ["me"]
    cache.observe("MODIFIED", make(version=6))
    assert seen.changes == [("web", False), ("web", True)]
    assert seen.writers == ["me", None]
    assert write(cache, encode(version=5)).version == 5
    found = cache.find("default", "web")
    assert found is not None
    assert found.version == 6, "a response may be late"


def test_an_own_write_without_an_echo_of_its_own_is_news_to_all(cache: RelatedCache, seen: Seen) -> None:
    cache.observe(None, make(version=1, owners=("former",)))
    write(cache, encode(version=2, owners=("other",)))
    cache.observe("MODIFIED", make(version=3))
    assert seen.writers == [None, None]
    assert seen.former[-1] == ("former",)


@pytest.mark.parametrize(("second", "writer"), [("me", "me"), ("other", None)])
def test_the_echo_of_writes_by_several_is_news_to_all(
    cache: RelatedCache, seen: Seen, second: str, writer: str | None
) -> None:
    write(cache, encode(version=1), by="me")
    write(cache, encode(version=2), by=second)
    cache.observe("ADDED", make(version=1))
    cache.observe("MODIFIED", make(version=2))
    assert seen.writers == [writer]


@pytest.mark.parametrize("listed", [False, True])
def test_a_response_about_an_object_that_is_gone_already_is_dropped(
    cache: RelatedCache, seen: Seen, listed: bool
) -> None:
    with cache.writing(Writer("handler", "me", Target("default", "me"))) as own:
        if listed:
            cache.replace(())  # without the object that was created and deleted before
        else:
            cache.observe("ADDED", make(version=5))
            cache.observe("DELETED", make(version=6))
        seen.removals.clear()
        cache.take_written(encode(version=5), own)
    assert cache.find("default", "web") is None
    assert seen.removals == ["web"], "its owner is to look again"
    cache.observe("ADDED", make(uid="next"))
    assert cache.find("default", "web") is not None


def test_no_earlier_state_takes_back_that_an_object_was_deleted(cache: RelatedCache) -> None:
    found = write(cache, encode(version=1))
    cache.observe("MODIFIED", make(version=2))  # while the request to delete it is on its way
    cache.note_deletion(found)
    cache.observe("MODIFIED", make(version=3))
    assert is_deleting(cache)
    cache.rewind()
    cache.observe(None, make(version=3))
    assert not is_deleting(cache), "a restored etcd may have it again"


def test_without_uids_an_object_may_be_another_one_than_was_deleted(cache: RelatedCache) -> None:
    def make_anonymous(version: int) -> RawObject:
        metadata = {"name": "web", "namespace": "default", "resourceVersion": str(version)}
        return parse_object(msgspec.json.encode({"metadata": metadata}))

    cache.observe(None, make_anonymous(1))
    found = cache.find("default", "web")
    assert found is not None
    cache.note_deletion(found)
    cache.observe("MODIFIED", make_anonymous(2))
    assert not is_deleting(cache)


def test_a_list_is_taken_as_it_is_though_its_versions_go_back(cache: RelatedCache, seen: Seen) -> None:
    cache.observe(None, make(version=9))
    cache.observe(None, make(version=9))
    cache.observe(None, make(version=4))
    cache.observe("MODIFIED", make(version=3))
    cache.observe("MODIFIED", make(version=5))
    found = cache.find("default", "web")
    assert found is not None
    assert found.version == 5
    assert len(seen.changes) == 3


def test_after_a_restore_the_same_version_may_be_another_state(cache: RelatedCache, seen: Seen) -> None:
    cache.observe(None, make(version=9, owners=("one",)))
    cache.rewind()
    cache.observe(None, make(version=9, owners=("other",)))
    assert len(seen.changes) == 2
    assert [record.name for record in cache.owned_by("other")] == ["web"]


def test_only_objects_with_the_labels_are_in_the_cache(seen: Seen) -> None:
    cache = RelatedCache(DEPLOYMENTS, None, manager="me", whole=False, labels={"a": "b"}, observer=seen)
    cache.observe(None, make("other", labels={"a": "c"}))
    cache.observe(None, make("none"))
    cache.observe(None, make("web", labels={"a": "b", "c": "d"}))
    assert [name for name, _ in seen.changes] == ["web"]
    cache.observe("MODIFIED", make("web", 2))
    assert seen.removals == ["web"]
    assert cache.find("default", "web") is None


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
    write(cache, encode(version=3, uid="new", owners=("x",)))
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


@pytest.mark.parametrize(("metadata", "identity"), [({"uid": "u"}, {"uid": "u"}), ({}, {}), ({"namespace": ""}, {})])
def test_requests_are_bound_to_the_uid_of_an_object_if_there_are_uids(
    metadata: dict[str, str], identity: dict[str, str]
) -> None:
    obj = parse_object(msgspec.json.encode({"metadata": {"name": "web", "namespace": "default", **metadata}}))
    assert read_record(obj, manager="m", whole=False).identity == identity
