"""The default memo."""

from __future__ import annotations

import copy

import pytest

from trioperator._model.memo import Memo


def test_items_are_attributes_and_attributes_are_items() -> None:
    memo = Memo(base=1)
    memo.counter = memo.get("counter", 0) + 1
    memo["other"] = 2
    assert memo == {"base": 1, "counter": 1, "other": 2}
    assert (memo.base, memo["counter"], memo.other) == (1, 1, 2)
    del memo.other
    assert "other" not in memo


def test_a_missing_item_is_named() -> None:
    memo = Memo()
    with pytest.raises(AttributeError, match="'x'"):
        memo.x  # noqa: B018
    with pytest.raises(AttributeError, match="'x'"):
        del memo.x
    with pytest.raises(KeyError):
        memo["x"]
    assert not hasattr(memo, "x")


def test_a_copy_is_shallow() -> None:
    memo = Memo(queue=[1])
    copied = copy.copy(memo)
    assert isinstance(copied, Memo)
    copied.mine = 1
    assert "mine" not in memo
    assert copied.queue is memo.queue
