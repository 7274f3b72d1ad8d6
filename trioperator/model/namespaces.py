"""Patterns of namespaces: names, globs, several of them with exclusions, or regular expressions."""

from __future__ import annotations

import fnmatch
import re
from typing import TypeAlias

__all__ = ["NamespacePattern", "is_exact", "match_namespace"]

NamespacePattern: TypeAlias = str | re.Pattern[str]


def match_namespace(name: str, pattern: NamespacePattern) -> bool:
    """Tell whether the namespace matches the pattern, by Kopf's rules ("Scopes").

    Globs are separated by commas. The first one decides: what does not match it does not match at all; with an
    exclusion in its place all match at first. Of the others the last one that matches wins.
    """
    if isinstance(pattern, re.Pattern):
        return bool(pattern.fullmatch(name))
    globs = [glob.strip() for glob in pattern.split(",")]
    if globs[0].startswith("!"):
        globs.insert(0, "*")
    if not fnmatch.fnmatchcase(name, globs[0]):
        return False
    matched = True
    for glob in globs[1:]:
        if fnmatch.fnmatchcase(name, glob.lstrip("!")):
            matched = not glob.startswith("!")
    return matched


def is_exact(pattern: NamespacePattern) -> bool:
    """Tell whether the pattern is just a name."""
    return isinstance(pattern, str) and not set(pattern) & set("*?!,[")
