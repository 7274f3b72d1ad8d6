"""Tests for :mod:`trioperator.apiserver.ownership.managed_fields`: each field has the managers that have set it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.ownership.comparison import Comparison
from trioperator.apiserver.ownership.field_sets import FieldSet
from trioperator.apiserver.ownership.managed_fields import (
    ANCIENT,
    Conflict,
    Entry,
    Manager,
    conflicts_with,
    entries_after_apply,
    entries_after_update,
    equal_except_times,
    parse_entries,
)

OLD, NOW = "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"
ME = Manager("me", "Update", "v1")
YOU = Manager("you", "Update", "v1")
APPLIER = Manager("me", "Apply", "v1")
SENT: Entry = {
    "manager": "me",
    "operation": "Update",
    "apiVersion": "v1",
    "time": OLD,
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:a": {}},
}


def fields(*names: str) -> FieldSet:
    """Return the set of these fields."""
    return {f"f:{name}": {} for name in names}


def change(*changed: str, removed: tuple[str, ...] = ()) -> Comparison:
    """Return a comparison by the names of top-level fields."""
    return Comparison(fields(*changed), fields(*removed))


class TestManagers:
    @pytest.mark.parametrize(
        ("other", "owns"),
        [
            (ME, True),
            (YOU, False),
            (APPLIER, False),
            (ME._replace(api_version="v2"), False),
            (ME._replace(subresource="status"), False),
        ],
    )
    def test_an_updater_owns_entries_of_its_version_and_subresource(self, other: Manager, owns: bool) -> None:
        assert ME.owns(other.entry({}, OLD)) is owns

    def test_an_applier_owns_its_entries_in_all_versions(self) -> None:
        assert APPLIER.owns(APPLIER._replace(api_version="v2").entry({}, OLD))
        assert not APPLIER.owns(APPLIER._replace(subresource="status").entry({}, OLD))

    def test_an_entry_has_only_what_is_known(self) -> None:
        assert ME.entry(fields("a"), OLD) == SENT
        assert "time" not in ME.entry({}, None)
        assert ME._replace(subresource="scale").entry({}, OLD)["subresource"] == "scale"


class TestParsing:
    def test_parsed_entries_are_as_they_are_served(self) -> None:
        status = {**SENT, "subresource": "status"}
        assert parse_entries([SENT, status]) == [SENT, status]
        assert parse_entries([{**SENT, "unknown": 1, "fieldsV1": None}]) == [{**SENT, "fieldsV1": {}}]

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"operation": "Patch"}, "operation must be `Apply` or `Update`"),
            ({"apiVersion": ""}, "apiVersion must not be empty"),
            ({"fieldsType": "V2"}, 'invalid fieldsType "V2" in managed fields entry 1'),
            ({"fieldsType": None}, "missing fieldsType in managed fields entry 1"),
            ({"time": 5}, "time must be a string"),
            ({"time": "yesterday"}, "Invalid isoformat string"),
            ({"fieldsV1": {"a": {}}}, "missing colon: a"),
        ],
    )
    def test_invalid_entries_are_errors(self, change: dict[str, Any], problem: str) -> None:
        with pytest.raises(ValueError, match=problem):
            parse_entries([SENT, {**SENT, **change}])

    def test_an_entry_is_an_object(self) -> None:
        with pytest.raises(ValueError, match="operation must be"):
            parse_entries(["me"])


class TestUpdates:
    def test_changed_fields_belong_to_the_updater_only(self) -> None:
        entries = [YOU.entry(fields("a", "b"), OLD), APPLIER.entry(fields("a"), OLD)]
        assert entries_after_update(entries, ME, change("a"), NOW) == [
            YOU.entry(fields("b"), OLD),
            ME.entry(fields("a"), NOW),
        ]

    def test_an_updater_keeps_its_fields(self) -> None:
        entries = [ME.entry(fields("a", "b"), OLD)]
        assert entries_after_update(entries, ME, change("c", removed=("b",)), NOW) == [ME.entry(fields("a", "c"), NOW)]

    def test_removed_fields_have_no_managers(self) -> None:
        entries = [YOU.entry(fields("a"), OLD), ME.entry(fields("a", "b"), OLD)]
        assert entries_after_update(entries, ME, change(removed=("a",)), NOW) == [ME.entry(fields("b"), OLD)]

    def test_an_update_without_changes_changes_no_entry(self) -> None:
        entries = [ME.entry(fields("a"), OLD)]
        assert entries_after_update(entries, ME, change(), NOW) == entries

    @given(st.lists(st.sampled_from("abcdef"), min_size=1, unique=True))
    def test_entries_are_never_changed_in_place(self, names: list[str]) -> None:
        entries = [YOU.entry(fields("a", "b"), OLD), ME.entry(fields("c"), OLD)]
        entries_after_update(entries, ME, change(*names[1:], removed=(names[0],)), NOW)
        assert entries == [YOU.entry(fields("a", "b"), OLD), ME.entry(fields("c"), OLD)]

    def test_the_oldest_updates_are_merged_beyond_ten(self) -> None:
        entries: list[Entry] = []
        for at in range(12):
            entries = entries_after_update(entries, Manager(f"m{at}", "Update", "v1"), change(f"x{at}"), f"20{at + 10}")
        ancient = Manager(ANCIENT, "Update", "v1").entry(fields("x0", "x1", "x2"), "2012")
        assert entries[0] == ancient
        assert [entry["manager"] for entry in entries[1:]] == [f"m{at}" for at in range(3, 12)]

    def test_updates_of_different_versions_are_not_merged(self) -> None:
        entries = [Manager("m", "Update", f"v{at}").entry(fields(f"x{at}"), f"20{at + 10}") for at in range(11)]
        found = entries_after_update(entries, ME._replace(api_version="v20"), change("y"), NOW)
        assert len(found) == 12


class TestApplying:
    def test_an_applier_owns_what_it_applies(self) -> None:
        entries = [YOU.entry(fields("a", "b", "c"), OLD), APPLIER.entry(fields("gone"), OLD)]
        found = entries_after_apply(entries, APPLIER, fields("a", "b"), change("a", removed=("c",)), NOW)
        assert found == [APPLIER.entry(fields("a", "b"), NOW), YOU.entry(fields("b"), OLD)]

    def test_an_apply_that_changes_nothing_keeps_its_time(self) -> None:
        entries = [APPLIER.entry(fields("a"), OLD)]
        assert entries_after_apply(entries, APPLIER, fields("a"), change(), None) == entries

    def test_the_identity_of_the_object_has_no_manager(self) -> None:
        applied: FieldSet = {"f:apiVersion": {}, "f:kind": {}, "f:metadata": {"f:name": {}, "f:labels": {"f:a": {}}}}
        (entry,) = entries_after_apply([], APPLIER, applied, change(), NOW)
        assert entry["fieldsV1"] == {"f:metadata": {"f:labels": {"f:a": {}}}}

    def test_an_applier_of_nothing_has_no_entry(self) -> None:
        assert entries_after_apply([APPLIER.entry(fields("a"), OLD)], APPLIER, {}, change(removed=("a",)), NOW) == []


class TestConflicts:
    def test_changed_fields_of_others_are_conflicts(self) -> None:
        mine, yours = APPLIER.entry(fields("a"), OLD), YOU.entry({"f:b": {"f:c": {}}, **fields("a")}, OLD)
        comparison = Comparison({"f:b": {"f:c": {}, "f:d": {}}, "f:a": {}}, fields("x"))
        assert conflicts_with([mine, yours], APPLIER, comparison) == [
            Conflict(yours, ("f:a",)),
            Conflict(yours, ("f:b", "f:c")),
        ]

    @pytest.mark.parametrize(
        ("manager", "shown"),
        [
            (APPLIER, '"me"'),
            (YOU, '"you" using v1'),
            (YOU._replace(subresource="status"), '"you" with subresource "status" using v1'),
        ],
    )
    def test_a_conflict_names_the_manager_and_the_field(self, manager: Manager, shown: str) -> None:
        conflict = Conflict(manager.entry({}, OLD), ("f:spec", 'k:{"name":"x"}', "f:a"))
        assert (conflict.manager, conflict.field) == (shown, '.spec[name="x"].a')


def test_entries_are_compared_without_their_times() -> None:
    old, new = ME.entry(fields("a"), OLD), ME.entry(fields("a"), NOW)
    assert equal_except_times([old], [new])
    assert equal_except_times([], [])
    assert not equal_except_times([old], [old, new])
    assert not equal_except_times([old], [ME.entry(fields("b"), OLD)])
