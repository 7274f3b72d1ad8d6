"""What must be true after the soak, by the objects and by the journal of the handlers."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

FINALIZER = "trioperator.dev/finalizer"
_KEPT = {"trioperator.dev/last-handled-configuration", "trioperator.dev/kopf-managed"}


def find_unsettled(items: Iterable[Any]) -> list[str]:
    """Return what is wrong with objects to which nothing happens any more."""
    return [f"{item['metadata']['name']}: {problem}" for item in items for problem in _problems(item)]


def _problems(item: Any) -> Iterable[str]:
    meta, status = item["metadata"], item.get("status") or {}
    generation = meta["generation"]
    if meta.get("deletionTimestamp"):
        yield f"its deletion is not handled: {meta.get('finalizers')}"
        return
    if FINALIZER not in meta.get("finalizers", ()):
        yield "it has no finalizer"
    seen = {id: status.get(id) for id in ("first", "part-a", "part-b")}
    seen["second"] = (status.get("second") or {}).get("generation")
    for id, number in seen.items():
        if number != generation:
            yield f"{id} has seen generation {number} of {generation}"
    if left := {key for key in meta.get("annotations", {}) if key.startswith("trioperator.dev/")} - _KEPT:
        yield f"left behind: {left}"


class Journal(NamedTuple):
    """What the handlers have noted: the uids of handled deletions; by process, the uids of daemons and of timers."""

    deletions: collections.Counter[str]
    daemons: dict[int, set[str]]
    ticks: dict[int, set[str]]
    problems: list[str]

    def find_lost_deletions(self, deleted: Collection[str]) -> list[str]:
        """Return the uids of the deletions that nobody has handled."""
        return sorted(set(deleted) - self.deletions.keys())


def read_journal(path: pathlib.Path) -> Journal:
    """Read the journal of all processes. ``daemons`` are those that have begun and not ended."""
    journal = Journal(collections.Counter(), collections.defaultdict(set), collections.defaultdict(set), [])
    for line in path.read_text().splitlines():
        what, uid, pid = line.split()[0], line.split()[1], int(line.split()[2])
        match what:
            case "delete":
                journal.deletions[uid] += 1
            case "tick":
                journal.ticks[pid].add(uid)
            case "spawn":
                if uid in journal.daemons[pid]:
                    journal.problems.append(f"two daemons of {uid} in the process {pid}")
                journal.daemons[pid].add(uid)
            case "end":
                journal.daemons[pid].discard(uid)
    return journal
