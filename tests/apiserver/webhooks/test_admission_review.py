"""Tests for :mod:`trioperator.apiserver.webhooks.admission_review`: reviews, and which responses are valid."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from trioperator.apiserver.bodies.decoding import WriteOptions
from trioperator.apiserver.model.kinds import Catalog, Kind
from trioperator.apiserver.model.user import User
from trioperator.apiserver.webhooks.admission_review import (
    InvalidReviewError,
    make_review,
    read_review,
    rejection,
    review_version,
)
from trioperator.apiserver.webhooks.matching import AdmissionAttributes, Webhook, webhooks_of

catalog = Catalog()


def kind(api_version: str, name: str) -> Kind:
    found = catalog.by_object(api_version, name)
    assert found is not None
    return found


def webhook(**more: Any) -> Webhook:
    hook = {"name": "hook.test", "clientConfig": {"url": "https://hooks.test"}, **more}
    (found,) = webhooks_of({"metadata": {"name": "c"}, "webhooks": [hook]})
    return found


def review_of(version: str = "v1", **response: Any) -> dict[str, Any]:
    head = {"apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview"}
    return {**head, "response": {"uid": "u", "allowed": True, **response}}


def encoded(*operations: Any) -> str:
    return base64.b64encode(msgspec.json.encode(operations)).decode()


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [(["v1"], "v1"), (["v1beta1", "v1"], "v1beta1"), (["v9", "v1"], "v1"), (["v9"], None), ([], None)],
)
def test_the_first_supported_review_version_is_chosen(versions: list[str], chosen: str | None) -> None:
    assert review_version(webhook(admissionReviewVersions=versions)) == chosen


def test_a_review_names_the_requested_kind_and_the_converted_one() -> None:
    requested = kind("v1", "Event")
    shown = kind("events.k8s.io/v1", "Event")
    options = WriteOptions(dry_run=True, user=User(name="anna"), sent={"fieldManager": "me"})
    attributes = AdmissionAttributes(
        operation="UPDATE", kind=requested, namespace="ns", name="a", new={"x": 1}, old={"x": 0}, options=options
    )
    review = make_review("v1", "u", attributes, shown)
    assert (review["kind"], review["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    assert review["request"] == {
        "uid": "u",
        "kind": {"group": "events.k8s.io", "version": "v1", "kind": "Event"},
        "resource": {"group": "events.k8s.io", "version": "v1", "resource": "events"},
        "requestKind": {"group": "", "version": "v1", "kind": "Event"},
        "requestResource": {"group": "", "version": "v1", "resource": "events"},
        "name": "a",
        "namespace": "ns",
        "operation": "UPDATE",
        "userInfo": {"username": "anna"},
        "object": {"x": 1},
        "oldObject": {"x": 0},
        "dryRun": True,
        "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"},
    }


def test_a_review_of_a_scale_has_its_kind_and_the_resource_of_the_object() -> None:
    deployments = kind("apps/v1", "Deployment")
    attributes = AdmissionAttributes(
        operation="UPDATE", kind=deployments, namespace="ns", name="a", subresource="scale", new={}, old={}
    )
    request = make_review("v1", "u", attributes, deployments)["request"]
    assert request["kind"] == request["requestKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert request["resource"] == {"group": "apps", "version": "v1", "resource": "deployments"}
    assert (request["subResource"], request["requestSubResource"]) == ("scale", "scale")


def test_the_decision_of_a_webhook_is_read_with_what_comes_with_it() -> None:
    operation = {"op": "add", "path": "/a", "value": 1}
    answer = review_of(
        patch=encoded(operation), patchType="JSONPatch", warnings=["careful"], auditAnnotations={"a": "b"}
    )
    verdict = read_review("v1", "u", answer, mutating=True)
    assert (verdict.allowed, verdict.operations) == (True, [operation])
    assert (verdict.warnings, verdict.annotations) == (("careful",), {"a": "b"})
    verdict = read_review("v1", "u", review_of(allowed=False, status={"message": "no"}), mutating=False)
    assert (verdict.allowed, verdict.status, verdict.operations) == (False, {"message": "no"}, [])


PATCH = {"patch": encoded({"op": "remove", "path": "/a"}), "patchType": "JSONPatch"}
INVALID: list[tuple[Any, bool, str]] = [
    (None, False, "webhook response was absent"),
    ([], False, "failed to call webhook: json: "),
    ({**review_of(), "kind": "Other"}, False, 'no kind "Other" is registered'),
    (review_of("v1beta1"), False, r"converting \(v1beta1.AdmissionReview\) to \(v1.AdmissionReview\)"),
    (review_of(uid="other"), False, 'expected response.uid="u", got "other"'),
    ({"response": {"uid": "u", "allowed": True}}, False, "got /, Kind="),
    (review_of(**PATCH), False, "validating webhook may not return response.patch$"),
    (review_of(patchType="JSONPatch"), False, "validating webhook may not return response.patchType"),
    (review_of(patch=PATCH["patch"]), True, "returned response.patch but not response.patchType"),
    (review_of(patchType="JSONPatch"), True, "returned response.patchType but not response.patch"),
    (review_of(patch=PATCH["patch"], patchType="Merge"), True, 'unsupported patch type "Merge"'),
    (review_of(patch="%", patchType="JSONPatch"), True, "illegal base64 data"),
    (review_of(patch=base64.b64encode(b"{").decode(), patchType="JSONPatch"), True, "undecodable patch"),
]


@pytest.mark.parametrize(("answer", "mutating", "text"), INVALID, ids=[text for _, _, text in INVALID])
def test_an_invalid_response_is_an_error(answer: Any, mutating: bool, text: str) -> None:
    with pytest.raises(InvalidReviewError, match=text):
        read_review("v1", "u", answer, mutating=mutating)


def test_responses_of_v1beta1_need_neither_uid_nor_patch_type() -> None:
    answer = {"response": {"allowed": True, "patch": PATCH["patch"]}}
    assert read_review("v1beta1", "u", answer, mutating=True).operations == [{"op": "remove", "path": "/a"}]
    assert read_review("v1beta1", "u", answer, mutating=False).operations == []


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (None, 400, " without explanation"),
        ({"message": "no", "reason": "Because", "code": 422}, 422, ": no"),
        ({"reason": "Because", "code": 200}, 400, ": Because"),
        ({"code": 503, "details": {"retryAfterSeconds": 5}}, 503, " without explanation"),
    ],
)
def test_a_denial_has_the_code_and_the_message_of_the_webhook(
    status: dict[str, Any] | None, code: int, text: str
) -> None:
    error = rejection(webhook(), status)
    assert (error.status, error.message) == (code, f'admission webhook "hook.test" denied the request{text}')
    assert error.reason == (status or {}).get("reason", "")
    assert error.retry_after == (5 if code == 503 else None)
