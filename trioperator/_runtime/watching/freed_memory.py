"""Memory that was freed: of a large list, it is returned to the system when all of the list is taken."""

from __future__ import annotations

import contextlib
import ctypes


def return_memory() -> None:
    """Let the C library return to the system what it keeps for later, if it is glibc. It takes a millisecond or two.

    Else it keeps what pages of lists were in, as smaller blocks that are still used lie between, or after them.
    """
    with contextlib.suppress(AttributeError, OSError):  # of other libraries
        ctypes.CDLL(None).malloc_trim(0)
