"""Literals of objects in the expressions of mutating policies, which the CEL library has no types for. Pure."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<text>'''(?s:.*?)'''|\"\"\"(?s:.*?)\"\"\"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")"""
    r"|(?P<typed>\b(?:Object(?:\.\w+)*|JSONPatch)\s*\{)|(?P<open>[{(\[])|(?P<close>[})\]])|(?P<comma>,)"
    r"|(?P<field>\w+)(?=\s*:)"
)


def plain_literals(expression: str) -> str:
    """Return the expression with maps in place of ``Object{…}`` and ``JSONPatch{…}``."""
    nested: list[bool] = []  # whether each of the open brackets is of a typed literal
    begins_field = False

    def replace(match: re.Match[str]) -> str:
        nonlocal begins_field
        if match["field"]:
            return f'"{match["field"]}"' if begins_field and not (begins_field := False) else match["field"]
        if match["typed"] or match["open"]:
            nested.append(bool(match["typed"]))
        elif match["close"] and nested:
            nested.pop()
        begins_field = bool(match["typed"]) or bool(match["comma"] and nested and nested[-1])
        return "{" if match["typed"] else match[0]

    return _TOKEN.sub(replace, expression)
