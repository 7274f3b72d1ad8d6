"""Freed memory: what large lists and objects took is returned to the system when they are no longer used."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Final

#: Whether all memory of Python is the C library's. Else most of what is freed is Python's own, which nobody can return.
IS_PLAIN: Final = os.environ.get("PYTHONMALLOC") == "malloc"


def return_memory() -> None:
    """Let the C library return to the system what it keeps for later, if it is glibc. It takes a millisecond or two.

    Else it keeps what pages of lists were in, as smaller blocks that are still used lie between, or after them.
    """
    with contextlib.suppress(AttributeError, OSError):  # of other libraries
        ctypes.CDLL(None).malloc_trim(0)
