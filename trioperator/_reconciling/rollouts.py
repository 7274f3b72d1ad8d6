"""Rolling updates: of several children of a kind, one at a time is changed, when all others are ready.

What is not ready goes first: a child that is broken can be repaired, and does not hold up the others forever. Nor does
a child hold up those that it depends on, as it is applied only after them.
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
        """Yield the children that may be applied now. Each is applied before the next one is asked for.

        Each must come after those that it depends on, and is held as long as one of these is.
        """
        held: dict[Child, None] = {}
        for child in children:
            if self._is_held(child, held, tried=False):
                held[child] = None
            else:
                yield child
        while (free := next((each for each in held if not self._is_held(each, held, tried=True)), None)) is not None:
            del held[free]
            yield free

    def _is_held(self, child: Child, held: Mapping[Child, None], *, tried: bool) -> bool:
        """Check whether a child must not be changed now. One that does not exist may be created at any time.

        If all others were *tried*, one that is still missing cannot be created yet.
        """
        if not held.keys().isdisjoint(child.depends_on):
            return True
        manifest = self._manifests[child]
        if manifest.strategy != "rolling":
            return False
        record = manifest.find()
        if record is None or self._is_current(manifest):
            return False
        others = [other for other in self._rolling if other.kind is manifest.kind and other is not manifest]
        unavailable = [other for other in others if not _is_available(other)]
        independent = [other for other in unavailable if not _waits_for(other.child, child)]
        # What waits for this child can neither hold it up nor get ready before it.
        if len(independent) == len(unavailable) and is_ready(record, manifest):
            return bool(independent)
        return any(self._is_current(other) or (other.find() is None and not tried) for other in independent)

    def _is_current(self, manifest: Manifest) -> bool:
        """Check whether a child exists as it is desired."""
        return is_as_desired(manifest.find(), manifest, self._schedule.children.applied.get(manifest.key))


def _is_available(manifest: Manifest) -> bool:
    record = manifest.find()
    return record is not None and is_ready(record, manifest)


def _waits_for(child: Child, other: Child) -> bool:
    """Check whether a child depends on another one, maybe by way of others."""
    seen, stack = set[Child](), [child]
    while stack:
        for each in stack.pop().depends_on:
            if each is other:
                return True
            if each not in seen:
                seen.add(each)
                stack.append(each)
    return False
