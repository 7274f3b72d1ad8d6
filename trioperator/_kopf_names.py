"""Names of Kopf that do not exist here: what to say to those who use them."""

from __future__ import annotations

from typing import Final

__all__ = ["explain_missing"]

_NURSERY: Final = "does not exist, as operators run in nurseries: await nursery.start(trioperator.operator)."
_MISSING: Final = {
    "AiohttpSession": "does not exist, as requests are sent by Trio: return a ConnectionInfo, or pass transport=.",
    "KopfRunner": "does not exist here, as in Kopf: from trioperator.testing import KopfRunner.",
    "run_tasks": _NURSERY,
    "spawn_tasks": _NURSERY,
}


def explain_missing(module: str, name: str) -> str:
    """Return the message of the AttributeError for a name that a module does not have."""
    if name in _MISSING:
        return f"Kopf's {name} {_MISSING[name]}"
    return f"module {module!r} has no attribute {name!r}"
