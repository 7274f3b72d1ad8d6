"""The position of a watch in the history of a collection: where it goes on, and whether that can be trusted.

Resource versions only grow, unless etcd is restored from a backup. Then a watch from a version that is not there yet
brings nothing, for as long as it takes: so what is older than the newest version that was seen is a sign of that, and
silence is a reason to ask.
"""

from __future__ import annotations

import math
from typing import Final

# Seconds of silence, even of several watches in a row, after which the server may have been restored to an earlier
# state: then it sends no bookmarks, either.
_SUSPICIOUS: Final = 300.0


class Position:
    """Where a watch goes on: from ``version``, or with a list if that is None.

    ``newest`` is the newest of all versions so far, and ``doubted_at`` when the server began to be possibly not what it
    was; None if there is no doubt. Times are on Trio's clock. It may start with what others have *seen*.
    """

    def __init__(self, *, seen: str = "") -> None:
        self.version: str | None = None
        self.newest = seen
        self.doubted_at: float | None = None
        self._heard_at = -math.inf
        self._is_distrusted = False

    @property
    def is_new(self) -> bool:
        """Whether nothing was seen yet, and nothing has been lost."""
        return not self.newest and not self._is_distrusted

    def begin(self, version: str, at: float) -> None:
        """Go on from the version of a complete list."""
        self.version = self.newest = version
        self.trust(at)

    def listen(self, at: float, *, is_quiet: bool) -> None:
        """Record that a watch has ended. If watches have been quiet for minutes, the server is doubted.

        A check since the middle of that time is enough, also by others.
        """
        if not is_quiet:
            self._heard_at = at
        elif at - self._heard_at > _SUSPICIOUS:
            self.doubted_at = at - _SUSPICIOUS / 2

    def advance(self, version: str) -> None:
        """Go on from the version of a watch event."""
        self.version = self.newest = version

    def resume(self, version: str | None) -> None:
        """Go on from a version that was left for a while."""
        self.version = version

    def lose(self) -> None:
        """Go on with a list."""
        self.version = None

    def is_restored(self, version: str, *, written: int = -1) -> bool:
        """Check whether a version is older than what was seen before, or than one that was *written* before."""
        if not (version.isdecimal() and self.newest.isdecimal()):
            return False
        return 0 < int(version) < max(int(self.newest), written)

    def is_before(self, version: int) -> bool:
        """Check whether a version is still to come."""
        return self.newest.isdecimal() and int(self.newest) < version

    def doubt(self, at: float) -> None:
        """Record when the server began to be possibly not what it was."""
        self.doubted_at = at

    def trust(self, at: float) -> None:
        """Record that the server is what it was, or that another watch checks that."""
        self.doubted_at = None
        self._heard_at = at

    def distrust(self) -> None:
        """Take the next list as it is, as etcd was restored."""
        self.newest, self._is_distrusted = "", True

    def take_distrust(self) -> bool:
        """Return whether a list is to be taken as it is, and trust what comes after it."""
        was_distrusted, self._is_distrusted = self._is_distrusted, False
        return was_distrusted
