"""Namespace patterns: names, globs with exclusions, and regular expressions."""

from __future__ import annotations

import fnmatch
import re
from typing import TypeAlias

NamespacePattern: TypeAlias = str | re.Pattern[str]


def match_namespace(name: str, pattern: NamespacePattern) -> bool:
    """Return whether the namespace matches the pattern, by Kopf's rules ("Scopes").

    Globs are separated by commas, exclusions begin with ``!``. A namespace must match the first glob, unless that is an
    exclusion; of the others, the last one that matches decides.
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
    """Return whether the pattern is a plain name."""
    return isinstance(pattern, str) and not set(pattern) & set("*?!,[")


def may_exist(pattern: NamespacePattern) -> bool:
    """Return whether there may be a namespace of the name that the pattern is, if it is one: see RFC 1123."""
    return not is_exact(pattern) or re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", str(pattern)) is not None
