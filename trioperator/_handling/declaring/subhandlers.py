"""Sub-handlers: handlers that a change handler declares while it runs, with retries and progress of their own.

They belong to the current attempt, which is in a context variable that is copied to threads. The ``run`` callable of an
attempt calls them and stores their progress.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import trio

from trioperator._handling.arguments.cause import ATTEMPT_KWARGS, ChangeCause
from trioperator._handling.declaring.registry import OperatorRegistry, select_change_handlers
from trioperator._handling.handlers.filters import callbacks, check_untyped
from trioperator._handling.handlers.handler import (
    ChangeHandler,
    HandlerFn,
    check_callback,
    check_function,
    check_signature,
    derive_id,
)
from trioperator._handling.handlers.lifecycles import Lifecycle, check_lifecycle
from trioperator._handling.handlers.typed import bind_types
from trioperator.errors import UnfinishedSubhandlersError

_TWICE: Final = "{parent} has two sub-handlers with the id {id!r}: pass a unique id=... to each."


class Run(Protocol):
    """Callable that runs the handlers that are due.

    It returns the seconds until the next one is due, None if all have finished.
    """

    def __call__(
        self, handlers: Sequence[ChangeHandler], /, *, lifecycle: Lifecycle | None
    ) -> Awaitable[float | None]: ...


class Subhandlers:
    """Sub-handlers of one attempt of *parent*.

    *cause* is the parent's cause, with ``old``, ``new`` and ``diff`` as the parent gets them.
    """

    def __init__(self, parent: ChangeHandler, cause: ChangeCause, run: Run) -> None:
        self.parent = parent
        self._cause = cause
        self._run = run
        self._declared: list[ChangeHandler] = []
        self._fns: dict[str, HandlerFn] = {}
        self._executed = False
        self._delays: dict[tuple[str, ...], float] = {}  # in seconds, by the ids of unfinished groups
        self._tasks: set[trio.lowlevel.Task] = set()

    def make(self, fn: HandlerFn, *, id: object = None, **options: Any) -> ChangeHandler:
        """Return a sub-handler for a function. Raises ConfigError if it requires arguments that do not exist."""
        check_function("A sub-handler", fn)
        handler = ChangeHandler(
            fn=bind_types(fn, self.parent.model),
            model=self.parent.model,
            id=f"{self.parent.id}/{derive_id(fn) if id is None else id}",
            selector=self.parent.selector,
            needs_change=self.parent.needs_change,
            **options,
        )
        known = ATTEMPT_KWARGS | self._cause.kwargs.keys()
        check_signature(handler, known)
        check_untyped(handler)
        for option, callback in callbacks(handler):
            check_callback(handler, option, callback, known - ATTEMPT_KWARGS)
        return handler

    def adopt(self, handler: ChangeHandler) -> ChangeHandler:
        """Return a sub-handler for a handler that was declared elsewhere."""
        if handler.id.startswith(f"{self.parent.id}/"):
            return handler
        return msgspec.structs.replace(handler, id=f"{self.parent.id}/{handler.id}")

    def declare(self, handler: ChangeHandler) -> None:
        """Add a sub-handler, to be called by ``execute()`` or after the parent has returned."""
        self._check_unique_id(handler)
        if any(other.id == handler.id and other.param != handler.param for other in self._declared):
            raise ValueError(_TWICE.format(parent=self.parent, id=handler.id))
        self._declared.append(handler)

    def _check_unique_id(self, handler: ChangeHandler) -> None:
        """Raise ValueError if another function has the same id: it would share its progress, and not be called."""
        if self._fns.setdefault(handler.id, handler.fn) != handler.fn:
            raise ValueError(_TWICE.format(parent=self.parent, id=handler.id))

    def begin(self) -> None:
        """Start the attempt, in the current task."""
        self._tasks.add(trio.lowlevel.current_task())

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Take the current task, in the block, for one of the handler's, which awaits it by other means than Trio's."""
        task = trio.lowlevel.current_task()
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def execute(self, handlers: Iterable[ChangeHandler], *, lifecycle: Lifecycle | None = None) -> None:
        """Call the *handlers* that are due. Raises UnfinishedSubhandlersError unless all have finished."""
        self._check_task()
        handlers = list(handlers)
        for handler in handlers:
            self._check_unique_id(handler)
        selected = select_change_handlers(handlers, self._cause)
        if not selected:
            return
        ids = tuple(handler.id for handler in selected)
        self._delays[ids] = 0.0  # stays if the handler cancels the call
        wait = await self._run(selected, lifecycle=lifecycle)
        if wait is None:
            del self._delays[ids]
        else:
            self._delays[ids] = wait
            raise UnfinishedSubhandlersError(self.parent.id, delay=wait)

    async def execute_declared(self, *, lifecycle: Lifecycle | None = None) -> None:
        """Call the declared sub-handlers, once for an attempt."""
        if not self._executed:
            self._executed = True
            await self.execute(self._declared, lifecycle=lifecycle)

    async def finish(self) -> None:
        """Call the declared sub-handlers unless done. Raises UnfinishedSubhandlersError unless all have finished."""
        if self._declared:
            await self.execute_declared()
        if self._delays:  # the handler has swallowed the error
            raise UnfinishedSubhandlersError(self.parent.id, delay=min(self._delays.values()))

    def _check_task(self) -> None:
        """Raise RuntimeError unless the current task is the handler's or a descendant: only these are waited for."""
        task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        while task not in self._tasks:
            parent = None if task is None else task.parent_nursery
            if parent is None:
                raise RuntimeError(
                    "execute() must be awaited in the handler's own task or a child of it, not in a thread. Sync"
                    " handlers declare sub-handlers with subhandler() or register(); they are called after the handler."
                )
            task = parent.parent_task


current_subhandlers: Final[contextvars.ContextVar[Subhandlers | None]] = contextvars.ContextVar(
    "trioperator-subhandlers", default=None
)


def running_subhandlers(name: str) -> Subhandlers:
    """Return the sub-handlers of the running handler. Raises RuntimeError if there is none; *name* is the caller's."""
    found = current_subhandlers.get()
    if found is None:
        raise RuntimeError(
            f"{name}() works only in a running change handler: on.create, on.update, on.delete, on.resume, on.field"
            " or a sub-handler. Others (on.event, daemons, timers, indices, activities) have no stored progress."
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
    """Call sub-handlers now, inside an async change handler, and return when all of them have finished.

    Without arguments, call those declared with ``subhandler()`` and ``register()``, once. Or pass one of these:

    - *fns*: functions, or a mapping from ids to functions
    - *handlers*: handlers that were declared elsewhere
    - *registry*: a registry whose change handlers are called

    *lifecycle* selects and orders the sub-handlers; the default is the operator's. *cause* has no effect, and exists
    for compatibility with Kopf.

    Raises UnfinishedSubhandlersError while any sub-handler has to be retried. Let it propagate: the handler is called
    again when the first of them is due, and finished sub-handlers are not. Raises RuntimeError outside of a change
    handler and in its threads, ValueError if two functions have the same id, TypeError for wrong arguments, ConfigError
    for functions that require arguments that do not exist.

    ::

        @trioperator.on.create("kopfexamples")
        async def create(spec, **_):
            await trioperator.execute(fns={item: functools.partial(create_item, item=item) for item in spec["items"]})

    See docs/subhandlers.md.
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
    raise TypeError(f"execute() has fns={fns!r}: it must be a mapping of ids to functions, or a list of functions.")


def _changes_in(registry: OperatorRegistry) -> list[ChangeHandler]:
    return [handler for handler in registry if isinstance(handler, ChangeHandler)]
