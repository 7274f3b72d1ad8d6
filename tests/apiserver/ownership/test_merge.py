"""Properties of ownership and merging that hold for all objects."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.ownership.apply import Application, apply
from trioperator.apiserver.ownership.comparison import Scope, compare, fields_of
from trioperator.apiserver.ownership.field_sets import contains, paths
from trioperator.apiserver.ownership.field_types import FieldType
from trioperator.apiserver.ownership.managed_fields import Entry, Manager, entries_after_update
from trioperator.apiserver.ownership.merge import merge

ROOT = FieldType(
    {
        "type": "object",
        "properties": {
            "metadata": {"type": "object", "properties": {"labels": {"additionalProperties": {"type": "string"}}}},
            "one": {"type": "integer"},
            "two": {"type": "string"},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic"},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "items": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "value": {"type": "integer"}},
                },
            },
            "list": {"type": "array", "items": {"type": "integer"}},
            "free": {"x-kubernetes-preserve-unknown-fields": True},
        },
    }
)
NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(0, 2)
FREE = st.recursive(NUMBERS, lambda below: st.dictionaries(NAMES, below, min_size=1, max_size=2), max_leaves=4)
ITEMS = st.dictionaries(NAMES, NUMBERS, min_size=1).map(
    lambda values: [{"name": name, "value": value} for name, value in values.items()]
)
OBJECTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"labels": st.dictionaries(NAMES, NAMES, min_size=1)}),
        "one": NUMBERS,
        "two": NAMES,
        "map": st.dictionaries(NAMES, NUMBERS, min_size=1),
        "whole": st.dictionaries(NAMES, NUMBERS, min_size=1),
        "set": st.lists(NAMES, min_size=1, unique=True),
        "items": ITEMS,
        "list": st.lists(NUMBERS, min_size=1),
        "free": FREE,
    },
)
MANAGERS = st.sampled_from(["one", "two", "three"])
WRITES = st.lists(st.tuples(MANAGERS, OBJECTS), min_size=1, max_size=5)


def do_apply(
    live: dict[str, Any], entries: list[Entry], wanted: dict[str, Any], manager: str = "me"
) -> tuple[dict[str, Any], list[Entry]]:
    """Apply the configuration by force."""
    applier = Manager(manager, "Apply", "v1", "")
    return apply(
        Application(root=ROOT, scope=Scope(), manager=applier, configuration=wanted, force=True, time="2020"),
        live,
        entries,
    )


def write_all(writes: list[tuple[str, dict[str, Any]]]) -> tuple[dict[str, Any], list[Entry]]:
    """Apply the configurations one by one by force, each as its manager."""
    live: dict[str, Any] = {}
    entries: list[Entry] = []
    for manager, wanted in writes:
        live, entries = do_apply(live, entries, wanted, manager)
    return live, entries


@given(OBJECTS, OBJECTS)
def test_merging_is_idempotent(live: dict[str, Any], wanted: dict[str, Any]) -> None:
    merged = merge(ROOT, live, wanted)
    assert merge(ROOT, merged, wanted) == merged
    assert merge(ROOT, {}, wanted) == wanted
    assert merge(ROOT, live, {}) == live


@given(OBJECTS, OBJECTS)
def test_a_comparison_finds_every_difference(old: dict[str, Any], new: dict[str, Any]) -> None:
    comparison = compare(ROOT, old, new, Scope())
    assert (comparison.changed == {} and comparison.removed == {}) == _same_but_for_order(old, new)
    back = compare(ROOT, new, old, Scope())
    assert set(paths(comparison.removed)) <= set(paths(back.changed))


def _same_but_for_order(one: Any, other: Any) -> bool:
    """Return whether the objects are equal except for the order of keyed items and sets, and empty metadata."""

    def plain(obj: dict[str, Any]) -> dict[str, Any]:
        result = {key: value for key, value in obj.items() if value != {}}
        for name in ("items", "set"):
            if name in result:
                result[name] = sorted(result[name], key=str)
        return result

    return plain(one) == plain(other)


@given(WRITES, OBJECTS)
def test_applying_is_idempotent(writes: list[tuple[str, dict[str, Any]]], wanted: dict[str, Any]) -> None:
    live, entries = write_all(writes)
    once = do_apply(live, entries, wanted)
    assert do_apply(*once, wanted) == once


@given(WRITES, OBJECTS)
def test_an_applier_owns_its_configuration(writes: list[tuple[str, dict[str, Any]]], wanted: dict[str, Any]) -> None:
    live, _ = do_apply(*write_all(writes), wanted)
    assert compare(ROOT, merge(ROOT, live, wanted), live, Scope()) == ({}, {})


@given(WRITES)
def test_only_existing_fields_are_managed(writes: list[tuple[str, dict[str, Any]]]) -> None:
    live, entries = write_all(writes)
    there = compare(ROOT, {}, live, Scope()).changed
    for entry in entries:
        assert all(contains(there, path) for path in paths(entry["fieldsV1"]))


@given(WRITES)
def test_an_object_is_empty_without_managers(writes: list[tuple[str, dict[str, Any]]]) -> None:
    live, entries = write_all(writes)
    for manager in ("one", "two", "three"):
        live, entries = do_apply(live, entries, {}, manager)
    assert entries == []
    assert fields_of(ROOT, {key: value for key, value in live.items() if value}) == {}


@given(OBJECTS, OBJECTS, OBJECTS)
def test_after_an_update_each_field_has_one_manager(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]
) -> None:
    entries: list[Entry] = []
    old: dict[str, Any] = {}
    for manager, new in (("one", first), ("two", second), ("three", third)):
        updater = Manager(manager, "Update", "v1", "")
        entries = entries_after_update(entries, updater, compare(ROOT, old, new, Scope()), "2020")
        old = new
    managed = [path for entry in entries for path in paths(entry["fieldsV1"])]
    assert len(managed) == len(set(managed))
    assert set(managed) <= set(paths(compare(ROOT, {}, old, Scope()).changed))
    assert set(paths(fields_of(ROOT, old))) - {("f:metadata",)} <= set(managed)
