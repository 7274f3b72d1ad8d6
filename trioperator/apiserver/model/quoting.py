"""Quoting of strings in messages, as Go does it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["quote", "quote_all"]


def quote(text: str) -> str:
    """Return the string as Go's ``%q`` prints it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def quote_all(texts: Iterable[str]) -> str:
    """Return the strings as Go's ``%q`` prints a slice."""
    return f"[{' '.join(map(quote, texts))}]"
