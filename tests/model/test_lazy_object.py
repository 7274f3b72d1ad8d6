"""Large objects, which are JSON while nobody uses them."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from trioperator._model import lazy_object
from trioperator._model.diff import diff, find_differences
from trioperator._model.jsontypes import copy_json
from trioperator._model.lazy_object import (
    LARGE,
    LazyObject,
    are_equal,
    complete,
    conserve,
    decode_json,
    outline_of,
    rest_huge,
)

BODY = {"kind": "Widget", "metadata": {"name": "w"}, "spec": {"items": [{}]}}


class Source:
    """JSON that counts how often it is decoded, and what is called when tasks wait."""

    def __init__(self, body: Any = None) -> None:
        self.raw = msgspec.json.encode(BODY if body is None else body)
        self.decoded = 0
        self.calls: list[Callable[[], None]] = []

    def decode(self) -> Any:
        self.decoded += 1
        return msgspec.json.decode(self.raw)

    def make(self) -> LazyObject:
        return LazyObject.of(self.raw, self.decode, soon=self.calls.append, decoded=msgspec.json.decode(self.raw))


@pytest.fixture
def huge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every object be larger than the budget of all, and nothing stay decoded of it but its metadata."""
    monkeypatch.setattr(lazy_object, "_BUDGET", 0)
    monkeypatch.setattr(lazy_object, "LARGE", 0)


def test_a_lazy_object_is_a_mapping_like_the_object() -> None:
    found = Source().make()
    assert found == BODY
    assert found == BODY
    assert dict(found) == BODY
    assert list(found) == list(BODY)
    assert (len(found), bool(found), "spec" in found, "status" in found) == (3, True, True, False)
    assert (found["kind"], found.get("kind"), found.get("x"), found.get("x", 1)) == ("Widget", "Widget", None, 1)
    assert repr(found) == f"LazyObject({BODY!r})"
    with pytest.raises(KeyError):
        found["x"]


def test_what_was_decoded_last_stays_decoded() -> None:
    source = Source()
    found = source.make()
    assert found["spec"] is found["spec"]
    assert (source.decoded, source.calls) == (0, [])


def test_what_was_decoded_first_is_given_up_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source()
    cost = len(source.raw) + 64 * sum(source.raw.count(sign) for sign in (b"[", b"{", b",", b":"))
    monkeypatch.setattr(lazy_object, "_BUDGET", 2 * cost)
    monkeypatch.setattr(lazy_object, "_recent", lazy_object._Recent())
    first, second, third = source.make(), source.make(), source.make()
    assert [found.is_decoded for found in (first, second, third)] == [False, True, True]
    assert first == BODY
    assert [found.is_decoded for found in (first, second, third)] == [True, False, True]


@pytest.mark.usefixtures("huge")
def test_what_is_beyond_the_budget_stays_decoded_until_its_user_waits() -> None:
    source = Source()
    found = source.make()
    assert not found.is_decoded
    assert dict(found) == dict(found) == BODY
    assert source.decoded == 1
    while source.calls:
        source.calls.pop()()
    assert not found.is_decoded
    assert dict(found) == BODY
    assert source.decoded == 2


@pytest.mark.usefixtures("huge")
def test_what_is_beyond_the_budget_does_not_stay_after_the_end_of_the_event_loop() -> None:
    def fail(fn: object) -> None:
        raise RuntimeError("the loop has ended")

    source = Source()
    found = LazyObject.of(source.raw, source.decode, soon=fail, decoded=dict(BODY))
    assert not found.is_decoded
    assert found == BODY
    found = LazyObject.of(source.raw, source.decode, soon=None, decoded=dict(BODY))
    assert not found.is_decoded
    assert found == BODY


def test_a_copy_shares_nothing_that_is_decoded() -> None:
    found = Source().make()
    other = found.copy()
    other["spec"]["items"].append(1)
    assert found == BODY


@pytest.mark.parametrize("copy_of", [copy_json, copy.deepcopy])
def test_deep_copies_are_plain(copy_of: Callable[[Any], Any]) -> None:
    copied = copy_of(Source().make())
    assert type(copied) is dict
    assert copied == BODY


def test_what_is_made_of_a_lazy_object_is_lazy_too() -> None:
    changed = {**BODY, "status": {"a": 1}}
    assert conserve(changed, like=BODY) is changed
    lazy = conserve(changed, like=Source().make())
    assert isinstance(lazy, LazyObject)
    lazy.rest()
    assert lazy == changed


