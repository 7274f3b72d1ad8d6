"""Tests for :mod:`trioperator._handling.reviews.conversion_review`."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator._handling.reviews.conversion_review import (
    build_conversion,
    build_failure,
    is_conversion,
    parse_conversion,
)
from trioperator.errors import ReviewError


def review(request: Any, version: str = "v1") -> dict[str, Any]:
    return {"kind": "ConversionReview", "apiVersion": f"apiextensions.k8s.io/{version}", "request": request}


WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}


def test_a_review_is_read() -> None:
    request = parse_conversion(review({"uid": "u", "desiredAPIVersion": "example.com/v2", "objects": [WIDGET]}))
    assert (request.uid, request.desired_api_version, request.objects) == ("u", "example.com/v2", [WIDGET])


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (None, "invalid: Expected `object`, got `null`"),
        ({"uid": "u", "objects": []}, "missing required field `desiredAPIVersion`"),
        ({"uid": "u", "desiredAPIVersion": "v2", "objects": [1]}, r"got `int` - at `\$\.objects\["),
        ({"uid": "u", "desiredAPIVersion": "v2", "objects": [WIDGET, {"kind": "Widget"}]}, r"objects\[1\]"),
        ({"uid": "u", "desiredAPIVersion": "v2", "objects": [{**WIDGET, "metadata": None}]}, r"objects\[0\]"),
        (
            {"uid": "u", "desiredAPIVersion": "v2", "objects": [{**WIDGET, "metadata": {"labels": "x"}}]},
            r"\$\.metadata\.labels` of `\$\.objects\[0\]",
        ),
    ],
)
def test_an_invalid_review_is_rejected(request_: Any, match: str) -> None:
    with pytest.raises(ReviewError, match=match):
        parse_conversion(review(request_))


def test_a_review_of_another_version_is_rejected() -> None:
    with pytest.raises(ReviewError, match="version of the ConversionReview is not one of"):
        parse_conversion(review({}, "v2"))


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_responses_have_the_version_of_the_request(version: str) -> None:
    asked = review({}, version)
    done = {"uid": "u", "convertedObjects": [WIDGET], "result": {"status": "Success"}}
    failed = {"uid": "u", "convertedObjects": [], "result": {"status": "Failure", "message": "no"}}
    head = {"kind": "ConversionReview", "apiVersion": asked["apiVersion"]}
    assert build_conversion(asked, "u", [WIDGET]) == {**head, "response": done}
    assert build_failure(asked, "u", "no") == {**head, "response": failed}


@pytest.mark.parametrize("value", [None, [], "ConversionReview", {"kind": "AdmissionReview"}])
def test_nothing_else_is_a_conversion(value: Any) -> None:
    assert not is_conversion(value)
