"""The world outside of a play: calls to it are refused, and a play that does not end in real time is ended."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

import trio

from trioperator.cli.project import is_library
from trioperator.errors import ConfigError
from trioperator.testing.rights import handler_at_work

#: Advice for a refused call.
HOW_TO_FAKE: Final = (
    "Plays do not reach the outside: fake what is called, with trioperator.testing.effects, in a file for --setup"
    " (docs/exploring.md#external-apis)."
)

_RUN: Final = "trio._core._run"  # the module of the functions that run tasks
# Audit events of CPython, and how to say what happens.
_EVENTS: Final = {
    "socket.connect": "connects to",
    "socket.getaddrinfo": "looks up",
    "socket.gethostbyname": "looks up",
    "socket.sendto": "sends to",
    "subprocess.Popen": "starts the program",
    "os.system": "starts the program",
    "os.posix_spawn": "starts the program",
}
_refusals: list[list[str]] = []  # of the context that is open, if any
_is_hooked = False
# Seconds for a play to end after it was cancelled: until then, the event loop counts as blocked.
_GRACE: Final = 5.0


class OutsideCallError(ConfigError, ConnectionRefusedError):
    """Raised where a handler connects to the network or starts a program during a play.

    To libraries it is a refused connection, so they close their sockets.
    """


@contextlib.contextmanager
def refuse_outside_calls() -> Iterator[list[str]]:
    """Refuse connections and programs in the context, in all threads; yield what was refused, in words."""
    global _is_hooked
    if not _is_hooked:  # for good: there is no way to remove it
        sys.addaudithook(_audit)
        _is_hooked = True
    refused: list[str] = []
    _refusals.append(refused)
    try:
        yield refused
    finally:
        _refusals.remove(refused)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _refusals or event not in _EVENTS:
        return
    handler = handler_at_work.get()
    if (handler is None and not event.startswith("socket.")) or _is_number(event, args):
        return
    who = f"Handler {handler.rpartition('.<locals>.')[2]!r}" if handler else "The operator"
    place = find_place(sys._getframe(1))
    text = f"{who} {_EVENTS[event]} {_describe(event, args)}{f' ({place})' if place else ''}"
    _refusals[-1].append(text)
    raise OutsideCallError(f"{text}: plays do not reach the outside.")


def _is_number(event: str, args: tuple[Any, ...]) -> bool:
    """Return whether an address is looked up that needs no name server: it is refused where it is connected to."""
    if not event.startswith("socket.get"):
        return False
    try:
        ipaddress.ip_address(args[0] or "")
    except ValueError:
        return False
    return True


def _describe(event: str, args: tuple[Any, ...]) -> str:
    target = args[1] if event in ("socket.connect", "socket.sendto") else args[0]
    if isinstance(target, tuple):
        return ":".join(map(str, target[:2]))
    return target.decode(errors="replace") if isinstance(target, bytes) else str(target)


def find_place(frame: types.FrameType | None) -> str | None:
    """Return the file and line of the innermost frame that is no library's, if there is one within Trio's run."""
    while frame is not None and frame.f_globals.get("__name__") != _RUN:
        if place := describe_path(frame.f_code.co_filename, frame.f_lineno):
            return place
        frame = frame.f_back
    return None


def describe_path(path: str, line: int | None) -> str | None:
    """Return a file and line as users know them; None for a library's, and for installed commands."""
    if is_library(path) or not path.endswith(".py"):
        return None
    near = os.path.relpath(path)
    return f"{path if near.startswith(os.pardir) else near}:{line}"


class Deadline:
    """A limit on the time of a play: a thread cancels it, and reports a loop that is blocked.

    A play that goes on, as its virtual time passes, has these *seconds* of the processor: on a machine with other work,
    they take longer. Without any progress, these are real seconds.

    *on_blocked* is called in that thread, with the place where the event loop is, if that is known: it may end the
    process.
    """

    def __init__(self, seconds: float, *, on_blocked: Callable[[str | None], object]) -> None:
        self._seconds = seconds
        self._on_blocked = on_blocked
        self._ended = threading.Event()
        self._owner = threading.get_ident()
        self.place: str | None = None  # where it hangs; None unless it was cancelled

    def guard_import(self) -> contextlib.AbstractContextManager[None]:
        """Report a file that does not return from its import."""
        return self._watching(self._watch_import, name="deadline of an import")

    def guard(self, scope: trio.CancelScope) -> contextlib.AbstractContextManager[None]:
        """Cancel the scope when the time is over."""
        token, clock = trio.lowlevel.current_trio_token(), trio.lowlevel.current_clock()
        return self._watching(lambda: self._watch(token, clock, scope), name="deadline of a play")

    @contextlib.contextmanager
    def _watching(self, watch: Callable[[], None], *, name: str) -> Iterator[None]:
        thread = threading.Thread(target=watch, name=name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _watch_import(self) -> None:
        if not self._ended.wait(self._seconds):
            self._on_blocked(self._find_place())

    def _watch(self, token: trio.lowlevel.TrioToken, clock: trio.abc.Clock, scope: trio.CancelScope) -> None:
        end, before, now = time.process_time() + self._seconds, -1.0, clock.current_time()
        while now > before and time.process_time() < end:
            if self._ended.wait(self._seconds):
                return
            before, now = now, clock.current_time()
        self.place = self._find_place() or ""
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(scope.cancel)
        if not self._ended.wait(_GRACE):
            self._on_blocked(self._find_place())

    def _find_place(self) -> str | None:
        """Return where the event loop is, or else the first other thread that runs code of the project."""
        frames = sys._current_frames()
        frames.pop(threading.get_ident(), None)
        found = [find_place(frames[each]) for each in sorted(frames, key=lambda each: each != self._owner)]
        return next((place for place in found if place is not None), None)
