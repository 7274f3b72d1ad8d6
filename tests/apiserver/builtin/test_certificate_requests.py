"""Conformance: CertificateSigningRequests are approved, denied and issued by their subresources."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.builtin.certificate_requests import make_request
from tests.apiserver.conftest import Answer, Target

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
KIND = "CertificateSigningRequest.certificates.k8s.io"
APPROVED = {"type": "Approved", "status": "True", "reason": "Ok", "message": "m"}
DENIED = {**APPROVED, "type": "Denied"}


@pytest.fixture
async def path(target: Target) -> str:
    """Create a request, and return its path."""
    spec = {"request": make_request(), "signerName": "example.com/it", "usages": ["client auth"]}
    body = {"metadata": {"name": target.namespace}, "spec": spec, "status": {"conditions": [APPROVED]}}
    created = await target.request("POST", PATH, body)
    assert created.code == 201, created.message
    assert "conditions" not in created.content["status"]
    return f"{PATH}/{target.namespace}"


async def decide(target: Target, path: str, *conditions: Any, sub: str = "approval", **status: Any) -> Answer:
    return await target.merge(f"{path}/{sub}", {"status": {**status, "conditions": list(conditions)}})


def refused(answer: Answer, text: str) -> bool:
    return answer.code == 422 and answer.message.startswith(f'{KIND} "') and f" is invalid: {text}" in answer.message


async def test_a_request_is_approved_with_the_times_of_the_server(target: Target, path: str) -> None:
    answer = await decide(target, path, APPROVED)
    assert answer.code == 200, answer.message
    (condition,) = answer.content["status"]["conditions"]
    times = {key: condition.pop(key) for key in ("lastUpdateTime", "lastTransitionTime")}
    assert condition == APPROVED
    assert all(times.values())
    assert (await target.get(f"{path}/approval")).content == (await target.get(path)).content
    again = await decide(target, path, {**APPROVED, "message": "other"})
    (condition,) = again.content["status"]["conditions"]
    assert (condition["message"], condition["lastTransitionTime"]) == ("other", times["lastTransitionTime"])


async def test_approval_changes_nothing_else(target: Target, path: str) -> None:
    before = (await target.get(path)).content
    changed = {"spec": {"signerName": "example.com/other"}, "status": {"certificate": "QUJD", "conditions": [DENIED]}}
    answer = await target.merge(f"{path}/approval", changed)
    assert answer.content["spec"] == before["spec"]
    assert set(answer.content["status"]) == {"conditions"}


async def test_other_ways_do_not_decide(target: Target, path: str) -> None:
    answer = await target.merge(path, {"spec": {"signerName": "x.com/y"}, "status": {"conditions": [APPROVED]}})
    assert (answer.code, answer.content["status"]) == (200, {})
    assert answer.content["spec"]["signerName"] == "example.com/it"
    answer = await decide(target, path, APPROVED, sub="status")
    assert refused(answer, 'status.conditions: Forbidden: updates may not add a condition of type "Approved"')


async def test_a_decision_stays(target: Target, path: str) -> None:
    await decide(target, path, APPROVED)
    both = "Approved and Denied conditions are mutually exclusive"
    answer = await decide(target, path, APPROVED, DENIED)
    assert refused(answer, f'status.conditions: Invalid value: "Denied": {both}')
    for sub in ("approval", "status"):
        answer = await decide(target, path, sub=sub)
        assert refused(answer, 'status.conditions: Forbidden: updates may not remove a condition of type "Approved"')
    ready = {"type": "Ready", "status": "False"}
    answer = await decide(target, path, {**APPROVED, "message": "changed"}, ready, sub="status")
    found = [(each["type"], each.get("message")) for each in answer.content["status"]["conditions"]]
    assert found == [("Approved", "m"), ("Ready", None)]


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ({**APPROVED, "status": "False"}, 'status.conditions[0].status: Unsupported value: "False": supported values:'),
        ({"type": "Odd", "status": "x"}, 'status.conditions[0].status: Unsupported value: "x": supported values:'),
        ({"type": "Odd"}, "status.conditions[0].status: Required value"),
    ],
)
async def test_conditions_are_checked(target: Target, path: str, condition: Any, text: str) -> None:
    assert refused(await decide(target, path, condition), text)
