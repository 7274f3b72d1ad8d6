"""How texts look in the messages of the real server. Pure."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["quote", "quote_all"]


def quote(text: str) -> str:
    """Return the text in quotation marks, as Go prints it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def quote_all(texts: Iterable[str]) -> str:
    """Return the texts as Go prints a slice of strings."""
    return f"[{' '.join(map(quote, texts))}]"
