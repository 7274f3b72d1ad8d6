"""Where the progress of handlers is kept, in Kopf's formats. Pure: storages read bodies and write patches."""

from __future__ import annotations

import abc
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from typing import Any, TypedDict, cast

import msgspec

from trioperator.handling.annotation_keys import annotation_keys, check_prefix, is_replicated
from trioperator.model.body import Body, BodyEssence
from trioperator.model.essence import marker_key
from trioperator.model.fields import FieldPath, FieldSpec, ensure, parse_field, remove, resolve, without

__all__ = [
    "AnnotationsProgressStorage",
    "MultiProgressStorage",
    "ProgressRecord",
    "ProgressStorage",
    "SmartProgressStorage",
    "StatusProgressStorage",
]

PREFIX = "trioperator.dev"

# The order in which the fields of a record are written.
_FIELDS = ("started", "stopped", "delayed", "purpose", "retries", "success", "failure", "message", "subrefs")


class ProgressRecord(TypedDict, total=False):
    """Tell how far a handler has come. Times are texts in ISO 8601; ``subrefs`` are the ids of sub-handlers."""

    started: str | None
    stopped: str | None
    delayed: str | None
    purpose: str | None
    retries: int | None
    success: bool | None
    failure: bool | None
    message: str | None
    subrefs: Collection[str] | None


class ProgressStorage(abc.ABC):
    """Keep the progress of handlers: on the object, by its patch, or anywhere else.

    What is stored may be anything, written by anybody: what cannot be read counts as absent, and nothing raises for it.
    """

    @abc.abstractmethod
    def fetch(self, *, key: str, body: Body) -> ProgressRecord | None:
        """Give the record of the handler with the id *key*; None where there is none, or none that can be read."""

    @abc.abstractmethod
    def store(self, *, key: str, record: ProgressRecord, body: Body, patch: dict[str, Any]) -> None:
        """Have the record stored."""

    @abc.abstractmethod
    def purge(self, *, key: str, body: Body, patch: dict[str, Any]) -> None:
        """Have the record removed, if there is one."""

    def touch(self, *, body: Body, patch: dict[str, Any], value: str | None) -> None:  # noqa: B027 -- may be left out
        """Leave a trace of *value*, for those who have to provoke an event."""

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Take the traces of this storage out of an essence. Gives the same essence, or a changed copy."""
        return essence

    def flush(self) -> None:  # noqa: B027 -- may be left out
        """Write what is held back: all records of an object have been stored or purged."""


def format_field(field: FieldSpec, name: str) -> FieldPath:
    """Read the field of a storage, which may have a place for the storage's *name*."""
    return tuple(part.format(name=name) for part in parse_field(field))


def annotations_of(body: Mapping[str, Any]) -> Mapping[str, str]:
    """Give the annotations of an object, an essence or a patch, as they are."""
    raw = body._raw if type(body) is Body else body  # each look through the view is a call more
    found: Mapping[str, str] = (raw.get("metadata") or {}).get("annotations") or {}
    return found


def patch_annotations(patch: dict[str, Any]) -> dict[str, Any]:
    """Give the annotations of a patch, to be filled."""
    target: Any = patch
    for key in ("metadata", "annotations"):
        if not isinstance(target.get(key), MutableMapping):
            target[key] = {}
        target = target[key]
    planned: dict[str, Any] = target
    return planned


def mark_as_managed(prefix: str, *, body: Mapping[str, Any], patch: dict[str, Any]) -> None:
    """Say on the object that the annotations of this prefix are an operator's: other operators leave them out."""
    if not prefix.startswith("kopf.") and marker_key(prefix) not in annotations_of(body):
        patch_annotations(patch).setdefault(marker_key(prefix), "yes")


def purge_annotations(keys: Iterable[str], *, body: Mapping[str, Any], patch: dict[str, Any]) -> None:
    """Have annotations removed, those that are there."""
    present = annotations_of(body)
    for key in keys:
        if key in present:
            patch_annotations(patch)[key] = None
        else:
            remove(patch, ("metadata", "annotations", key))


def without_annotations(essence: BodyEssence, unwanted: Collection[str]) -> BodyEssence:
    """Give the essence without some of its annotations."""
    if not unwanted:
        return essence
    metadata = dict(essence["metadata"])
    metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k not in unwanted}
    if not metadata["annotations"]:
        del metadata["annotations"]
    reduced = {**essence, "metadata": metadata}
    if not metadata:
        del reduced["metadata"]
    return reduced


