"""The ledger: what is on record of objects, within its limits."""

from typing import Any

import msgspec
import trio
from trio.testing import MockClock

from trioperator._model.resource import Resource
from trioperator._runtime.ledger import Ledger, current_run, stand_alone
from trioperator._runtime.records import Change, Page, Subject


class Own(msgspec.Struct, frozen=True):
    """An object that has runs."""

    uid: str
    subject: Subject = (Resource("example.com", "v1", "databases", kind="Database"), "default", "orders")


OWN = Own("1")
PATH = "/apis/example.com/v1/namespaces/default/databases/orders"


def find(ledger: Ledger, uid: str = "1") -> Page:
    page = ledger.find(uid)
    assert page is not None
    return page


async def test_a_run_is_on_record_with_all_that_belongs_to_it(autojump_clock: MockClock) -> None:
    ledger = Ledger()
    ledger.note_cause("1", "child", "secrets orders")
    run = ledger.begin(OWN, ledger.take_causes("1"))
    began = trio.current_time()
    await trio.sleep(2)
    ledger.called("test.<locals>.resize", began, "succeeded")
    ledger.requested("PATCH", f"{PATH}/status?force=true", 200)
    ledger.end(run)
    [record] = find(ledger).records
    assert (record.began, record.milliseconds) == (began, 2000)
    assert [(cause.what, cause.detail) for cause in record.causes] == [("child", "secrets orders")]
    assert [(call.handler, call.milliseconds, call.result) for call in record.calls] == [("resize", 2000, "succeeded")]
    assert [(each.method, each.path, each.status) for each in record.requests] == [
        ("PATCH", "databases/orders/status", 200)
    ]
    assert (find(ledger).writes, find(ledger).runs, find(ledger).idle) == (1, 1, 0)


async def test_reads_and_failed_requests_are_no_writes() -> None:
    ledger = Ledger()
    run = ledger.begin(OWN, [])
    for method, status in (("GET", 200), ("PATCH", 409), ("PATCH", 0), ("POST", 201)):
        ledger.requested(method, "/api/v1/namespaces/default/secrets", status)
    ledger.end(run)
    assert find(ledger).writes == 1
    assert [each.status for each in find(ledger).records[0].requests] == [200, 409, 0, 201]


async def test_an_object_for_which_nothing_is_done_has_no_page() -> None:
    ledger = Ledger()
    ledger.end(ledger.begin(OWN, [("start", 5)]))
    assert ledger.find("1") is None


async def test_runs_with_nothing_to_do_are_one_record_and_are_counted(autojump_clock: MockClock) -> None:
    ledger = Ledger()
    run = ledger.begin(OWN, [("start", 1)])
    ledger.called("create", 0.0, "succeeded")
    ledger.end(run)
    for version in range(2, 52):
        await trio.sleep(1)
        ledger.end(ledger.begin(OWN, [("MODIFIED", version)]))
    first, idle = find(ledger).records
    assert (first.times, idle.times) == (1, 50)
    assert idle.last - idle.began == 49
    assert find(ledger).idle == 50


async def test_a_timer_is_one_record_until_something_else_happens(autojump_clock: MockClock) -> None:
    ledger = Ledger()
    stand_alone(OWN, "timer")
    for result in ("succeeded", "succeeded", "retried", "succeeded"):
        ledger.called("tick", trio.current_time(), result)
    records = find(ledger).records
    assert [(record.times, record.calls[0].result) for record in records] == [
        (2, "succeeded"),
        (1, "retried"),
        (1, "succeeded"),
    ]
    assert all(record.causes[0].what == "timer" for record in records)


async def test_what_outlives_a_run_is_on_record_on_its_own() -> None:
    ledger = Ledger()
    ledger.end(ledger.begin(OWN, [("ADDED", 1)]))
    ledger.requested("PATCH", PATH, 200)
    assert find(ledger).records[0].requests[0].path == "databases/orders"
    assert find(ledger).writes == 1


async def test_what_is_of_no_object_is_on_no_record() -> None:
    ledger = Ledger()
    assert current_run.get(None) is None
    ledger.requested("GET", "/version", 200)
    ledger.called("login", 0.0, "succeeded")
    assert len(ledger) == 0


