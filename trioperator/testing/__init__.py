"""What tests of operators need: the ``cluster`` fixture (see :mod:`.plugin`) and faults on demand.

Importing it costs next to nothing: names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .determinism import deterministic
    from .faults import Fault, FaultPlan, FaultRule, FaultyTransport

__all__ = ["Fault", "FaultPlan", "FaultRule", "FaultyTransport", "deterministic"]


def __getattr__(name: str) -> object:
    if name == "deterministic":
        from .determinism import deterministic

        return deterministic
    if name in __all__:
        from . import faults

        return getattr(faults, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
