"""In-memory indices: updates, removals, and views for readers."""

from __future__ import annotations

import collections
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator import Memo
from trioperator._handling.arguments.indexing import Index, Store, discard, owners, replace

KEYS = st.sampled_from(["a", "b", "c", None])
VALUES = st.integers(0, 3)
OWNERS = st.integers(0, 4)
RESULTS = st.one_of(st.dictionaries(KEYS, VALUES, max_size=3), VALUES)


def plain(index: Index[Any, Any]) -> dict[Any, list[Any]]:
    return {key: list(store) for key, store in index.items()}


@given(st.lists(st.tuples(OWNERS, st.one_of(RESULTS, st.none()))))
def test_an_index_contains_exactly_the_latest_results(changes: list[tuple[int, Any]]) -> None:
    index: Index[Any, Any] = Index()
    model: dict[int, dict[Any, Any]] = {}
    for owner, result in changes:
        if result is None:  # stands for an object that is gone
            discard(index, owner)
            model.pop(owner, None)
        else:
            replace(index, owner, result)
            model[owner] = result if isinstance(result, dict) else {None: result}
    expected: dict[Any, list[Any]] = collections.defaultdict(list)
    for entries in model.values():
        for key, value in entries.items():
            expected[key].append(value)
    assert {key: sorted(values) for key, values in plain(index).items()} == {
        key: sorted(values) for key, values in expected.items()
    }
    assert set(owners(index)) == {owner for owner, entries in model.items() if entries}


@pytest.mark.parametrize(
    ("results", "content"),
    [
        ([{"key1": "A"}, {"key1": "B"}, {"key2": "C"}], {"key1": ["A", "B"], "key2": ["C"]}),
        ([{"key": {"inner": 1}}], {"key": [{"inner": 1}]}),
        ([{("ns", "name"): "hello"}], {("ns", "name"): ["hello"]}),
        (["x", "y"], {None: ["x", "y"]}),
        ([("ns", "name"), [1, 2], {3}], {None: [("ns", "name"), [1, 2], {3}]}),
        ([{"key": None}, {"key": None}], {"key": [None, None]}),
        ([{}], {}),
        ([0, "", False], {None: [0, "", False]}),
    ],
)
def test_results_of_all_shapes_are_indexed(results: list[Any], content: Any) -> None:
    index: Index[Any, Any] = Index()
    for owner, result in enumerate(results):
        replace(index, owner, result)
    assert plain(index) == content


def test_only_dicts_contain_values_by_keys() -> None:
    index: Index[Any, Any] = Index()
    memo = Memo(a=1)
    ordered = collections.OrderedDict(b=2)
    replace(index, 1, memo)
    replace(index, 2, ordered)
    assert plain(index) == {None: [memo, ordered]}


def test_replaced_values_keep_their_positions() -> None:
    index: Index[Any, Any] = Index()
    for owner in range(3):
        replace(index, owner, {"key": owner})
    replace(index, 1, {"key": "new", "other": 1})
    assert plain(index) == {"key": [0, "new", 2], "other": [1]}


def test_an_unhashable_key_changes_nothing() -> None:
    class Key:
        hashed = False

        def __hash__(self) -> int:
            if self.hashed:
                raise RuntimeError("once only")
            self.hashed = True
            return 1

    index: Index[Any, Any] = Index()
    replace(index, 1, {"a": 1, "b": 2})
    with pytest.raises(RuntimeError, match="once only"):
        replace(index, 1, {"a": 3, Key(): 4})
    assert plain(index) == {"a": [1], "b": [2]}
    discard(index, 1)
    assert plain(index) == {}


def test_an_iterator_works_on_a_snapshot() -> None:
    index: Index[Any, Any] = Index()
    replace(index, 1, {"a": 1, "b": 2})
    replace(index, 2, {"a": 3})
    iterations = [iter(index), iter(index.keys()), iter(index.values()), iter(index.items()), iter(index["a"])]
    first = [next(iteration) for iteration in iterations]
    discard(index, 1)
    replace(index, 3, {"c": 4, "d": 5})
    assert [len([before, *rest]) for before, rest in zip(first, iterations, strict=True)] == [2, 2, 2, 2, 2]
    assert plain(index) == {"a": [3], "c": [4], "d": [5]}


def test_a_store_is_a_collection_that_is_true_unless_empty() -> None:
    index: Index[Any, Any] = Index()
    replace(index, 1, {"key": False})
    store = index["key"]
    assert isinstance(store, Store)
    assert store
    assert (len(store), list(store), False in store, True in store, repr(store)) == (1, [False], True, False, "[False]")
    assert repr(index) == "{'key': [False]}"


def test_an_index_is_a_read_only_mapping() -> None:
    index: Index[Any, Any] = Index()
    replace(index, 1, {"key": 5})
    assert ("key" in index, "none" in index, index.get("none", []), list(index), len(index)) == (
        True,
        False,
        [],
        ["key"],
        1,
    )
    with pytest.raises(KeyError):
        index["none"]
    with pytest.raises(TypeError):
        index["key"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        del index["key"]  # type: ignore[attr-defined]


def test_the_types_can_be_subscripted() -> None:
    assert str(Index[str, int]).endswith("Index[str, int]")
    assert str(Store[int]).endswith("Store[int]")
