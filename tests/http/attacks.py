"""Bytes that no web server may be ended by: what was found by attacks, and a generator of more.

``SMUGGLED`` are requests that two servers behind each other may understand in different ways.
"""

from __future__ import annotations

import random
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HOST: Final = b"Host: x\r\n"


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


_SETTINGS: Final = _PREFACE + _frame(4, 0, 0)
_GET: Final = b"\x82\x84\x86\x41\x01x"  # HPACK: GET, /, http, and an authority
_METHOD_CONNECT: Final = b"\x02\x07CONNECT\x01\x01x"

CONNECT_H2: Final = _SETTINGS + _frame(1, 0x5, 1, _METHOD_CONNECT)
_H2C: Final = b"GET / HTTP/1.1\r\n" + _HOST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: "

_GET_CHUNKED: Final = b"GET / HTTP/1.1\r\n" + _HOST + b"Transfer-Encoding: chunked\r\n\r\n"

ATTACKS: Final = {
    "CONNECT under h2": CONNECT_H2,
    "a request under h2": _SETTINGS + _frame(1, 0x5, 1, _GET),
    "resets under h2": _SETTINGS
    + b"".join(_frame(1, 0x4, n, _GET) + _frame(3, 0, n, bytes(4)) + _frame(0, 1, n, b"late") for n in range(1, 99, 2)),
    "frames without sense under h2": _PREFACE + _frame(8, 0, 0, bytes(4)) + _frame(99, 255, 7, b"?" * 99),
    "an upgrade to h2c": _H2C + b"AAMAAABkAAQAAP__\r\n\r\n",
    "an upgrade to h2c with settings that are no base64": _H2C + b"AAA\r\n\r\n",
    "an upgrade to h2c with invalid settings": _H2C + b"AAUAAAAB\r\n\r\n",
    "an upgrade to h2c with junk": _H2C + b"%%%%\r\n\r\n\x00\x01\x02junk",
    "an upgrade to h2c with junk behind it": _H2C + b"AAMAAABkAAQAAP__\r\n\r\n" + bytes(range(256)),
    "an upgrade to a WebSocket": b"GET / HTTP/1.1\r\n" + _HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n\x81\xff\xff",
    "CONNECT": b"CONNECT x:1 HTTP/1.1\r\n" + _HOST + b"\r\n\x16\x03\x01",
    "six requests with a bad chunk": (_GET_CHUNKED + b"5\r\nhello\r\n0\r\n\r\n") * 5
    + _GET_CHUNKED
    + b"5\r\nhello\r\nbad",
    "six times a bad chunk": (_GET_CHUNKED + b"zz\r\n") * 6,
    "six good requests before a bad chunk": (b"GET / HTTP/1.1\r\n" + _HOST + b"\r\n") * 5 + _GET_CHUNKED + b"-1\r\n",
    "a short body": b"POST / HTTP/1.1\r\n" + _HOST + b"Content-Length: 10\r\n\r\nhalf",
    "a short chunk": b"POST / HTTP/1.1\r\n" + _HOST + b"Transfer-Encoding: chunked\r\n\r\nff\r\nhalf",
    "half a head": b"GET / HTTP/1.1\r\nHo",
    "two lengths": b"POST / HTTP/1.1\r\n" + _HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "a length of many digits": b"POST / HTTP/1.1\r\n" + _HOST + b"Content-Length: " + b"9" * 9000 + b"\r\n\r\n",
    "a large head": b"GET / HTTP/1.1\r\n" + _HOST + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
    "a large chunked body": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + b"1\r\nx\r\n" * 99_999,
    "targets that are no paths": b"".join(
        b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % target for target in (b"*", b"x", b"?", b"http://[")
    ),
    "a path that is no UTF-8": b"GET /%ff%00%0a HTTP/1.1\r\n" + _HOST + b"\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "an unknown version": b"GET / HTTP/7.3\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "zeros": bytes(100_000),
    "empty lines": b"\r\n" * 10_000,
    "nothing": b"",
}

_POST: Final = b"POST / HTTP/1.1\r\n" + _HOST
_CHUNKED: Final = _POST + b"Transfer-Encoding: chunked\r\n\r\n"

