"""Callbacks of a reflector besides its observer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


def _ignore(*_: object) -> None: ...


def write_nothing() -> int:
    """Return -1, as the version of no write."""
    return -1


class Callbacks(NamedTuple):
    """Callbacks of a reflector besides its observer.

    ``restored`` is called when a list is older than what was seen, to let those
    :meth:`~trioperator._runtime.watching.reflector.Reflector.distrust` that may be too late to notice; ``rewind``
    before a list that is to be taken as it is; ``announce`` when its trouble may have changed; ``unserved`` when the
    server has said for a while that it does not have the collection; ``refused`` with the error when it has refused to
    list it for a while, for whatever reason. ``newest_written`` returns the newest version of
    the operator's own writes to the objects; -1 if there are none.
    """

    rewind: Callable[[], None] = _ignore
    restored: Callable[[], None] = _ignore
    announce: Callable[[], None] = _ignore
    unserved: Callable[[], None] = _ignore
    newest_written: Callable[[], int] = write_nothing
    refused: Callable[[Exception], None] = _ignore
