"""Fair queues: flows take turns, whatever is appended and removed."""

from __future__ import annotations

import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._concurrency.fair_queue import FairQueue


def drain(queue: FairQueue[str]) -> list[str]:
    items = []
    while queue:
        items.append(queue.popleft())
    return items


def test_flows_take_turns_in_the_order_in_which_they_came() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        queue.append(item, item[0])
    assert drain(queue) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_flow_that_was_empty_is_the_last_to_have_its_turn() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "b1", "b2"):
        queue.append(item, item[0])
    assert queue.popleft() == "a1"
    queue.append("c1", "c")
    assert drain(queue) == ["b1", "a2", "c1", "b2"]


def test_direct_items_come_before_all_flows() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2"):
        queue.append(item, item[0])
    queue.direct += ["x", "y"]
    assert queue.popleft() == "x"
    queue.append("b1", "b")
    assert drain(queue) == ["y", "a1", "b1", "a2"]


def test_an_empty_queue_is_false_and_remembers_no_flows() -> None:
    queue: FairQueue[str] = FairQueue()
    assert not queue
    for number in range(100):
        queue.append("item", number)
    assert queue
    for number in range(50):
        queue.remove("item", number)
    drain(queue)
    assert not queue
    assert not queue._flows
    assert not queue.ring
    with pytest.raises(IndexError):
        queue.popleft()
    queue.append("item", 1)
    queue.direct.append("item")
    queue.clear()
    assert not queue


def test_what_is_removed_is_not_popped_and_what_is_not_there_cannot_be_removed() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "b1"):
        queue.append(item, item[0])
    queue.remove("a1", "a")
    for item, flow in (("a1", "a"), ("x", "x")):
        with pytest.raises(ValueError):
            queue.remove(item, flow)
    assert drain(queue) == ["a2", "b1"]


@given(st.lists(st.tuples(st.sampled_from(["append", "pop"]), st.integers(0, 4)), max_size=60))
def test_nothing_is_lost_and_nobody_waits_for_more_than_one_item_of_each_other_flow(ops: list[tuple[str, int]]) -> None:
    queue: FairQueue[tuple[int, int]] = FairQueue()
    waiting: dict[int, collections.deque[tuple[int, int]]] = {flow: collections.deque() for flow in range(5)}
    overtaken: collections.Counter[tuple[int, int]] = collections.Counter()  # (first flow waiting, flow served since)
    for number, (op, flow) in enumerate([*ops, *[("pop", 0)] * len(ops)]):
        if op == "append":
            queue.append((flow, number), flow)
            waiting[flow].append((flow, number))
        elif queue:
            item = queue.popleft()
            served = item[0]
            assert waiting[served].popleft() == item
            for other in range(5):
                if other == served or not waiting[other]:
                    for each in range(5):
                        overtaken[other, each] = 0
                else:
                    overtaken[other, served] += 1
                    assert overtaken[other, served] <= 1
    assert not queue
    assert not any(waiting.values())
