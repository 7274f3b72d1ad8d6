"""The order of requests, by what is to be stored: each line of the table in the module."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tests.runtime.harness import LOGGER, Harness, open_harness
from trioperator._model.finalizer import add_finalizer
from trioperator._model.patch import Patch
from trioperator._runtime.patching.pending import Contribution, PendingPatch
from trioperator._runtime.patching.requests import PatchRequests
from trioperator._runtime.patching.sending import PatchSender
from trioperator.apiserver import Cluster
from trioperator.apiserver.model.messages import RequestRecord
from trioperator.errors import ApiError
from trioperator.testing import Fault

SPEC: Mapping[str, Any] = {"spec": {"size": 2}}
STATUS: Mapping[str, Any] = {"status": {"seen": True}}
SPEC_AND_STATUS: Mapping[str, Any] = {**SPEC, **STATUS}
RECORDS = Patch({"metadata": {"annotations": {"example.com/record": "1"}}})
BOTH_RECORDS = Patch({**RECORDS, "status": {"record": 1}})
OBJECT, ON_STATUS = "object", "status"


def annotate(body: dict[str, Any]) -> None:
    body["metadata"].setdefault("annotations", {})["example.com/fn"] = "1"


def count(body: dict[str, Any]) -> None:
    status = body.setdefault("status", {})
    status["count"] = status.get("count", 0) + 1


def annotate_and_count(body: dict[str, Any]) -> None:
    annotate(body)
    count(body)


@pytest.fixture
async def harness(cluster: Cluster) -> AsyncIterator[Harness]:
    async with open_harness(cluster) as harness:
        yield harness


async def send(
    harness: Harness, patch: Mapping[str, Any], *fns: Any, records: Patch | None = None, finalize: bool = False
) -> tuple[PatchSender, list[str]]:
    """Send a patch, and return the sender and where its requests went to; conditional ones end with a question mark."""
    state = await harness.make()
    assert state.body is not None
    pending = PendingPatch([Contribution("Handler", patch, fns)] if patch or fns else [])
    kind = state.cache.kind
    sender = PatchSender(PatchRequests(harness.client), kind, state.body, pending=pending, logger=LOGGER)
    harness.cluster.requests.clear()
    with contextlib.suppress(ApiError):
        await sender.run(records or Patch(), (lambda body: add_finalizer(body, "example.com/f")) if finalize else None)
    sent = harness.cluster.requests.select(verb="patch", resource="widgets")
    return sender, [describe(request) for request in sent]


def describe(request: RequestRecord) -> str:
    is_conditional = "json-patch" in request.content_type
    return (request.subresource or OBJECT) + "?" * is_conditional


@pytest.mark.parametrize(
    ("patch", "fns", "records", "finalize", "requests"),
    [
        ({}, (), None, False, []),
        (SPEC, (), None, False, ["object"]),
        ({}, (), RECORDS, False, ["object"]),
        (SPEC, (), RECORDS, False, ["object"]),
        (STATUS, (), RECORDS, False, ["status", "object"]),
        (SPEC_AND_STATUS, (), RECORDS, False, ["status", "object"]),
        (STATUS, (), BOTH_RECORDS, False, ["status", "object"]),
        (SPEC, (), BOTH_RECORDS, False, ["object", "status", "object"]),
        (SPEC, (), RECORDS, True, ["object?"]),
        (SPEC, (annotate,), RECORDS, False, ["object?"]),
        (STATUS, (annotate,), RECORDS, False, ["status", "object?"]),
        (SPEC, (annotate,), RECORDS, True, ["object?", "object?"]),
        (STATUS, (count,), None, False, ["status?"]),
        (SPEC, (count,), RECORDS, False, ["object", "status?", "object"]),
        (SPEC_AND_STATUS, (annotate_and_count,), None, False, ["status", "object", "object?", "status?"]),
        (SPEC_AND_STATUS, (annotate_and_count,), RECORDS, True, ["status", "object", "object?", "status?", "object?"]),
    ],
)
async def test_requests_are_sent_in_the_order_of_the_table(
    harness: Harness,
    patch: Mapping[str, Any],
    fns: tuple[Any, ...],
    records: Patch | None,
    finalize: bool,
    requests: list[str],
) -> None:
    sender, sent = await send(harness, patch, *fns, records=records, finalize=finalize)
    assert sent == requests
    assert not sender.left
    assert sender.body == await harness.get()


@pytest.mark.parametrize("fns", [(), (annotate,), (annotate_and_count,)])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
async def test_records_are_never_stored_before_what_handlers_want(
    harness: Harness, fns: tuple[Any, ...], number: int
) -> None:
    harness.plan.add(Fault.status(500), method="PATCH", skip=number - 1, times=1)
    sender, _ = await send(harness, SPEC_AND_STATUS, *fns, records=BOTH_RECORDS)
    body = await harness.get()
    is_recorded = "example.com/record" in body["metadata"].get("annotations", {}) or "record" in body.get("status", {})
    assert not (is_recorded and sender.left)
