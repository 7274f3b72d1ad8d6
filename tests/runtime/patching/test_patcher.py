"""The patcher: how many requests it sends, what is in them, and what happens to what the server rejects."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx
import hypothesis
import msgspec
import pytest
import trio
from hypothesis import strategies as st
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, PLAIN_CRD, widget
from tests.runtime.guards import make_guard
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._kube.api_client import ApiClient, open_client
from trioperator._kube.objects import parse_object
from trioperator._logs import get_logger
from trioperator._model.finalizer import add_finalizer, remove_finalizer
from trioperator._model.patch import Patch
from trioperator._model.resource import Resource
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.kind import Kind
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.cache.watch_event import WatchEvent
from trioperator._runtime.patching.patcher import Patcher
from trioperator._runtime.patching.pending import PendingPatches
from trioperator._runtime.patching.requests import StaleError
from trioperator._runtime.workqueue import Lane
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError, NotFoundError, ServerError
from trioperator.settings import OperatorSettings
from trioperator.testing import Fault, FaultPlan, FaultyTransport

LOGGER = get_logger("trioperator.test")
FINALIZER = "example.com/f"


class NoQueue:
    is_divided = False

    def find_shard(self, uid: str) -> int:
        return 0

    def owns(self, uid: str) -> bool:
        return True

    def add(self, item: ObjectState, lane: Lane = Lane.FRESH, *, at_once: bool = False) -> None:
        raise AssertionError


class Admission(httpx.AsyncBaseTransport):
    """A transport that rejects patches with certain words in them, as admission control does."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.rejected: dict[str, int] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        text = (await request.aread()).decode()
        for word, code in self.rejected.items():
            if request.method == "PATCH" and word in text:
                return httpx.Response(code, json={"kind": "Status", "message": f"no {word}", "code": code})
        return await self._inner.handle_async_request(request)


class Harness:
    """A patcher, the cluster that it sends requests to, and what goes wrong."""

    def __init__(self, cluster: Cluster, plan: FaultPlan, client: ApiClient, settings: OperatorSettings) -> None:
        self.cluster = cluster
        self.plan = plan
        self.pending = PendingPatches()
        self.patcher = Patcher(client, self.pending, make_guard(settings, self.pending))
        self.settings = settings
        self.rejected: dict[str, int] = {}  # HTTP codes, by what must not be in a patch

    async def make(self, *, status: bool = True, **spec: Any) -> ObjectState:
        """Create an object, and return its state."""
        body = await self.cluster.create(widget(kind="Widget" if status else "Gadget", **spec))
        plural = "widgets" if status else "gadgets"
        kind = Resource("example.com", "v1", plural, subresources=frozenset({"status"} if status else ()))
        cache = ObjectCache(Kind(kind, KindHandlers()), NoQueue(), memo=None, consistency_timeout=5)
        state = ObjectState(cache, body["metadata"]["uid"], parse_object(msgspec.json.encode(body)), initial=False)
        state.body = body
        state.version = int(body["metadata"]["resourceVersion"])
        return state

    def contribute(self, state: ObjectState, patch: dict[str, Any], *fns: Any, by: str = "Handler") -> None:
        self.pending.contribute(state, patch, fns, by=by, logger=LOGGER)

    async def store(self, state: ObjectState, records: dict[str, Any] | None = None, finalize: Any = None) -> None:
        await self.patcher.store(state, Patch(records or {}), LOGGER, finalize)

    async def get(self, plural: str = "widgets") -> dict[str, Any]:
        return await self.cluster.get(plural, "w")

    @property
    def requests(self) -> list[str]:
        sent = [r for r in self.cluster.requests if r.user_agent]
        return [f"{r.method}{' status' if r.subresource else ''}" for r in sent]


@contextlib.asynccontextmanager
async def open_harness(cluster: Cluster) -> AsyncIterator[Harness]:
    await cluster.apply([CRD, PLAIN_CRD])
    plan = FaultPlan()
    settings = trioperator.OperatorSettings()
    settings.networking.error_backoffs = ()
    info = trioperator.ConnectionInfo(server="http://embedded")
    admission = Admission(FaultyTransport(cluster.transport(), plan))
    async with open_client(lambda: info, settings=settings, transport=admission) as client:
        harness = Harness(cluster, plan, client, settings)
        admission.rejected = harness.rejected
        yield harness


@pytest.fixture
async def harness(cluster: Cluster) -> AsyncIterator[Harness]:
    async with open_harness(cluster) as harness:
        yield harness


NOTE = {"metadata": {"annotations": {"example.com/note": "x"}}}


async def test_nothing_to_store_is_no_request(harness: Harness) -> None:
    state = await harness.make()
    before = state.body
    await harness.store(state)
    assert harness.requests == []
    assert state.body is before


async def test_records_are_one_request_and_its_response_is_the_newest_state(harness: Harness) -> None:
    state = await harness.make()
    await harness.store(state, NOTE)
    assert harness.requests == ["PATCH"]
    body = await harness.get()
    assert state.body == body
    assert state.version == int(body["metadata"]["resourceVersion"])


