"""Storages of the configurations that handlers which have ended have seen: next to the progress of handlers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trioperator._handling.storages.diffbase import (
    AnnotationsDiffBaseStorage,
    DiffBaseStorage,
    MultiDiffBaseStorage,
    StatusDiffBaseStorage,
)
from trioperator._handling.storages.progress import (
    ALSO_SEEN,
    SEEN,
    AnnotationsProgressStorage,
    MultiProgressStorage,
    ProgressStorage,
    SmartProgressStorage,
    StatusProgressStorage,
    purge_annotations,
)
from trioperator._model.fields import ensure, remove, resolve


def make_seen_storages(progress: ProgressStorage) -> tuple[DiffBaseStorage, ...]:
    """Return storages for two configurations, in the same places as the progress; none for one of a user's."""
    return tuple(found for number in range(2) if (found := _make_storage(progress, number)) is not None)


def _make_storage(progress: ProgressStorage, number: int) -> DiffBaseStorage | None:
    match progress:
        case SmartProgressStorage() | AnnotationsProgressStorage():
            return AnnotationsDiffBaseStorage(prefix=progress.prefix, key=(SEEN, ALSO_SEEN)[number], v1=False)
        case StatusProgressStorage():
            return StatusDiffBaseStorage(field=progress.seen_fields[number])
        case MultiProgressStorage():
            inner = (_make_storage(each, number) for each in progress.storages)
            found = [each for each in inner if each is not None]
            return MultiDiffBaseStorage(found) if found else None
    return None


def purge_seen(storage: DiffBaseStorage, *, body: Mapping[str, Any], patch: dict[str, Any]) -> None:
    """Add the removal of what is stored to the patch."""
    match storage:
        case AnnotationsDiffBaseStorage():
            purge_annotations([f"{storage.prefix}/{storage.key}"], body=body, patch=patch)
        case StatusDiffBaseStorage():
            if resolve(body, storage.field) is not None:
                ensure(patch, storage.field, None)
            else:
                remove(patch, storage.field)
        case MultiDiffBaseStorage():
            for each in storage.storages:
                purge_seen(each, body=body, patch=patch)
