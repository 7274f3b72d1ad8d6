"""Storages of the progress of handlers, in Kopf's formats. Pure: they read bodies and write patches."""

from __future__ import annotations

import abc
import functools
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from typing import Any, TypedDict, cast

import msgspec

from trioperator._handling.storages.annotation_keys import REPLICATED, AnnotationKeys, check_prefix, is_replicated
from trioperator._model.body import Body, BodyEssence
from trioperator._model.essence import marker_key
from trioperator._model.fields import FieldPath, FieldSpec, ensure, parse_field, remove, resolve, without

PREFIX = "trioperator.dev"
#: Name under which the configuration is stored that handlers have seen, while some have ended and others have not.
SEEN = "seen-configuration"
#: And likewise another one, where they have seen different ones.
ALSO_SEEN = "also-seen-configuration"

# The order in which the fields of a record are written.
_FIELDS = (
    *("started", "stopped", "delayed", "purpose", "retries", "success", "failure", "message", "subrefs"),
    *("attempted", "base"),
)

# An annotation that usually has the same prefix, but is not a record.
_LAST_HANDLED = "last-handled-configuration"


class ProgressRecord(TypedDict, total=False):
    """Stored progress of one handler. Times are ISO 8601 strings; ``subrefs`` are the ids of sub-handlers.

    Kopf's records are without ``attempted``, the end of the last attempt, and without ``base``, a digest of the
    last-handled configuration when the cause began.
    """

    started: str | None
    stopped: str | None
    delayed: str | None
    purpose: str | None
    retries: int | None
    success: bool | None
    failure: bool | None
    message: str | None
    subrefs: Collection[str] | None
    attempted: str | None
    base: str | None


class ProgressStorage(abc.ABC):
    """Storage of the progress of handlers: on the object itself, through its patch, or elsewhere.

    Anybody can write to annotations and the status: implementations treat unreadable data as absent and do not raise.
    """

    @abc.abstractmethod
    def fetch(self, *, key: str, body: Body) -> ProgressRecord | None:
        """Return the record of the handler with the id *key*, None if it is absent or unreadable."""

    @abc.abstractmethod
    def store(self, *, key: str, record: ProgressRecord, body: Body, patch: dict[str, Any]) -> None:
        """Add the record to the patch."""

    @abc.abstractmethod
    def purge(self, *, key: str, body: Body, patch: dict[str, Any]) -> None:
        """Add the removal of the record to the patch, if there is a record."""

    def purge_based(self, *, body: Body, patch: dict[str, Any]) -> None:  # noqa: B027 -- optional
        """Add the removal of all records that have a ``base`` to the patch, also of handlers that are not known.

        It is not followed by :meth:`flush`.
        """

    def touch(self, *, body: Body, patch: dict[str, Any], value: str | None) -> None:  # noqa: B027 -- optional
        """Write *value* to a dummy field, to provoke a watch event."""

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        """Remove this storage's data from an essence. Return the same essence, or a changed copy.

        None counts as the same.
        """
        return essence

    def flush(self) -> None:  # noqa: B027 -- optional
        """Write buffered records: all records of an object have been stored or purged."""

    def has_records(self, *, body: Body) -> bool:
        """Check whether there may be any records on an object: where there are none, they are not looked up one by one.

        Asked of the storages of this package only: a storage that is derived from them may keep its records elsewhere.
        """
        return True


def format_field(field: FieldSpec, name: str) -> FieldPath:
    """Parse the field of a storage, and put the storage's *name* in place of ``{name}``."""
    return tuple(part.format(name=name) for part in parse_field(field))


