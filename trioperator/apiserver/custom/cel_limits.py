"""Limits on what an expression may cost, besides the CEL library's own, which limits iterations only. Pure.

An iteration can copy a large string, or a list of all earlier results; matching, replacing and joining have no limits
of their own in the library. As on the real server, what is too expensive is an error of the expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from .patterns import compile_pattern

TOO_EXPENSIVE: Final = "operation cancelled: actual cost limit exceeded"
_ITERATIONS: Final = 10_000  # the limit of the library
_COPIED: Final = 100_000_000  # characters that iterations and concatenations may copy
_RESULTS: Final = 2_000  # of a macro that collects them: the library copies the list for each
_TEXT_LIMIT: Final = 1_000_000  # characters of a string that a function makes

# A string literal, which is skipped, or the name of a function that is replaced by one with limits. Those have names of
# the same length, so that the positions in errors are right.
_REPLACED: Final = re.compile(
    r"""(?:'''|\"\"\")(?s:.*?)(?:'''|\"\"\")|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\b(matches|replace|join)(?=\s*\()"""
)
_ORIGINAL: Final = re.compile(r"\b(?:MATCHES|REPLACE|JOIN)(?=\s*\(|' applied to)")
_MACROS: Final = re.compile(r"\.\s*(all|exists|exists_one|existsOne|map|filter|transform\w+)\s*\(")
_COLLECTING: Final = ("map", "filter", "transform")
_SPLITTING: Final = re.compile(r"\b(?:split|findAll|range)\s*\(")


def limited_text(text: str) -> str:
    """Return the expression with functions that have limits."""
    return _REPLACED.sub(lambda match: match[1].upper() if match[1] else match[0], text)


def original_text(text: str) -> str:
    """Return the message with the names of the functions as the user wrote them."""
    return _ORIGINAL.sub(lambda match: match[0].lower(), text)


class Costs:
    """What an expression does that may be expensive, by its text."""

    def __init__(self, text: str) -> None:
        macros = _MACROS.findall(text)
        self._macros = len(macros)
        self._collects = any(name.startswith(_COLLECTING) for name in macros)
        self._splits = _SPLITTING.search(text) is not None
        self._sums = text.count("+")

    def check(self, data: Any) -> None:
        """Raise ValueError if evaluating the expression for the data would be too expensive."""
        if not self._macros and not self._sums:
            return
        longest, largest = _sizes(data)
        if self._splits:
            largest = max(largest, longest, _RESULTS)
        if self._collects and largest > _RESULTS:
            raise ValueError(TOO_EXPENSIVE)
        iterations = min(_ITERATIONS, largest**self._macros) if self._macros else 1
        if longest * max(iterations, self._sums) * max(self._sums, 1) > _COPIED:
            raise ValueError(TOO_EXPENSIVE)


def _sizes(data: Any) -> tuple[int, int]:
    """Return the length of the longest string and of the largest list or map in the data."""
    longest = largest = 0
    pending = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            longest = max(longest, len(value))
        elif isinstance(value, (dict, list)):
            largest = max(largest, len(value))
            pending += value.values() if isinstance(value, dict) else value
    return longest, largest


# -- functions -------------------------------------------------------------------------------------------------------


def _matches(text: str, pattern: str) -> bool:
    return compile_pattern(pattern).search(text)


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old) if limit < 0 else min(text.count(old), limit)
    _check_length(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, limit)


def _join(texts: Sequence[Any], separator: str = "") -> str:
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("no such overload")
    _check_length(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def _check_length(length: int) -> None:
    if length > _TEXT_LIMIT:
        raise ValueError(TOO_EXPENSIVE)


Overload = tuple[str, str, Sequence[str], Callable[..., Any], bool]


def _overloads() -> Iterator[Overload]:
    for is_member in (True, False):
        yield "MATCHES", "BOOL", ("STRING", "STRING"), _matches, is_member
    yield "REPLACE", "STRING", ("STRING", "STRING", "STRING"), _replace, True
    yield "REPLACE", "STRING", ("STRING", "STRING", "STRING", "INT"), _replace, True
    yield "JOIN", "STRING", ("LIST",), _join, True
    yield "JOIN", "STRING", ("LIST", "STRING"), _join, True


# Names, types of the results and of the parameters, functions, and whether they are called on their first parameter.
OVERLOADS: Final[Mapping[str, Sequence[Overload]]] = {
    name: [overload for overload in _overloads() if overload[0] == name] for name in ("MATCHES", "REPLACE", "JOIN")
}