async def test_a_handler_that_makes_many_requests_has_the_first_of_them_on_record() -> None:
    ledger = Ledger()
    run = ledger.begin(OWN, [("ADDED", 1)])
    for number in range(100_000):
        ledger.requested("GET", f"/api/v1/namespaces/default/pods/p{number}", 200)
    assert len(run.notes) + run.omitted == 100_000
    ledger.end(run)
    [record] = find(ledger).records
    assert record.requests[0].path == "pods/p0"
    assert len(record.requests) + record.omitted == 100_000


async def test_the_least_recently_active_object_is_dropped() -> None:
    ledger = Ledger(limit=3)
    for uid in ("1", "2", "3", "1", "4"):
        run = ledger.begin(Own(uid), [("ADDED", 1)])
        ledger.called("create", 0.0, "succeeded")
        ledger.end(run)
    assert [uid for uid, _ in ledger.pages()] == ["3", "1", "4"]


async def test_causes_of_objects_that_never_come_are_limited() -> None:
    ledger = Ledger(limit=3)
    for number in range(100):
        for _ in range(10):
            ledger.note_cause(str(number), "child", f"secrets {number}")
    assert ledger.take_causes("99") == [("child", "secrets 99")]
    assert ledger.take_causes("0") == []


def obj(size: int, *managed: Any) -> dict[str, Any]:
    return {"metadata": {"managedFields": list(managed)}, "spec": {"size": size}}


OURS = {"manager": "trioperator", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:size": {}}}}
THEIRS = {"manager": "kubectl", "time": "2026-01-01T00:00:09Z", "fieldsV1": {"f:spec": {"f:size": {}}}}


async def test_a_change_has_its_field_and_its_manager() -> None:
    ledger = Ledger()
    run = ledger.begin(OWN, [("MODIFIED", 2)])
    ledger.note_change(run, obj(1, OURS), obj(2, THEIRS))
    ledger.requested("GET", PATH, 200)
    ledger.end(run)
    assert find(ledger).records[0].changes == (Change("spec.size", "kubectl"),)


async def test_without_an_earlier_state_the_last_manager_is_known() -> None:
    ledger = Ledger()
    run = ledger.begin(OWN, [("MODIFIED", 2)])
    ledger.note_change(run, None, obj(2, OURS, THEIRS))
    assert run.changes == (("", "kubectl"),)


async def test_in_a_storm_changes_have_no_fields_and_later_ones_have_again(autojump_clock: MockClock) -> None:
    ledger = Ledger()
    found = []
    for _ in range(300):
        run = ledger.begin(OWN, [("MODIFIED", 2)])
        ledger.note_change(run, obj(1), obj(2))
        found.append(bool(run.changes))
    assert (all(found[:50]), any(found[60:])) == (True, False)
    await trio.sleep(1)
    run = ledger.begin(OWN, [("MODIFIED", 2)])
    ledger.note_change(run, obj(1), obj(2))
    assert run.changes


async def test_a_run_that_began_long_before_others_has_its_fields(autojump_clock: MockClock) -> None:
    ledger = Ledger()
    runs = [ledger.begin(OWN, [("MODIFIED", 2)])]
    await trio.sleep(600)
    runs += [ledger.begin(Own("2"), [("MODIFIED", 3)])]
    for run in reversed(runs):
        ledger.note_change(run, obj(1), obj(2))
    assert all(run.changes for run in runs)


class _Fields(dict[str, Any]):
    """Fields of a manager that count how often they are looked at."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        _Fields.looks += 1
        return super().__contains__(key)


async def test_of_a_change_of_very_many_fields_only_some_are_looked_at(autojump_clock: object) -> None:
    def wide(version: int) -> dict[str, Any]:
        managers = [
            {"manager": f"m{number}", "operation": "Apply", "time": str(version), "fieldsV1": _Fields({"f:x": {}})}
            for number in range(200)
        ]
        return {"metadata": {"managedFields": managers}, "spec": {f"k{number}": version for number in range(20_000)}}

    ledger = Ledger()
    run = ledger.begin(Own("u"), [])
    _Fields.looks = 0
    ledger.note_change(run, wide(1), wide(2))
    assert run.changes
    assert len(run.changes) + run.omitted == 20_000
    assert _Fields.looks < 20_000
