"""Bookmarks of watches: how often API servers send them, so that a watch that has gone deaf is told from a quiet one.

A stream may stay open and bring nothing, as where a load balancer has forgotten the connection, or a proxy is stuck. A
kube-apiserver sends a bookmark each minute, so what is silent for longer is suspicious. Nothing guarantees that: other
servers send them more rarely, or none. So silence is no error, but a reason to open the watch again, from its last
version: one request, by which nothing is lost.
"""

from __future__ import annotations

import random
from typing import Final

# Seconds of silence until a watch is opened again; at random, so that many watches do not do so at the same time.
_PATIENCE: Final = (75.0, 86.0)
# By how much longer to wait than the server has shown to take between bookmarks.
_MARGIN: Final = 1.25


class Bookmarks:
    """The shortest time between two bookmarks of a watch, for each API group: these may have servers of their own.

    A longer one may be due to a connection that has stalled.
    """

    __slots__ = ("_intervals",)

    def __init__(self) -> None:
        self._intervals: dict[str, float] = {}

    def record(self, path: str, interval: float) -> None:
        """Record the seconds between two bookmarks in a stream, or from its beginning to the first one."""
        group = _group(path)
        self._intervals[group] = min(interval, self._intervals.get(group, interval))

    def choose_patience(self, path: str) -> float:
        """Return the seconds that a watch may be silent: longer where bookmarks are known to be rare."""
        return max(random.uniform(*_PATIENCE), _MARGIN * self._intervals.get(_group(path), 0.0))


def _group(path: str) -> str:
    return "/".join(path.split("/")[:3])  # /apis/GROUP, or /api/v1
