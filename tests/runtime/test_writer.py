"""The writer: how many requests there are, what is in them, and what becomes of what the server refuses."""

from __future__ import annotations

import collections
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, PLAIN_CRD, widget
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError, NotFoundError
from trioperator.handling.registry import KindHandlers
from trioperator.kube.client import open_client
from trioperator.kube.objects import parse_object
from trioperator.logs import get_logger
from trioperator.model.finalizer import add_finalizer, remove_finalizer
from trioperator.model.patch import Patch
from trioperator.model.resource import Resource
from trioperator.runtime.table import Kind, Known, Notice, ObjectTable
from trioperator.runtime.writer import StaleError, Writer, collect
from trioperator.settings import OperatorSettings
from trioperator.testing import Fault, FaultPlan, FaultyTransport

LOGGER = get_logger("trioperator.test")
FINALIZER = "example.com/f"


class NoQueue:
    def add(self, known: Known) -> None:
        raise AssertionError


class Admission(httpx.AsyncBaseTransport):
    """Refuse patches that contain certain words, as admission control does."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.refused: dict[str, int] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        text = (await request.aread()).decode()
        for word, code in self.refused.items():
            if request.method == "PATCH" and word in text:
                return httpx.Response(code, json={"kind": "Status", "message": f"no {word}", "code": code})
        return await self._inner.handle_async_request(request)


class Desk:
    """Hold a writer, the cluster that it writes to, and what goes wrong."""

    def __init__(self, cluster: Cluster, plan: FaultPlan, writer: Writer, settings: OperatorSettings) -> None:
        self.cluster = cluster
        self.plan = plan
        self.writer = writer
        self.settings = settings
        self.refused: dict[str, int] = {}  # HTTP codes, by what must not be in a patch

    async def make(self, *, status: bool = True, **spec: Any) -> Known:
        """Make an object and know it."""
        body = await self.cluster.create(widget(kind="Widget" if status else "Gadget", **spec))
        plural = "widgets" if status else "gadgets"
        kind = Resource("example.com", "v1", plural, subresources=frozenset({"status"} if status else ()))
        table = ObjectTable(Kind(kind, KindHandlers()), NoQueue(), memo=None, consistency_timeout=5)
        known = Known(table, body["metadata"]["uid"], parse_object(msgspec.json.encode(body)), initial=False)
        known.body = body
        known.version = int(body["metadata"]["resourceVersion"])
        return known

    async def store(self, known: Known, records: dict[str, Any] | None = None, finalize: Any = None) -> None:
        await self.writer.store(known, Patch(records or {}), LOGGER, finalize)

    async def get(self, plural: str = "widgets") -> dict[str, Any]:
        return await self.cluster.get(plural, "w")

    @property
    def requests(self) -> list[str]:
        asked = [r for r in self.cluster.requests if r.user_agent]
        return [f"{r.method}{' status' if r.subresource else ''}" for r in asked]


@pytest.fixture
async def desk(cluster: Cluster) -> AsyncIterator[Desk]:
    await cluster.apply([CRD, PLAIN_CRD])
    plan = FaultPlan()
    settings = trioperator.OperatorSettings()
    settings.networking.error_backoffs = ()
    info = trioperator.ConnectionInfo(server="http://embedded")
    admission = Admission(FaultyTransport(cluster.transport(), plan))
    async with open_client(lambda: info, settings=settings, transport=admission) as client:
        desk = Desk(cluster, plan, Writer(client), settings)
        admission.refused = desk.refused
        yield desk


def want(known: Known, patch: dict[str, Any], *fns: Any) -> None:
    collect(known, patch, fns, by="Handler", logger=LOGGER)


NOTE = {"metadata": {"annotations": {"example.com/note": "x"}}}


async def test_nothing_to_store_is_no_request(desk: Desk) -> None:
    known = await desk.make()
    before = known.body
    await desk.store(known)
    assert desk.requests == []
    assert known.body is before


async def test_records_are_one_request_and_the_answer_is_the_known_state(desk: Desk) -> None:
    known = await desk.make()
    await desk.store(known, NOTE)
    assert desk.requests == ["PATCH"]
    body = await desk.get()
    assert known.body == body
    assert known.version == int(body["metadata"]["resourceVersion"])


async def test_records_and_wishes_are_one_request(desk: Desk) -> None:
    known = await desk.make()
    want(known, {"spec": {"more": 1}})
    want(known, {"metadata": {"labels": {"a": "b"}}})
    await desk.store(known, NOTE)
    assert desk.requests == ["PATCH"]
    body = await desk.get()
    assert body["spec"] == {"size": 1, "more": 1}
    assert body["metadata"]["labels"] == {"a": "b"}
    assert body["metadata"]["annotations"] == {"example.com/note": "x"}
    assert not known.pending


async def test_the_status_goes_first(desk: Desk) -> None:
    known = await desk.make()
    want(known, {"status": {"a": 1}, "spec": {"more": 1}})
    await desk.store(known, NOTE)
    assert desk.requests == ["PATCH status", "PATCH"]
    assert known.body == await desk.get()
    assert (await desk.get())["status"] == {"a": 1}


async def test_what_fails_after_the_status_is_not_stored_and_the_status_not_sent_again(desk: Desk) -> None:
    known = await desk.make()
    want(known, {"status": {"a": 1}, "spec": {"more": 1}})
    rule = desk.plan.add(Fault.status(403), method="PATCH", path=r"/w$")
    with pytest.raises(ApiError):
        await desk.store(known, NOTE)
    assert known.pending == {"spec": {"more": 1}}
    desk.plan.remove(rule)
    desk.cluster.requests.clear()
    await desk.store(known, NOTE)
    assert desk.requests == ["PATCH"]
    assert (await desk.get())["spec"]["more"] == 1


async def test_a_kind_without_a_status_subresource_takes_one_request(desk: Desk) -> None:
    known = await desk.make(status=False)
    want(known, {"status": {"a": 1}, "spec": {"more": 1}})
    await desk.store(known, NOTE)
    assert desk.requests == ["PATCH"]
    assert (await desk.get("gadgets"))["status"] == {"a": 1}


async def test_what_is_so_already_is_not_sent(desk: Desk) -> None:
    known = await desk.make()
    want(known, {"status": {"a": 1}})
    await desk.store(known, NOTE)
    desk.cluster.requests.clear()
    want(known, {"status": {"a": 1}, "spec": {"size": 1, "absent": None}})
    await desk.store(known, NOTE)
    assert desk.requests == []


async def test_removing_what_is_not_there_is_no_request_and_no_warning(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    known = await desk.make()
    want(known, {"metadata": {"labels": {"absent": None}}, "status": {"a": {"b": None}}})
    await desk.store(known)
    assert desk.requests == []
    assert "inconsistencies" not in caplog.text


async def test_a_number_that_becomes_a_truth_value_is_sent(desk: Desk) -> None:
    known = await desk.make(on=1)
    want(known, {"spec": {"on": True}})
    await desk.store(known)
    assert (await desk.get())["spec"]["on"] is True


async def test_an_empty_stanza_is_sent(desk: Desk) -> None:
    known = await desk.make()
    want(known, {"spec": {"emptyDir": {}}})
    await desk.store(known)
    assert (await desk.get())["spec"] == {"size": 1, "emptyDir": {}}


async def test_a_finalizer_goes_with_all_else_in_one_conditional_request(desk: Desk) -> None:
    known = await desk.make()
    want(known, {"spec": {"more": 1}})
    await desk.store(known, NOTE, lambda body: add_finalizer(body, FINALIZER))
    assert desk.requests == ["PATCH"]
    body = await desk.get()
    assert body["metadata"]["finalizers"] == [FINALIZER]
    assert body["spec"]["more"] == 1
    await desk.store(known, {}, lambda body: remove_finalizer(body, FINALIZER))
    assert "finalizers" not in (await desk.get())["metadata"]


async def test_a_newer_object_is_not_changed_by_what_was_meant_for_an_older_one(desk: Desk) -> None:
    known = await desk.make()
    want(known, {"spec": {"more": 1}})
    await desk.cluster.patch("widgets", "w", {"spec": {"size": 2}})
    with pytest.raises(StaleError) as stale:
        await desk.store(known, NOTE, lambda body: add_finalizer(body, FINALIZER))
    newest = await desk.get()
    assert stale.value.body == newest
    assert "finalizers" not in newest["metadata"]
    assert known.pending == {"spec": {"more": 1}}


async def test_a_plain_merge_needs_no_newest_object(desk: Desk) -> None:
    known = await desk.make()
    await desk.cluster.patch("widgets", "w", {"spec": {"size": 2}})
    await desk.store(known, NOTE)
    assert desk.requests == ["PATCH"]
    assert known.body is not None
    assert known.body["spec"]["size"] == 2


@pytest.mark.parametrize("code", [400, 413, 422])
async def test_refused_wishes_are_reported_and_records_are_stored(
    code: int, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    known = await desk.make()
    want(known, {"spec": {"more": 1}})
    desk.plan.add(Fault.status(code, message="not so"), method="PATCH", times=1)
    await desk.store(known, NOTE)
    body = await desk.get()
    assert body["metadata"]["annotations"] == {"example.com/note": "x"}
    assert "more" not in body["spec"]
    assert not known.pending
    assert "not so" in caplog.text


async def test_a_refused_status_is_reported_and_the_rest_is_stored(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    known = await desk.make()
    want(known, {"status": {"a": 1}, "spec": {"more": 1}})
    desk.plan.add(Fault.status(422, message="not so"), method="PATCH", path="/status", times=1)
    await desk.store(known, NOTE)
    body = await desk.get()
    assert "status" not in body
    assert body["spec"]["more"] == 1
    assert "not so" in caplog.text
    assert not known.pending


async def test_refused_records_are_an_error(desk: Desk) -> None:
    known = await desk.make()
    desk.plan.add(Fault.status(422), method="PATCH")
    with pytest.raises(ApiError):
        await desk.store(known, NOTE)


@pytest.mark.parametrize("fault", [Fault.status(403), Fault.status(409), Fault.status(500), Fault.reset()])
async def test_wishes_wait_while_nothing_can_be_stored(fault: Fault, desk: Desk) -> None:
    known = await desk.make()
    want(known, {"spec": {"more": 1}, "status": {"a": 1}}, lambda body: body["spec"].update(fn=True))
    rule = desk.plan.add(fault, method="PATCH")
    with pytest.raises(trioperator.errors.TrioperatorError):
        await desk.store(known, NOTE)
    want(known, {"spec": {"more": 2}})
    desk.plan.remove(rule)
    await desk.store(known, NOTE)
    body = await desk.get()
    assert body["spec"] == {"size": 1, "more": 2, "fn": True}
    assert body["status"] == {"a": 1}
    assert not known.pending


async def test_an_object_that_is_gone_is_not_found(desk: Desk) -> None:
    known = await desk.make()
    await desk.cluster.delete("widgets", "w")
    for patch in (NOTE, {"status": {"a": 1}}):
        with pytest.raises(NotFoundError):
            await desk.store(known, patch)


async def test_another_object_of_the_same_name_is_not_found_and_left_alone(desk: Desk) -> None:
    known = await desk.make()
    await desk.cluster.delete("widgets", "w")
    other = await desk.make()
    with pytest.raises(NotFoundError):
        await desk.store(known, NOTE)
    with pytest.raises(NotFoundError):
        await desk.store(known, finalize=lambda body: add_finalizer(body, FINALIZER))
    assert await desk.get() == other.body


async def test_another_object_is_found_out_though_the_server_does_not_look_at_the_uid_of_a_status(desk: Desk) -> None:
    known = await desk.make()
    await desk.cluster.delete("widgets", "w")
    await desk.make()
    before = known.body
    with pytest.raises(NotFoundError):
        await desk.store(known, {"status": {"a": 1}})
    assert known.body is before


async def test_older_servers_say_in_another_way_that_it_is_another_object(desk: Desk) -> None:
    known = await desk.make()
    message = "Precondition failed: UID in precondition: 1, UID in object meta: 2"
    desk.plan.add(Fault.status(409, message=message), method="PATCH")
    with pytest.raises(NotFoundError):
        await desk.store(known, NOTE)


async def test_nothing_is_sent_for_an_object_of_which_the_stream_says_that_it_is_gone(desk: Desk) -> None:
    known = await desk.make()
    known.notices = collections.deque([Notice("DELETED", known.version + 1, body=known.body)])
    with pytest.raises(NotFoundError):
        await desk.store(known, NOTE)
    assert not [request for request in desk.cluster.requests if request.method == "PATCH"]


async def test_fields_that_the_server_does_not_keep_are_warned_of(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    known = await desk.make()
    want(known, {"metadata": {"generation": 77, "labels": {"a": "b"}}})
    await desk.store(known)
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert any("metadata.generation" in text and "labels" not in text for text in warnings)


async def test_functions_see_what_was_just_stored(desk: Desk) -> None:
    known = await desk.make(items=[])
    seen: list[Any] = []

    def append(body: dict[str, Any]) -> None:
        seen.append((body["spec"].get("more"), body["spec"]["items"]))
        body["spec"]["items"] = [*body["spec"]["items"], "ours"]

    want(known, {"spec": {"more": 1}}, append)
    await desk.cluster.patch("widgets", "w", {"spec": {"items": ["theirs"]}})
    await desk.store(known)
    assert seen == [(1, ["theirs"])]  # the answer to the first request is the newest object
    assert (await desk.get())["spec"] == {"items": ["theirs", "ours"], "more": 1}
    assert desk.requests == ["PATCH", "PATCH"]


async def test_functions_are_applied_again_to_a_newer_object(desk: Desk) -> None:
    known = await desk.make(items=[])
    want(known, {}, lambda body: body["spec"]["items"].append("ours"))
    await desk.cluster.patch("widgets", "w", {"spec": {"items": ["theirs"]}})
    await desk.store(known)
    assert (await desk.get())["spec"]["items"] == ["theirs", "ours"]
    assert desk.requests == ["PATCH", "GET", "PATCH"]


async def test_functions_that_change_nothing_cost_nothing(desk: Desk) -> None:
    known = await desk.make()
    want(known, {}, lambda body: None)
    await desk.store(known)
    assert desk.requests == []
    assert not known.pending


def by(known: Known, handler: str, wanted: dict[str, Any], *fns: Any) -> None:
    collect(known, wanted, fns, by=handler, logger=LOGGER)


@pytest.mark.parametrize("code", [403, 422])
@pytest.mark.parametrize("part", ["spec", "status"])
async def test_only_what_is_refused_is_dropped_and_its_handler_is_named(
    part: str, code: int, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    known = await desk.make()
    for handler, word in (("first", "good"), ("second", "evil"), ("third", "kind"), ("fourth", "vile")):
        by(known, handler, {part: {word: 1}})
    desk.refused |= {"evil": code, "vile": code}
    await desk.store(known, NOTE)
    body = await desk.get()
    assert {key for key in body[part] if key != "size"} == {"good", "kind"}
    assert body["metadata"]["annotations"] == {"example.com/note": "x"}
    assert not known.pending
    assert "the changes by second are dropped" in caplog.text
    assert "the changes by fourth are dropped" in caplog.text
    assert "first" not in caplog.text
    assert "third" not in caplog.text


@pytest.mark.parametrize("code", [403, 422])
async def test_only_the_functions_that_are_refused_are_dropped(
    code: int, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    known = await desk.make()
    for handler, word in (("first", "good"), ("second", "evil"), ("third", "kind")):
        by(known, handler, {}, lambda body, word=word: body["spec"].update({word: 1}))
    desk.refused["evil"] = code
    await desk.store(known, NOTE)
    assert (await desk.get())["spec"] == {"size": 1, "good": 1, "kind": 1}
    assert not known.pending
    assert "the changes by second are dropped" in caplog.text
    assert "first" not in caplog.text
    assert "third" not in caplog.text


async def test_what_was_forbidden_for_a_moment_is_stored(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    known = await desk.make()
    by(known, "handler", {"spec": {"more": 1}, "status": {"a": 1}})
    desk.plan.add(Fault.status(403), method="PATCH", times=1)
    await desk.store(known, NOTE)
    body = await desk.get()
    assert (body["spec"]["more"], body["status"]) == (1, {"a": 1})
    assert "dropped" not in caplog.text


async def test_a_function_that_fails_is_dropped_and_named_and_the_others_are_applied(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    known = await desk.make()

    def fail(body: dict[str, Any]) -> None:
        body["spec"]["half"] = "done"
        raise ValueError("on purpose")

    by(known, "first", {}, lambda body: body["spec"].update(good=1))
    by(known, "second", {}, fail)
    by(known, "third", {}, lambda body: body["spec"].update(kind=1))
    await desk.store(known)
    assert (await desk.get())["spec"] == {"size": 1, "good": 1, "kind": 1}
    assert "the patch of second has failed, and is dropped: ValueError('on purpose')" in caplog.text


def increment(body: dict[str, Any]) -> None:
    body["spec"]["size"] += 1
    body["spec"].setdefault("list", []).append(body["spec"]["size"])
    body.setdefault("status", {}).setdefault("sizes", []).append(body["spec"]["size"])


APPLIED = ({"size": 2, "list": [2]}, {"sizes": [2]})


@pytest.mark.parametrize("path", ["/w", "/status"])
@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("status", [False, True])
async def test_functions_are_applied_once_though_an_answer_is_lost(
    path: str, foreign: bool, status: bool, desk: Desk, autojump_clock: MockClock
) -> None:
    desk.settings.networking.error_backoffs = (1,)
    known = await desk.make(status=status)
    plural = "widgets" if status else "gadgets"
    want(known, {}, increment)
    desk.plan.add(Fault.lose_answer(), method="PATCH", path=path, times=1)

    async def interfere() -> None:
        await trio.sleep(0.5)  # before it is tried again
        await desk.cluster.patch(plural, "w", {"spec": {"others": 1}})

    async with trio.open_nursery() as nursery:
        if foreign:
            nursery.start_soon(interfere)
        await desk.store(known)
        await trio.sleep(1)
    body = await desk.get(plural)
    body["spec"].pop("others", None)
    assert (body["spec"], body["status"]) == APPLIED
    assert not known.pending


@pytest.mark.parametrize("failing", ["/w", "/status"])
@pytest.mark.parametrize("lost", [False, True])
async def test_functions_are_applied_once_though_storing_fails_in_between(lost: bool, failing: str, desk: Desk) -> None:
    known = await desk.make()
    want(known, {}, increment)
    fault = Fault.lose_answer() if lost else Fault.status(503)
    rule = desk.plan.add(fault, method="PATCH", path=failing)
    with pytest.raises(trioperator.errors.TrioperatorError):
        await desk.store(known)
    assert known.pending
    desk.plan.remove(rule)
    want(known, {"spec": {"more": 1}})
    await desk.store(known)  # without having seen what has become of the object
    body = await desk.get()
    assert (body["spec"], body["status"]) == ({**APPLIED[0], "more": 1}, APPLIED[1])
    assert not known.pending


async def test_what_is_no_json_is_reported_and_dropped(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    known = await desk.make()
    want(known, {"spec": {"bad": object()}})
    want(known, {"spec": {"good": 1}})
    await desk.store(known)
    assert (await desk.get())["spec"] == {"size": 1, "good": 1}
    assert "no JSON" in caplog.text


async def test_what_a_handler_changes_later_in_its_own_data_is_not_stored(desk: Desk) -> None:
    known = await desk.make()
    data = {"spec": {"list": [1]}}
    want(known, data)
    data["spec"]["list"].append(2)
    await desk.store(known)
    assert (await desk.get())["spec"]["list"] == [1]
