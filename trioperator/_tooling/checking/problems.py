"""Problems that a check has found: a sentence, and the line that it is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from trioperator._handling.handlers.handler import unwrap


class Problem(msgspec.Struct, frozen=True):
    """One problem, the name of the ``check`` that has found it, and where; ``line`` is 0 for a file as a whole."""

    check: str
    message: str
    file: str
    line: int = 0


def locate(fn: Callable[..., Any]) -> tuple[str, int]:
    """Return the file and the first line of a function, with its decorators; ("", 0) if it has none."""
    code = getattr(unwrap(fn), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("", 0)


def problem_of(check: str, fn: Callable[..., Any], message: str) -> Problem:
    """Return a problem of a function."""
    file, line = locate(fn)
    return Problem(check=check, message=message, file=file, line=line)
