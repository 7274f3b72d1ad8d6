"""Bytes that no web server may be ended by: what was found by attacks, and a generator of more."""

from __future__ import annotations

import random
from typing import Final

__all__ = ["ATTACKS", "CONNECT_H2", "mutate"]

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
