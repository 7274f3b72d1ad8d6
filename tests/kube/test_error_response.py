"""Error responses as exceptions, and the delays that servers ask for."""

from __future__ import annotations

import datetime
import email.utils
import json
import sys
from typing import Any

import pytest

from tests.levels import TOO_MANY
from trioperator._concurrency.clock import wall_now
from trioperator._kube.error_response import (
    describe_failure,
    is_denial,
    is_version_too_large,
    parse_error_response,
    parse_retry_after,
    parse_status,
)
from trioperator._kube.retry import is_always_500
from trioperator.errors import ApiError, ConflictError, ExpiredError, ServerError, TooManyRequestsError


def body(**fields: Any) -> bytes:
    return json.dumps({"kind": "Status", "apiVersion": "v1", **fields}).encode()


def test_the_servers_message_reason_and_details_are_kept() -> None:
    error = parse_error_response(409, [], body(message="is old", reason="Conflict", details={"name": "x"}))
    assert type(error) is ConflictError
    assert str(error) == "HTTP 409 Conflict: is old"
    assert error.details == {"name": "x"}


@pytest.mark.parametrize(
    "junk", [b"", b"<html>secret</html>", b'{"kind": "Pod", "message": "secret"}', b"[1]", b"\xff"]
)
def test_only_a_status_is_quoted(junk: bytes) -> None:
    error = parse_error_response(502, [], junk)
    assert type(error) is ServerError
    assert str(error) == "HTTP 502: the server gave no reason"


@pytest.mark.parametrize("bad", [None, 1, [], {}])
def test_a_status_with_invalid_fields_is_accepted(bad: Any) -> None:
    error = parse_error_response(400, [], body(message=bad, reason=bad, details=bad, code=bad))
    assert (error.status, error.reason, dict(error.details)) == (400, "", {})


def test_long_messages_are_cut() -> None:
    error = parse_error_response(400, [], body(message="x" * 1000))
    assert error.message == "x" * 255 + "…"
    assert parse_error_response(400, [], body(message="x" * 256)).message == "x" * 256


def test_the_header_sets_the_delay_else_the_details_do() -> None:
    assert parse_error_response(429, [(b"Retry-After", b"7")], body()).retry_after == 7
    both = body(details={"retryAfterSeconds": 3})
    assert parse_error_response(429, [(b"RETRY-AFTER", b" 7 ")], both).retry_after == 7
    error = parse_error_response(429, [], body(details={"retryAfterSeconds": 3}))
    assert type(error) is TooManyRequestsError
    assert error.retry_after == 3
    assert parse_error_response(429, [], body(details={"retryAfterSeconds": "x"})).retry_after is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("0", 0),
        ("1.5", 1.5),
        ("-3", 0),
        ("inf", 3600),
        ("99999999", 3600),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600),
        ("Fri, 31 Dec 9999 23:59:59", None),
    ],
)
async def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    headers = [] if value is None else [(b"Retry-After", value.encode())]
    assert parse_retry_after(headers) == seconds


async def test_a_date_is_counted_from_now() -> None:
    date = email.utils.format_datetime(wall_now() + datetime.timedelta(seconds=100), usegmt=True)
    seconds = parse_retry_after([(b"Retry-After", date.encode())])
    assert seconds is not None
    assert 95 < seconds <= 100


def test_a_date_is_counted_from_that_of_the_response_as_clocks_differ() -> None:
    dates = [(b"Retry-After", b"Fri, 02 Jan 2026 10:00:30 GMT"), (b"Date", b"Fri, 02 Jan 2026 10:00:00 GMT")]
    assert parse_error_response(503, dates, b"").retry_after == 30


def test_an_error_event_has_its_code_in_the_status() -> None:
    assert type(parse_status(body(code=410, message="too old"), status=0)) is ExpiredError
    assert parse_status(body(code=410), status=0).status == 410
    for odd in (None, "410", 0, 200, -1):
        assert parse_status(body(code=odd), status=0).status == 500
    assert parse_status(b'{"kind": "Pod"}', status=0).status == 500


def test_the_class_follows_the_status_not_the_body() -> None:
    assert isinstance(parse_error_response(503, [], body(code=404)), ServerError)
    assert type(parse_error_response(418, [], body())) is ApiError


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (
            504,
            {"details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}},
        ),
        (410, {"details": {"causes": [None, {"reason": "ResourceVersionTooLarge"}]}}),
        (504, {"message": "Timeout: Too large resource version: 900, current: 172", "reason": "Timeout"}),
    ],
)
def test_a_resource_version_that_the_server_does_not_have_is_recognized(status: int, fields: dict[str, Any]) -> None:
    assert is_version_too_large(parse_error_response(status, [], body(**fields)))


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (504, {"message": "Timeout: etcd", "reason": "Timeout", "details": {"causes": [{"reason": "Timeout"}, 1]}}),
        (504, {"details": {"causes": {"reason": "ResourceVersionTooLarge"}}}),
        (410, {"message": "too old resource version: 1 (9)"}),
        (400, {"message": "Too large resource version"}),
    ],
)
def test_other_errors_are_not_about_a_version_that_is_too_large(status: int, fields: dict[str, Any]) -> None:
    assert not is_version_too_large(parse_error_response(status, [], body(**fields)))