@pytest.mark.usefixtures("huge")
def test_a_huge_object_is_given_up_before_another_one_is_decoded() -> None:
    first, second = Source(), Source()
    one = first.make()
    assert dict(one) == BODY
    left = []

    def decode() -> Any:
        left.append(one.is_decoded)
        return second.decode()

    two = LazyObject.of(second.raw, decode, soon=second.calls.append)
    assert dict(two) == BODY
    assert (left, one.is_decoded, two.is_decoded) == ([False], False, True)
    assert dict(one) == BODY
    assert (one.is_decoded, two.is_decoded) == (True, False)


def test_small_members_of_a_huge_object_stay_decoded() -> None:
    body = {**BODY, "spec": {"items": [[]] * 100_000}}
    source = Source(body)
    found = LazyObject.of(source.raw, source.decode, soon=source.calls.append)
    assert (found["metadata"]["name"], found.get("status"), "status" in found, "kind" in found) == (
        "w",
        None,
        False,
        True,
    )
    with pytest.raises(KeyError):
        found["status"]
    assert source.decoded == 0
    assert found.get("spec") == body["spec"]
    assert found == body
    assert found["metadata"] is dict(found)["metadata"]
    other = found.copy()
    other["metadata"]["name"] = "other"
    assert found["metadata"] == {"name": "w"}


def test_what_decoding_adds_to_a_huge_object_is_a_small_member() -> None:
    source, added = Source({"metadata": {"name": "w"}, "spec": [0] * 200_000}), {"kind": "Widget"}
    found = LazyObject.of(source.raw, lambda: {**source.decode(), **added}, soon=source.calls.append, added=added)
    assert (found["kind"], found["metadata"], source.decoded) == ("Widget", {"name": "w"}, 0)
    assert len(found["spec"]) == 200_000


@pytest.mark.usefixtures("huge")
def test_a_huge_object_of_many_members_is_decoded_for_each_of_them() -> None:
    source = Source({f"k{number}": [] for number in range(5_000)})
    found = LazyObject.of(source.raw, source.decode, soon=source.calls.append)
    found.rest()
    assert (found["k7"], "k8" in found, "x" in found, source.decoded) == ([], True, False, 2)


