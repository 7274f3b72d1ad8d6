"""Requests as bytes. Responses are tested on real connections, with the connection pool."""

from __future__ import annotations

import pytest

from trioperator._http.client_connection import render_request


def test_a_request_is_one_block_of_bytes() -> None:
    rendered = render_request("PATCH", "/x?y", host=b"h:1", headers=[(b"A", b"b"), (b"C", b"d e")], body=b"{}\n")
    assert rendered == b"PATCH /x?y HTTP/1.1\r\nHost: h:1\r\nA: b\r\nC: d e\r\nContent-Length: 3\r\n\r\n{}\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_methods_with_a_body_always_have_a_length(method: str) -> None:
    rendered = render_request(method, "/", host=b"h", headers=[], body=None)
    assert rendered == f"{method} / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n".encode()


def test_a_request_without_a_body_has_no_length() -> None:
    assert render_request("GET", "/", host=b"h", headers=[], body=None) == b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    assert b"Content-Length: 0\r\n" in render_request("DELETE", "/", host=b"h", headers=[], body=b"")


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/a\n", "/ü"])
def test_an_invalid_target_is_rejected(target: str) -> None:
    with pytest.raises(ValueError):
        render_request("GET", target, host=b"h", headers=[], body=None)


@pytest.mark.parametrize("header", [(b"A\n", b"b"), (b"A", b"b\r\nC: d"), (b"A", b"\n")])
def test_a_header_with_a_line_break_is_rejected(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError):
        render_request("GET", "/", host=b"h", headers=[header], body=None)
