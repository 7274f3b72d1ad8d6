"""Regular expressions of users, which mean what they mean on the real server: the syntax and the semantics of RE2.

``pip install 'trioperator[re2]'`` installs RE2 itself. Without it, :mod:`.pattern_search` evaluates most expressions.
Neither can be made to block the server: where RE2 would need too long, the other one is asked, and gives up in time.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..model.status_causes import StatusCause, invalid_value
from .pattern_search import Allowance, Automaton
from .pattern_syntax import PatternError, UnsupportedPatternError

__all__ = [
    "Pattern",
    "PatternError",
    "UnsupportedPatternError",
    "check_pattern",
    "compile_pattern",
    "find_all",
    "unchecked_patterns",
]

_INSTALL: Final = "pip install 'trioperator[re2]'"
# RE2 is linear, but its worst case takes 70 ns for each character and instruction: a minute for a large object.
_instructions: Final = Allowance(5_000_000, per_second=1_000_000)

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


class Pattern:
    """Compiled expression. Raises PatternError if it is invalid, UnsupportedPatternError if it cannot be evaluated."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._re2 = _compile_with_re2(text) if is_installed() else None
        if self._re2 is None:
            _ = self._automaton  # raises the errors

    @functools.cached_property
    def _automaton(self) -> Automaton:
        try:
            return Automaton(self._text)
        except UnsupportedPatternError as error:
            raise UnsupportedPatternError(str(error) if is_installed() else f"{error} ({_INSTALL})") from None

    def search(self, text: str) -> bool:
        """Return whether the text has a match. Raises UnsupportedPatternError if it takes too long to find out."""
        if self._re2 is not None and _instructions.take(self._re2.programsize * len(text)):
            return self._re2.search(text) is not None
        return self._automaton.search(text)


def is_installed() -> bool:
    """Return whether RE2 is installed."""
    return importlib.util.find_spec("re2") is not None


@functools.lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Pattern:
    """Compile the expression. Raises PatternError and UnsupportedPatternError."""
    return Pattern(text)


def _compile_with_re2(text: str) -> Any:
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
    compiled = _compile_with_re2(pattern)
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
