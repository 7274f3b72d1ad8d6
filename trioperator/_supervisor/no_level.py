"""What takes the place of level reconciling in operators without reconcile handlers, which load nothing of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from trioperator._model.resource import Resource, Selector
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.result import DONE, Result


class NoRelated:
    """Related kinds of an operator without reconcile handlers: there are none."""

    selectors: Collection[Selector] = ()
    problems: Collection[str] = ()

    def match(self, resources: Collection[Resource]) -> Collection[Any]:
        """Return no kinds."""
        return ()

    def reindexed(self, state: ObjectState) -> None:
        """Call no handlers of an object."""


class NoLevel:
    """Caller of reconcile handlers where there are none: no object ever has anything due, or to be forgotten."""

    def find_body(self, state: ObjectState) -> None:
        """Return None: no body is kept."""

    def find_error(self, state: ObjectState) -> None:
        """Return None: nothing has failed."""

    def has_work(self, state: ObjectState) -> bool:
        """Return False: nothing triggers an object."""
        return False

    has_failed = is_due = expedite = has_work

    def forget(self, state: ObjectState) -> None:
        """Do nothing for an object."""

    poke = resume = forget

    def close(self) -> None:
        """Do nothing: nothing triggers it."""

    async def run(self, state: ObjectState) -> Result:
        """Return that an object is done."""
        return DONE