DEEP = b"[" * TOO_MANY + b"]" * TOO_MANY  # more levels than any decoder has


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="a short message has no levels that cannot be read")
def test_details_that_are_nested_too_deeply_are_left_out() -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    error = parse_error_response(
        409, [], b'{"kind":"Status","message":"is old","reason":"Conflict","details":%b}' % deep
    )
    assert (str(error), error.details) == ("HTTP 409 Conflict: is old", {})
    error = parse_status(b'{"kind":"Status","code":410,"details":{"a":%b},"reason":"Expired"}' % deep, status=0)
    assert type(error) is ExpiredError


@pytest.mark.parametrize("junk", [DEEP, b'{"kind":"Status","details":%b}' % DEEP, b'{"details":%b' % DEEP[:30_000]])
def test_a_large_or_broken_status_that_is_nested_too_deeply_is_not_quoted(junk: bytes) -> None:
    assert str(parse_error_response(500, [], junk)) == "HTTP 500: the server gave no reason"


def test_missing_rights_are_reported_with_the_command_that_prints_them() -> None:
    assert describe_failure(parse_status(b"{}", status=403)).endswith(
        ". `trioperator rbac` prints the roles that the operator needs"
    )
    assert "rbac" not in describe_failure(parse_status(b"{}", status=404))


@pytest.mark.parametrize(
    ("message", "is_right"),
    [
        ('pods is forbidden: User "me" cannot list resource "pods" in API group "" at the cluster scope', True),
        ('roles "x" is forbidden: user "me" (groups=["a"]) is attempting to grant RBAC permissions', True),
        ('forbidden: User "me" cannot get path "/metrics"', True),
        ("widgets \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", False),
        ('admission webhook "w" denied the request: no', False),
        ('pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1', False),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged', False),
        ('configmaps "x" is forbidden: unable to create new content in namespace a because it is being', False),
    ],
)
def test_rights_are_not_to_blame_for_what_is_forbidden_to_all(message: str, is_right: bool) -> None:
    error = parse_status(body(message=message, reason="Forbidden"), status=403)
    assert ("rbac" in describe_failure(error)) is is_right


SECRET = "/api/v1/namespaces/default/secrets/db"
CAUSES = {"name": "db", "causes": [{"field": "data.key", "message": "s3cret"}, {"message": "s3cret"}, 1]}


@pytest.mark.parametrize("target", [SECRET, f"{SECRET}?dryRun=All", "/api/v1/secrets", "/api/v1/namespaces/n/secrets"])
@pytest.mark.parametrize(
    ("status", "text"), [(400, "s3cret"), (422, "s3cret"), (500, "s3cret"), (403, "it denied request: s3cret")]
)
def test_what_the_server_says_of_a_secret_is_concealed(target: str, status: int, text: str) -> None:
    error = parse_error_response(status, [], body(message=text, reason="Invalid", details=CAUSES), target=target)
    assert "s3cret" not in repr((error, error.args, vars(error)))
    assert "what is wrong in data.key is not shown" in str(error)
    assert (error.status, error.reason, error.details["name"]) == (status, "Invalid", "db")
    assert type(error) is type(parse_error_response(status, [], b""))


@pytest.mark.parametrize("status", [403, 404, 409, 410, 429, 503])
def test_what_quotes_no_secret_is_shown(status: int) -> None:
    assert parse_error_response(status, [], body(message="x", reason="R"), target=SECRET).message == "x"


@pytest.mark.parametrize(
    "beginning",
    [
        "failed to create typed patch object (",
        "failed to convert new object (",
        "etcdserver: request is too large",
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max (",
    ],
)
def test_it_is_still_known_of_a_request_for_a_secret_that_it_is_wrong_itself(beginning: str) -> None:
    error = parse_error_response(500, [], body(message=f"{beginning}s3cret"), target=SECRET)
    assert is_always_500(error)
    assert "s3cret" not in str(error)
    assert str(error).startswith(f"HTTP 500: {beginning.rstrip(' (')} (what is wrong is not shown")


@pytest.mark.parametrize("status", [400, 403, 500])
def test_it_is_still_known_of_a_request_for_a_secret_that_it_was_denied(status: int) -> None:
    text = 'admission webhook "x.example.com" denied the request: s3cret'
    error = parse_error_response(status, [], body(message=text), target=SECRET)
    assert is_denial(error)
    assert "s3cret" not in str(error)


@pytest.mark.parametrize(
    "target", ["/api/v1/namespaces/secrets", "/apis/example.com/v1/secrets", "/api/v1/configmaps", "/x/api/v1/secrets"]
)
def test_what_the_server_says_of_others_is_shown(target: str) -> None:
    assert parse_error_response(422, [], body(message="is bad"), target=target).message == "is bad"


@pytest.mark.parametrize(
    ("target", "is_shown"),
    [
        ("/apis/example.com/v1/namespaces/default/databases/db", False),
        ("/apis/example.com/v2/databases?limit=5", False),
        ("/apis/example.com/v1/namespaces/default/databases/db/status", False),
        ("/apis/example.com/v1/namespaces/default/tables/databases", True),
        ("/apis/example.org/v1/namespaces/default/databases/db", True),
        ("/api/v1/namespaces/default/databases/db", True),
        ("/api/v1/namespaces/default/secrets/db", False),
    ],
)
def test_kinds_that_are_declared_secret_are_concealed_as_secrets_are(target: str, is_shown: bool) -> None:
    error = parse_error_response(422, [], body(message="s3cret"), target=target, secret={"databases.example.com"})
    assert ("s3cret" in str(error)) == is_shown
