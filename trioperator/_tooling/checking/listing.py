"""Handlers in words: which decorator, for which kind, at which place."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.handlers.handler import (
    Activity,
    ActivityHandler,
    ChangeHandler,
    DaemonHandler,
    EventHandler,
    Handler,
    IndexHandler,
    ResourceHandler,
    TimerHandler,
)
from trioperator._handling.reviews.admission import AdmissionHandler, WebhookType
from trioperator._handling.reviews.conversion import ConversionHandler
from trioperator._tooling.checking.problems import locate


class HandlerSummary(msgspec.Struct, frozen=True):
    """One handler; ``kind`` is the selector of what it handles, None for activities of the operator."""

    id: str
    decorator: str
    kind: str | None
    file: str
    line: int


def list_handlers(registry: OperatorRegistry) -> Iterator[HandlerSummary]:
    """Yield the handlers in the order of their declaration."""
    for handler in registry:
        file, line = locate(handler.fn)
        kind = str(handler.selector) if isinstance(handler, ResourceHandler) else None
        yield HandlerSummary(id=handler.id, decorator=_name_decorator(handler), kind=kind, file=file, line=line)


def _name_decorator(handler: Handler) -> str:
    """Return the name of the decorator that makes such handlers."""
    match handler:
        case ActivityHandler(activity=activity):
            return "login" if activity is Activity.AUTHENTICATION else activity.value
        case ChangeHandler(initial=True):
            return "resume"
        case ChangeHandler(reason=reason):
            return "field" if reason is None else reason.value
        case AdmissionHandler():
            return "validate" if handler.type is WebhookType.VALIDATING else "mutate"
    names: dict[type[Handler], str] = {
        EventHandler: "event",
        IndexHandler: "index",
        DaemonHandler: "daemon",
        TimerHandler: "timer",
        ConversionHandler: "convert",
    }
    return names.get(type(handler), "reconcile")
