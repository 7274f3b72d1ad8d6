"""Decoding of the bodies of reviews, whose number of values is limited. Large ones are decoded object by object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

#: Bytes from which on a review is a large one, to be decoded in a thread: smaller ones of the usual kind take 2 ms at
#: most, and a thread takes 0.15 ms.
LARGE: Final = 256 * 1024
# Values in a review, whatever they are. Each takes up to 60 bytes and has 20 bytes of text in real objects, as a rule.
_MAX_VALUES: Final = 1_500_000

_decode: Final = msgspec.json.Decoder().decode
_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class TooManyItemsError(Exception):
    """Raised when a body has more objects, lists or values than are decoded."""


def decode_review(body: bytes, *, max_items: int) -> Any:
    """Decode a review that may have *max_items* objects and lists: empty ones take 30 times the memory of their text.

    The decoder lets no other thread run. For a large review, this returns to Python between the objects in it, so that
    the event loop has its turns while a thread decodes. Raises TooManyItemsError, and as the decoder does.
    """
    if body.count(b"[") + body.count(b"{") > max_items or body.count(b",") > _MAX_VALUES:
        raise TooManyItemsError("The body has too many objects and lists, or values.")
    return _decode(body) if len(body) < LARGE else _decode_object(body, request=_decode_request)


def _decode_request(raw: msgspec.Raw) -> Any:
    return _decode_object(raw, objects=_decode_list)


def _decode_object(raw: bytes | msgspec.Raw, **decoders: Callable[[msgspec.Raw], Any]) -> Any:
    """Decode a JSON object member by member, some of them by other *decoders*."""
    try:
        members = _decode_members(raw)
    except msgspec.ValidationError:  # it is something else
        return _decode(raw)
    return {name: decoders.get(name, _decode)(value) for name, value in members.items()}


def _decode_list(raw: msgspec.Raw) -> Any:
    try:
        items = _decode_items(raw)
    except msgspec.ValidationError:
        return _decode(raw)
    return [_decode(item) for item in items]
