"""Where the last-handled state of objects is kept, in Kopf's format. Pure: storages read bodies and write patches.

What is too big for annotations is kept as digests: enough to tell what has changed, though not what it was before.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from trioperator.handling.annotation_keys import annotation_keys, check_prefix, is_replicated
from trioperator.handling.progress import (
    PREFIX,
    annotations_of,
    format_field,
    mark_as_managed,
    patch_annotations,
    without_annotations,
)
from trioperator.model.body import Body, BodyEssence
from trioperator.model.digest import DIGEST, restore, shrink
from trioperator.model.essence import build_essence
from trioperator.model.fields import FieldPath, FieldSpec, ensure, parse_field, resolve, without

__all__ = [
    "AnnotationsDiffBaseStorage",
    "DiffBaseStorage",
    "MultiDiffBaseStorage",
    "StatusDiffBaseStorage",
    "encode_essence",
    "has_digests",
]

# All annotations of an object together, in bytes (Kubernetes' limit), and what is left of it for the progress.
_MAX_ANNOTATIONS = 256 * 1024
_RESERVE = 16 * 1024

#: Encode an essence as it is compared and stored: as compact JSON, in the order of its keys.
encode_essence: Final[Callable[[Mapping[str, Any]], bytes]] = msgspec.json.Encoder().encode
_decode_essence: Final[Callable[[str | bytes], BodyEssence]] = msgspec.json.Decoder(dict[str, Any]).decode


def has_digests(source: Mapping[str, Any]) -> bool:
    """Tell whether an object has, or a patch stores, digests in place of values that are too big for annotations."""
    return any(isinstance(text, str) and f'{{"{DIGEST}":' in text for text in annotations_of(source).values())


class DiffBaseStorage(abc.ABC):
    """Keep the last-handled state of objects: on the object, by its patch, or anywhere else.

    What is stored may be anything, written by anybody: what cannot be read counts as absent, and nothing raises for it.
    """

    # Of the class, for storages of users that make nothing of ours.
    _ignored_fields: Collection[FieldPath] = ()

    def __init__(self, *, ignored_fields: Iterable[FieldSpec] | None = None) -> None:
        self._ignored_fields = tuple(parse_field(field) for field in ignored_fields or ())

    def build(self, *, body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
        """Reduce an object to what counts as a change of it; *extra_fields* count too, *ignored_fields* never."""
        raw = body._raw if isinstance(body, Body) else body
        essence = build_essence(raw, [parse_field(field) for field in extra_fields or ()])
        for path in self._ignored_fields:
            essence = cast(BodyEssence, without(essence, path))
        return essence

    @abc.abstractmethod
    def fetch(self, *, body: Body) -> BodyEssence | None:
        """Give the last-handled essence; None where there is none, or none that can be read."""

    @abc.abstractmethod
    def store(self, *, body: Body, patch: dict[str, Any], essence: BodyEssence) -> None:
        """Have the essence stored as the last-handled one."""

    def is_current(self, *, body: Body, encoded: bytes) -> bool:
        """Tell whether the stored essence is the one that was *encoded* by :func:`encode_essence`."""
        stored = self.fetch(body=body)
        return stored is not None and stored == _decode_essence(encoded)


class AnnotationsDiffBaseStorage(DiffBaseStorage):
    """Keep the last-handled essence as JSON in the annotation ``prefix/key``.

    Where it is too big for that, the big values in it are replaced by digests: see :mod:`trioperator.model.digest`.
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

    def _keys(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        return annotation_keys(self.prefix, self.key, v1=self.v1, replicated=is_replicated(body))

    def build(self, *, body: Body, extra_fields: Iterable[FieldSpec] | None = None) -> BodyEssence:
        essence = super().build(body=body, extra_fields=extra_fields)
        kept = annotations_of(essence)
        return without_annotations(essence, [key for key in self._keys(body) if key in kept]) if kept else essence

    def fetch(self, *, body: Body) -> BodyEssence | None:
        text, essence = self._read(body)
        if essence is None or DIGEST not in text:
            return essence
        # Digests stand for parts of the essence, or for any other field that handlers look at.
        present = self.build(body=body)
        metadata = {**(body.get("metadata") or {}), **present.get("metadata", {})}
        return cast(BodyEssence, restore(essence, {**body, **present, "metadata": metadata}))

    def _read(self, body: Mapping[str, Any]) -> tuple[str, BodyEssence | None]:
        """Give the text that is stored, and what it says."""
        for text in self._texts(body):
            try:
                return text, _decode_essence(text)
            except msgspec.MsgspecError:
                continue
        return "", None

    def _texts(self, body: Mapping[str, Any]) -> list[str]:
        present = annotations_of(body)
        if not present:
            return []
        return [text for key in self._keys(body) if isinstance(text := present.get(key), str)]

    def store(self, *, body: Body, patch: dict[str, Any], essence: BodyEssence) -> None:
        keys = self._keys(body)
        mark_as_managed(self.prefix, body=body, patch=patch)
        planned = patch_annotations(patch)
        taken = sum(len(key.encode()) for key in keys) + sum(
            len(key.encode()) + len(str(value).encode())
            for key, value in {**annotations_of(body), **planned}.items()
            if value is not None and key not in keys
        )
        room = (_MAX_ANNOTATIONS - _RESERVE - taken) // len(keys)
        text = shrink(essence, room - 1).decode() + "\n"
        for key in keys:
            planned[key] = text

    def is_current(self, *, body: Body, encoded: bytes) -> bool:
        texts = self._texts(body)
        if not texts:
            return False
        # The same text is the same essence. It takes more to tell that another text means another one.
        if texts[0].rstrip("\n").encode() == encoded:
            return True
        text, stored = self._read(body)
        if stored is None:
            return False
        present = _decode_essence(encoded)
        return bool((restore(stored, present) if DIGEST in text else stored) == present)


class StatusDiffBaseStorage(DiffBaseStorage):
    """Keep the last-handled essence as JSON, one text, in a field of the status."""

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
        return cast(BodyEssence, without(essence, self.field))

    def fetch(self, *, body: Body) -> BodyEssence | None:
        text = resolve(body, self.field)
        try:
            return _decode_essence(text) if isinstance(text, str) else None
        except msgspec.MsgspecError:
            return None

    def store(self, *, body: Body, patch: dict[str, Any], essence: BodyEssence) -> None:
        ensure(patch, self.field, encode_essence(essence).decode())

    def is_current(self, *, body: Body, encoded: bytes) -> bool:
        text = resolve(body, self.field)
        if isinstance(text, str) and text.encode() == encoded:
            return True
        return super().is_current(body=body, encoded=encoded)


class MultiDiffBaseStorage(DiffBaseStorage):
    """Keep the last-handled essence in several storages: written to all, read from the first that has one."""

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
    """Keep of the first what the second has, too: each storage leaves out what is its own."""
    common: BodyEssence = {}
    for key, value in first.items():
        if key not in second:
            continue
        other = second[key]
        if value is not other and isinstance(value, Mapping) and isinstance(other, Mapping):
            inner = _intersection(value, other)
            if inner or not (value and other):  # what is empty only because of this is left out, too
                common[key] = inner
        else:
            common[key] = value
    return common
