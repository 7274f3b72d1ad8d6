"""Requests and responses of the client: their headers and bodies, and the objects in these."""

from __future__ import annotations

import zlib
from typing import Any, Final

import msgspec

from trioperator._http.transport import BodyTooLargeError, Headers, ResponseTimeoutError, TransportError, find_header
from trioperator._kube.deep_json import DECODE_ERRORS
from trioperator.errors import ConnectionLostError

_ACCEPT_JSON: Final = (b"Accept", b"application/json")
# The first bytes of whatever gzip has compressed.
_GZIP: Final = b"\x1f\x8b"

_decode: Final = msgspec.json.Decoder().decode


def build_headers(accept: str | None, content_type: str | None) -> Headers:
    """Return the headers of a request: what it accepts, and what it contains."""
    first = (b"Accept", accept.encode("ascii")) if accept else _ACCEPT_JSON
    return (first, (b"Content-Type", content_type.encode("ascii"))) if content_type else (first,)


def decompress(headers: Headers, data: bytes, limit: int) -> bytes:
    """Return the body of a response that may be compressed. Raises BodyTooLargeError and TransportError."""
    if not data.startswith(_GZIP) or find_header(headers, b"content-encoding") != "gzip":
        return data
    decoder = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        plain = decoder.decompress(data, limit)
    except zlib.error as exc:
        raise TransportError(f"The response cannot be decompressed: {exc}", reached=True) from exc
    if decoder.unconsumed_tail:
        raise BodyTooLargeError(f"The response is larger than {limit} bytes.")
    return plain


def timeout_error(method: str, path: str, seconds: float) -> ResponseTimeoutError:
    """Return the error of an attempt without a response in time."""
    return ResponseTimeoutError(f"{method} {path}: no response within {seconds:g} s.")


def size_error(method: str, target: str, limit: int) -> BodyTooLargeError:
    """Return the error of a response that is larger than the settings allow."""
    path = target.partition("?")[0]
    return BodyTooLargeError(
        f"{method} {path}: the response is larger than {limit} bytes: raise settings.networking.response_limit."
    )


def decode_object(data: bytes, path: str) -> dict[str, Any]:
    """Return the object in a response. Raises ConnectionLostError if there is none."""
    try:
        value = _decode(data)
    except DECODE_ERRORS as exc:
        raise ConnectionLostError(f"{path}: the response is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise ConnectionLostError(f"{path}: the response is not an object but {type(value).__name__}.")
    return value
