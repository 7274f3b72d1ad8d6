"""Keys that are pressed in a terminal, one by one, without Enter."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def reading_keys() -> Iterator[Callable[[float], str]]:
    """Read keys within the block. Yields a function that waits for one for some seconds, and returns "" without one.

    Where the standard input is no terminal, it only waits.
    """
    try:
        import termios
        import tty
    except ImportError:  # on Windows
        yield _wait
        return
    if not sys.stdin.isatty():
        yield _wait
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)  # Ctrl-C stays an interrupt

    def read(seconds: float) -> str:
        ready, _, _ = select.select([terminal], [], [], seconds)
        return os.read(terminal, 1).decode(errors="replace") if ready else ""

    try:
        yield read
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _wait(seconds: float) -> str:
    time.sleep(seconds)  # in the thread that draws
    return ""
