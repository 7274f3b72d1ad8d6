"""Readiness: what a ready operator does not do, said in one sentence each. Logs and probes show it.

An operator is ready when it has tried to list everything. So that "ready" is not taken for "it works", it says for
which kinds and namespaces it does not. The sentences are public: they contain no messages of errors.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from trioperator._model.namespaces import NamespacePattern, is_exact, match_namespace
from trioperator._runtime.watching.reflector import Reflector
from trioperator.errors import ApiError

NO_HANDLERS = "There are no handlers of resources."


def describe_unmatched(patterns: Iterable[NamespacePattern], namespaces: Collection[str]) -> Iterator[str]:
    """Describe the patterns that match none of the *namespaces*."""
    for pattern in patterns:
        if not any(match_namespace(name, pattern) for name in namespaces):
            text = describe_pattern(pattern)
            if is_exact(pattern):
                yield f"The namespace {text} does not exist."
            else:
                yield f"No namespace matches {text}."


def describe_unwatched(what: str, reflector: Reflector) -> Iterator[str]:
    """Describe that a reflector has not seen *what* it is to watch, unless it has."""
    if reflector.status.is_synced:
        return
    error = reflector.status.trouble
    if error is not None:
        why = f"HTTP {error.status}" if isinstance(error, ApiError) else "no complete response"
        yield f"{what} cannot be watched ({why})."
    elif not reflector.status.tried.is_set():
        yield f"{what} is not listed yet."


def describe_pattern(pattern: NamespacePattern) -> str:
    """Return a pattern as the user has written it."""
    return pattern.pattern if isinstance(pattern, re.Pattern) else pattern
