"""Tools for tests of operators: fixtures (see :mod:`.plugin`), runners, fault injection, deterministic runs.

Names are loaded on first use, so importing this package is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import effects, strategies
    from .autojump import pause_autojump_for_threads
    from .crashes import crash_at_every_write
    from .determinism import deterministic
    from .exploring.checks import check_states
    from .exploring.properties import explores
    from .exploring.scenarios import explore
    from .faults import Fault
    from .kopf_runner import KopfRunner
    from .operator_runner import OperatorRunner, open_runner
    from .plans import FaultPlan, FaultRule
    from .records import Call, LogLine, RecordLog, Write
    from .rights import MissingRights
    from .transport import FaultyTransport
    from .waiting import eventually

__all__ = [
    "Call",
    "Fault",
    "FaultPlan",
    "FaultRule",
    "FaultyTransport",
    "KopfRunner",
    "LogLine",
    "MissingRights",
    "OperatorRunner",
    "RecordLog",
    "Write",
    "check_states",
    "crash_at_every_write",
    "deterministic",
    "effects",
    "eventually",
    "explore",
    "explores",
    "open_runner",
    "pause_autojump_for_threads",
    "strategies",
]

_HOMES = {
    "Call": "records",
    "Fault": "faults",
    "FaultPlan": "plans",
    "FaultRule": "plans",
    "FaultyTransport": "transport",
    "KopfRunner": "kopf_runner",
    "LogLine": "records",
    "MissingRights": "rights",
    "OperatorRunner": "operator_runner",
    "RecordLog": "records",
    "Write": "records",
    "check_states": "exploring.checks",
    "crash_at_every_write": "crashes",
    "deterministic": "determinism",
    "eventually": "waiting",
    "explore": "exploring.scenarios",
    "explores": "exploring.properties",
    "open_runner": "operator_runner",
    "pause_autojump_for_threads": "autojump",
}


_MODULES = ("effects", "strategies")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
