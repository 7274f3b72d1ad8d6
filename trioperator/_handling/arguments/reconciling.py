"""Reconcile handlers and their causes: a function that is called whenever anything about an object may differ.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from trioperator._handling.arguments.cause import INDEX_KWARGS, ObjectCause
from trioperator._handling.handlers.children import Mapper, Owned
from trioperator._handling.handlers.handler import ResourceHandler
from trioperator._model.patch import Patch

OWN_KWARGS: Final = frozenset({"children", "conditions", "last_error"})  # for handlers, not for their filters
RECONCILE_KWARGS: Final = INDEX_KWARGS | OWN_KWARGS


class ReconcileHandler(ResourceHandler, frozen=True, kw_only=True, eq=False):
    """Handler that returns the desired children of an object, and is called whenever anything about that may differ.

    ``resync`` is the longest time between two calls, in seconds. ``condition`` is the type of the condition that says
    whether the children are what it has returned. With ``kstatus``, the usual conditions say that, too.
    """

    is_routine: ClassVar[bool] = True

    owns: tuple[Owned, ...] = ()
    mappers: tuple[Mapper, ...] = ()
    resync: float | None = None
    condition: str | None = None
    kstatus: bool = True


class ReconcileCause(ObjectCause, kw_only=True, eq=False):
    """Cause of reconcile handlers: the newest state of an object."""

    def kwargs_with(self, handler: ResourceHandler, patch: Patch, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the keyword arguments of one handler, with those that are its *own*: see ``OWN_KWARGS``."""
        return {**self.kwargs_for(handler, patch), **own, **self.indices}
