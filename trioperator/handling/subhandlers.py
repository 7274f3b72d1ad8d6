"""Sub-handlers: handlers that a handler of changes declares while it runs, with retries and a progress of their own.

What is declared belongs to the attempt at work, which is found by a context variable: that follows the handler into its
thread. How sub-handlers are called, and where their progress is kept, is for the ``run`` that an attempt is given.
"""

from __future__ import annotations

import contextvars
import dataclasses
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import trio

from trioperator.errors import UnfinishedSubhandlersError
from trioperator.handling.cause import ATTEMPT_KWARGS, ChangeCause
from trioperator.handling.filters import callbacks
from trioperator.handling.handler import (
    ChangeHandler,
    HandlerFn,
    check_callback,
    check_signature,
    derive_id,
)
from trioperator.handling.lifecycles import Lifecycle, check_lifecycle
from trioperator.handling.registry import OperatorRegistry, select_change_handlers

__all__ = ["Subhandlers", "current_subhandlers", "execute", "running_subhandlers"]


_TWICE: Final = "{parent} has two sub-handlers with the id {id!r}: give each an id=... of its own."


class Run(Protocol):
    """Call handlers that are due; tell in how many seconds the next ones are, and None when all have ended."""

    def __call__(
        self, handlers: Sequence[ChangeHandler], /, *, lifecycle: Lifecycle | None
    ) -> Awaitable[float | None]: ...


class Subhandlers:
    """Collect the sub-handlers of one attempt of *parent*, and have them called.

    *cause* is what the parent handles, with ``old``, ``new`` and ``diff`` as the parent sees them.
    """

    def __init__(self, parent: ChangeHandler, cause: ChangeCause, run: Run) -> None:
        self.parent = parent
        self._cause = cause
        self._run = run
        self._declared: list[ChangeHandler] = []
        self._fns: dict[str, HandlerFn] = {}
        self._executed = False
        self._delays: dict[tuple[str, ...], float] = {}  # in seconds, for what was executed and is not finished
        self._task: trio.lowlevel.Task | None = None

    def make(self, fn: HandlerFn, *, id: object = None, **options: Any) -> ChangeHandler:
        """Make a sub-handler of a function. Raises ConfigError where it cannot be called with what there is."""
        handler = ChangeHandler(
            fn=fn,
            id=f"{self.parent.id}/{derive_id(fn) if id is None else id}",
            selector=self.parent.selector,
            needs_change=self.parent.needs_change,
            **options,
        )
        known = ATTEMPT_KWARGS | self._cause.kwargs.keys()
        check_signature(handler, known)
        for option, callback in callbacks(handler):
            check_callback(handler, option, callback, known - ATTEMPT_KWARGS)
        return handler

    def adopt(self, handler: ChangeHandler) -> ChangeHandler:
        """Make a sub-handler of a handler that was declared elsewhere."""
        if handler.id.startswith(f"{self.parent.id}/"):
            return handler
        return dataclasses.replace(handler, id=f"{self.parent.id}/{handler.id}")

    def declare(self, handler: ChangeHandler) -> None:
        """Have a sub-handler called after the parent, or when it executes what it has declared."""
        self._check_unique_id(handler)
        if any(other.id == handler.id and other.param != handler.param for other in self._declared):
            raise ValueError(_TWICE.format(parent=self.parent, id=handler.id))
        self._declared.append(handler)

    def _check_unique_id(self, handler: ChangeHandler) -> None:
        """Raise ValueError where two functions have one id: the second would pass for the first, and not be called."""
        if self._fns.setdefault(handler.id, handler.fn) != handler.fn:
            raise ValueError(_TWICE.format(parent=self.parent, id=handler.id))

    def begin(self) -> None:
        """Take note that the attempt begins, in the present task."""
        self._task = trio.lowlevel.current_task()

    async def execute(self, handlers: Iterable[ChangeHandler], *, lifecycle: Lifecycle | None = None) -> None:
        """Call those of *handlers* that are due. Raises UnfinishedSubhandlersError unless all of them have ended."""
        self._check_task()
        handlers = list(handlers)
        for handler in handlers:
            self._check_unique_id(handler)
        selected = select_change_handlers(handlers, self._cause)
        if not selected:
            return
        ids = tuple(handler.id for handler in selected)
        self._delays[ids] = 0.0  # also if the handler interrupts it
        wait = await self._run(selected, lifecycle=lifecycle)
        if wait is None:
            del self._delays[ids]
        else:
            self._delays[ids] = wait
            raise UnfinishedSubhandlersError(self.parent.id, delay=wait)

    async def execute_declared(self, *, lifecycle: Lifecycle | None = None) -> None:
        """Call what was declared, once for an attempt."""
        if not self._executed:
            self._executed = True
            await self.execute(self._declared, lifecycle=lifecycle)

    async def finish(self) -> None:
        """Call what was declared and not executed. Raises UnfinishedSubhandlersError unless all have ended."""
        if self._declared:
            await self.execute_declared()
        if self._delays:  # the handler has caught the error, and that finishes no sub-handler
            raise UnfinishedSubhandlersError(self.parent.id, delay=min(self._delays.values()))

    def _check_task(self) -> None:
        """Raise RuntimeError where the present task is no child of the handler's: nobody would wait for it there."""
        task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        while task is not self._task:
            parent = None if task is None else task.parent_nursery
            if parent is None:
                raise RuntimeError(
                    "Sub-handlers cannot be executed from a thread, or from a task that is not the handler's own."
                    " Sync handlers declare them with subhandler() or register(): they are called after the handler."
                )
            task = parent.parent_task