async def test_records_and_contributions_are_one_request(harness: Harness) -> None:
    state = await harness.make()
    harness.contribute(state, {"spec": {"more": 1}})
    harness.contribute(state, {"metadata": {"labels": {"a": "b"}}})
    await harness.store(state, NOTE)
    assert harness.requests == ["PATCH"]
    body = await harness.get()
    assert body["spec"] == {"size": 1, "more": 1}
    assert body["metadata"]["labels"] == {"a": "b"}
    assert body["metadata"]["annotations"] == {"example.com/note": "x"}
    assert not harness.pending.get(state)


async def test_the_status_goes_first(harness: Harness) -> None:
    state = await harness.make()
    harness.contribute(state, {"status": {"a": 1}, "spec": {"more": 1}})
    await harness.store(state, NOTE)
    assert harness.requests == ["PATCH status", "PATCH"]
    assert state.body == await harness.get()
    assert (await harness.get())["status"] == {"a": 1}


def bring(state: ObjectState, body: Mapping[str, Any]) -> None:
    """Let a watch bring a state of an object."""
    state.push(WatchEvent("MODIFIED", int(body["metadata"]["resourceVersion"]), body=body), replace=False)


async def test_what_a_watch_has_brought_meanwhile_makes_no_conflict(harness: Harness) -> None:
    state = await harness.make()
    bring(state, await harness.cluster.patch("widgets", "w", {"status": {"a": 1}}, subresource="status"))
    await harness.cluster.patch("widgets", "w", {"status": {"b": 1}}, subresource="status")  # is still on its way
    await harness.store(state, {"status": {"c": 1}})
    assert harness.requests == ["PATCH status"]
    assert state.body == await harness.get()
    assert (await harness.get())["status"] == {"a": 1, "b": 1, "c": 1}


async def test_records_that_a_newer_state_has_are_not_stored(harness: Harness) -> None:
    state = await harness.make()
    before = state.body
    bring(state, await harness.cluster.patch("widgets", "w", NOTE))
    await harness.store(state, NOTE)
    assert harness.requests == []
    assert state.body is before
    assert state.has_newer()


async def test_finalizers_are_decided_by_the_state_that_was_known(harness: Harness) -> None:
    state = await harness.make()
    bring(state, await harness.cluster.patch("widgets", "w", {"spec": {"size": 2}}))
    with pytest.raises(StaleError):
        await harness.store(state, finalize=functools.partial(add_finalizer, name=FINALIZER))


async def test_a_newer_state_stays_pending_after_an_error(harness: Harness) -> None:
    state = await harness.make()
    before = state.body
    bring(state, await harness.cluster.patch("widgets", "w", {"spec": {"size": 2}}))
    harness.plan.add(Fault.status(500), method="PATCH")
    with pytest.raises(ServerError):
        await harness.store(state, NOTE)
    assert state.body is before
    assert state.has_newer()


async def test_what_fails_after_the_status_is_pending_again_and_the_status_is_not_sent_again(harness: Harness) -> None:
    state = await harness.make()
    harness.contribute(state, {"status": {"a": 1}, "spec": {"more": 1}})
    rule = harness.plan.add(Fault.status(403), method="PATCH", path=r"/w$")
    with pytest.raises(ApiError):
        await harness.store(state, NOTE)
    assert harness.pending.get(state) == {"spec": {"more": 1}}
    harness.plan.remove(rule)
    harness.cluster.requests.clear()
    await harness.store(state, NOTE)
    assert harness.requests == ["PATCH"]
    assert (await harness.get())["spec"]["more"] == 1


async def test_a_kind_without_a_status_subresource_takes_one_request(harness: Harness) -> None:
    state = await harness.make(status=False)
    harness.contribute(state, {"status": {"a": 1}, "spec": {"more": 1}})
    await harness.store(state, NOTE)
    assert harness.requests == ["PATCH"]
    assert (await harness.get("gadgets"))["status"] == {"a": 1}


async def test_records_that_are_stored_already_are_not_sent(harness: Harness) -> None:
    state = await harness.make()
    await harness.store(state, NOTE)
    harness.cluster.requests.clear()
    await harness.store(state, NOTE)
    assert harness.requests == []


async def test_what_a_handler_wants_is_sent_though_it_seems_to_be_stored_already(harness: Harness) -> None:
    state = await harness.make()
    harness.contribute(state, {"status": {"phase": "Ready"}})
    await harness.store(state)
    await harness.cluster.patch("widgets", "w", {"status": {"phase": "Degraded"}}, subresource="status")
    harness.contribute(state, {"status": {"phase": "Ready"}})
    await harness.store(state)
    assert (await harness.get())["status"] == {"phase": "Ready"}


