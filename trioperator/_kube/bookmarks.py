"""Bookmarks of watches: how often API servers send them, so that a watch that has gone deaf is told from a quiet one.

A stream may stay open and bring nothing, as where a load balancer has forgotten the connection, or a proxy is stuck. A
kube-apiserver sends a bookmark each minute, so what is silent for longer is suspicious. Nothing guarantees that: other
servers send them more rarely, or none. So silence is no error, but a reason to open the watch again, from its last
version: one request, by which nothing is lost.

Where a proxy keeps responses back until they are complete, or large, each watch is silent, whatever has changed. So the
next ones after a silent one are ended by the server before they are silent for too long: then the proxy passes them on.
"""

from __future__ import annotations

import math
import random
from typing import Final

# Seconds of silence until a watch is opened again; at random, so that many watches do not do so at the same time.
_PATIENCE: Final = (75.0, 86.0)
# Seconds until a watch ends that follows a silent one: less than that, also as a share of what the settings say.
_SHORT: Final = (60.0, 67.0)
_SHORT_SHARE: Final = 0.8
# Limit of such watches, of which there are twice as many after each silent one.
_MAX_SHORT: Final = 32
# By how much longer to wait than the server has shown to take between bookmarks.
_MARGIN: Final = 1.25


class Bookmarks:
    """The shortest time between two bookmarks of a watch, for each API group: these may have servers of their own.

    A longer one may be due to a connection that has stalled. Also, which watches were silent for too long.
    """

    __slots__ = ("_intervals", "_silent")

    def __init__(self) -> None:
        self._intervals: dict[str, float] = {}
        # By path, the number of short watches after a silent one, and of those that are left.
        self._silent: dict[str, tuple[int, int]] = {}

    def record(self, path: str, interval: float) -> None:
        """Record the seconds between two bookmarks in a stream, or from its beginning to the first one."""
        group = _group(path)
        self._intervals[group] = min(interval, self._intervals.get(group, interval))

    def choose_patience(self, path: str) -> float:
        """Return the seconds that a watch may be silent: longer where bookmarks are known to be rare."""
        return max(random.uniform(*_PATIENCE), _MARGIN * self._intervals.get(_group(path), 0.0))

    def note_silence(self, path: str) -> None:
        """Record that a watch was silent for too long."""
        count, _ = self._silent.get(path, (0, 0))
        count = min(max(1, 2 * count), _MAX_SHORT)
        self._silent[path] = (count, count)

    def choose_duration(self, path: str, seconds: float, *, patience: float | None) -> float:
        """Return the duration of the next watch, which is *seconds* unless an earlier one was silent for too long.

        *patience* is how long it may be silent, if that is set.
        """
        count, left = self._silent.get(path, (0, 0))
        if not left:
            return seconds
        self._silent[path] = (count, left - 1)
        return min(seconds, random.uniform(*_SHORT), math.inf if patience is None else _SHORT_SHARE * patience)


def _group(path: str) -> str:
    return "/".join(path.split("/")[:3])  # /apis/GROUP, or /api/v1