SMUGGLED: Final = {
    "a length and chunks": _POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": _POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "the same length twice": _POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "two lengths": _POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "a list of lengths": _POST + b"Content-Length: 1, 1\r\n\r\nx",
    "a length with a sign": _POST + b"Content-Length: +1\r\n\r\nx",
    "a negative length": _POST + b"Content-Length: -1\r\n\r\nx",
    "a hexadecimal length": _POST + b"Content-Length: 0x1\r\n\r\nx",
    "no length at all": _POST + b"Content-Length:\r\n\r\n",
    "a length of too many digits": _POST + b"Content-Length: 18446744073709551617\r\n\r\nx",
    "a space before the colon": _POST + b"Content-Length : 1\r\n\r\nx",
    "an unknown encoding": _POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "the encoding identity": _POST + b"Transfer-Encoding: identity\r\n\r\n",
    "chunked, but not last": _POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "an encoding before chunked": _POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": _POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "two encodings": _POST + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a vertical tab before chunked": _POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "an encoding on a line of its own": _POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "an empty encoding": _POST + b"Transfer-Encoding:\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\n" + _HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a header on two lines": _POST + b"X: a\r\n b\r\n\r\n",
    "a header that begins with a space": b"POST / HTTP/1.1\r\n X: a\r\n" + _HOST + b"\r\n",
    "lines that end with LF": b"POST / HTTP/1.1\nHost: x\n\n",
    "a header that ends with LF": _POST + b"X: y\nY: z\r\n\r\n",
    "a header that ends with CR": _POST + b"X: y\rY: z\r\n\r\n",
    "a null byte in a header": _POST + b"X: a\0b\r\n\r\n",
    "a name that is none": _POST + b"X(y: a\r\n\r\n",
    "a header without a colon": _POST + b"X\r\n\r\n",
    "a header without a name": _POST + b": a\r\n\r\n",
    "no host": b"POST / HTTP/1.1\r\n\r\n",
    "two hosts": _POST + _HOST + b"\r\n",
    "a negative chunk": _CHUNKED + b"-1\r\n",
    "a chunk with a prefix": _CHUNKED + b"0x1\r\nx\r\n0\r\n\r\n",
    "a chunk with a space": _CHUNKED + b"1 \r\nx\r\n0\r\n\r\n",
    "a chunk that ends with LF": _CHUNKED + b"1\nx\n0\n\n",
    "a chunk that is longer": _CHUNKED + b"1\r\nxyz\r\n0\r\n\r\n",
    "an extension that ends with LF": _CHUNKED + b"1;a\nx\r\n0\r\n\r\n",
    "an extension that ends with CR": _CHUNKED + b"1;a\rb\r\nx\r\n0\r\n\r\n",
    "a chunk that overflows": _CHUNKED + b"10000000000000001\r\nx\r\n0\r\n\r\n",
    "a length in the trailer": _CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n",
    "a target with a space": b"POST /a b HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a target with other bytes than ASCII": b"POST /\xff HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a target with control characters": b"POST /\x01 HTTP/1.1\r\n" + _HOST + b"\r\n",
    "a target that is a URL": b"POST http://y/ HTTP/1.1\r\n" + _HOST + b"\r\n",
    "another version": b"POST / HTTP/1.2\r\n" + _HOST + b"\r\n",
    "a version before 1.0": b"GET / HTTP/0.9\r\n" + _HOST + b"\r\n",
    "no version": b"GET /\r\n\r\n",
}

_TOKENS: Final = (
    b"GET ", b"POST ", b"HEAD ", b"/", b"/%zz", b" HTTP/1.1", b" HTTP/1.0", b"\r\n", b"\r\n\r\n", b"\n", b": ",
    b"Host: x\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n",
    b"Connection: close\r\n", b"Upgrade: h2c\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n", _PREFACE, b"\x00", b"\xff" * 9,
)  # fmt: skip


def mutate(rng: random.Random) -> bytes:
    """Return bytes at random: an attack with changes, parts of requests in any order, or noise."""
    match rng.randrange(4):
        case 0:
            return rng.randbytes(rng.randrange(200))
        case 1:
            return b"".join(rng.choices(_TOKENS, k=rng.randrange(1, 30)))
        case _:
            data = bytearray(rng.choice(list(ATTACKS.values()))[:4096])
            for _ in range(rng.randrange(6)):
                place = rng.randrange(len(data) + 1)
                data[place : place + rng.randrange(4)] = rng.choice([rng.choice(_TOKENS), rng.randbytes(2), b""])
            return bytes(data)