class AnnotationsProgressStorage(ProgressStorage):
    """Keep each handler's record as JSON in an annotation ``prefix/handler-id``."""

    def __init__(
        self, *, prefix: str = PREFIX, verbose: bool = False, touch_key: str = "touch-dummy", v1: bool = True
    ) -> None:
        self.prefix = check_prefix(prefix)
        self.verbose = verbose
        self.touch_key = touch_key
        self.v1 = v1

    def _keys(self, key: str, body: Mapping[str, Any]) -> tuple[str, ...]:
        return annotation_keys(self.prefix, key, v1=self.v1, replicated=is_replicated(body))

    def fetch(self, *, key: str, body: Body) -> ProgressRecord | None:
        present = annotations_of(body)
        if not present:
            return None
        for full_key in self._keys(key, body):
            text = present.get(full_key)
            if text is not None:
                try:
                    return msgspec.json.decode(text, type=ProgressRecord)
                except (msgspec.MsgspecError, TypeError):
                    continue
        return None

    def store(self, *, key: str, record: ProgressRecord, body: Body, patch: dict[str, Any]) -> None:
        kept = {name: record.get(name) for name in _FIELDS if self.verbose or record.get(name) is not None}
        text = msgspec.json.encode(kept).decode()
        planned = patch_annotations(patch)
        for full_key in self._keys(key, body):
            planned[full_key] = text
        mark_as_managed(self.prefix, body=body, patch=patch)

    def purge(self, *, key: str, body: Body, patch: dict[str, Any]) -> None:
        purge_annotations(self._keys(key, body), body=body, patch=patch)

    def touch(self, *, body: Body, patch: dict[str, Any], value: str | None) -> None:
        keys = self._keys(self.touch_key, body)
        if value is None:
            purge_annotations(keys, body=body, patch=patch)
            return
        patch_annotations(patch).update(dict.fromkeys(keys, value))
        mark_as_managed(self.prefix, body=body, patch=patch)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        mine = f"{self.prefix}/"
        return without_annotations(essence, [key for key in annotations_of(essence) if key.startswith(mine)])


class StatusProgressStorage(ProgressStorage):
    """Keep each handler's record in a field of the status."""

    def __init__(
        self,
        *,
        name: str = "trioperator",
        field: FieldSpec = "status.{name}.progress",
        touch_field: FieldSpec = "status.{name}.dummy",
    ) -> None:
        self.name = name
        self.field = format_field(field, name)
        self.touch_field = format_field(touch_field, name)

    def fetch(self, *, key: str, body: Body) -> ProgressRecord | None:
        record = resolve(body, (*self.field, key))
        try:
            return None if record is None else msgspec.convert(record, ProgressRecord)
        except msgspec.MsgspecError:
            return None

    def store(self, *, key: str, record: ProgressRecord, body: Body, patch: dict[str, Any]) -> None:
        # All fields: what the record does not have must not stay there from the one before.
        ensure(patch, (*self.field, key), {name: record.get(name) for name in _FIELDS})

    def purge(self, *, key: str, body: Body, patch: dict[str, Any]) -> None:
        path = (*self.field, key)
        if resolve(body, path) is not None:
            ensure(patch, path, None)
        else:
            remove(patch, path)

    def touch(self, *, body: Body, patch: dict[str, Any], value: str | None) -> None:
        if value is not None or resolve(body, self.touch_field) is not None:
            ensure(patch, self.touch_field, value)
        else:
            remove(patch, self.touch_field)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        cleared = without(without(essence, self.field), self.touch_field)
        return cast(BodyEssence, cleared)


class MultiProgressStorage(ProgressStorage):
    """Keep records in several storages: written to all, read from the first that has one."""

    def __init__(self, storages: Collection[ProgressStorage]) -> None:
        self.storages = tuple(storages)

    def fetch(self, *, key: str, body: Body) -> ProgressRecord | None:
        for storage in self.storages:
            record = storage.fetch(key=key, body=body)
            if record is not None:
                return record
        return None

    def store(self, *, key: str, record: ProgressRecord, body: Body, patch: dict[str, Any]) -> None:
        for storage in self.storages:
            storage.store(key=key, record=record, body=body, patch=patch)

    def purge(self, *, key: str, body: Body, patch: dict[str, Any]) -> None:
        for storage in self.storages:
            storage.purge(key=key, body=body, patch=patch)

    def touch(self, *, body: Body, patch: dict[str, Any], value: str | None) -> None:
        for storage in self.storages:
            storage.touch(body=body, patch=patch, value=value)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        for storage in self.storages:
            essence = storage.clear(essence=essence)
        return essence

    def flush(self) -> None:
        for storage in self.storages:
            storage.flush()


class SmartProgressStorage(MultiProgressStorage):
    """Keep records in annotations, and still find (and remove) those that older operators have left in the status."""

    def __init__(
        self,
        *,
        prefix: str = PREFIX,
        name: str = "trioperator",
        field: FieldSpec = "status.{name}.progress",
        touch_key: str = "touch-dummy",
        touch_field: FieldSpec = "status.{name}.dummy",
        verbose: bool = False,
        v1: bool = True,
    ) -> None:
        self.prefix = prefix
        self._annotations = AnnotationsProgressStorage(prefix=prefix, verbose=verbose, touch_key=touch_key, v1=v1)
        super().__init__([self._annotations, StatusProgressStorage(name=name, field=field, touch_field=touch_field)])

    def store(self, *, key: str, record: ProgressRecord, body: Body, patch: dict[str, Any]) -> None:
        self._annotations.store(key=key, record=record, body=body, patch=patch)

    def touch(self, *, body: Body, patch: dict[str, Any], value: str | None) -> None:
        self._annotations.touch(body=body, patch=patch, value=value)
