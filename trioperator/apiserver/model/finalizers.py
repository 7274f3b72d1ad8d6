"""Names of finalizers: which of them are standard, and warnings for the others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_LIMIT: Final = 100  # the warnings of a request are cut off after 4,096 characters
_STANDARD: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def is_standard_finalizer(name: str) -> bool:
    """Return whether the finalizer is qualified by a domain and a slash, or one of Kubernetes' own."""
    return "/" in name or name in _STANDARD


def finalizer_warnings(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[str]:
    """Return warnings for the finalizers in the metadata of a custom object that are not qualified, if they are new."""
    added = {*(new.get("finalizers") or ())} - {*((old or {}).get("finalizers") or ())}
    unqualified = sorted(name for name in added if not is_standard_finalizer(name))
    return [
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name '
        f"{'including a path (/) ' if '.' in name else ''}to avoid accidental conflicts with other finalizer writers"
        for name in unqualified[:_LIMIT]
    ]