@pytest.mark.usefixtures("huge")
def test_no_garbage_is_collected_while_a_huge_object_is_decoded() -> None:
    source = Source()
    enabled = []

    def decode() -> Any:
        enabled.append(gc.isenabled())
        return source.decode()

    found = LazyObject.of(source.raw, decode, soon=None)
    assert found["spec"] == BODY["spec"]
    assert (enabled, gc.isenabled()) == ([False], True)
    gc.disable()
    try:
        assert found["spec"] == BODY["spec"]
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.usefixtures("huge")
@pytest.mark.parametrize(
    "decode",
    [
        lambda source: LazyObject.of(source.raw, source.decode, soon=None)._get(),
        lambda source: decode_json(source.raw),
    ],
)
def test_what_is_decoded_is_not_looked_through_for_garbage(
    decode: Callable[[Source], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_object, "_frozen", threading.Event())
    source, collections = Source({"items": [[]] * 20_000}), list[str]()

    def note(phase: str, info: dict[str, int]) -> None:
        collections.append(phase)

    gc.unfreeze()
    gc.collect()
    gc.callbacks.append(note)
    try:
        found = decode(source)
        others = [list[int]() for _ in range(10)]
    finally:
        gc.callbacks.remove(note)
        gc.freeze()  # as all tests have it
    assert (len(found), len(others), collections) == (1, 10, [])


@pytest.mark.usefixtures("huge")
def test_what_others_have_frozen_stays_so_and_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, get_count = list[int](), gc.get_freeze_count

    def count() -> int:
        counts.append(get_count())
        return counts[-1]

    monkeypatch.setattr(lazy_object, "_frozen", threading.Event())
    monkeypatch.setattr(gc, "get_freeze_count", count)
    source = Source()
    gc.freeze()
    for _ in range(3):
        assert LazyObject.of(source.raw, source.decode, soon=None) == BODY
    assert len(counts) == 1  # it takes milliseconds
    assert get_count() > 0


@pytest.mark.usefixtures("huge")
def test_huge_objects_rest_when_they_are_told_to() -> None:
    found = Source().make()
    assert found["spec"] == BODY["spec"]
    assert found.is_decoded
    rest_huge(found, None, {}, BODY)
    assert not found.is_decoded


def test_an_object_that_is_not_huge_does_not_rest() -> None:
    found = Source().make()
    rest_huge(found)
    assert found.is_decoded


WIDE: list[Any] = [[]] * 100_000


def test_huge_objects_are_compared_without_decoding_what_is_the_same_in_them() -> None:
    old, new = (Source({**BODY, "spec": {"items": WIDE, "n": n}, "x": x}) for n, x in ((1, [1]), (2, {})))
    changes = [("change", ("spec", "n"), 1, 2), ("change", ("x",), [1], {})]
    assert diff(old.make(), new.make()) == changes
    assert (old.decoded, new.decoded) == (0, 0)


def test_what_differs_in_huge_objects_is_told_as_it_is() -> None:
    old, new = Source({"spec": {"items": WIDE, "n": 1}}), Source({"spec": {"items": [*WIDE, 1], "n": 1}})
    assert diff(old.make(), new.make()) == [("change", ("spec", "items"), WIDE, [*WIDE, 1])]
    assert diff(old.make(), {"spec": {"items": WIDE, "n": 1}}) == []


def test_json_that_is_written_in_other_ways_is_the_same() -> None:
    source = Source({"spec": {"items": WIDE}})
    other = LazyObject.of(source.raw.replace(b",", b" , "), source.decode, soon=None)
    assert other.outline != source.make().outline
    assert are_equal(other.outline, source.make().outline)
    assert are_equal(other.outline, {"spec": {"items": WIDE}})
    assert not are_equal(other.outline, {"spec": {"items": WIDE, "n": 1}})
    assert not are_equal(other.outline, {"spec": {"items": [*WIDE, 1]}})
    assert diff(other, source.make()) == []


@pytest.mark.parametrize("value", ["x" * 10_000, 1, None, [1] * 9_000, {str(number): 0 for number in range(2_000)}])
def test_what_is_json_in_an_outline_equals_what_it_stands_for(value: Any) -> None:
    raw = msgspec.Raw(msgspec.json.encode(value))
    assert are_equal(raw, value)
    assert are_equal({"a": value}, {"a": raw})
    assert diff({"a": raw}, {"a": value}) == []
    for other in ("x", 2, [1], {"1": 0}):
        assert not are_equal(raw, other)
        assert [item.field for item in diff({"a": other}, {"a": raw})][:1] != []


def test_a_large_value_that_has_changed_is_decoded_to_be_handed_out_only() -> None:
    old, new = Source({"spec": {"items": WIDE}}).make(), Source({"spec": {"items": {"a": 1}}}).make()
    (item,) = find_differences(old, new)
    assert type(item.old) is msgspec.Raw
    assert diff(old, new) == [("change", ("spec", "items"), WIDE, {"a": 1})]


def test_a_new_huge_object_is_one_difference_and_not_decoded() -> None:
    source = Source({"spec": {"items": WIDE}})
    (item,) = diff(None, source.make())
    assert (item.op, item.field, item.old, source.decoded) == ("add", (), None, 0)
    assert item.new == {"spec": {"items": WIDE}}


@pytest.mark.parametrize(
    "spec",
    [
        {str(number): [[]] * 1000 for number in range(60)},
        {str(number): {str(inner): [[]] * 20 for inner in range(60)} for number in range(60)},
        {str(number): [] for number in range(100_000)},
        [[[]] * 1000 for _ in range(100)],
    ],
)
def test_little_of_a_huge_object_stays_decoded(spec: Any) -> None:
    source = Source({"metadata": {"name": "w", "managedFields": WIDE}, "spec": spec})
    found = source.make()
    outline = outline_of(found)
    assert msgspec.json.encode(outline) == source.raw
    assert _count_lists(outline) < LARGE
    assert complete(outline) == found
    assert outline["metadata"]["name"] == found["metadata"]["name"] == "w"


def _count_lists(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_count_lists, value.values()))
    return 1 + sum(map(_count_lists, value)) if isinstance(value, list) else 0


def test_metadata_of_a_huge_object_are_in_its_outline() -> None:
    metadata = {"name": "w", "annotations": {"a": "x" * 100_000}, "labels": {str(n): "y" for n in range(1000)}}
    source = Source({"metadata": metadata, "spec": {"items": WIDE}})
    assert outline_of(source.make())["metadata"] == source.make()["metadata"] == metadata
    assert source.decoded == 0


@pytest.mark.parametrize("text", [b"\xff", b"\\ud800"])
def test_a_huge_object_that_cannot_be_decoded_is_refused(text: bytes) -> None:
    source = Source({"spec": {"items": WIDE, "text": "TEXT"}})
    source.raw = source.raw.replace(b"TEXT", text)
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        LazyObject.of(source.raw, source.decode, soon=None)


@pytest.mark.usefixtures("huge")
@pytest.mark.parametrize("is_plain", [True, False])
def test_memory_of_huge_objects_is_returned_where_it_is_the_c_librarys(
    is_plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, returned = Source({"items": [1] * 10_000}), list[int]()
    monkeypatch.setattr(lazy_object, "IS_PLAIN", is_plain)
    monkeypatch.setattr(lazy_object, "return_memory", lambda: returned.append(source.decoded))
    found = source.make()
    assert len(found["items"]) == 10_000
    while source.calls:
        source.calls.pop(0)()
    assert not found.is_decoded
    assert len(returned) == is_plain
