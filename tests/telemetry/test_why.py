"""Tests for :mod:`trioperator._telemetry.why`: what people read of the ledger."""

import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from trioperator._model.contention import Verdict
from trioperator._model.resource import Resource
from trioperator._runtime.ledger import Ledger
from trioperator._runtime.records import Subject
from trioperator._telemetry.why import build_json, find_history, matches_kind

DATABASES = Resource(
    "example.com", "v1", "databases", kind="Database", singular="database", shortcuts=frozenset({"db"})
)
PATH = "/apis/example.com/v1/namespaces/default/databases/orders"


class Own(msgspec.Struct, frozen=True):
    """An object that has runs."""

    uid: str
    namespace: str = "default"
    name: str = "orders"

    @property
    def subject(self) -> Subject:
        return DATABASES, self.namespace, self.name


def work(ledger: Ledger, uid: str, *, namespace: str = "default", name: str = "orders") -> None:
    run = ledger.begin(Own(uid, namespace, name), [("MODIFIED", 7)])
    ledger.note_change(run, {"spec": {}}, {"spec": {"size": 1, "color": 2}})
    ledger.called("resize", trio.current_time(), "succeeded")
    for method, path, status in (("PATCH", PATH, 200), ("GET", "/api/v1/nodes", 200), ("GET", "/api/v1/nodes/a", 0)):
        ledger.requested(method, path, status)
    ledger.end(run)


async def test_it_is_read_from_top_to_bottom(autojump_clock: MockClock) -> None:
    ledger = Ledger()
    work(ledger, "1")
    for _ in range(3):
        ledger.end(ledger.begin(Own("1"), [("resync", None)]))
        await trio.sleep(10)
    first, *lines = str(find_history(ledger, "orders")).splitlines()
    assert first == "databases.example.com default/orders: 1 reconciles, 3 with nothing to do, 1 writes"
    assert lines[0].endswith("  MODIFIED 7: spec.size, spec.color")
    assert lines[1:5] == [
        "    resize succeeded in 0 ms",
        "    patch databases/orders 200",
        "    list nodes 200",
        "    get nodes/a no response",
    ]
    assert "resync - nothing to do (3 times until " in lines[5]


async def test_names_of_fields_and_managers_forge_no_lines(autojump_clock: MockClock) -> None:
    ledger = Ledger()
    fields: dict[str, Any] = {"a\n2026-11-29 06:00:00  resync": {}, "\x1b[2J": {}, "\u202e\x9b\u2028": {}}
    entry = {"manager": "me\nand you", "time": "2026-11-29T06:00:00Z", "fieldsV1": {"f:spec": {}}}
    run = ledger.begin(Own("1"), [("MODIFIED", 7)])
    ledger.note_change(run, {"spec": {}}, {"metadata": {"managedFields": [entry]}, "spec": fields})
    ledger.called("resize", trio.current_time(), "succeeded")
    ledger.end(run)
    verdict = Verdict(path=("spec", "b\nc"), reason="ChangedByOthers", manager="x\ny")
    ledger.contended["1"] = Own("1").subject, (verdict,)
    history = find_history(ledger, "orders")
    assert history is not None
    contended, *lines = build_json(history)["text"][1:]
    assert contended.isprintable()
    assert len(lines) == 2
    assert lines[0].isprintable()
    assert r"spec.a\n2026-11-29 06:00:00  resync, " in lines[0]
    assert r" by me\nand you" in lines[0]


@pytest.mark.parametrize(
    "text", ["databases", "Database", "database", "db", "databases.example.com", "database.v1.example.com"]
)
def test_a_kind_has_all_its_names(text: str) -> None:
    assert matches_kind(DATABASES, text)


@pytest.mark.parametrize("text", ["databases.example.org", "data", "", "v1", "databases.v2.example.com"])
def test_other_kinds_do_not_match(text: str) -> None:
    assert not matches_kind(DATABASES, text)


async def test_of_several_objects_of_a_name_the_most_recently_active_is_meant() -> None:
    ledger = Ledger()
    work(ledger, "1", namespace="a")
    work(ledger, "2", namespace="b")
    for namespace, uid in (("", "2"), ("a", "1"), ("b", "2")):
        history = find_history(ledger, "orders", kind="db", namespace=namespace)
        assert history is not None
        assert history.uid == uid
    assert find_history(ledger, "orders", kind="pods") is None
    assert find_history(ledger, "orders", namespace="c") is None


async def test_it_is_found_among_5000_objects_in_50_milliseconds() -> None:
    ledger = Ledger()
    for number in range(5000):
        work(ledger, str(number), name=f"orders-{number}")
    seconds = []
    for number in (0, 2500, 4999):
        began = time.perf_counter()
        assert str(find_history(ledger, f"orders-{number}", kind="databases", namespace="default"))
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.05


def count_calls(fn: Callable[[], object]) -> int:
    """Return how many functions are called by one, in Python and in C."""
    calls = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        fn()
    finally:
        sys.setprofile(before)
    return calls


async def test_of_other_objects_nothing_but_the_name_is_looked_at() -> None:
    def count(objects: int) -> int:
        ledger = Ledger()
        for number in range(objects):
            work(ledger, str(number), name=f"orders-{number}")
        return count_calls(lambda: str(find_history(ledger, "orders-7", kind="databases", namespace="default")))

    few, many = count(50), count(5000)
    assert many - few <= 2 * (5000 - 50)
