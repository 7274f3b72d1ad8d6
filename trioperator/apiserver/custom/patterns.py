"""Regular expressions of users, which mean what they mean on the real server: the syntax and the semantics of RE2.

``pip install 'trioperator[re2]'`` installs it. Without it, patterns are not checked, with a warning.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..model.status_causes import StatusCause, invalid_value

_INSTALL: Final = "pip install 'trioperator[re2]'"
# The messages of RE2 and those of Go.
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
    """Raised when an expression cannot be evaluated here."""


def is_installed() -> bool:
    """Return whether RE2 is installed."""
    return importlib.util.find_spec("re2") is not None


@functools.lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Any:
    """Compile the expression. Raises PatternError, or UnsupportedPatternError if RE2 is not installed."""
    if not is_installed():
        raise UnsupportedPatternError(f"regular expressions need RE2: {_INSTALL}")
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
    matches = (match.group() for match in compile_pattern(pattern).finditer(text))
    return list(matches if limit < 0 else itertools.islice(matches, limit))


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
