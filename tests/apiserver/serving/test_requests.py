"""Reading of requests: in any fragments, malformed, and of any size."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._http.request_parser import HEAD_LIMIT
from trioperator.apiserver.model.messages import Request
from trioperator.apiserver.serving.requests import RequestReader

GET = b"GET /a%20b?x=1&y= HTTP/1.1\r\nHost: x\r\nAccept: a\r\nImpersonate-User: u\r\n\r\n"
POST = b"POST /c HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Type: j\r\n\r\n{}"
CHUNKED = b"PUT /d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
LAST = b"DELETE /e HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def reader() -> RequestReader:
    return RequestReader(body_limit=1000)


def parse(*pieces: bytes) -> tuple[list[tuple[Request, bool]], int]:
    found = reader()
    for piece in pieces:
        found.feed(piece)
    return list(found.requests), found.error.status if found.error else 0


@given(st.lists(st.integers(0, len(GET + POST + CHUNKED + LAST)), max_size=10))
def test_requests_are_parsed_the_same_in_any_fragments(cuts: list[int]) -> None:
    content = GET + POST + CHUNKED + LAST
    edges = [0, *sorted(cuts), len(content)]
    pieces = [content[low:high] for low, high in itertools.pairwise(edges)]
    requests, rejected = parse(*pieces)
    assert not rejected
    assert [(request.method, request.path, request.body, keep) for request, keep in requests] == [
        ("GET", "/a%20b", b"", True),
        ("POST", "/c", b"{}", True),
        ("PUT", "/d", b"abcde", True),
        ("DELETE", "/e", b"", False),
    ]
    assert requests[0][0].query == {"x": "1", "y": ""}
    assert requests[0][0].impersonation == (("impersonate-user", "u"),)


@given(st.lists(st.binary(max_size=50) | st.sampled_from([GET, POST, CHUNKED, LAST, b"\r\n", b"PRI * HTTP/2.0"])))
def test_no_bytes_raise_an_exception(pieces: list[bytes]) -> None:
    requests, rejected = parse(*pieces)
    assert rejected in {0, 400, 413, 431}
    assert len(requests) <= sum(piece.count(b"HTTP/") for piece in [b"".join(pieces)])


@pytest.mark.parametrize("sent", [b"\x16\x03\x01hello\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"{}" * 50])
def test_malformed_data_is_rejected_after_valid_requests(sent: bytes) -> None:
    requests, rejected = parse(GET + sent)
    assert (len(requests), rejected) == (1, 400)
    assert parse(sent, GET) == ([], 400)


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET / HTTP/1.1\r\n", *(b"X-%d: %b\r\n" % (number, b"x" * 990) for number in range(70))],
        [b"GET /", *([b"x" * 10_000] * 7)],
        [b"GET / HTTP/1.1\r\nX: ", *([b"x" * 10_000] * 14)],  # a header that does not end
        [b"GET / HTTP/1.1\r\n", *([b"x" * 10_000] * 14)],  # a name that does not end
        [b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 70_000],
    ],
)
def test_a_head_that_is_too_long_is_rejected_and_not_buffered(pieces: list[bytes]) -> None:
    assert parse(*pieces) == ([], 431)


def test_a_head_within_the_limit_is_accepted() -> None:
    sizes = len(b"/" + b"X") + len(b"Host" + b"x") + 2 * 32
    head = b"GET / HTTP/1.1\r\nHost: x\r\nX: %b\r\n\r\n" % (b"x" * (HEAD_LIMIT - sizes))
    assert parse(head)[1] == 0
    assert len(parse(head, head, head)[0]) == 3


def test_a_content_length_over_the_limit_is_rejected_before_the_body() -> None:
    assert parse(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n") == ([], 413)
    assert parse(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n") == ([], 413)


def test_a_chunked_body_over_the_limit_is_rejected() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert parse(head, b"1f4\r\n%b\r\n" % (b"x" * 500) * 3) == ([], 413)
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000
    assert len(parse(request, request)[0]) == 2


def test_a_body_in_too_many_tiny_chunks_says_so() -> None:
    found = RequestReader(body_limit=10**6)
    found.feed(CHUNKS[:-3] + b"0001\r\n \r\n" * 2000)
    assert found.error is not None
    assert "too many tiny chunks" in str(found.error)


def test_100_continue_is_expected_once_and_not_of_a_body_that_arrives() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    found = reader()
    found.feed(head)
    assert [found.take_expectation(), found.take_expectation()] == [True, False]
    found.feed(b"{}" + head + b"{}")
    assert not found.take_expectation()
    assert len(found.requests) == 2


def test_a_protocol_upgrade_is_not_started() -> None:
    found = reader()
    found.feed(GET + b"POST /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n\x80\x03")
    assert ([keep for _, keep in found.requests], found.error) == ([True, False], None)
    found.feed(GET)
    assert len(found.requests) == 2


CHUNKS = b"PUT /d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nAccept: a\r\n\r\n2\r\n{}\r\n0\r\n"


def test_trailers_are_ignored() -> None:
    fields = b"Authorization: Bearer t\r\nImpersonate-User: u\r\nAccept: b\r\nContent-Type: c\r\nUser-Agent: d\r\n"
    [[request, keep], [following, _]], rejected = parse(CHUNKS + fields + b"\r\n" + GET)
    assert (rejected, keep, request.body, request.accept) == (0, True, b"{}", "a")
    assert (request.authorization, request.impersonation, request.content_type, request.user_agent) == ("", (), "", "")
    assert following.impersonation == (("impersonate-user", "u"),)


@pytest.mark.parametrize(
    "pieces",
    [
        [b"X: %b\r\n" % (b"x" * 990)] * 70,
        [b"X: ", *([b"x" * 10_000] * 14)],
        [*([b"x" * 10_000] * 14)],
    ],
)
def test_trailers_that_are_too_long_are_rejected_and_not_buffered(pieces: list[bytes]) -> None:
    assert parse(CHUNKS, *pieces) == ([], 431)


def test_an_extension_of_a_chunk_that_does_not_end_is_rejected() -> None:
    assert parse(CHUNKS[:-3], b"2;", *([b"x" * 10_000] * 14)) == ([], 431)


def test_the_first_of_several_equal_headers_counts() -> None:
    [[request, _]], _ = parse(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n")
    assert request.authorization == "a"


@pytest.mark.parametrize(
    "header",
    [
        *("Host: evil.example", "Host: evil.example:80", "Host: 127.0.0.1.evil.example", "Host: [::2]", "Host: ["),
        *("Origin: http://evil.example", "Origin: null"),
    ],
)
def test_requests_that_a_web_page_may_have_sent_are_refused_where_everybody_is_welcome(header: str) -> None:
    found = RequestReader(body_limit=1000, local_only=True)
    header = header if header.startswith("Host") else f"Host: localhost\r\n{header}"
    found.feed(f"POST /c HTTP/1.1\r\nContent-Length: 2\r\n{header}\r\n\r\n{{}}".encode())
    assert found.error is not None
    assert found.error.status == 400
    assert not found.requests
    assert parse(f"GET / HTTP/1.1\r\n{header}\r\n\r\n".encode())[1] == 0  # elsewhere credentials protect it


@pytest.mark.parametrize("header", ["Host: localhost:80", "Host: 127.0.0.1", "Host: [::1]:80", "Accept: x"])
def test_requests_of_this_machine_are_not_those_of_a_web_page(header: str) -> None:
    found = RequestReader(body_limit=1000, local_only=True)
    found.feed(f"GET / HTTP/{'1.1' if header.startswith('Host') else '1.0'}\r\n{header}\r\n\r\n".encode())
    assert len(found.requests) == 1
