"""Quoting of strings in messages, as Go does it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_ESCAPES: Final = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}


def quote(text: str) -> str:
    """Return the string as Go's ``%q`` prints it."""
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else _escape(letter) for letter in text)
    return f'"{text}"'


def _escape(letter: str) -> str:
    code = ord(letter)
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def quote_all(texts: Iterable[str]) -> str:
    """Return the strings as Go's ``%q`` prints a slice."""
    return f"[{' '.join(map(quote, texts))}]"


def go_text(value: Any) -> str:
    """Return the value as Go prints it, as the real server shows values that have no types."""
    match value:
        case dict():
            return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(go_text(item) for item in value)}]"
        case bool():
            return "true" if value else "false"
        case None:
            return "<nil>"
    return str(value)


def json_name(value: Any) -> str:
    """Return the name of the value's type in JSON."""
    names = {bool: "bool", str: "string", int: "number", float: "number", list: "array", type(None): "null"}
    return names.get(type(value), "object")
