"""Keyed digests in place of values that must not be stored, such as the data of Secrets. Pure.

A digest shows that a value has changed, but not what it was. Digests of :mod:`.digest` save room; these keep a secret,
so equal values of different objects and fields have different digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from trioperator._model.fields import FieldPath, resolve

#: The only key of a mapping that replaces a value.
KEYED_DIGEST: Final = "trioperator.dev/keyed-digest"

_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


class FieldDigests:
    """Digests of the fields of objects, with a *key* that only the operator knows, if any."""

    def __init__(self, key: str | None = None) -> None:
        self._key = b"" if key is None else hashlib.blake2b(key.encode("utf-8", "surrogatepass")).digest()

    def hide(self, source: Mapping[str, Any], paths: Collection[FieldPath], *, uid: str) -> Mapping[str, Any]:
        """Return an object, or its essence, with digests in place of the values of some fields.

        Of a field that is a mapping, each value is replaced by itself. Digests are left as they are. *source* is not
        changed, and the result shares the other values.
        """
        key = hashlib.blake2b(uid.encode("utf-8", "surrogatepass"), key=self._key, digest_size=32).digest()
        for path in paths:
            value = resolve(source, path)
            if value is not None:
                source = _replace(source, path, _digest_field(value, path, key))
        return source


def reveal(
    stored: Mapping[str, Any],
    paths: Collection[FieldPath],
    *,
    present: Mapping[str, Any],
    hidden: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return a *stored* essence with the values of the *present* object in place of the digests that are theirs.

    *hidden* is the present object with digests. The digests of values that have changed since, or are gone, stay.
    """
    for path in paths:
        value, now = resolve(stored, path), resolve(present, path)
        if value is not None and now is not None:
            stored = _replace(stored, path, _reveal_field(value, now, resolve(hidden, path)))
    return stored


def _digest_field(value: Any, path: FieldPath, key: bytes) -> Any:
    if isinstance(value, Mapping) and not _is_digest(value):
        return {name: _digest(inner, (*path, name), key) for name, inner in value.items()}
    return _digest(value, path, key)


def _digest(value: Any, path: FieldPath, key: bytes) -> Any:
    if _is_digest(value):
        return value
    data = _encode_sorted([path, value])
    return {KEYED_DIGEST: hashlib.blake2b(data, key=key, digest_size=16).hexdigest()}


def _reveal_field(value: Any, now: Any, hidden: Any) -> Any:
    if value == hidden:
        return now
    if isinstance(value, Mapping) and isinstance(now, Mapping) and not _is_digest(value):
        return {
            name: now[name] if name in now and _is_digest(inner) and inner == hidden[name] else inner
            for name, inner in value.items()
        }
    return value


def _is_digest(value: Any) -> bool:
    return isinstance(value, Mapping) and len(value) == 1 and KEYED_DIGEST in value


def _replace(source: Mapping[str, Any], path: FieldPath, value: Any) -> dict[str, Any]:
    """Return a copy with another value at *path*, which exists. Only the mappings on the way are copied."""
    key, rest = path[0], path[1:]
    return {**source, key: _replace(source[key], rest, value) if rest else value}
