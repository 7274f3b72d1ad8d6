"""Watch events: what a reflector has seen of an object, decoded as late as possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from trioperator._kube.objects import RawObject
from trioperator._model.jsontypes import copy_json


class WatchEvent(msgspec.Struct, frozen=True):
    """One event of an object: ``type`` is ADDED, MODIFIED or DELETED, or None for an object of a list.

    ``body`` is given instead of ``object`` where the event was inferred: from a list, or from an own write.
    ``previous`` is the state before, where that is kept.
    """

    type: str | None
    version: int
    object: RawObject | None = None
    body: Mapping[str, Any] | None = None
    previous: RawObject | None = None

    @property
    def generation(self) -> int | None:
        """The object's generation, if it has one."""
        if self.object is not None:
            return self.object.generation
        generation = self._metadata.get("generation")
        return generation if isinstance(generation, int) else None

    @property
    def deleting(self) -> bool:
        """Whether the object is marked for deletion."""
        return self.object.deleting if self.object is not None else bool(self._metadata.get("deletionTimestamp"))

    @property
    def _metadata(self) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = (self.body or {}).get("metadata") or {}
        return metadata

    def decode(self) -> Mapping[str, Any]:
        """Decode the object, a new one each time. Raises ``msgspec.MsgspecError`` where it cannot be decoded."""
        if self.body is not None:
            body: Mapping[str, Any] = copy_json(self.body)
            return body
        assert self.object is not None
        return self.object.decode()

    def load(self) -> Mapping[str, Any]:
        """Return the object as :meth:`decode` does; but if it is large, only its JSON is kept while it is not used."""
        return self.decode() if self.object is None else self.object.load()
