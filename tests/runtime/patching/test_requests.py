"""Patch requests: bound to one object and, where conditional, to one version of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from tests.client.conftest import deployment
from tests.runtime.conftest import widget
from tests.runtime.harness import WIDGETS, Harness
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._model.resource import Resource
from trioperator._runtime.cache.kind import Kind
from trioperator._runtime.patching.requests import PatchRequests, StaleError, not_found
from trioperator.errors import ConflictError, ConnectionLostError, ForbiddenError, InvalidError, NotFoundError
from trioperator.testing import Fault

KIND = Kind(WIDGETS, KindHandlers())
SIZE = [{"op": "replace", "path": "/spec/size", "value": 5}]


@pytest.fixture
def requests(parts: Harness) -> PatchRequests:
    return PatchRequests(parts.client)


async def replace(parts: Harness, body: Mapping[str, Any]) -> None:
    """Replace an object by another one of the same name."""
    await parts.cluster.delete("widgets", body["metadata"]["name"])
    await parts.cluster.create(widget(size=100))


async def test_the_response_is_the_newest_state(parts: Harness, requests: PatchRequests) -> None:
    body = await parts.cluster.create(widget(size=1))
    await parts.cluster.patch("widgets", "w", {"spec": {"other": 2}})
    written = await requests.patch(KIND, body, {"spec": {"size": 5}})
    assert written == await parts.get()
    assert written["spec"] == {"size": 5, "other": 2}


async def test_the_status_is_a_request_of_its_own(parts: Harness, requests: PatchRequests) -> None:
    body = await parts.cluster.create(widget(size=1))
    patch = {"spec": {"size": 5}, "status": {"ready": True}}
    written = await requests.patch(KIND, body, patch, "status")
    assert (written["spec"], written["status"]) == ({"size": 1}, {"ready": True})


@pytest.mark.parametrize("metadata", [{}, {"metadata": {"labels": {"a": "b"}}}], ids=["no metadata", "metadata"])
@pytest.mark.parametrize("subresource", [None, "status"])
async def test_another_object_of_the_name_is_not_patched(
    metadata: dict[str, Any], subresource: str | None, parts: Harness, requests: PatchRequests
) -> None:
    body = await parts.cluster.create(widget(size=1))
    await replace(parts, body)
    before = await parts.get()
    with pytest.raises(NotFoundError, match="w is gone"):
        await requests.patch(KIND, body, {"spec": {"size": 5}, "status": {"a": 1}, **metadata}, subresource)
    assert await parts.get() == before


async def test_the_successor_of_an_object_whose_finalizers_others_have_removed_is_not_patched(
    parts: Harness, requests: PatchRequests
) -> None:
    made = widget(size=1)
    made["metadata"]["finalizers"] = ["a/b"]
    body = await parts.cluster.create(made)
    await parts.cluster.patch("widgets", "w", {"metadata": {"finalizers": None}})
    await replace(parts, body)
    with pytest.raises(NotFoundError, match="w is gone"):
        await requests.patch(KIND, body, {"status": {"a": 1}}, "status")
    assert "status" not in await parts.get()


@pytest.mark.parametrize("conflicts", [0, 4])
async def test_the_status_of_an_object_that_others_have_changed_is_patched_all_the_same(
    conflicts: int, parts: Harness, requests: PatchRequests
) -> None:
    body = await parts.cluster.create(widget(size=1))
    await parts.cluster.patch("widgets", "w", {"spec": {"size": 2}})
    parts.plan.add(Fault.status(409), method="PATCH", times=min(conflicts, 3))
    written = await requests.patch(KIND, body, {"status": {"a": 1}}, "status")
    assert written == await parts.get()
    assert (written["spec"], written["status"]) == ({"size": 2}, {"a": 1})


async def test_the_successor_of_an_object_that_others_change_all_the_time_is_not_patched(
    parts: Harness, requests: PatchRequests, autojump_clock: MockClock
) -> None:
    body = await parts.cluster.create(widget(size=1))
    parts.plan.add(Fault.status(409), method="PATCH", times=3)
    parts.plan.add(Fault.delay(after=1), method="GET", times=3)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _replace_later() -> None:
            await trio.sleep(2.5)  # it was read for the last time, and the response is on its way
            await replace(parts, body)

        with pytest.raises(NotFoundError, match="w is gone"):
            await requests.patch(KIND, body, {"status": {"a": 1}}, "status")
    assert "status" not in await parts.get()


@pytest.mark.parametrize(
    ("plural", "finalizers", "methods"),
    [
        ("widgets", [], ["PATCH", "GET", "PATCH"]),  # nothing but the version tells objects of a name apart
        ("widgets", ["a/b"], ["PATCH", "GET", "PATCH"]),  # nor do finalizers: others may have removed them
        ("deployments", [], ["PATCH"]),
    ],
)
async def test_only_what_may_be_replaced_unnoticed_is_patched_in_a_known_version(
    plural: str, finalizers: list[str], methods: list[str], parts: Harness, requests: PatchRequests
) -> None:
    kind, made = KIND, widget(size=1)
    if plural == "deployments":
        kind, made = Kind(Resource("apps", "v1", "deployments", kind="Deployment"), KindHandlers()), deployment("w")
    made["metadata"] |= {"finalizers": finalizers, "namespace": "default"}
    body = await parts.cluster.create(made)
    await parts.cluster.patch(plural, "w", {"metadata": {"labels": {"a": "b"}}})
    before = len(parts.cluster.requests)
    await requests.patch(kind, body, {"status": {"replicas": 1}}, "status")
    assert [request.method for request in list(parts.cluster.requests)[before:]] == methods


async def make_with_status(parts: Harness, **status: Any) -> Mapping[str, Any]:
    await parts.cluster.create(widget(size=1))
    return await parts.cluster.patch("widgets", "w", {"status": status}, subresource="status")


async def test_a_status_is_patched_in_one_request_though_others_have_changed_it(
    parts: Harness, requests: PatchRequests
) -> None:
    body = await make_with_status(parts, a=1, deep={"b": 1})
    await parts.cluster.patch("widgets", "w", {"status": {"a": 2, "deep": {"c": 2}}}, subresource="status")
    before = len(parts.cluster.requests)
    written = await requests.patch(KIND, body, {"status": {"a": 1, "deep": {"b": [3]}}}, "status")
    assert [request.method for request in list(parts.cluster.requests)[before:]] == ["PATCH"]
    assert written["status"] == {"a": 1, "deep": {"b": [3], "c": 2}}


async def test_a_section_of_the_status_that_others_have_removed_is_made_again(
    parts: Harness, requests: PatchRequests
) -> None:
    body = await make_with_status(parts, deep={"b": 1})
    await parts.cluster.patch("widgets", "w", {"status": {"a": 1, "deep": None}}, subresource="status")
    written = await requests.patch(KIND, body, {"status": {"deep": {"b": 2}}}, "status")
    assert written["status"] == {"a": 1, "deep": {"b": 2}}


async def test_a_section_of_the_status_that_others_have_made_is_not_overwritten(
    parts: Harness, requests: PatchRequests
) -> None:
    body = await make_with_status(parts, a=1)
    await parts.cluster.patch("widgets", "w", {"status": {"a": {"d": 1}, "deep": {"c": 2}}}, subresource="status")
    written = await requests.patch(KIND, body, {"status": {"a": {"b": 1}, "deep": {"b": 1}}}, "status")
    assert written["status"] == {"a": {"b": 1, "d": 1}, "deep": {"b": 1, "c": 2}}


async def test_the_status_of_a_successor_is_not_patched_though_it_has_the_same_fields(
    parts: Harness, requests: PatchRequests
) -> None:
    body = await make_with_status(parts, a=1)
    await parts.cluster.delete("widgets", "w")
    await make_with_status(parts, a=2)
    with pytest.raises(NotFoundError, match="w is gone"):
        await requests.patch(KIND, body, {"status": {"a": 3}}, "status")
    assert (await parts.get())["status"] == {"a": 2}


async def test_a_status_that_is_not_valid_is_rejected_at_once(parts: Harness, requests: PatchRequests) -> None:
    body = await make_with_status(parts, a=1)
    rejection = {"kind": "Status", "code": 422, "message": "not so", "details": {"causes": [{"field": "status.a"}]}}
    parts.plan.add(Fault.answer(422, msgspec.json.encode(rejection)), method="PATCH", times=1)
    with pytest.raises(InvalidError, match="not so"):
        await requests.patch(KIND, body, {"status": {"a": 2}}, "status")


async def test_an_object_that_is_gone_is_not_found(parts: Harness, requests: PatchRequests) -> None:
    body = await parts.cluster.create(widget(size=1))
    await parts.cluster.delete("widgets", "w")
    with pytest.raises(NotFoundError):
        await requests.patch(KIND, body, {"spec": {"size": 5}})
    with pytest.raises(NotFoundError):
        await requests.patch_conditionally(KIND, body, SIZE)


@pytest.mark.parametrize(("code", "error"), [(409, ConflictError), (422, InvalidError), (403, ForbiddenError)])
async def test_other_error_responses_are_raised(
    code: int, error: type[Exception], parts: Harness, requests: PatchRequests
) -> None:
    body = await parts.cluster.create(widget(size=1))
    parts.plan.add(Fault.status(code, message="not so"), method="PATCH")
    with pytest.raises(error, match="not so"):
        await requests.patch(KIND, body, {"spec": {"size": 5}})
    with pytest.raises(error, match="not so"):  # the version is the newest one, so it is not about that
        await requests.patch_conditionally(KIND, body, SIZE)


async def test_what_older_servers_say_of_uids_counts_as_not_found(parts: Harness, requests: PatchRequests) -> None:
    body = await parts.cluster.create(widget(size=1))
    parts.plan.add(Fault.status(409, message="Precondition failed: UID in precondition: x"), method="PATCH")
    with pytest.raises(NotFoundError):
        await requests.patch(KIND, body, {"spec": {"size": 5}})


async def test_the_body_that_was_patched_is_not_changed(parts: Harness, requests: PatchRequests) -> None:
    body = await parts.cluster.create(widget(size=1))
    patch: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}}
    await requests.patch(KIND, body, patch)
    assert patch == {"metadata": {"labels": {"a": "b"}}}
    assert "labels" not in body["metadata"]


# Conditional patches.


async def test_a_conditional_patch_is_applied_to_the_known_version(parts: Harness, requests: PatchRequests) -> None:
    body = await parts.cluster.create(widget(size=1))
    written = await requests.patch_conditionally(KIND, body, SIZE)
    assert written["spec"] == {"size": 5}
    status = [{"op": "add", "path": "/status", "value": {"ready": True}}]
    written = await requests.patch_conditionally(KIND, written, status, "status")
    assert written["status"] == {"ready": True}


async def test_a_conditional_patch_of_another_version_is_stale(parts: Harness, requests: PatchRequests) -> None:
    body = await parts.cluster.create(widget(size=1))
    newer = await parts.cluster.patch("widgets", "w", {"spec": {"other": 2}})
    with pytest.raises(StaleError, match="The object has changed meanwhile") as caught:
        await requests.patch_conditionally(KIND, body, SIZE)
    assert caught.value.body == newer
    assert not caught.value.may_be_ours
    assert (await parts.get())["spec"] == {"size": 1, "other": 2}


async def test_a_conditional_patch_of_another_object_is_not_found(parts: Harness, requests: PatchRequests) -> None:
    body = await parts.cluster.create(widget(size=1))
    await replace(parts, body)
    with pytest.raises(NotFoundError, match="w is gone"):
        await requests.patch_conditionally(KIND, body, SIZE)


async def test_the_change_may_be_ours_where_the_request_was_retried(
    parts: Harness, requests: PatchRequests, autojump_clock: object
) -> None:
    body = await parts.cluster.create(widget(size=1))
    parts.settings.networking.error_backoffs = (1,)
    parts.plan.add(Fault.lose_answer(), method="PATCH", times=1)
    with pytest.raises(StaleError) as caught:
        await requests.patch_conditionally(KIND, body, SIZE)
    assert caught.value.may_be_ours
    assert caught.value.body["spec"] == {"size": 5}


def test_the_error_for_an_object_that_is_gone_names_it() -> None:
    error = not_found({"metadata": {"name": "w"}})
    assert isinstance(error, NotFoundError)
    assert str(error) == "HTTP 404 NotFound: w is gone"


@pytest.mark.parametrize(
    "answer",
    [b"", b"{", b"\xff", b"null", b"[]", b"{}", b"<html>it works", b'{"metadata": []}', Fault.status(500).body],
    ids=repr,
)
async def test_a_response_that_is_not_the_object_counts_as_lost(
    answer: bytes, parts: Harness, requests: PatchRequests
) -> None:
    body = await parts.cluster.create(widget(size=1))
    rule = parts.plan.add(Fault.answer(200, answer), method="PATCH")
    with pytest.raises(ConnectionLostError, match=r"response about w (is not|cannot be read)"):
        await requests.patch(KIND, body, {"spec": {"size": 5}})
    with pytest.raises(ConnectionLostError, match=r"response about w (is not|cannot be read)"):
        await requests.patch_conditionally(KIND, body, SIZE)
    parts.plan.remove(rule)
    parts.plan.add(Fault.answer(200, answer), method="GET")
    await parts.cluster.patch("widgets", "w", {"spec": {"size": 2}})
    with pytest.raises(ConnectionLostError, match=r"response about w (is not|cannot be read)"):
        await requests.patch_conditionally(KIND, body, SIZE)
