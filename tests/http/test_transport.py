"""The interface of transports: limits, errors and headers."""

from __future__ import annotations

import datetime

import pytest

from trioperator._http.transport import MAX_HEAD, TransportError, find_date, find_header
from trioperator.errors import ConnectionLostError


def test_the_limit_of_headers_is_above_what_servers_send() -> None:
    assert MAX_HEAD >= 64 * 1024


def test_a_transport_error_is_a_lost_connection() -> None:
    error = TransportError("x", reached=False)
    assert isinstance(error, ConnectionLostError)
    assert (error.reached, error.final) == (False, False)


def test_headers_are_found_in_any_case() -> None:
    headers = [(b"Content-Type", b" text/plain "), (b"RETRY-AFTER", b"7"), (b"retry-after", b"8")]
    assert find_header(headers, b"content-type") == "text/plain"
    assert find_header(headers, b"retry-after") == "7"
    assert find_header(headers, b"location") is None


@pytest.mark.parametrize("text", [None, b"soon", b"", b"Thu, 01 Jan 2026 00:00:00", b"Thu, 01 Jan 2026 00:00:00 -0000"])
def test_a_date_that_cannot_be_compared_is_none(text: bytes | None) -> None:
    assert find_date([] if text is None else [(b"Date", text)]) is None


def test_the_date_of_a_response_is_aware() -> None:
    expected = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    assert find_date([(b"Date", b"Thu, 01 Jan 2026 00:00:00 GMT")]) == expected
