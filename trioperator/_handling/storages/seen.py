"""Storages of the configuration that the first handler to end has seen: next to the progress of handlers. Pure."""

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
    SEEN,
    AnnotationsProgressStorage,
    MultiProgressStorage,
    ProgressStorage,
    SmartProgressStorage,
    StatusProgressStorage,
    purge_annotations,
)
from trioperator._model.fields import ensure, remove, resolve


def make_seen_storage(progress: ProgressStorage) -> DiffBaseStorage | None:
    """Return a storage in the same places as the progress; None for one that a user has written."""
    match progress:
        case SmartProgressStorage() | AnnotationsProgressStorage():
            return AnnotationsDiffBaseStorage(prefix=progress.prefix, key=SEEN, v1=False)
        case StatusProgressStorage():
            return StatusDiffBaseStorage(field=progress.seen_field)
        case MultiProgressStorage():
            found = [each for each in map(make_seen_storage, progress.storages) if each is not None]
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
