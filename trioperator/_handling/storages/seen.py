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


def make_seen_storages(progress: ProgressStorage, diffbase: DiffBaseStorage) -> tuple[DiffBaseStorage, ...]:
    """Return storages for two configurations, in the same places as the progress.

    If that is in a storage of a user's, they are beside the last-handled one; none if that is in one as well.
    """
    for beside in (progress, diffbase):
        found = (_make_storage(beside, name) for name in (SEEN, ALSO_SEEN))
        if storages := tuple(each for each in found if each is not None):
            return storages
    return ()


def _make_storage(beside: ProgressStorage | DiffBaseStorage, name: str) -> DiffBaseStorage | None:
    match beside:
        case SmartProgressStorage() | AnnotationsProgressStorage() | AnnotationsDiffBaseStorage():
            return AnnotationsDiffBaseStorage(prefix=beside.prefix, key=name, v1=False)
        case StatusProgressStorage() | StatusDiffBaseStorage():
            return StatusDiffBaseStorage(field=(*beside.field[:-1], name))
        case MultiProgressStorage() | MultiDiffBaseStorage():
            inner = (_make_storage(each, name) for each in beside.storages)
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
