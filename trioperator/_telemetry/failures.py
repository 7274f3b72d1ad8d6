"""The newest errors of handlers, for the live view. Only an operator with a live view keeps them."""

from __future__ import annotations

import collections
import datetime
import os.path
import re
from collections.abc import Iterator
from types import TracebackType
from typing import Final

import msgspec

from trioperator._concurrency.clock import wall_now
from trioperator._handling.calls.invoke import Attempt
from trioperator._handling.handlers.handler import Handler
from trioperator._handling.handlers.outcome import Outcome, describe
from trioperator._logs import Logger

#: Errors that are kept; older ones are in the log only.
MAX_FAILURES: Final = 500
# Characters of a message: as many as are stored on objects.
_MAX_MESSAGE: Final = 1024
# Users and passwords in URLs, wherever in a message these are.
_USERINFO: Final = re.compile(r"(?<=://)[^\s/?#@]*@")
_FRAMEWORK: Final = frozenset({"trioperator", "trio", "outcome", "contextlib"})


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of a handler that has failed. ``delay`` is in seconds; None if there is no further attempt."""

    time: datetime.datetime
    handler: str
    kind: str
    namespace: str
    name: str
    uid: str
    error: str
    message: str
    place: str
    retry: int
    delay: float | None


class Failures:
    """The newest failures, oldest first, and how many there were."""

    def __init__(self) -> None:
        self._kept: collections.deque[Failure] = collections.deque(maxlen=MAX_FAILURES)
        self.count = 0

    def __iter__(self) -> Iterator[Failure]:
        return iter(tuple(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    def record(self, handler: Handler, outcome: Outcome, attempt: Attempt, logger: Logger) -> None:
        """Keep the error of an attempt. It is described now: an exception would keep all its frames alive."""
        error = outcome.error
        if error is None:
            return
        ref = logger.object_ref
        shown = error.__cause__ if error.__traceback__ is None and error.__cause__ is not None else error
        self.count += 1
        self._kept.append(
            Failure(
                time=wall_now(),
                handler=handler.id,
                kind=str(ref["kind"]) if ref else "",
                namespace=str(ref["namespace"] or "") if ref else "",
                name=str(ref["name"]) if ref else "",
                uid=str(ref["uid"]) if ref else "",
                error=type(error).__name__,
                message=mask_message(describe(error)),
                place=_find_place(shown.__traceback__),
                retry=attempt.retry,
                delay=None if outcome.final else outcome.delay,
            )
        )


def mask_message(message: str) -> str:
    """Return the message of an error, cut, and without the users and passwords of the URLs in it."""
    return _USERINFO.sub("…@", message[:_MAX_MESSAGE])


def _find_place(traceback: TracebackType | None) -> str:
    """Return where an error was raised: the innermost line that is not the framework's."""
    place = ""
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _FRAMEWORK:
            code = frame.f_code
            place = f"{os.path.basename(code.co_filename)}:{traceback.tb_lineno} in {code.co_name}"
        traceback = traceback.tb_next
    return place
