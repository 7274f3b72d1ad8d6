"""Claims: what a child says of the handler that applies it. Pure.

Operators share field managers by accident, as most have the default one. So a child names its handler, too, in an
annotation that is applied with it: a handler's children are told from the children of other handlers and operators.
"""

from __future__ import annotations

import os.path
import sys
from typing import Any, Final

from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.handlers.handler import unwrap
from trioperator.settings import PersistenceSettings

#: The annotation of children with the handler that applies them.
CLAIM: Final = "trioperator.dev/reconciled-by"

_DEFAULT_MANAGER: Final = PersistenceSettings().field_manager
_SCRIPT: Final = "__trioperator_script_"


def is_named(manager: str) -> bool:
    """Check whether an operator has a field manager of its own, which tells it from others."""
    return manager != _DEFAULT_MANAGER


def claim_of(handler: ReconcileHandler, manager: str) -> str:
    """Return the claim of a handler: its operator's field manager, or else its module, and its id."""
    return f"{manager if is_named(manager) else _module_of(handler.fn)}/{handler.id}"


def _module_of(fn: Any) -> str:
    """Return the module of a function; the same for a file, however it is run."""
    fn = unwrap(fn)
    name = str(getattr(fn, "__module__", None) or "")
    if name == "__main__":
        spec = getattr(sys.modules.get(name), "__spec__", None)
        name = "" if spec is None else spec.name.removesuffix(".__main__")
    if name and not name.startswith(_SCRIPT):
        return name
    code = getattr(fn, "__code__", None) or getattr(type(fn).__call__, "__code__", None)
    path = "" if code is None else code.co_filename
    return os.path.splitext(os.path.basename(path))[0]
