"""Tests for :mod:`trioperator.apiserver.model.messages`: responses, warnings, and the log of requests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.model.messages import Request, RequestLog, RequestRecord, Response, warning_headers


def record(verb: str = "get", resource: str = "pods", **more: Any) -> RequestRecord:
    """Return the log entry of a request."""
    fields: dict[str, Any] = {"time": 0, "method": "GET", "path": "/", "query": {}, "user_agent": "", "status": 200}
    return RequestRecord(**{**fields, "verb": verb, "resource": resource, **more})


@pytest.fixture
def log() -> RequestLog:
    log = RequestLog(limit=3)
    for verb, resource in (("get", "pods"), ("get", "deployments.apps"), ("patch", "pods"), ("get", "pods")):
        log.add(record(verb, resource))
    return log


@pytest.mark.parametrize(
    ("content_type", "media_type"),
    [("", ""), ("application/json", "application/json"), ("application/json ; charset=utf-8", "application/json")],
)
def test_a_media_type_has_no_parameters(content_type: str, media_type: str) -> None:
    assert Request(method="POST", path="/", content_type=content_type).media_type == media_type


def test_requests_share_no_warnings() -> None:
    one, other = Request(method="GET", path="/"), Request(method="GET", path="/")
    one.warnings.append("careful")
    assert other.warnings == []


def test_a_response_is_json() -> None:
    response = Response.of({"a": [1]}, 201)
    assert isinstance(response.body, bytes)
    assert (response.status, response.content_type) == (201, "application/json")
    assert msgspec.json.decode(response.body) == {"a": [1]}


class TestWarnings:
    def test_each_distinct_warning_is_a_header(self) -> None:
        assert list(warning_headers(["a", " ", "b\n c", "a"])) == [
            ("Warning", '299 - "a"'),
            ("Warning", '299 - "b c"'),
        ]

    def test_quotes_and_backslashes_are_escaped(self) -> None:
        assert list(warning_headers(['a "b" \\'])) == [("Warning", r'299 - "a \"b\" \\"')]

    def test_one_long_warning_is_not_truncated_below_the_limit(self) -> None:
        assert list(warning_headers(["x" * 4096])) == [("Warning", f'299 - "{"x" * 4096}"')]

    def test_many_long_warnings_are_truncated_and_limited(self) -> None:
        found = list(warning_headers(f"{at:03}{'x' * 300}" for at in range(100)))
        assert [text for _, text in found] == [f'299 - "{at:03}{"x" * 253}"' for at in range(16)]

    @given(st.lists(st.text()))
    def test_no_warning_breaks_a_header(self, warnings: list[str]) -> None:
        for _, text in warning_headers(warnings):
            assert not set(text) & set("\r\n\t")


class TestRequestLog:
    def test_the_oldest_requests_are_dropped(self, log: RequestLog) -> None:
        assert len(log) == 3
        assert [entry.verb for entry in log] == ["get", "patch", "get"]
        assert log[0].resource == "deployments.apps"

    @pytest.mark.parametrize(
        ("wanted", "count"),
        [
            ({}, 3),
            ({"verb": "get"}, 2),
            ({"verb": "get", "resource": "pods"}, 1),
            ({"resource": "deployments"}, 1),
            ({"resource": "deployments.apps"}, 1),
            ({"resource": "deployments.batch"}, 0),
            ({"status": 404}, 0),
        ],
    )
    def test_requests_are_counted_by_their_fields(self, log: RequestLog, wanted: dict[str, Any], count: int) -> None:
        assert log.count(**wanted) == len(log.select(**wanted)) == count

    def test_requests_are_counted_by_verb(self, log: RequestLog) -> None:
        assert log.verbs() == {"get": 2, "patch": 1}
        assert log.verbs(resource="pods") == {"patch": 1, "get": 1}

    def test_a_log_can_grow_while_it_is_read(self, log: RequestLog) -> None:
        for entry in log:
            log.add(entry)
        assert len(log) == 3

    def test_a_cleared_log_is_empty(self, log: RequestLog) -> None:
        log.clear()
        assert (len(log), log.count()) == (0, 0)