async def test_removing_an_absent_field_is_no_change_and_no_warning(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    state = await harness.make()
    harness.contribute(state, {"metadata": {"labels": {"absent": None}}, "status": {"a": {"b": None}}})
    await harness.store(state)
    assert not (await harness.get())["metadata"].get("labels")
    assert "inconsistencies" not in caplog.text


async def test_a_number_that_becomes_a_boolean_is_sent(harness: Harness) -> None:
    state = await harness.make(on=1)
    harness.contribute(state, {"spec": {"on": True}})
    await harness.store(state)
    assert (await harness.get())["spec"]["on"] is True


async def test_an_empty_stanza_is_sent(harness: Harness) -> None:
    state = await harness.make()
    harness.contribute(state, {"spec": {"emptyDir": {}}})
    await harness.store(state)
    assert (await harness.get())["spec"] == {"size": 1, "emptyDir": {}}


async def test_a_finalizer_goes_with_everything_else_in_one_conditional_request(harness: Harness) -> None:
    state = await harness.make()
    harness.contribute(state, {"spec": {"more": 1}})
    await harness.store(state, NOTE, lambda body: add_finalizer(body, FINALIZER))
    assert harness.requests == ["PATCH"]
    body = await harness.get()
    assert body["metadata"]["finalizers"] == [FINALIZER]
    assert body["spec"]["more"] == 1
    await harness.store(state, {}, lambda body: remove_finalizer(body, FINALIZER))
    assert "finalizers" not in (await harness.get())["metadata"]


async def test_a_conditional_change_of_an_older_version_raises_and_leaves_the_newer_one_unchanged(
    harness: Harness,
) -> None:
    state = await harness.make()
    harness.contribute(state, {"spec": {"more": 1}})
    await harness.cluster.patch("widgets", "w", {"spec": {"size": 2}})
    with pytest.raises(StaleError) as stale:
        await harness.store(state, NOTE, lambda body: add_finalizer(body, FINALIZER))
    newest = await harness.get()
    assert stale.value.body == newest
    assert "finalizers" not in newest["metadata"]
    assert harness.pending.get(state) == {"spec": {"more": 1}}


async def test_a_merge_patch_does_not_need_the_newest_version(harness: Harness) -> None:
    state = await harness.make()
    await harness.cluster.patch("widgets", "w", {"spec": {"size": 2}})
    await harness.store(state, NOTE)
    assert harness.requests == ["PATCH"]
    assert state.body is not None
    assert state.body["spec"]["size"] == 2


@pytest.mark.parametrize("code", [400, 413, 422])
async def test_rejected_contributions_are_reported_and_records_are_stored(
    code: int, harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    state = await harness.make()
    harness.contribute(state, {"spec": {"more": 1}})
    harness.plan.add(Fault.status(code, message="not so"), method="PATCH", times=2)  # together with records, and alone
    await harness.store(state, NOTE)
    body = await harness.get()
    assert body["metadata"]["annotations"] == {"example.com/note": "x"}
    assert "more" not in body["spec"]
    assert not harness.pending.get(state)
    assert "not so" in caplog.text


@pytest.mark.parametrize("size", [1_600_000, 2_300_000])  # too big for etcd, and for the client of etcd
async def test_a_result_that_makes_the_object_too_big_for_etcd_does_not_hold_up_the_rest(
    size: int, harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    state = await harness.make()
    harness.contribute(state, {"status": {"log": "x" * size}}, by="huge")
    harness.contribute(state, {"status": {"phase": "Ready"}}, by="small")
    await harness.store(state, NOTE)
    body = await harness.get()
    assert body["metadata"]["annotations"] == {"example.com/note": "x"}
    assert body["status"] == {"phase": "Ready"}
    assert not harness.pending.get(state)
    assert "the changes by huge are dropped" in caplog.text
    assert "retrying" not in caplog.text


async def test_a_rejected_status_is_reported_and_the_rest_is_stored(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    state = await harness.make()
    harness.contribute(state, {"status": {"a": 1}, "spec": {"more": 1}})
    harness.plan.add(Fault.status(422, message="not so"), method="PATCH", path="/status", times=1)
    await harness.store(state, NOTE)
    body = await harness.get()
    assert "status" not in body
    assert body["spec"]["more"] == 1
    assert "not so" in caplog.text
    assert not harness.pending.get(state)


async def test_rejected_records_raise_an_error(harness: Harness) -> None:
    state = await harness.make()
    harness.plan.add(Fault.status(422), method="PATCH")
    with pytest.raises(ApiError):
        await harness.store(state, NOTE)


@pytest.mark.parametrize("fault", [Fault.status(403), Fault.status(409), Fault.status(500), Fault.reset()])
async def test_contributions_stay_pending_while_nothing_can_be_stored(fault: Fault, harness: Harness) -> None:
    state = await harness.make()
    harness.contribute(state, {"spec": {"more": 1}, "status": {"a": 1}}, lambda body: body["spec"].update(fn=True))
    rule = harness.plan.add(fault, method="PATCH")
    with pytest.raises(trioperator.errors.TrioperatorError):
        await harness.store(state, NOTE)
    harness.contribute(state, {"spec": {"more": 2}})
    harness.plan.remove(rule)
    await harness.store(state, NOTE)
    body = await harness.get()
    assert body["spec"] == {"size": 1, "more": 2, "fn": True}
    assert body["status"] == {"a": 1}
    assert not harness.pending.get(state)


async def test_a_deleted_object_is_not_found(harness: Harness) -> None:
    state = await harness.make()
    await harness.cluster.delete("widgets", "w")
    for patch in (NOTE, {"status": {"a": 1}}):
        with pytest.raises(NotFoundError):
            await harness.store(state, patch)


async def test_another_object_of_the_same_name_is_not_found_and_left_unchanged(harness: Harness) -> None:
    state = await harness.make()
    await harness.cluster.delete("widgets", "w")
    other = await harness.make()
    with pytest.raises(NotFoundError):
        await harness.store(state, NOTE)
    with pytest.raises(NotFoundError):
        await harness.store(state, finalize=lambda body: add_finalizer(body, FINALIZER))
    assert await harness.get() == other.body


async def test_another_object_is_not_found_though_the_server_ignores_the_uid_in_a_status_patch(
    harness: Harness,
) -> None:
    state = await harness.make()
    await harness.cluster.delete("widgets", "w")
    await harness.make()
    before = state.body
    with pytest.raises(NotFoundError):
        await harness.store(state, {"status": {"a": 1}})
    assert state.body is before


async def test_the_uid_conflict_of_older_servers_means_not_found(harness: Harness) -> None:
    state = await harness.make()
    message = "Precondition failed: UID in precondition: 1, UID in object meta: 2"
    harness.plan.add(Fault.status(409, message=message), method="PATCH")
    with pytest.raises(NotFoundError):
        await harness.store(state, NOTE)


async def test_nothing_is_sent_for_an_object_whose_deletion_is_pending(harness: Harness) -> None:
    state = await harness.make()
    state.events = [WatchEvent("DELETED", state.version + 1, body=state.body)]
    with pytest.raises(NotFoundError):
        await harness.store(state, NOTE)
    assert not [request for request in harness.cluster.requests if request.method == "PATCH"]


async def test_fields_that_the_server_drops_are_reported_as_inconsistencies(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    state = await harness.make()
    harness.contribute(state, {"metadata": {"generation": 77, "labels": {"a": "b"}}})
    await harness.store(state)
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert any("metadata.generation" in text and "labels" not in text for text in warnings)


async def test_of_very_many_fields_that_the_server_drops_some_are_named(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    state = await harness.make()
    harness.contribute(state, {"metadata": {f"field{number}": 1 for number in range(1000)}})
    await harness.store(state)
    (warning,) = [text for text in caplog.messages if "inconsistencies" in text]
    assert "metadata.field19 and 980 more." in warning


async def test_functions_get_the_newest_object_with_what_is_to_be_merged(harness: Harness) -> None:
    state = await harness.make(items=[])
    seen: list[Any] = []

    def append(body: dict[str, Any]) -> None:
        seen.append((body["spec"].get("more"), body["spec"]["items"]))
        body["spec"]["items"] = [*body["spec"]["items"], "ours"]

    harness.contribute(state, {"spec": {"more": 1}}, append)
    await harness.cluster.patch("widgets", "w", {"spec": {"items": ["theirs"]}})
    await harness.store(state)
    assert seen[-1] == (1, ["theirs"])
    assert (await harness.get())["spec"] == {"items": ["theirs", "ours"], "more": 1}
    assert harness.requests == ["PATCH", "GET", "PATCH"]


MAIN = {"spec": {"more": 1}}
STATUS = {"status": {"a": 1}}
BOTH = {**MAIN, **STATUS}


def touch(*fields: str) -> Any:
    """Return a function that changes these fields of an object, which differ each time."""

    def fn(body: dict[str, Any]) -> None:
        for field in fields:
            body.setdefault(field, {}).setdefault("touched", []).append(len(body[field].get("touched", ())))

    return fn


@pytest.mark.parametrize(
    ("patch", "fields", "requests"),
    [
        (STATUS, ["status"], ["PATCH status", "PATCH"]),
        (MAIN, ["spec"], ["PATCH"]),
        ({}, ["spec", "status"], ["PATCH", "PATCH status", "PATCH"]),
        (MAIN, ["status"], ["PATCH", "PATCH status", "PATCH"]),
        (STATUS, ["spec"], ["PATCH status", "PATCH"]),
        (BOTH, ["status"], ["PATCH", "PATCH status", "PATCH"]),
        (BOTH, ["spec"], ["PATCH status", "PATCH"]),
        (BOTH, ["spec", "status"], ["PATCH status", "PATCH", "PATCH", "PATCH status", "PATCH"]),
        (BOTH, [], ["PATCH status", "PATCH", "PATCH"]),
    ],
)
async def test_functions_go_with_what_is_stored_in_the_same_place(
    patch: dict[str, Any], fields: list[str], requests: list[str], harness: Harness
) -> None:
    for plural, expected in (("widgets", requests), ("gadgets", ["PATCH", "PATCH"] if not fields else ["PATCH"])):
        state = await harness.make(status=plural == "widgets")
        harness.cluster.requests.clear()
        harness.contribute(state, patch, touch(*fields))
        await harness.store(state, NOTE)
        body = await harness.get(plural)
        assert harness.requests == expected, plural
        assert body["spec"].get("more") == patch.get("spec", {}).get("more")
        assert body.get("status", {}).get("a") == patch.get("status", {}).get("a")
        assert {field for field in ("spec", "status") if body.get(field, {}).get("touched") == [0]} == {*fields}
        assert body["metadata"]["annotations"] == {"example.com/note": "x"}
        assert not harness.pending.get(state)


async def test_finalizers_are_not_changed_together_with_functions(harness: Harness) -> None:
    state = await harness.make()
    harness.contribute(state, MAIN, touch("spec"))
    await harness.store(state, NOTE, lambda body: add_finalizer(body, FINALIZER))
    assert harness.requests == ["PATCH", "PATCH"]
    assert (await harness.get())["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.parametrize("code", [403, 422])
@pytest.mark.parametrize("part", ["spec", "status"])
@pytest.mark.parametrize("status", [False, True])
async def test_what_is_rejected_together_is_told_apart(
    part: str, code: int, status: bool, harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    state = await harness.make(status=status)

    def put(word: str) -> Any:
        return lambda body: body.setdefault(part, {}).update({word: 1})

    harness.contribute(state, {part: {"good": 1}}, put("evil"), by="first")
    harness.contribute(state, {part: {"vile": 1}}, put("kind"), by="second")
    harness.contribute(state, {part: {"fair": 1}}, put("nice"), by="third")
    harness.rejected |= {"evil": code, "vile": code}
    await harness.store(state, NOTE)
    body = await harness.get("widgets" if status else "gadgets")
    assert {key for key in body[part] if key != "size"} == {"good", "kind", "fair", "nice"}
    assert body["metadata"]["annotations"] == {"example.com/note": "x"}
    assert not harness.pending.get(state)
    dropped = [text for text in caplog.messages if "are dropped" in text]
    assert ["second" in dropped[0], "first" in dropped[1], len(dropped)] == [True, True, 2]


@pytest.mark.parametrize("code", [403, 422])
@pytest.mark.parametrize("part", ["spec", "status"])
@pytest.mark.parametrize("records", [None, NOTE])
async def test_functions_are_applied_once_though_others_are_rejected_in_one_of_two_places(
    code: int, part: str, records: dict[str, Any] | None, harness: Harness
) -> None:
    state = await harness.make()
    harness.contribute(state, {}, increment, by="first")
    harness.contribute(state, {}, lambda body: body[part].update(evil=1), by="second")
    harness.rejected["evil"] = code
    await harness.store(state, records)
    body = await harness.get()
    assert (body["spec"], body["status"]) == APPLIED
    assert not harness.pending.get(state)


async def test_rejected_records_do_not_keep_functions_from_being_applied(harness: Harness) -> None:
    state = await harness.make()
    harness.contribute(state, MAIN, increment)
    harness.rejected["note"] = 422
    with pytest.raises(ApiError):
        await harness.store(state, NOTE)
    assert (await harness.get())["spec"] == {**APPLIED[0], "more": 1}
    assert not harness.pending.get(state)


async def test_fields_that_the_server_drops_are_reported_though_they_go_with_functions(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    state = await harness.make()
    harness.contribute(state, {"spec": {"more": 1}, "metadata": {"generation": 77}}, lambda b: b["spec"].update(more=2))
    await harness.store(state)
    assert (await harness.get())["spec"]["more"] == 2
    (warning,) = [text for text in caplog.messages if "inconsistencies" in text]
    assert "did not keep metadata.generation." in warning


@pytest.mark.parametrize("fault", [Fault.lose_answer(), Fault.status(503)])
@pytest.mark.parametrize("patch", [{}, BOTH], ids=["functions", "merge"])
@pytest.mark.parametrize("status", [False, True])
async def test_functions_that_come_after_a_lost_response_are_applied_too(
    fault: Fault, status: bool, patch: dict[str, Any], harness: Harness
) -> None:
    state = await harness.make(status=status)
    harness.contribute(state, patch, increment, by="first")
    rule = harness.plan.add(fault, method="PATCH")
    with pytest.raises(trioperator.errors.TrioperatorError):
        await harness.store(state, NOTE)
    harness.plan.remove(rule)
    harness.contribute(state, {"spec": {"more": 2}}, increment, by="second")
    await harness.store(state, NOTE)
    body = await harness.get("widgets" if status else "gadgets")
    assert body["spec"] == {"size": 3, "list": [2, 3], "more": 2}
    assert body["status"] == {**patch.get("status", {}), "sizes": [2, 3]}
    assert body["metadata"]["annotations"] == {"example.com/note": "x"}
    assert not harness.pending.get(state)


async def test_functions_are_applied_again_to_a_newer_object(harness: Harness) -> None:
    state = await harness.make(items=[])
    harness.contribute(state, {}, lambda body: body["spec"]["items"].append("ours"))
    await harness.cluster.patch("widgets", "w", {"spec": {"items": ["theirs"]}})
    await harness.store(state)
    assert (await harness.get())["spec"]["items"] == ["theirs", "ours"]
    assert harness.requests == ["PATCH", "GET", "PATCH"]


async def test_functions_that_change_nothing_are_no_request(harness: Harness) -> None:
    state = await harness.make()
    harness.contribute(state, {}, lambda body: None)
    await harness.store(state)
    assert harness.requests == []
    assert not harness.pending.get(state)


@pytest.mark.parametrize("code", [403, 422])
@pytest.mark.parametrize("part", ["spec", "status"])
async def test_only_the_rejected_contributions_are_dropped_and_their_handlers_are_named(
    part: str, code: int, harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    state = await harness.make()
    for handler, word in (("first", "good"), ("second", "evil"), ("third", "kind"), ("fourth", "vile")):
        harness.contribute(state, {part: {word: 1}}, by=handler)
    harness.rejected |= {"evil": code, "vile": code}
    await harness.store(state, NOTE)
    body = await harness.get()
    assert {key for key in body[part] if key != "size"} == {"good", "kind"}
    assert body["metadata"]["annotations"] == {"example.com/note": "x"}
    assert not harness.pending.get(state)
    assert "the changes by second are dropped" in caplog.text
    assert "the changes by fourth are dropped" in caplog.text
    assert "first" not in caplog.text
    assert "third" not in caplog.text


@pytest.mark.parametrize("code", [403, 422])
async def test_only_the_rejected_functions_are_dropped(
    code: int, harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    state = await harness.make()
    for handler, word in (("first", "good"), ("second", "evil"), ("third", "kind")):
        harness.contribute(state, {}, lambda body, word=word: body["spec"].update({word: 1}), by=handler)
    harness.rejected["evil"] = code
    await harness.store(state, NOTE)
    assert (await harness.get())["spec"] == {"size": 1, "good": 1, "kind": 1}
    assert not harness.pending.get(state)
    assert "the changes by second are dropped" in caplog.text
    assert "first" not in caplog.text
    assert "third" not in caplog.text


async def test_contributions_that_were_forbidden_only_once_are_stored(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    state = await harness.make()
    harness.contribute(state, {"spec": {"more": 1}, "status": {"a": 1}}, by="handler")
    harness.plan.add(Fault.status(403), method="PATCH", times=1)
    await harness.store(state, NOTE)
    body = await harness.get()
    assert (body["spec"]["more"], body["status"]) == (1, {"a": 1})
    assert "dropped" not in caplog.text


async def test_a_function_that_fails_is_dropped_and_named_and_the_others_are_applied(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    state = await harness.make()

    def fail(body: dict[str, Any]) -> None:
        body["spec"]["half"] = "done"
        raise ValueError("on purpose")

    harness.contribute(state, {}, lambda body: body["spec"].update(good=1), by="first")
    harness.contribute(state, {}, fail, by="second")
    harness.contribute(state, {}, lambda body: body["spec"].update(kind=1), by="third")
    await harness.store(state)
    assert (await harness.get())["spec"] == {"size": 1, "good": 1, "kind": 1}
    assert "in the patch of second has failed: ValueError('on purpose'): it is dropped" in caplog.text


def increment(body: dict[str, Any]) -> None:
    body["spec"]["size"] += 1
    body["spec"].setdefault("list", []).append(body["spec"]["size"])
    body.setdefault("status", {}).setdefault("sizes", []).append(body["spec"]["size"])


APPLIED = ({"size": 2, "list": [2]}, {"sizes": [2]})


@pytest.mark.parametrize("path", ["/w", "/status"])
@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("status", [False, True])
async def test_functions_are_applied_once_though_a_response_is_lost(
    path: str, foreign: bool, status: bool, harness: Harness, autojump_clock: MockClock
) -> None:
    harness.settings.networking.error_backoffs = (1,)
    state = await harness.make(status=status)
    plural = "widgets" if status else "gadgets"
    harness.contribute(state, {}, increment)
    harness.plan.add(Fault.lose_answer(), method="PATCH", path=path, times=1)

    async def interfere() -> None:
        await trio.sleep(0.5)  # before it is tried again
        await harness.cluster.patch(plural, "w", {"spec": {"others": 1}})

    async with trio.open_nursery() as nursery:
        if foreign:
            nursery.start_soon(interfere)
        await harness.store(state)
        await trio.sleep(1)
    body = await harness.get(plural)
    body["spec"].pop("others", None)
    assert (body["spec"], body["status"]) == APPLIED
    assert not harness.pending.get(state)


@pytest.mark.parametrize("failing", ["/w", "/status"])
@pytest.mark.parametrize("lost", [False, True])
async def test_functions_are_applied_once_though_storing_fails_in_between(
    lost: bool, failing: str, harness: Harness
) -> None:
    state = await harness.make()
    harness.contribute(state, {}, increment)
    fault = Fault.lose_answer() if lost else Fault.status(503)
    rule = harness.plan.add(fault, method="PATCH", path=failing)
    with pytest.raises(trioperator.errors.TrioperatorError):
        await harness.store(state)
    assert harness.pending.get(state)
    harness.plan.remove(rule)
    harness.contribute(state, {"spec": {"more": 1}})
    await harness.store(state)  # without having seen the newest state
    body = await harness.get()
    assert (body["spec"], body["status"]) == ({**APPLIED[0], "more": 1}, APPLIED[1])
    assert not harness.pending.get(state)


async def add_foreign(harness: Harness, place: str, field: str) -> None:
    """Add to a list of the object what is somebody else's."""
    known = (await harness.get())[place].get(field, [])
    subresource = "status" if place == "status" else ""
    await harness.cluster.patch("widgets", "w", {place: {field: [0, *known, 0]}}, subresource=subresource)


@pytest.mark.parametrize(("path", "place", "field"), [("/w", "spec", "list"), ("/status", "status", "sizes")])
async def test_functions_are_applied_once_though_others_change_the_same_list_after_a_lost_response(
    path: str, place: str, field: str, harness: Harness, autojump_clock: MockClock
) -> None:
    harness.settings.networking.error_backoffs = (1,)
    state = await harness.make()
    harness.contribute(state, {}, increment)
    harness.plan.add(Fault.lose_answer(), method="PATCH", path=path, times=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(harness.store, state)
        await trio.sleep(0.5)  # before it is tried again
        await add_foreign(harness, place, field)
    body = await harness.get()
    assert body[place][field] == [0, 2, 0]
    body[place][field] = [2]
    assert (body["spec"], body["status"]) == APPLIED
    assert not harness.pending.get(state)


async def test_what_others_add_to_a_list_of_the_status_is_kept_though_functions_have_changed_the_rest_before(
    harness: Harness, autojump_clock: MockClock
) -> None:
    state = await harness.make()
    await harness.cluster.patch("widgets", "w", {"status": {"sizes": []}}, subresource="status")
    harness.contribute(state, {}, increment)
    harness.plan.add(Fault.delay(before=1), method="PATCH", path="/status", times=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(harness.store, state)
        await trio.sleep(0.5)
        await add_foreign(harness, "status", "sizes")
    body = await harness.get()
    assert (body["spec"], body["status"]) == (APPLIED[0], {"sizes": [0, 0, 2]})
    assert not harness.pending.get(state)


@pytest.mark.parametrize("fault", [Fault.status(503), Fault.status(429), Fault.lose_answer(), None])
async def test_functions_are_applied_once_to_what_others_change_while_the_status_cannot_be_stored(
    fault: Fault | None, harness: Harness, autojump_clock: MockClock
) -> None:
    state = await harness.make()
    await harness.cluster.patch("widgets", "w", {"status": {"sizes": []}}, subresource="status")
    harness.contribute(state, {}, increment)
    rule = harness.plan.add(fault or Fault.delay(before=1), method="PATCH", path="/status")
    async with trio.open_nursery() as nursery:
        if fault is None:
            nursery.start_soon(change_repeatedly, harness)
        with pytest.raises(trioperator.errors.TrioperatorError):
            await harness.store(state)
        nursery.cancel_scope.cancel()
    harness.plan.remove(rule)
    await harness.cluster.patch("widgets", "w", {"spec": {"size": 7, "list": [7]}})
    await harness.store(state)
    body = await harness.get()
    assert (body["spec"], body["status"]["sizes"]) == ({"size": 7, "list": [7]}, [2])
    assert not harness.pending.get(state)


async def change_repeatedly(harness: Harness) -> None:
    for number in itertools.count():
        await harness.cluster.patch("widgets", "w", {"metadata": {"labels": {"number": str(number)}}})
        await trio.sleep(0.4)


async def test_nothing_counts_as_handled_before_the_functions_are_applied(harness: Harness) -> None:
    state = await harness.make(size=1)
    records = Patch({"metadata": {"annotations": {"handled": "yes"}}})
    wanted = {"metadata": {"labels": {"a": "b"}}}
    harness.pending.contribute(state, wanted, [increment], by="Handler", logger=LOGGER)
    harness.plan.add(Fault.status(409), method="PATCH", skip=1, times=1)  # the first one is for the label
    with pytest.raises(ApiError):
        await harness.patcher.store(state, records, LOGGER)
    body = await harness.cluster.get("widgets", "w")
    assert (body["metadata"]["labels"], body["spec"]["size"]) == ({"a": "b"}, 1)
    assert "annotations" not in body["metadata"]
    await harness.patcher.store(state, records, LOGGER)
    body = await harness.cluster.get("widgets", "w")
    assert (body["metadata"]["annotations"], body["spec"]["size"]) == ({"handled": "yes"}, 2)


async def test_what_is_stored_before_an_error_is_known(harness: Harness) -> None:
    state = await harness.make(size=1)
    harness.pending.contribute(state, {"status": {"a": 1}, "spec": {"size": 2}}, [], by="Handler", logger=LOGGER)
    harness.plan.add(Fault.status(409), method="PATCH", skip=1, times=1)
    with pytest.raises(ApiError):
        await harness.patcher.store(state, Patch(), LOGGER)
    assert state.body == await harness.cluster.get("widgets", "w")
    assert state.body is not None
    assert state.body["status"] == {"a": 1}


async def test_those_who_wait_for_a_patch_are_woken_when_it_is_stored_and_not_before(harness: Harness) -> None:
    state = await harness.make()
    harness.contribute(state, {"spec": {"more": 1}})
    stored = harness.pending.wait_for(state)
    rule = harness.plan.add(Fault.status(503), method="PATCH")
    with pytest.raises(trioperator.errors.TrioperatorError):
        await harness.store(state)
    assert not stored.is_set()
    assert harness.pending.is_awaited(state)
    harness.plan.remove(rule)
    await harness.store(state)
    assert stored.is_set()
    assert not harness.pending.is_awaited(state)


async def test_observers_are_notified_of_the_response_with_what_was_contributed_meanwhile(harness: Harness) -> None:
    state = await harness.make()
    notified: list[tuple[Any, Any]] = []

    class Observer:
        def contributed(self, patch: Mapping[str, Any], *, opaque: bool) -> None:
            pass

        def stored(self, body: Mapping[str, Any], pending: Mapping[str, Any] | None) -> None:
            notified.append((body, pending))

    harness.pending.observe(state, Observer())
    harness.contribute(state, {}, lambda body: harness.contribute(state, {"spec": {"later": 1}}))
    await harness.store(state, NOTE)
    assert notified == [(await harness.get(), {"spec": {"later": 1}})]
    assert harness.pending.get(state) == {"spec": {"later": 1}}


# Whatever happens.

PLACES = st.frozensets(st.sampled_from(["spec", "status"]))
#: A contribution: what it merges into, what its function changes; then one attempt to store it with the others, in
#: which a patch goes wrong after so many. Before it, somebody else may change the object, and the operator notice that.
STEPS = st.lists(
    st.tuples(
        PLACES,
        PLACES,
        st.sampled_from([None, Fault.lose_answer(), Fault.status(503)]),
        st.integers(0, 2),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(steps=STEPS, status=st.booleans())
def test_everything_is_stored_once_and_in_order_whatever_is_lost(steps: Sequence[Any], status: bool) -> None:
    trio.run(store_steps, steps, status, clock=MockClock(autojump_threshold=0))


async def store_steps(steps: Sequence[Any], status: bool) -> None:
    plural = "widgets" if status else "gadgets"
    async with open_harness(Cluster(seed=0)) as harness:
        state = await harness.make(status=status)
        for number, (merged, changed, fault, skip, is_foreign, is_known) in enumerate(steps):
            harness.contribute(state, {place: {"merged": number} for place in merged}, log(number, changed))
            if is_foreign:
                await harness.cluster.patch(plural, "w", {"spec": {"others": number}})
            if is_known:
                state.update(await harness.get(plural))
            harness.plan.clear()
            if fault is not None:
                harness.plan.add(fault, method="PATCH", skip=skip, times=1)
            with contextlib.suppress(trioperator.errors.TrioperatorError):
                await harness.store(state, NOTE)
        harness.plan.clear()
        await harness.store(state, NOTE)
        body = await harness.get(plural)
    for place in ("spec", "status"):
        found = body.get(place, {})
        assert found.get("log", []) == [number for number, step in enumerate(steps) if place in step[1]]
        assert found.get("merged") == max(
            (number for number, step in enumerate(steps) if place in step[0]), default=None
        )
    assert body["metadata"]["annotations"] == {"example.com/note": "x"}
    assert not harness.pending.get(state)


def log(number: int, places: frozenset[str]) -> Any:
    """Return a function that adds a number to a list in each of these places."""

    def fn(body: dict[str, Any]) -> None:
        for place in places:
            body.setdefault(place, {}).setdefault("log", []).append(number)

    return fn


@pytest.mark.parametrize("code", [None, 500])
async def test_a_response_that_comes_after_a_newer_read_does_not_become_the_newest_state(
    harness: Harness, autojump_clock: MockClock, code: int | None
) -> None:
    state = await harness.make()
    harness.contribute(state, {"status": {"a": 1}})
    harness.plan.add(Fault.delay(after=5), method="PATCH", subresource="status")  # it has been applied by then
    if code is not None:
        harness.plan.add(Fault.status(code), method="PATCH", subresource="")

    async def store() -> None:
        with contextlib.suppress(ServerError):
            await harness.store(state, NOTE if code else None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store)
        await trio.sleep(1)
        newest = await harness.cluster.patch("widgets", "w", {"spec": {"size": 7}})
        harness.patcher.touch(state)
        await harness.patcher.look(state)
        assert state.body == newest
    assert state.body == newest


async def test_what_is_stored_is_returned(harness: Harness) -> None:
    state = await harness.make()
    store = functools.partial(harness.patcher.store, state, logger=LOGGER)
    assert await store(Patch()) is None
    assert await store(Patch(NOTE)) == await harness.get()
    requests = len(harness.requests)
    assert await store(Patch(NOTE)) is None  # it is there already
    assert len(harness.requests) == requests
    harness.contribute(state, NOTE)  # only the server knows whether that is there
    assert await store(Patch()) == await harness.get()
