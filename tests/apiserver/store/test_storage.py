"""The store: revisions, history, and past states."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.store.storage import HISTORY_SIZE, Expired, Store

RESOURCE = ("", "things")
keys = st.sampled_from(["a/1", "a/2", "a-b/1", "b/1"])
steps = st.lists(st.tuples(keys, st.booleans()), max_size=40)


def thing(content: int) -> dict[str, Any]:
    return {"metadata": {"uid": "u"}, "content": content}


def play(store: Store, moves: list[tuple[str, bool]]) -> list[dict[str, int]]:
    """Store and remove objects; return the state at each revision."""
    table = store.table(RESOURCE)
    states: list[dict[str, int]] = [{}]
    for number, (key, is_removal) in enumerate(moves):
        if not is_removal:
            store.put(table, key, thing(number))
        elif key in table.objects:
            store.remove(table, key)
        else:
            continue
        states.append({name: stored.obj["content"] for name, stored in table.objects.items()})
    return states


@given(steps)
def test_past_states_can_be_restored(moves: list[tuple[str, bool]]) -> None:
    store = Store(clock=lambda: 0)
    table = store.table(RESOURCE)
    for revision, expected in enumerate(play(store, moves)):
        state = table.state_at(revision)
        assert isinstance(state, dict)
        assert {name: stored.obj["content"] for name, stored in state.items()} == expected


@given(steps)
def test_changes_lead_from_any_revision_to_the_current_state(moves: list[tuple[str, bool]]) -> None:
    store = Store(clock=lambda: 0)
    states = play(store, moves)
    table = store.table(RESOURCE)
    for revision, known in enumerate(states):
        index = table.index_after(revision)
        assert isinstance(index, int)
        followed = dict(known)
        for change in table.changes_from(index) or ():
            if change.new is None:
                del followed[change.key]
            else:
                followed[change.key] = change.new.obj["content"]
        assert followed == states[-1]


@given(steps)
def test_keys_are_sorted_and_found_by_prefix(moves: list[tuple[str, bool]]) -> None:
    store = Store(clock=lambda: 0)
    play(store, moves)
    table = store.table(RESOURCE)
    assert table.keys() == sorted(table.objects)
    assert table.keys("a/") == sorted(key for key in table.objects if key.startswith("a/"))


@given(steps, st.integers(0, 40))
def test_compacted_revisions_are_expired(moves: list[tuple[str, bool]], limit: int) -> None:
    store = Store(clock=lambda: 0)
    play(store, moves)
    limit = min(limit, store.revision)
    store.compact(limit)
    table = store.table(RESOURCE)
    for revision in range(store.revision + 1):
        assert isinstance(table.state_at(revision), Expired) is (revision < limit)
        assert isinstance(table.index_after(revision), Expired) is (revision < limit)
    assert isinstance(store.table(("", "others")).state_at(0), Expired) is (limit > 0)


def test_history_is_bounded_by_number() -> None:
    store = Store(clock=lambda: 0, history=8)
    table = store.table(RESOURCE)
    for number in range(100):
        store.put(table, "a/1", thing(number))
        assert len(table.changes) <= 10
    assert table.changes_from(table.dropped - 1) is None
    assert isinstance(table.state_at(table.oldest), dict)


def test_history_is_bounded_by_age() -> None:
    now = 0.0
    store = Store(clock=lambda: now, history_age=100)
    table = store.table(RESOURCE)
    for number in range(100):
        now = number * 10
        store.put(table, "a/1", thing(number))
    assert table.changes[0].time >= now - 130


def test_history_is_bounded_by_size() -> None:
    store = Store(clock=lambda: 0)
    table = store.table(RESOURCE)
    text = "x" * (HISTORY_SIZE // 10)
    for _ in range(50):
        store.put(table, "a/1", {**thing(1), "text": text})
        assert 1 <= len(table.changes) <= 10
        assert table.size == sum(change.size for change in table.changes)
    store.put(table, "a/1", {**thing(1), "text": text * 11})
    while table.objects:
        store.remove(table, "a/1")
    assert table.size == sum(change.size for change in table.changes) <= HISTORY_SIZE
    assert table.index_after(table.oldest) == table.dropped


def test_all_tables_share_one_revision_counter() -> None:
    store = Store(clock=lambda: 0)
    first = store.put(store.table(RESOURCE), "a/1", thing(1))
    second = store.put(store.table(("", "others")), "a/1", thing(1))
    assert (first.revision, second.revision) == (1, 2)
    assert second.obj["metadata"]["resourceVersion"] == "2"
    assert store.remove(store.table(RESOURCE), "a/1") == 3


def test_a_rewound_store_has_the_old_objects_under_new_revisions() -> None:
    store = Store(clock=lambda: 0)
    table = store.table(RESOURCE)
    for number, key in enumerate(("a/1", "a/2", "a/3")):
        store.put(table, key, thing(number))
    snapshot = store.snapshot()
    store.remove(table, "a/1")
    store.put(table, "a/2", thing(7))
    store.put(table, "a/4", thing(8))
    revision = store.revision
    store.rewind(snapshot)
    assert sorted(table.objects) == table.keys() == ["a/1", "a/2", "a/3"]
    contents = {key: {**stored.obj["metadata"], "resourceVersion": ""} for key, stored in table.objects.items()}
    assert contents == {key: {**s.obj["metadata"], "resourceVersion": ""} for key, s in snapshot[RESOURCE].items()}
    assert table.objects["a/3"] is snapshot[RESOURCE]["a/3"]
    assert all(table.objects[key].revision > revision for key in ("a/1", "a/2"))
    assert isinstance(table.index_after(revision), Expired)


def test_an_object_with_another_uid_is_removed_before_the_old_one_comes_back() -> None:
    store = Store(clock=lambda: 0)
    table = store.table(RESOURCE)
    store.put(table, "a/1", thing(1))
    snapshot = store.snapshot()
    store.remove(table, "a/1")
    store.put(table, "a/1", thing(2) | {"metadata": {**thing(2)["metadata"], "uid": "other"}})
    changes: list[tuple[bool, bool]] = []
    store.on_change.append(lambda _, change: changes.append((change.old is None, change.new is None)))
    store.rewind(snapshot)
    assert changes == [(False, True), (True, False)]
