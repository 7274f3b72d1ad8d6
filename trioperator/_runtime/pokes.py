"""Pokes: requests to reconcile an object now, by each new value of an annotation.

A value counts once. In a process, it is compared with the one before; after a restart, with the one that was stored
with the progress of handlers. Nothing is stored without any: then each start does all that a poke does. Of a long
value, a digest is kept and stored: both annotations have to fit into the object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from trioperator._handling.storages.progress import patch_annotations
from trioperator._model.patch import Patch
from trioperator._model.pause import find_annotation
from trioperator._runtime.cache.object_state import ObjectState

_HANDLED: Final = "last-handled-reconcile-at"
# Characters of a value that is kept as it is: times are shorter.
_MAX_KEPT: Final = 64


class Pokes:
    """The values of the annotation that were taken, of the objects that have it."""

    def __init__(self, annotation: str | None) -> None:
        self._annotation = annotation
        prefix, slash, _ = (annotation or "").rpartition("/")
        self._record = f"{prefix}{slash}{_HANDLED}"
        self.taken: dict[ObjectState, str] = {}

    @property
    def annotations(self) -> tuple[str, ...]:
        """The annotations that are read and written."""
        return () if self._annotation is None else (self._annotation, self._record)

    def take(self, state: ObjectState) -> bool:
        """Check whether an object is poked in its newest state, and note that it was."""
        assert state.body is not None
        value, before = find_annotation(state.body, self._annotation), self.taken.get(state)
        if value is None:
            self.taken.pop(state, None)
            return False
        self.taken[state] = value = _shorten(value)
        return value != (find_annotation(state.body, self._record) if before is None else before)

    def store(self, state: ObjectState, body: Mapping[str, Any], patch: Patch) -> None:
        """Write what was taken into a patch that stores the progress of handlers."""
        taken = self.taken.get(state)
        if taken is not None and find_annotation(body, self._record) != taken:
            patch_annotations(patch)[self._record] = taken

    def purge(self, body: Mapping[str, Any], patch: Patch) -> None:
        """Remove what was stored, together with the progress of handlers."""
        if find_annotation(body, self._record) is not None:
            patch_annotations(patch)[self._record] = None

    def forget(self, state: ObjectState) -> None:
        """Forget an object that is gone, or is no longer handled."""
        self.taken.pop(state, None)


def _shorten(value: str) -> str:
    return value if len(value) <= _MAX_KEPT else hashlib.blake2b(value.encode(), digest_size=16).hexdigest()
