"""Tools for tests of operators: fixtures (see :mod:`.plugin`), Kopf's runner, fault injection, deterministic runs.

Names are loaded on first use, so importing this package is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .autojump import pause_autojump_for_threads
    from .determinism import deterministic
    from .faults import Fault
    from .kopf_runner import KopfRunner
    from .plans import FaultPlan, FaultRule
    from .transport import FaultyTransport

__all__ = [
    "Fault",
    "FaultPlan",
    "FaultRule",
    "FaultyTransport",
    "KopfRunner",
    "deterministic",
    "pause_autojump_for_threads",
]

_HOMES = {
    "Fault": "faults",
    "FaultPlan": "plans",
    "FaultRule": "plans",
    "FaultyTransport": "transport",
    "KopfRunner": "kopf_runner",
    "deterministic": "determinism",
    "pause_autojump_for_threads": "autojump",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
