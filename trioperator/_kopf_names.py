"""Names and settings of Kopf that do not exist here: what to say to those who use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Settings of Kopf's that have no meaning here, by sections: their defaults, and what there is for their purpose.
SETTINGS_WITHOUT_EFFECT: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "process": ({"ultimate_exiting_timeout": 600.0}, "settings.process.grace limits how long stopping takes."),
    "posting": ({"worker_limit": None, "idle_timeout": 1.0}, "events are posted by one task."),
    "peering": ({"clusterwide": False, "namespaced": True}, "peering is cluster-wide if the operator is."),
    "queueing": (
        {"idle_timeout": 5.0, "exit_timeout": 2.0},
        "objects that are not handled occupy no workers.",
    ),
    "background": (
        {"instant_exit_timeout": None, "instant_exit_zero_time_cycles": 10},
        "the end of a daemon is noticed at once.",
    ),
}

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
