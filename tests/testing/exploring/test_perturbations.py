"""Tests for :mod:`trioperator.testing.exploring.perturbations`."""

from __future__ import annotations

import httpx

from trioperator.testing.exploring.perturbations import FAULTS, Extent, Perturbation, iterate_perturbations, make_plan


def draw(*faults: str) -> list[str]:
    children = ["ConfigMap default/a"]
    found = iterate_perturbations(faults, Extent(writes=2, calls=1, steps=2, watched=["pods"], children=children))
    return [str(each) for each in found]


def test_the_operator_crashes_before_and_after_each_write_and_outside_call() -> None:
    assert draw("crash") == [
        "The operator crashes before write 1",
        "The operator crashes after write 1",
        "The operator crashes before write 2",
        "The operator crashes after write 2",
        "The operator crashes before outside call 1",
        "The operator crashes after outside call 1",
    ]


def test_the_operator_is_down_over_each_window_of_changes() -> None:
    assert draw("blind") == [
        "The operator is down from change 2 to change 2",
        "The operator sees nothing from change 2 to change 2",
        "The operator is down from change 2 to change 3",
        "The operator sees nothing from change 2 to change 3",
        "The operator is down from change 3 to change 3",
        "The operator sees nothing from change 3 to change 3",
        "The operator crashes after write 1, and is down until the next change",
        "The operator crashes after write 2, and is down until the next change",
    ]


def test_the_object_is_edited_paused_and_poked_at_writes() -> None:
    assert draw("edit") == [
        "At write 1, somebody labels the object",
        "At write 1, the next change comes",
        "At write 1, somebody deletes the object",
        "At write 1, somebody pauses the object, until all is at rest",
        "At write 1, somebody pokes the object",
        "At write 2, somebody labels the object",
        "At write 2, the next change comes",
        "At write 2, somebody deletes the object",
        "At write 2, somebody pauses the object, until all is at rest",
    ]


def test_there_are_about_a_hundred_plays_at_most_for_three_children() -> None:
    extent = Extent(writes=8, steps=2, watched=["a", "b", "c", "d"], children=["A b/c"] * 3)
    found = iterate_perturbations(FAULTS, extent)
    assert 50 <= len(list(found)) <= 100


def test_each_fault_is_drawn_only_if_it_is_asked_for() -> None:
    assert all(draw(fault) for fault in FAULTS)
    assert draw() == []


async def test_late_events_are_a_fault_of_watches_of_the_resource() -> None:
    late = Perturbation(fault="late", what="pods", seconds=3)
    plan = make_plan(late)
    url = "http://cluster/api/v1/pods"
    assert plan.choose(httpx.Request("GET", url, params={"watch": "1"})) is not None
    assert plan.choose(httpx.Request("GET", url)) is None
    assert str(late) == "Watch events of pods come 3 seconds late"
