"""Regular expressions of users, which mean what they mean on the real server: the syntax and the semantics of RE2.

``pip install 'trioperator[re2]'`` installs it. Without it, patterns are not checked, with a warning. With it, none can
block the server: what would take too long is an error of the value.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..model.status_causes import StatusCause, invalid_value

_INSTALL: Final = "pip install 'trioperator[re2]'"
# What RE2 says, and what Go says.
_GO: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "no argument for repetition operator": "missing argument to repetition operator",
}
_SINGLE_BYTE: Final = re.compile(r"\\(?:Q.*?(?:\\E|\Z)|(C)|.)", re.DOTALL)  # \C, which Go does not have


class PatternError(ValueError):
    """Raised when an expression is invalid, with the message of Go's regexp package."""

    def __init__(self, code: str, part: str) -> None:
        super().__init__(f"error parsing regexp: {code}: `{part}`")


class UnsupportedPatternError(ValueError):
    """Raised when an expression cannot be evaluated here, or not in time."""


class Allowance:
    """Work that all searches together may do: some at once, and more as real time passes.

    A search takes its worst case, and returns what it did not need: nearly all of it, as most searches are far from it.
    """

    def __init__(self, at_once: float, *, per_second: float) -> None:
        self._at_once = self._left = at_once
        self._per_second = per_second
        self._time = time.monotonic()

    def take(self, work: float) -> bool:
        """Use up the allowance for the work. Returns False if not enough is left."""
        if work > self._left:
            now = time.monotonic()
            self._left = min(self._at_once, self._left + (now - self._time) * self._per_second)
            self._time = now
            if work > self._left:
                return False
        self._left -= work
        return True

    def put_back(self, work: float) -> None:
        """Return what was taken and not needed."""
        self._left = min(self._at_once, self._left + work)


# Seconds for each character and instruction in RE2's worst case: a minute for a large object, though it is linear.
_WORST: Final = 70e-9
_instructions: Final = Allowance(5_000_000, per_second=1_000_000)


class Pattern:
    """Compiled expression. Raises PatternError if it is invalid, UnsupportedPatternError if RE2 is not installed."""

    def __init__(self, text: str) -> None:
        if not is_installed():
            raise UnsupportedPatternError(f"regular expressions need RE2: {_INSTALL}")
        self._compiled = _compile(text)

    def search(self, text: str) -> bool:
        """Return whether the text has a match. Raises UnsupportedPatternError if it may take too long to find out."""
        worst = self._compiled.programsize * len(text)
        if not _instructions.take(worst):
            raise UnsupportedPatternError("matching it takes too long")
        start = time.thread_time()
        found = self._compiled.search(text) is not None
        _instructions.put_back(max(0.0, worst - (time.thread_time() - start) / _WORST))
        return found


def is_installed() -> bool:
    """Return whether RE2 is installed."""
    return importlib.util.find_spec("re2") is not None


@functools.lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Pattern:
    """Compile the expression. Raises PatternError and UnsupportedPatternError."""
    return Pattern(text)


def _compile(text: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(text, options)
        if any(match[1] for match in _SINGLE_BYTE.finditer(text)):
            raise PatternError("invalid escape sequence", "\\C")
        return compiled
    except re2.error as error:
        problem = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error.args[0])
    if problem == "trailing \\":
        raise PatternError("trailing backslash at end of expression", "")
    if problem.startswith("pattern too large"):
        raise PatternError("expression too large", text)
    code, _, part = problem.partition(": ")
    raise PatternError(_GO.get(code, code), part)


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return the matches of the pattern up to the limit, all of them if it is negative. Needs RE2."""
    if not is_installed():
        raise UnsupportedPatternError(f"find() and findAll() need RE2: {_INSTALL}")
    compiled = _compile(pattern)
    found: list[str] = []
    if not _instructions.take(compiled.programsize * len(text)):
        raise UnsupportedPatternError("matching it takes too long")
    for match in compiled.finditer(text):
        if len(found) == limit:
            break
        found.append(match.group())
    return found


# -- schemas ---------------------------------------------------------------------------------------------------------


def check_pattern(schema: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    """Yield the validation error of the pattern of one node of a schema."""
    if not (text := schema.get("pattern")):
        return
    try:
        compile_pattern(text)
    except UnsupportedPatternError:
        return  # there is a warning for it
    except PatternError as error:
        yield invalid_value(f"{path}.pattern", text, f"must be a valid regular expression, but isn't: {error}")


def unchecked_patterns(definition: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings for the patterns in a valid definition that cannot be evaluated."""
    for version in definition["spec"].get("versions") or ():
        for text in _patterns_in((version.get("schema") or {}).get("openAPIV3Schema")):
            try:
                compile_pattern(text)
            except UnsupportedPatternError as error:
                yield f"version {version.get('name')}: the pattern {text!r} is not checked: {error}"


def _patterns_in(schema: Any) -> Iterator[str]:
    """Yield the patterns in the schema."""
    pending = [schema]
    while pending:
        node = pending.pop()
        if not isinstance(node, dict):
            continue
        if isinstance(text := node.get("pattern"), str) and text:
            yield text
        parts = [node.get(word) for word in ("items", "additionalProperties", "not")]
        for word in ("allOf", "anyOf", "oneOf"):
            parts += node.get(word) or ()
        pending += reversed([*parts, *(node.get("properties") or {}).values()])
