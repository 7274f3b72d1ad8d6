"""Rolling updates: of several children of a kind, one at a time is changed, when all others are ready.

What is not ready goes first: a child that is broken can be repaired, and does not hold up the others forever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from trioperator._handling.handlers.children import Child
from trioperator._reconciling.manifests import Manifest, is_as_desired, is_ready
from trioperator._reconciling.schedules import HandlerSchedule


class Rollout:
    """The children of one call whose strategy is ``rolling``, each with the others of its kind."""

    def __init__(self, manifests: Mapping[Child, Manifest], schedule: HandlerSchedule) -> None:
        self._manifests = manifests
        self._schedule = schedule
        self._rolling = [manifest for manifest in manifests.values() if manifest.strategy == "rolling"]

    def order(self, children: Iterable[Child]) -> Iterator[Child]:
        """Yield the children that may be applied now. Each is applied before the next one is asked for."""
        held: list[Child] = []
        for child in children:
            if self._is_held(self._manifests[child]):
                held.append(child)
            else:
                yield child
        while (free := next((child for child in held if not self._is_held(self._manifests[child])), None)) is not None:
            held.remove(free)
            yield free

    def _is_held(self, manifest: Manifest) -> bool:
        """Check whether a child must not be changed now. One that does not exist may be created at any time."""
        if manifest.strategy != "rolling":
            return False
        record = manifest.find()
        if record is None or self._is_current(manifest):
            return False
        waits_for_all = is_ready(record, manifest)
        others = (other for other in self._rolling if other.kind is manifest.kind and other is not manifest)
        return any(not _is_available(other) and (waits_for_all or self._is_current(other)) for other in others)

    def _is_current(self, manifest: Manifest) -> bool:
        """Check whether a child is as it is desired; one that is missing is about to be."""
        record = manifest.find()
        return record is None or is_as_desired(record, manifest, self._schedule.children.applied.get(manifest.key))


def _is_available(manifest: Manifest) -> bool:
    record = manifest.find()
    return record is not None and is_ready(record, manifest)
