"""An outage of the API server, which many watches notice at once, and one of them reports."""

from __future__ import annotations

__all__ = ["Outage"]


class Outage:
    """The one watch that reports that the API server cannot be reached, so that the log is not flooded."""

    __slots__ = ("_reporter",)

    def __init__(self) -> None:
        self._reporter: object = None

    def claim(self, reporter: object) -> bool:
        """Return whether the reporter is the one: the first to claim an outage."""
        if self._reporter is None:
            self._reporter = reporter
        return self._reporter is reporter

    def end(self) -> None:
        """End the outage, as a watch was opened."""
        self._reporter = None
