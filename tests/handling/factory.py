"""Handlers and causes for tests."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from trioperator._concurrency.clock import wall_now
from trioperator._handling.arguments.cause import ChangeCause, EventCause
from trioperator._handling.calls.invoke import Attempt, Invoker
from trioperator._handling.calls.thread_limiter import ThreadLimiter
from trioperator._handling.handlers.handler import ChangeHandler, EventHandler, Handler, Reason
from trioperator._handling.handlers.outcome import Outcome
from trioperator._logs import get_logger
from trioperator._model.resource import Resource, Selector

WIDGETS = Resource(
    group="example.com", version="v1", plural="widgets", kind="Widget", verbs=frozenset({"list", "watch", "patch"})
)


def nothing(**_: Any) -> None:
    """Accept all arguments, and do nothing."""


def handler(fn: Any = nothing, **options: Any) -> Handler:
    """Return a handler of the base class."""
    return Handler(fn=fn, **{"id": "fn", **options})


def event_handler(fn: Any = nothing, **options: Any) -> EventHandler:
    """Return an event handler."""
    return EventHandler(fn=fn, **{"id": "fn", "selector": Selector.parse("widgets"), **options})


def change_handler(fn: Any = nothing, **options: Any) -> ChangeHandler:
    """Return a change handler, by default for any reason."""
    return ChangeHandler(fn=fn, **{"id": "fn", "selector": Selector.parse("widgets"), **options})


def update_handler(fn: Any = nothing, **options: Any) -> ChangeHandler:
    """Return an update handler."""
    return change_handler(fn, **{"reason": Reason.UPDATE, "needs_change": True, **options})


def event_cause(raw: Mapping[str, Any], *, type: str | None = "ADDED", memo: Any = None) -> EventCause:
    """Return an event cause."""
    return EventCause(resource=WIDGETS, raw=raw, get_memo=lambda: memo, logger=get_logger("tests"), type=type)


def change_cause(
    *,
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any] | None,
    raw: Mapping[str, Any] | None = None,
    reason: Reason = Reason.UPDATE,
    initial: bool = False,
) -> ChangeCause:
    """Return a change cause; the object is the new essence unless *raw* is given."""
    return ChangeCause(
        resource=WIDGETS,
        raw=new or {} if raw is None else raw,
        get_memo=lambda: "the memo",
        logger=get_logger("tests"),
        reason=reason,
        initial=initial,
        old=old,
        new=new,
    )


async def invoke(
    fn: Handler | Callable[..., Any],
    kwargs: dict[str, Any] | None = None,
    *,
    retry: int = 0,
    ago: float = 0.0,
    **options: Any,
) -> Outcome:
    """Make one attempt of a handler whose first attempt started *ago* seconds before."""
    made = fn if isinstance(fn, Handler) else handler(fn, **options)
    started = wall_now() - datetime.timedelta(seconds=ago)
    invoker = Invoker(limiter=ThreadLimiter(2), backoff=60)
    return await invoker.invoke(
        made, kwargs or {}, attempt=Attempt(retry=retry, started=started), logger=get_logger("trioperator.tests")
    )


def raising(error: BaseException, *, sync: bool) -> Callable[..., Any]:
    """Return a function that raises the error."""

    def fn() -> None:
        raise error

    async def async_fn() -> None:
        raise error

    return fn if sync else async_fn