def annotations_of(body: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations of an object, an essence or a patch; not a copy."""
    raw = body._raw if type(body) is Body else body  # each access through the view costs another call
    found: Mapping[str, str] = (raw.get("metadata") or {}).get("annotations") or {}
    return found


def patch_annotations(patch: dict[str, Any]) -> dict[str, Any]:
    """Return the annotations of a patch to be changed, creating them if needed."""
    target: Any = patch
    for key in ("metadata", "annotations"):
        inner = target.get(key)
        if type(inner) is not dict and not isinstance(inner, MutableMapping):  # the first check is much faster
            inner = target[key] = {}
        target = inner
    annotations: dict[str, Any] = target
    return annotations


def mark_as_managed(prefix: str, *, body: Mapping[str, Any], patch: dict[str, Any]) -> None:
    """Mark the annotations of this prefix as an operator's: other operators exclude them from the essence."""
    if not prefix.startswith("kopf.") and marker_key(prefix) not in annotations_of(body):
        patch_annotations(patch).setdefault(marker_key(prefix), "yes")


def purge_annotations(keys: Iterable[str], *, body: Mapping[str, Any], patch: dict[str, Any]) -> None:
    """Add the removal of the annotations that exist to the patch."""
    present = annotations_of(body)
    for key in keys:
        if key in present:
            patch_annotations(patch)[key] = None
        else:
            remove(patch, ("metadata", "annotations", key))


def _is_based(record: Any) -> bool:
    """Check whether this is a record that says which last-handled configuration its cause began with."""
    return isinstance(record, Mapping) and isinstance(record.get("base"), str) and "started" in record


def _is_based_text(text: str) -> bool:
    try:
        return '"base"' in text and _is_based(msgspec.json.decode(text))
    except (msgspec.MsgspecError, RecursionError):
        return False


def without_annotations(essence: BodyEssence, unwanted: Collection[str]) -> BodyEssence:
    """Return the essence without the *unwanted* annotations."""
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


@functools.cache
def _own_keys(prefix: str) -> tuple[str, frozenset[str]]:
    """Return how the annotations of this prefix begin, and which of them are no records."""
    return f"{prefix}/", frozenset({marker_key(prefix), f"{prefix}/{_LAST_HANDLED}"})


class AnnotationsProgressStorage(AnnotationKeys, ProgressStorage):
    """Storage of each handler's record as JSON in the annotation ``prefix/handler-id``."""

    def __init__(
        self, *, prefix: str = PREFIX, verbose: bool = False, touch_key: str = "touch-dummy", v1: bool = True
    ) -> None:
        self.prefix = check_prefix(prefix)
        self.verbose = verbose
        self.touch_key = touch_key
        self.v1 = v1

    def has_records(self, *, body: Body) -> bool:
        mine, others = _own_keys(self.prefix)
        return any(key.startswith(mine) for key in annotations_of(body).keys() - others)

    def fetch(self, *, key: str, body: Body) -> ProgressRecord | None:
        present = annotations_of(body)
        if not present:
            return None
        for full_key in self.make_keys(key, body=body):
            text = present.get(full_key)
            if text is not None:
                try:
                    return msgspec.json.decode(text, type=ProgressRecord)
                except (msgspec.MsgspecError, TypeError, RecursionError):
                    continue
        return None

    def store(self, *, key: str, record: ProgressRecord, body: Body, patch: dict[str, Any]) -> None:
        kept = {name: record.get(name) for name in _FIELDS if self.verbose or record.get(name) is not None}
        text = msgspec.json.encode(kept).decode()
        annotations = patch_annotations(patch)
        for full_key in self.make_keys(key, body=body):
            annotations[full_key] = text
        mark_as_managed(self.prefix, body=body, patch=patch)

    def purge(self, *, key: str, body: Body, patch: dict[str, Any]) -> None:
        purge_annotations(self.make_keys(key, body=body), body=body, patch=patch)

    def purge_based(self, *, body: Body, patch: dict[str, Any]) -> None:
        mine, others = _own_keys(self.prefix)
        found = [key for key, text in annotations_of(body).items() if key.startswith(mine) and _is_based_text(text)]
        if is_replicated(body):  # the others are copies of its owner's
            found = [key for key in found if key.endswith(REPLICATED)]
        purge_annotations([key for key in found if key not in others], body=body, patch=patch)

    def touch(self, *, body: Body, patch: dict[str, Any], value: str | None) -> None:
        keys = self.make_keys(self.touch_key, body=body)
        if value is None:
            purge_annotations(keys, body=body, patch=patch)
            return
        patch_annotations(patch).update(dict.fromkeys(keys, value))
        mark_as_managed(self.prefix, body=body, patch=patch)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        kept = annotations_of(essence)
        if not kept:
            return essence
        mine = f"{self.prefix}/"
        return without_annotations(essence, [key for key in kept if key.startswith(mine)])


class StatusProgressStorage(ProgressStorage):
    """Storage of each handler's record in a field of the status."""

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

    @property
    def seen_fields(self) -> tuple[FieldPath, FieldPath]:
        """The fields for the configurations that handlers have seen."""
        place = self.field[:-1]
        return (*place, SEEN), (*place, ALSO_SEEN)

    def fetch(self, *, key: str, body: Body) -> ProgressRecord | None:
        record = resolve(body, (*self.field, key))
        try:
            return None if record is None else msgspec.convert(record, ProgressRecord)
        except (msgspec.MsgspecError, RecursionError):
            return None

    def has_records(self, *, body: Body) -> bool:
        return any(resolve(body._raw, field) for field in (self.field, *self.seen_fields))

    def store(self, *, key: str, record: ProgressRecord, body: Body, patch: dict[str, Any]) -> None:
        # Write all fields, so that none of the previous record remains.
        ensure(patch, (*self.field, key), {name: record.get(name) for name in _FIELDS})

    def purge(self, *, key: str, body: Body, patch: dict[str, Any]) -> None:
        path = (*self.field, key)
        if resolve(body, path) is not None:
            ensure(patch, path, None)
        else:
            remove(patch, path)

    def purge_based(self, *, body: Body, patch: dict[str, Any]) -> None:
        records = resolve(body._raw, self.field)
        for key, record in records.items() if isinstance(records, Mapping) else ():
            if _is_based(record):
                self.purge(key=key, body=body, patch=patch)

    def touch(self, *, body: Body, patch: dict[str, Any], value: str | None) -> None:
        if value is not None or resolve(body, self.touch_field) is not None:
            ensure(patch, self.touch_field, value)
        else:
            remove(patch, self.touch_field)

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        if self.field[0] not in essence and self.touch_field[0] not in essence:
            return essence  # nearly always: the status is no part of essences
        for field in (self.field, self.touch_field, *self.seen_fields):
            essence = cast(BodyEssence, without(essence, field))
        return essence


class MultiProgressStorage(ProgressStorage):
    """Combination of storages: records are written to all, and read from the first that has one."""

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

    def purge_based(self, *, body: Body, patch: dict[str, Any]) -> None:
        for storage in self.storages:
            storage.purge_based(body=body, patch=patch)

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

    def has_records(self, *, body: Body) -> bool:
        return any(storage.has_records(body=body) for storage in self.storages)


class SmartProgressStorage(MultiProgressStorage):
    """Storage in annotations that also reads and removes records that older operators have left in the status."""

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
