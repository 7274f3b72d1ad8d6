"""Guards against contention, for tests of what they are a part of."""

from __future__ import annotations

import trio

from trioperator._runtime.ledger import Ledger
from trioperator._runtime.patching.contention_guard import ContentionGuard
from trioperator._runtime.patching.pending import PendingPatches
from trioperator.settings import OperatorSettings


def make_guard(settings: OperatorSettings, pending: PendingPatches) -> ContentionGuard:
    """Return a guard with a ledger of its own."""
    return ContentionGuard(settings, pending, Ledger(), stopping=trio.Event())
