"""Tests for :mod:`trioperator._http.request_parser`: what is parsed, and what two parsers may understand differently.

The embedded API server's tests of its requests cover sizes and fragments, too.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.attacks import ATTACKS, SMUGGLED
from trioperator._http.request_parser import HEAD_LIMIT, RequestParser

GET = b"GET /a%20b?x=y HTTP/1.1\r\nHost: x\r\nUser-Agent: \t me \t\r\n\r\n"
CHUNKED = (
    b"PUT /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n3;e=f\r\nabc\r\n2\r\nde\r\n0\r\nHost: y\r\n\r\n"
)
OLD = b"GET /d HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
LAST = b"DELETE /e HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"


def parse(*pieces: bytes) -> RequestParser:
    parser = RequestParser()
    for piece in pieces:
        parser.feed(piece)
    return parser


@given(st.lists(st.integers(0, len(GET + CHUNKED + OLD + LAST)), max_size=10))
def test_requests_are_parsed_the_same_in_any_fragments(cuts: list[int]) -> None:
    content = GET + CHUNKED + OLD + LAST
    edges = [0, *sorted(cuts), len(content)]
    parser = parse(*(content[low:high] for low, high in itertools.pairwise(edges)))
    assert (parser.error, parser.started, parser.is_mid_request) == (0, 4, False)
    assert all(message.is_complete for message in parser.messages)
    found = [(m.method, m.target, m.version, bytes(m.body), m.keep_alive) for m in parser.messages]
    assert found == [
        ("GET", b"/a%20b?x=y", "1.1", b"", True),
        ("PUT", b"/c", "1.1", b"abcde", True),
        ("GET", b"/d", "1.0", b"", True),
        ("DELETE", b"/e", "1.1", b"x", False),
    ]
    assert parser.messages[0].headers == [(b"host", b"x"), (b"user-agent", b"me")]
    assert parser.messages[1].headers == [(b"host", b"x"), (b"transfer-encoding", b"Chunked")], "without trailers"


def test_a_request_is_there_when_its_head_is_and_its_body_can_be_taken_out_of_it() -> None:
    parser = parse(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 4\r\n\r\n")
    (message,) = parser.messages
    assert (message.expects_continue, message.is_complete, parser.is_mid_request) == (True, False, True)
    parser.feed(b"ab")
    message.body.clear()
    parser.feed(b"cd")
    assert (bytes(message.body), message.is_complete, message.expects_continue) == (b"cd", True, False)


@given(st.lists(st.binary(max_size=50) | st.sampled_from([GET, CHUNKED, OLD, LAST, *SMUGGLED.values()]), max_size=8))
def test_no_bytes_raise_an_exception(pieces: list[bytes]) -> None:
    assert parse(*pieces).error in {0, 400, 431, 501, 505}


@pytest.mark.parametrize("name", SMUGGLED)
def test_what_another_parser_may_understand_differently_is_refused(name: str) -> None:
    parser = parse(GET + SMUGGLED[name] + GET)
    assert parser.error in {400, 501, 505}
    assert len([message for message in parser.messages if message.is_complete]) == 1, "only what came before"


@pytest.mark.parametrize("name", ["an upgrade to h2c", "an upgrade to a WebSocket"])
def test_nothing_is_parsed_after_a_request_for_another_protocol(name: str) -> None:
    parser = parse(GET, ATTACKS[name], GET)
    assert [message.keep_alive for message in parser.messages] == [True, False]
    assert (parser.is_upgrade, parser.error) == (True, 0)


def test_headers_count_as_more_than_their_bytes() -> None:
    head = b"GET / HTTP/1.1\r\nHost: x\r\n"
    assert parse(head + b"a:\r\n" * 1900 + b"\r\n").error == 0
    assert parse(head + b"a:\r\n" * 2100).error == 431
    assert parse(head + b"x: " + b"x" * HEAD_LIMIT).error == 0
    assert parse(head + b"x: " + b"x" * HEAD_LIMIT + b"\r\n\r\n").error == 431


@pytest.mark.parametrize(("size", "number", "error"), [(2, 900, 0), (2, 1500, 413), (300, 3000, 0)])
def test_a_body_in_ever_more_tiny_chunks_is_refused(size: int, number: int, error: int) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    parser = parse(head, b"%x\r\n%s\r\n" % (size, b"x" * size) * number, b"0\r\n\r\n")
    assert parser.error == error
    assert parser.messages[0].is_complete is (error == 0)
