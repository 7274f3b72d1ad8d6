"""Tests for :mod:`trioperator.testing.faults`."""

from __future__ import annotations

import httpx
import msgspec

from tests.testing.conftest import PATH, read
from trioperator.testing import Fault, FaultPlan


async def test_a_status_has_its_reason_and_its_retry_after(client: httpx.AsyncClient, plan: FaultPlan) -> None:
    plan.add(Fault.status(429, retry_after=3), times=1)
    response = await client.get(PATH)
    assert (response.status_code, response.headers["Retry-After"]) == (429, "3")
    assert response.json()["reason"] == "TooManyRequests"
    assert response.json()["details"] == {"retryAfterSeconds": 3}


async def test_any_response_can_be_injected(client: httpx.AsyncClient, plan: FaultPlan) -> None:
    plan.add(Fault.answer(502, b"<html>"))
    response = await client.get(PATH)
    assert (response.status_code, response.text) == (502, "<html>")


async def test_an_error_event_carries_its_code(client: httpx.AsyncClient, plan: FaultPlan) -> None:
    plan.add(Fault.error_event(410), watch=True)
    status = msgspec.json.decode(await read(client))["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
