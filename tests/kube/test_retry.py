"""Which failed requests are retried, and when."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trioperator._http.transport import TransportError
from trioperator._kube.retry import (
    JSON_PATCH,
    adjust_delay,
    is_repeatable,
    is_retryable,
    iterate_backoffs,
    may_be_processed,
)
from trioperator.errors import ApiError, ConnectionLostError, ServerError, TooManyRequestsError

LOST = TransportError("x", reached=True)
NOT_REACHED = TransportError("x", reached=False)
UNTRUSTED = TransportError("x", reached=False, final=True)
SERVER_ERROR = ApiError.of("x", status=500)
TOO_MANY = ApiError.of("x", status=429, retry_after=7)


@pytest.mark.parametrize("error", [LOST, NOT_REACHED, SERVER_ERROR, TOO_MANY, ConnectionLostError("x")])
def test_what_can_be_repeated_is_retried_after_any_temporary_error(error: Exception) -> None:
    assert is_retryable(error, repeatable=True)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [(LOST, False), (ConnectionLostError("x"), False), (SERVER_ERROR, False), (NOT_REACHED, True), (TOO_MANY, True)],
)
def test_anything_else_is_retried_only_if_the_server_has_not_processed_it(error: Exception, retryable: bool) -> None:
    assert is_retryable(error, repeatable=False) == retryable
    assert may_be_processed(error) != retryable


@pytest.mark.parametrize("repeatable", [False, True])
def test_a_final_error_is_not_retried(repeatable: bool) -> None:
    assert not is_retryable(UNTRUSTED, repeatable=repeatable)


@pytest.mark.parametrize(
    "message",
    [
        "failed to create typed patch object (default/a; /v1, Kind=ConfigMap): .data: expected map, got &{[1]}",
        "failed to convert new object (/a; apps/v1, Kind=Deployment) to proper version: unable to convert unstructured"
        " object to apps/v1, Kind=Deployment: quantities must match the regular expression",
        "etcdserver: request is too large",
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2400453 vs. 2097152)",
    ],
)
def test_a_request_that_is_wrong_itself_is_not_retried_though_it_is_answered_with_500(message: str) -> None:
    assert not is_retryable(ApiError.of(message, status=500), repeatable=True)
    assert is_retryable(ApiError.of(f"a webhook said: {message}", status=500), repeatable=True)
    assert is_retryable(ApiError.of(message, status=503), repeatable=True)


def op(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": name, "path": path, **more}


PATCHES: list[tuple[list[Any], bool]] = [
    ([], True),
    ([op("replace", "/spec/list/0", value=1), op("add", "/spec/size", value=1)], True),
    ([op("add", "/spec/list/-", value=1)], False),
    ([op("add", "/spec/list/0", value=1)], False),
    ([op("remove", "/spec/size")], False),
    ([op("copy", "/spec/list/0", **{"from": "/spec/list/1"})], False),
    ([op("test", "/metadata/resourceVersion", value="7"), op("remove", "/spec/list/0")], True),
    ([op("test", "/metadata/uid", value="7"), op("remove", "/spec/list/0")], False),
    ([op("test", "/spec/list", value=[1, 1]), op("remove", "/spec/list/0")], True),
    ([op("test", "/spec", value={}), op("add", "/spec/list/-", value=1)], True),
    ([op("test", "/spec/list/0", value=1), op("remove", "/spec/list/0")], False),  # the next one may be the same
    ([op("test", "/spec/size", value=1), op("remove", "/spec/size")], True),
    ([op("test", "/spec/li", value=1), op("remove", "/spec/list/0")], False),
    ([op("test", "/spec/list", value=[]), op("add", "/spec/list/-"), op("add", "/spec/other/-")], False),
    ([None], False),
    ([op("replace", "/spec/size"), {"op": "replace", "path": 7}], False),
]


@pytest.mark.parametrize(("patch", "repeatable"), PATCHES)
def test_a_json_patch_can_be_repeated_if_it_cannot_be_applied_twice(patch: list[Any], repeatable: bool) -> None:
    assert is_repeatable("PATCH", JSON_PATCH, msgspec.json.encode(patch)) == repeatable


@pytest.mark.parametrize(
    ("method", "body", "repeatable"),
    [
        ("GET", None, True),
        ("PUT", b"{}", True),
        ("PATCH", b"[]", True),
        ("POST", b"{}", False),
        ("DELETE", None, False),
        ("DELETE", b"{", False),
        ("DELETE", b'{"preconditions":null}', False),
        ("DELETE", b'{"preconditions":"7"}', False),
        ("DELETE", b'{"preconditions":{"resourceVersion":"7"}}', False),
        ("DELETE", b'{"preconditions":{"uid":"7"}}', True),
    ],
)
def test_a_deletion_can_be_repeated_if_it_is_of_one_object(method: str, body: bytes | None, repeatable: bool) -> None:
    assert is_repeatable(method, "application/json", body) == repeatable


def test_errors_are_of_the_expected_classes() -> None:
    assert isinstance(SERVER_ERROR, ServerError)
    assert isinstance(TOO_MANY, TooManyRequestsError)


@pytest.mark.parametrize(
    ("delay", "error", "enforce", "adjusted"),
    [
        (1, TOO_MANY, False, 7),
        (9, TOO_MANY, False, 9),
        (9, TOO_MANY, True, 7),
        (9, SERVER_ERROR, True, 9),
        (9, LOST, True, 9),
    ],
)
def test_retry_after_is_a_lower_bound_or_if_enforced_the_delay(
    delay: float, error: Exception, enforce: bool, adjusted: float
) -> None:
    assert adjust_delay(delay, error, enforce=enforce) == adjusted


def test_backoffs_are_a_number_or_something_to_iterate_over() -> None:
    assert list(iterate_backoffs((1, 2.5))) == [1, 2.5]
    assert list(iterate_backoffs(3)) == [3]
    assert list(iterate_backoffs(None)) == []
    assert list(iterate_backoffs(())) == []
