"""Records and pages: what is kept of a record, and of an object, within a limit of bytes."""

import sys

from tests.runtime.test_ledger import OWN, PATH, find
from trioperator._runtime.ledger import Ledger, stand_alone
from trioperator._runtime.records import Page


def measure(page: Page) -> int:
    """Return the bytes that a page takes, the names of the object aside."""
    held = [getattr(page, name) for name in Page.__slots__]
    repeated = [each for value in held if isinstance(value, tuple) for each in value if isinstance(each, bytes)]
    return sum(map(sys.getsizeof, [page, *held, *repeated]))


async def test_a_page_takes_less_than_a_kibibyte() -> None:
    ledger = Ledger()
    for version in range(100):
        run = ledger.begin(OWN, [("MODIFIED", version), ("child", "secrets orders-password")])
        ledger.note_change(run, {"spec": {}}, {"spec": {f"field-{n}": version for n in range(50)}})
        for number in range(20):
            ledger.called(f"a_handler_with_a_long_name_{number}" * 3, 0.0, "succeeded")
            ledger.requested("PATCH", f"{PATH}-{'x' * 200}", 200)
        ledger.end(run)
        assert measure(find(ledger)) <= 1024
    assert find(ledger).records[-1].omitted > 0


async def test_a_page_has_several_ordinary_runs() -> None:
    ledger = Ledger()
    for version in range(100):
        run = ledger.begin(OWN, [("MODIFIED", 100_000 + version)])
        ledger.note_change(run, {"spec": {"size": 0}}, {"spec": {"size": 1}})
        ledger.called("resize_database", 0.0, "succeeded")
        ledger.requested("PATCH", f"{PATH}/status", 200)
        ledger.requested("PATCH", PATH, 200)
        ledger.end(run)
    assert len(find(ledger).records) >= 5
    assert measure(find(ledger)) <= 1024


async def test_a_record_is_limited_whatever_it_consists_of() -> None:
    ledger = Ledger()
    run = ledger.begin(OWN, [("child", f"secrets {'n' * 2000}"), ("child", "secrets orders")])
    ledger.called("é" * 2000, 0.0, "succeeded")
    ledger.end(run)
    [record] = find(ledger).records
    assert [cause.detail for cause in record.causes] == [f"secrets {'n' * 112}", "secrets orders"]
    assert [call.handler for call in record.calls] == ["é" * 60]
    assert measure(find(ledger)) <= 1024


async def test_a_page_of_a_timer_with_other_results_each_time_takes_less_than_a_kibibyte() -> None:
    ledger = Ledger()
    stand_alone(OWN, "timer")
    for number in range(200):
        ledger.called("a_timer_with_a_long_name" * 4, 0.0, str(number))
        assert measure(find(ledger)) <= 1024
    for number in range(200):
        ledger.called("tick", 0.0, ("succeeded", "retried")[number % 2])
        assert measure(find(ledger)) <= 1024
    results = [record.calls[0].result for record in find(ledger).records]
    assert results[-2:] == ["succeeded", "retried"]
    assert len(results) >= 5
