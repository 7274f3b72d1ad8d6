"""Storages of the last-handled configuration, in Kopf's format. Pure: they read bodies and write patches.

Values that are too big for annotations are stored as digests, which show that a value has changed but not its old
value.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from trioperator._handling.storages.annotation_keys import AnnotationKeys, check_prefix
from trioperator._handling.storages.progress import (
    ALSO_SEEN,
    PREFIX,
    SEEN,
    annotations_of,
    format_field,
    mark_as_managed,
    patch_annotations,
    without_annotations,
)
from trioperator._model.body import Body, BodyEssence
from trioperator._model.digest import DIGEST, matches, restore, shrink
from trioperator._model.essence import build_essence
from trioperator._model.fields import FieldPath, FieldSpec, ensure, parse_field, resolve, without

# Kubernetes' limit for all annotations of an object together, in bytes, and the part that is reserved for progress.
_MAX_ANNOTATIONS = 256 * 1024
_RESERVE = 16 * 1024

#: Encode an essence for comparison and storage: as compact JSON, with the keys in their order.
encode_essence: Final[Callable[[Mapping[str, Any]], bytes]] = msgspec.json.Encoder().encode
_decode_essence: Final[Callable[[str | bytes], BodyEssence]] = msgspec.json.Decoder(dict[str, Any]).decode


def has_digests(source: Mapping[str, Any]) -> bool:
    """Return whether an object has, or a patch stores, digests in place of values too big for annotations."""
    return any(isinstance(text, str) and f'{{"{DIGEST}":' in text for text in annotations_of(source).values())


class DiffBaseStorage(abc.ABC):
    """Storage of the last-handled configuration of objects: on the object itself, through its patch, or elsewhere.

    Anybody can write to annotations and the status: implementations treat unreadable data as absent and do not raise.
    """

    # An attribute of the class, for subclasses that do not call our __init__().
    _ignored_fields: Collection[FieldPath] = ()

    def __init__(self, *, ignored_fields: Iterable[FieldSpec] | None = None) -> None:
        self._ignored_fields = tuple(parse_field(field) for field in ignored_fields or ())

    @property
    def has_ignored_fields(self) -> bool:
        """Whether any fields of objects are no part of their essences."""
        return bool(self._ignored_fields)

    def build(self, *, body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
        """Return the essence of an object: it includes *extra_fields*, and never ``ignored_fields``."""
        raw = body._raw if isinstance(body, Body) else body
        essence = build_essence(raw, [parse_field(field) for field in extra_fields or ()])
        for path in self._ignored_fields:
            essence = cast(BodyEssence, without(essence, path))
        return essence

    @abc.abstractmethod
    def fetch(self, *, body: Body) -> BodyEssence | None:
        """Return the last-handled essence, None if it is absent or unreadable."""

    @abc.abstractmethod
    def store(self, *, body: Body, patch: dict[str, Any], essence: BodyEssence) -> None:
        """Add the essence to the patch, as the last-handled one."""

    def is_current(self, *, body: Body, encoded: bytes) -> bool:
        """Return whether the stored essence equals the one *encoded* by :func:`encode_essence`."""
        stored = self.fetch(body=body)
        return stored is not None and stored == _decode_essence(encoded)

    def compare(self, *, body: Body, encoded: bytes) -> tuple[bool, BodyEssence | None]:
        """Return whether the stored essence equals the one *encoded*, and the stored one unless it does."""
        is_current = self.is_current(body=body, encoded=encoded)
        return is_current, None if is_current else self.fetch(body=body)


class AnnotationsDiffBaseStorage(AnnotationKeys, DiffBaseStorage):
    """Storage of the last-handled essence as JSON in the annotation ``prefix/key``.

    If it is too big, its biggest values are replaced by digests: see :mod:`trioperator._model.digest`.
    """

    def __init__(
        self,
        *,
        prefix: str = PREFIX,
        key: str = "last-handled-configuration",
        ignored_fields: Iterable[FieldSpec] | None = None,
        v1: bool = True,
    ) -> None:
        super().__init__(ignored_fields=ignored_fields)
        self.prefix = check_prefix(prefix)
        self.key = key
        self.v1 = v1

    def build(self, *, body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
        essence = super().build(body=body, extra_fields=extra_fields)
        kept = annotations_of(essence)
        return (
            without_annotations(essence, [key for key in self.make_keys(self.key, body=body) if key in kept])
            if kept
            else essence
        )

    def fetch(self, *, body: Body) -> BodyEssence | None:
        return self._complete(*_read(self._texts(body)), body)

    def fetch_text(self, *, body: Body) -> str:
        """Return the last-handled essence as it is stored, with its digests; an empty string if there is none."""
        return next(iter(self._texts(body)), "")

    def _complete(self, text: str, essence: BodyEssence | None, body: Body) -> BodyEssence | None:
        """Return a stored essence with the values that its digests stand for."""
        if essence is None or DIGEST not in text:
            return essence
        # Digests stand for parts of the essence, or for any other field that a handler names as field=.
        present = self.build(body=body)
        metadata = {**(body.get("metadata") or {}), **present.get("metadata", {})}
        try:
            return cast(BodyEssence, restore(essence, {**body, **present, "metadata": metadata}))
        except RecursionError:
            return None

    def _texts(self, body: Mapping[str, Any]) -> list[str]:
        present = annotations_of(body)
        if not present:
            return []
        return [text for key in self.make_keys(self.key, body=body) if isinstance(text := present.get(key), str)]

    def store(self, *, body: Body, patch: dict[str, Any], essence: BodyEssence) -> None:
        keys = self.make_keys(self.key, body=body)
        mark_as_managed(self.prefix, body=body, patch=patch)
        annotations = patch_annotations(patch)
        taken = sum(len(key.encode()) for key in keys) + sum(
            len(key.encode()) + len(str(value).encode())
            for key, value in {**annotations_of(body), **annotations}.items()
            if value is not None and key not in keys
        )
        room = (_MAX_ANNOTATIONS - _RESERVE - taken) // len(keys)
        text = shrink(essence, room - 1).decode() + "\n"
        for key in keys:
            annotations[key] = text

    def is_current(self, *, body: Body, encoded: bytes) -> bool:
        return self._look(body, encoded)[0]

    def compare(self, *, body: Body, encoded: bytes) -> tuple[bool, BodyEssence | None]:
        if type(self) is not AnnotationsDiffBaseStorage:  # subclasses may fetch from elsewhere
            return super().compare(body=body, encoded=encoded)
        is_current, text, stored = self._look(body, encoded)
        return is_current, None if is_current else self._complete(text, stored, body)

    def _look(self, body: Body, encoded: bytes) -> tuple[bool, str, BodyEssence | None]:
        """Return whether the stored essence equals the one encoded; else also its JSON, and what is decoded from it."""
        texts = self._texts(body)
        # Equal JSON means equal essences; otherwise, decode it and resolve its digests before the comparison.
        if texts and texts[0].rstrip("\n").encode() == encoded:
            return True, texts[0], None
        text, stored = _read(texts)
        if stored is None:
            return False, text, None
        try:
            is_current = matches(stored, encoded) if DIGEST in text else stored == _decode_essence(encoded)
        except RecursionError:
            is_current = False
        return is_current, text, stored


def _read(texts: Iterable[str]) -> tuple[str, BodyEssence | None]:
    """Return the first JSON that can be decoded, and its essence."""
    for text in texts:
        try:
            return text, _decode_essence(text)
        except (msgspec.MsgspecError, RecursionError):
            continue
    return "", None


class StatusDiffBaseStorage(DiffBaseStorage):
    """Storage of the last-handled essence as a JSON string in a field of the status."""

    def __init__(
        self,
        *,
        name: str = "trioperator",
        field: FieldSpec = "status.{name}.last-handled-configuration",
        ignored_fields: Iterable[FieldSpec] | None = None,
    ) -> None:
        super().__init__(ignored_fields=ignored_fields)
        self.name = name
        self.field = format_field(field, name)

    def build(self, *, body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
        essence = super().build(body=body, extra_fields=extra_fields)
        if self.field[0] in essence:  # rarely: the status is no part of essences
            for field in (self.field, *((*self.field[:-1], name) for name in (SEEN, ALSO_SEEN))):
                essence = cast(BodyEssence, without(essence, field))
        return essence

    def fetch(self, *, body: Body) -> BodyEssence | None:
        text = resolve(body, self.field)
        try:
            return _decode_essence(text) if isinstance(text, str) else None
        except (msgspec.MsgspecError, RecursionError):
            return None

    def store(self, *, body: Body, patch: dict[str, Any], essence: BodyEssence) -> None:
        ensure(patch, self.field, encode_essence(essence).decode())

    def is_current(self, *, body: Body, encoded: bytes) -> bool:
        text = resolve(body, self.field)
        if isinstance(text, str) and text.encode() == encoded:
            return True
        return super().is_current(body=body, encoded=encoded)


class MultiDiffBaseStorage(DiffBaseStorage):
    """Combination of storages: the essence is written to all, and read from the first that has one."""

    def __init__(self, storages: Collection[DiffBaseStorage]) -> None:
        super().__init__()
        self.storages = tuple(storages)

    def build(self, *, body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
        fields = list(extra_fields or ())
        essence = super().build(body=body, extra_fields=fields)
        for storage in self.storages:
            essence = _intersection(essence, storage.build(body=body, extra_fields=fields))
        return essence

    def fetch(self, *, body: Body) -> BodyEssence | None:
        for storage in self.storages:
            essence = storage.fetch(body=body)
            if essence is not None:
                return essence
        return None

    def store(self, *, body: Body, patch: dict[str, Any], essence: BodyEssence) -> None:
        for storage in self.storages:
            storage.store(body=body, patch=patch, essence=essence)

    def is_current(self, *, body: Body, encoded: bytes) -> bool:
        for storage in self.storages:
            if storage.is_current(body=body, encoded=encoded):
                return True
            if storage.fetch(body=body) is not None:
                return False
        return False


def _intersection(first: Mapping[str, Any], second: Mapping[str, Any]) -> BodyEssence:
    """Return the parts of the first essence that the second has too: each storage omits its own data."""
    common: BodyEssence = {}
    for key, value in first.items():
        if key not in second:
            continue
        other = second[key]
        if value is not other and isinstance(value, Mapping) and isinstance(other, Mapping):
            inner = _intersection(value, other)
            if inner or not (value and other):  # omit what has become empty by this
                common[key] = inner
        else:
            common[key] = value
    return common
