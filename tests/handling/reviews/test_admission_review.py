"""Tests for :mod:`trioperator._handling.reviews.admission_review`."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from tests.webhooks.admission import make_review
from trioperator._handling.reviews.admission_review import build_review, parse_review
from trioperator.errors import ReviewError


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_review_is_parsed_and_answered_in_its_version(version: str) -> None:
    review = make_review(version=version, subResource="status", dryRun=True)
    request = parse_review(review)
    assert (request.uid, request.operation, request.sub_resource, request.dry_run) == ("u1", "CREATE", "status", True)
    assert request.user_info["username"] == "alice"
    response = build_review(review, {"uid": "u1"})
    assert response == {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "response": {"uid": "u1"},
    }


@pytest.mark.parametrize(
    ("review", "message"),
    [
        ({}, "is not an AdmissionReview"),
        ([], "is not an AdmissionReview"),
        ({**make_review(), "apiVersion": "admission.k8s.io/v2"}, "version"),
        ({**make_review(), "request": None}, "Expected `object`"),
        (make_review(uid=5), "`str`"),
        (make_review(resource={}), "missing required field"),
        (make_review(new={}, userInfo=[]), "userInfo"),
        (make_review(new={"metadata": []}), r"`\$\.metadata`"),
        (make_review(new={"metadata": {"labels": {"a": 1}}}), r"`\$\.metadata\.labels"),
        (make_review("DELETE", old={"metadata": {"uid": 1}}), r"`\$\.metadata\.uid`"),
    ],
)
def test_an_invalid_review_is_rejected(review: Any, message: str) -> None:
    with pytest.raises(ReviewError, match=message) as caught:
        parse_review(review)
    assert caught.value.status == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda part: st.lists(part) | st.dictionaries(st.text(), part),
)


@hypothesis.given(st.dictionaries(st.sampled_from(["uid", "resource", "operation", "object", "dryRun"]), JSON))
def test_whatever_is_sent_is_parsed_or_rejected(request: dict[str, Any]) -> None:
    try:
        parse_review({**make_review(), "request": request})
    except ReviewError:
        pass