current_subhandlers: Final[contextvars.ContextVar[Subhandlers | None]] = contextvars.ContextVar(
    "trioperator-subhandlers", default=None
)


def running_subhandlers(name: str) -> Subhandlers:
    """Give the sub-handlers of the handler at work. Raises RuntimeError with the *name* of what was called wrongly."""
    found = current_subhandlers.get()
    if found is None:
        raise RuntimeError(
            f"{name}() works inside of a running handler of changes only: on.create, on.update, on.delete, on.resume,"
            " on.field, or a sub-handler. Others (on.event, daemons, timers, indices, activities) have no progress that"
            " sub-handlers could be a part of."
        )
    return found


async def execute(
    *,
    fns: Mapping[str, HandlerFn] | Iterable[HandlerFn] | None = None,
    handlers: Iterable[ChangeHandler] | None = None,
    registry: OperatorRegistry | None = None,
    lifecycle: Lifecycle | None = None,
    cause: object = None,
) -> None:
    """Call sub-handlers now, from inside of an async handler of changes; come back when all of them have ended.

    *fns* are functions, or a mapping of ids to functions; *handlers* and *registry* hold what was declared elsewhere;
    with none of them it is what was declared in the handler by ``subhandler()`` and ``register()``, once. *lifecycle*
    says in which order. *cause* is there for Kopf's sake: there is no other one than the handler's own.

    Raises UnfinishedSubhandlersError as long as any of them has to be tried again: it ends the handler, which is called
    again when the first of them is due. Sub-handlers that have ended are not called again.
    """
    running = running_subhandlers("execute")
    if sum(source is not None for source in (fns, handlers, registry)) > 1:
        raise TypeError("execute() takes one of fns=, handlers= and registry=, not several of them.")
    if lifecycle is not None:
        check_lifecycle(lifecycle)
    if fns is not None:
        await running.execute(_of_functions(running, fns), lifecycle=lifecycle)
    elif handlers is not None:
        await running.execute([running.adopt(handler) for handler in handlers], lifecycle=lifecycle)
    elif registry is not None:
        await running.execute([running.adopt(handler) for handler in _changes_in(registry)], lifecycle=lifecycle)
    else:
        await running.execute_declared(lifecycle=lifecycle)


def _of_functions(running: Subhandlers, fns: object) -> list[ChangeHandler]:
    if isinstance(fns, Mapping):
        return [running.make(fn, id=name) for name, fn in fns.items()]
    if isinstance(fns, Iterable):
        return [running.make(fn) for fn in fns]
    raise TypeError(f"execute() has fns={fns!r}: it has to be a mapping of ids to functions, or a list of functions.")


def _changes_in(registry: OperatorRegistry) -> list[ChangeHandler]:
    return [handler for handler in registry if isinstance(handler, ChangeHandler)]
