"""Tests for :mod:`trioperator.apiserver.model.errors`: errors have the messages and details of a real server."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.apiserver.model import errors
from trioperator.apiserver.model.kinds import Catalog, Kind
from trioperator.apiserver.model.status_causes import StatusCause, required
from trioperator.errors import ApiError, ExpiredError, NotFoundError

CATALOG = Catalog()


def builtin(group: str, version: str, plural: str) -> Kind:
    """Return a built-in kind."""
    kind = CATALOG.get(group, version, plural)
    assert kind is not None
    return kind


PODS = builtin("", "v1", "pods")
JOBS = builtin("batch", "v1", "jobs")
POD_DETAILS = {"name": "a", "kind": "pods"}
JOB_DETAILS = {"name": "a", "group": "batch", "kind": "jobs"}


@pytest.mark.parametrize(
    ("error", "status", "reason", "message", "details"),
    [
        (errors.not_found(PODS, "a"), 404, "NotFound", 'pods "a" not found', POD_DETAILS),
        (errors.not_found(JOBS, "a"), 404, "NotFound", 'jobs.batch "a" not found', JOB_DETAILS),
        (errors.already_exists(PODS, "a"), 409, "AlreadyExists", 'pods "a" already exists', POD_DETAILS),
        (
            errors.already_exists(PODS, "a", is_terminating=True),
            409,
            "AlreadyExists",
            'object is being deleted: pods "a" already exists',
            POD_DETAILS,
        ),
        (
            errors.conflict(JOBS, "a"),
            409,
            "Conflict",
            'Operation cannot be fulfilled on jobs.batch "a": the object has been modified; please apply your changes '
            "to the latest version and try again",
            JOB_DETAILS,
        ),
        (errors.forbidden(PODS, "a", "no"), 403, "Forbidden", 'pods "a" is forbidden: no', POD_DETAILS),
        (
            errors.forbidden(PODS, "a", "no", causes=[{"message": "x"}]),
            403,
            "Forbidden",
            'pods "a" is forbidden: no',
            {**POD_DETAILS, "causes": [{"message": "x"}]},
        ),
        (errors.unauthorized(), 401, "Unauthorized", "Unauthorized", {}),
        (errors.bad_request("so bad"), 400, "BadRequest", "so bad", {}),
        (
            errors.unsupported_media_type(["a/b", "c/d"]),
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: a/b, c/d",
            {},
        ),
        (
            errors.request_timeout(29.6),
            408,
            "Timeout",
            "Timeout: the request was not complete within 30 seconds",
            {},
        ),
        (
            errors.internal_error("boom"),
            500,
            "InternalError",
            "Internal error occurred: boom",
            {"causes": [{"message": "boom"}]},
        ),
    ],
)
def test_errors_look_like_those_of_a_real_server(
    error: ApiError, status: int, reason: str, message: str, details: dict[str, Any]
) -> None:
    assert (error.status, error.reason, error.message) == (status, reason, message)
    assert dict(error.details or {}) == details


@pytest.mark.parametrize(
    ("group", "resource", "name", "message", "details"),
    [
        ("", "pods", "a", 'pods "a" is forbidden: no', {"name": "a", "kind": "pods"}),
        ("x.dev", "cows", "", "cows.x.dev is forbidden: no", {"group": "x.dev", "kind": "cows"}),
        ("", "", "", "forbidden: no", {}),
    ],
)
def test_access_is_denied_to_resources_that_may_not_exist(
    group: str, resource: str, name: str, message: str, details: dict[str, str]
) -> None:
    error = errors.access_denied(group, resource, name, "no")
    assert (error.status, error.message, dict(error.details or {})) == (403, message, details)


class TestInvalidObjects:
    def test_one_error_is_the_message(self) -> None:
        error = errors.invalid("Pod", "", "a", [required("spec.x")])
        assert (error.status, error.reason) == (422, "Invalid")
        assert error.message == 'Pod "a" is invalid: spec.x: Required value'
        assert dict(error.details or {}) == {
            "name": "a",
            "kind": "Pod",
            "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.x"}],
        }

    def test_many_errors_are_a_list(self) -> None:
        error = errors.invalid("Cow", "x.dev", "a", [required("b"), required("a", "x")])
        assert error.message == 'Cow.x.dev "a" is invalid: [b: Required value, a: Required value: x]'

    def test_equal_errors_are_reported_once(self) -> None:
        error = errors.invalid("Pod", "", "", [required("a"), required("a"), StatusCause("a", "Required value")])
        assert error.message == 'Pod "" is invalid: a: Required value'
        causes = dict(error.details or {})["causes"]
        assert [cause["reason"] for cause in causes] == ["FieldValueRequired", "FieldValueInvalid"]


class TestStatus:
    def test_a_status_has_no_empty_fields(self) -> None:
        assert errors.render_status(errors.headers_too_large(5)) == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Request header fields too large: limit is 5",
            "code": 431,
        }

    def test_a_status_has_the_reason_and_the_details(self) -> None:
        status = errors.render_status(errors.not_found(JOBS, "a"))
        assert (status["code"], status["reason"], status["details"]) == (404, "NotFound", JOB_DETAILS)

    def test_an_expired_page_continues_with_another_token(self) -> None:
        error = errors.StalePageError("too old", token="next")
        assert isinstance(error, ExpiredError)
        status = errors.render_status(error)
        assert (status["code"], status["reason"], status["metadata"]) == (410, "Expired", {"continue": "next"})


def test_callers_in_the_process_catch_the_errors_of_http_clients() -> None:
    assert isinstance(errors.not_found(PODS, "a"), NotFoundError)
    assert isinstance(errors.unknown_resource(), NotFoundError)
    assert isinstance(errors.expired("too old"), ExpiredError)


def test_a_version_in_the_future_may_be_asked_for_again() -> None:
    error = errors.version_too_large(7, 5)
    assert (error.status, error.retry_after) == (504, 1)
    assert error.message == "Timeout: Too large resource version: 7, current: 5"
    assert dict(error.details or {})["causes"][0]["reason"] == "ResourceVersionTooLarge"
