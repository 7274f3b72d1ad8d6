"""The settings that an operator's sources assign, as far as that can be read in them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trioperator._tooling.checking.sources import Source


def find_assignments(source: Source, section: str, name: str) -> Iterator[int]:
    """Yield the lines that assign ``….section.name``, or the section as a whole.

    Assignments of what switches a setting off, such as False and None, do not count.
    """
    for node in ast.walk(source.tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case _:
                continue
        if isinstance(value, ast.Constant) and not value.value:
            continue
        if any(_is_setting(target, section, name) for target in targets):
            yield node.lineno


def _is_setting(target: ast.expr, section: str, name: str) -> bool:
    if not isinstance(target, ast.Attribute):
        return False
    parent = target.value
    is_in_section = getattr(parent, "attr", getattr(parent, "id", "")) == section
    return target.attr == section or (target.attr == name and is_in_section)
