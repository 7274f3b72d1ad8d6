"""Tests for :mod:`trioperator.apiserver.bodies.delete_options`: what a deletion is asked for, in body or query."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.bodies.delete_options import DeleteOptions, parse_delete_options
from trioperator.apiserver.model.messages import Request
from trioperator.errors import ApiError


def parse(body: Any = None, **query: str) -> DeleteOptions:
    content = b"" if body is None else msgspec.json.encode(body)
    return parse_delete_options(Request(method="DELETE", path="/", query=query, body=content))


def test_nothing_is_asked_for_by_default() -> None:
    options = parse()
    assert (options.grace, options.policy, options.dry_run) == (None, "", False)
    assert (options.uid, options.version) == ("", "")


@pytest.mark.parametrize(
    "options",
    [
        parse({"gracePeriodSeconds": 5, "propagationPolicy": "Orphan", "dryRun": ["All"]}),
        parse(gracePeriodSeconds="5", propagationPolicy="Orphan", dryRun="All"),
    ],
    ids=["body", "query"],
)
def test_options_come_from_the_body_or_the_query(options: DeleteOptions) -> None:
    assert (options.grace, options.policy, options.dry_run) == (5, "Orphan", True)


@pytest.mark.parametrize("body", [{}, {"kind": "DeleteOptions", "apiVersion": "v1"}])
def test_the_query_does_not_count_with_a_body(body: Any) -> None:
    assert parse(body, gracePeriodSeconds="5", propagationPolicy="Orphan").sent == {}


def test_preconditions_are_a_uid_and_a_resource_version() -> None:
    options = parse({"preconditions": {"uid": "u", "resourceVersion": "7", "other": 1}})
    assert (options.uid, options.version) == ("u", "7")


@pytest.mark.parametrize(
    ("body", "policy"),
    [({"orphanDependents": True}, "Orphan"), ({"orphanDependents": False}, "Background")],
)
def test_the_legacy_option_is_a_policy(body: Any, policy: str) -> None:
    assert parse(body).policy == policy


@pytest.mark.parametrize("text", ["false", "False", "0"])
def test_the_legacy_option_can_be_false_in_the_query(text: str) -> None:
    assert parse(orphanDependents=text).policy == "Background"


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (
            {"propagationPolicy": "Never"},
            422,
            'Unsupported value: "Never": supported values: "Foreground", "Background"',
        ),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422, "cannot be both set"),
        ({"dryRun": ["All", "Some"]}, 422, 'Unsupported value: ["All","Some"]: supported values: "All"'),
        ({"dryRun": [1]}, 400, "cannot unmarshal number into Go struct field DeleteOptions.dryRun of type string"),
        ({"gracePeriodSeconds": True}, 400, "cannot unmarshal bool into Go struct field"),
        ({"preconditions": {"uid": 1}}, 400, "Preconditions.preconditions.uid of type types.UID"),
        ([], 400, "cannot unmarshal array into Go value of type struct"),
    ],
)
def test_invalid_options_are_rejected(options: Any, status: int, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse(options)
    assert caught.value.status == status
    assert message in caught.value.message


@pytest.mark.parametrize("text", ["x", "1.5", "5s"])
def test_a_grace_period_in_the_query_is_an_integer(text: str) -> None:
    with pytest.raises(ApiError, match=r"strconv\.ParseInt: parsing .*: invalid syntax"):
        parse(gracePeriodSeconds=text)


@given(st.dictionaries(st.sampled_from(["propagationPolicy", "dryRun", "orphanDependents", "x"]), st.text()))
def test_an_empty_body_ignores_any_query(query: dict[str, str]) -> None:
    assert parse({}, **query) == parse({})
