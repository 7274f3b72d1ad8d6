"""The parts of a registry by Kopf's names: private there, but programs count their handlers, and tests look."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trioperator._handling.handlers.handler import (
    ActivityHandler,
    ChangeHandler,
    EventHandler,
    Handler,
    IndexHandler,
    ResourceHandler,
    SpawningHandler,
)
from trioperator._handling.reviews.admission import AdmissionHandler
from trioperator._model.resource import Selector

#: Classes of handlers by the names of Kopf's registries for them.
PARTS: Final[dict[str, type[Handler]]] = {
    "_activities": ActivityHandler,
    "_indexing": IndexHandler,
    "_watching": EventHandler,
    "_spawning": SpawningHandler,
    "_changing": ChangeHandler,
    "_webhooks": AdmissionHandler,
}


class Part:
    """Handlers of one class as they are now: to read, as they are added by the decorators."""

    def __init__(self, name: str, handlers: Iterable[Handler]) -> None:
        self._handlers = [handler for handler in handlers if isinstance(handler, PARTS[name])]

    def get_all_handlers(self) -> list[Handler]:
        """Return the handlers, in the order of their declaration."""
        return list(self._handlers)

    def get_all_selectors(self) -> frozenset[Selector]:
        """Return what the handlers select: nothing for those of activities."""
        return frozenset(handler.selector for handler in self._handlers if isinstance(handler, ResourceHandler))
