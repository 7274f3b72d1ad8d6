"""Tests for :mod:`trioperator._handling.reviews.admission`."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator import on
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.reviews.admission import build_json_patch, build_response, reviews
from trioperator._model.patch import Patch
from trioperator.errors import AdmissionError, ConfigError, PermanentError, TemporaryError, UserCodeError


def fn(**_: Any) -> None: ...


@pytest.mark.parametrize(
    ("decorator", "options", "operation", "subresource", "expected"),
    [
        ("validate", {}, "CREATE", None, True),
        ("validate", {}, "DELETE", None, True),
        ("validate", {}, "UPDATE", "status", False),
        ("validate", {"subresource": "status"}, "UPDATE", "status", True),
        ("validate", {"subresource": "status"}, "UPDATE", None, False),
        ("validate", {"subresource": "*"}, "UPDATE", None, True),
        ("validate", {"subresource": "*"}, "UPDATE", "scale", True),
        ("validate", {"operation": "CREATE"}, "UPDATE", None, False),
        ("validate", {"operations": ["CREATE", "UPDATE"]}, "UPDATE", None, True),
        ("mutate", {}, "UPDATE", None, True),
        ("mutate", {}, "DELETE", None, False),
        ("mutate", {"operations": ["DELETE", "UPDATE"]}, "DELETE", None, False),
        ("mutate", {"operation": "DELETE"}, "DELETE", None, True),
    ],
)
def test_operations_and_subresources_decide_what_is_reviewed(
    decorator: str, options: dict[str, Any], operation: str, subresource: str | None, expected: bool
) -> None:
    registry = OperatorRegistry()
    getattr(on, decorator)("widgets", registry=registry, **options)(fn)
    (handler,) = registry.admission_handlers()
    assert reviews(handler, operation, subresource) is expected


def test_an_id_is_of_validating_or_of_mutating_handlers_only() -> None:
    registry = OperatorRegistry()
    on.validate("widgets", registry=registry)(fn)
    on.mutate("widgets", registry=registry)(fn)
    with pytest.raises(ConfigError, match=r"on.validate and on.mutate handlers with the id 'fn'"):
        registry.check()


def test_unknown_arguments_are_reported() -> None:
    registry = OperatorRegistry()

    @on.validate("widgets", registry=registry)
    def check(userinfo: Any, sslpeer: Any, headers: Any, dryrun: bool, warning: list[str]) -> None: ...

    with pytest.raises(ConfigError, match=r"warning\b.*Available arguments: .*warnings"):
        registry.check()


@pytest.mark.parametrize(
    ("errors", "message", "code"),
    [
        ([AdmissionError("no")], "no", 500),
        ([AdmissionError("no", code=418)], "no", 418),
        ([ValueError("v"), TemporaryError("t"), PermanentError("p"), AdmissionError("a", 409)], "a", 409),
        ([ValueError("v"), TemporaryError("t"), PermanentError("p")], "p", 500),
        ([ValueError("v"), TemporaryError("t")], "t", 500),
        ([ValueError("secret")], "The webhook has failed: see the log of the operator.", 500),
        ([UserCodeError("A filter", KeyError("k"))], "A filter has failed: see the log of the operator.", 500),
    ],
)
def test_one_error_decides(errors: list[BaseException], message: str, code: int) -> None:
    response = build_response("u", errors, warnings=["w", 5], patch=b"abc")
    assert response == {
        "uid": "u",
        "allowed": False,
        "warnings": ["w", "5"],
        "status": {"message": message, "code": code},
    }


def test_without_errors_the_patch_is_returned() -> None:
    assert build_response("u", []) == {"uid": "u", "allowed": True}
    assert build_response("u", [], patch=b"abc") == {
        "uid": "u",
        "allowed": True,
        "patch": "abc",
        "patchType": "JSONPatch",
    }


@pytest.mark.parametrize("code", [200, 0, 600])
def test_a_code_that_is_no_error_is_rejected(code: int) -> None:
    with pytest.raises(ValueError, match="from 400 to 599"):
        AdmissionError("no", code=code)
    with pytest.raises(TypeError):
        AdmissionError("no", code="400")  # type: ignore[arg-type]


BODY = {"metadata": {"labels": {"a": "1"}}, "spec": {"x": 1, "items": [1, 2]}}


@pytest.mark.parametrize(
    ("patch", "operations"),
    [
        ({}, []),
        ({"spec": {"x": 2}}, [{"op": "replace", "path": "/spec/x", "value": 2}]),
        ({"spec": {"x": 1}}, []),
        ({"spec": {"y": {"z": 1}}}, [{"op": "add", "path": "/spec/y", "value": {"z": 1}}]),
        ({"status": {"y": 1}}, [{"op": "add", "path": "/status", "value": {"y": 1}}]),
        ({"spec": {"x": None}}, [{"op": "remove", "path": "/spec/x"}]),
        ({"spec": {"nothing": None}, "status": {"y": None}}, []),
        ({"status": {"y": None, "z": 1}}, [{"op": "add", "path": "/status", "value": {"z": 1}}]),
        ({"spec": {"items": [3]}}, [{"op": "replace", "path": "/spec/items", "value": [3]}]),
        ({"spec": {"e": {}}}, [{"op": "add", "path": "/spec/e", "value": {}}]),
        ({"metadata": {"labels": {"a/b": "2"}}}, [{"op": "add", "path": "/metadata/labels/a~1b", "value": "2"}]),
    ],
)
def test_changes_become_a_json_patch(patch: dict[str, Any], operations: list[Any]) -> None:
    assert build_json_patch(BODY, Patch(patch)) == operations


def test_functions_of_the_patch_are_applied_after_its_fields() -> None:
    patch = Patch({"spec": {"x": 2}}, fns=[lambda body: body["spec"]["items"].append(body["spec"]["x"] + 1)])
    expected = [{"op": "replace", "path": "/spec/x", "value": 2}, {"op": "add", "path": "/spec/items/2", "value": 3}]
    assert sorted(build_json_patch(BODY, patch), key=str) == sorted(expected, key=str)
    assert BODY["spec"] == {"x": 1, "items": [1, 2]}
