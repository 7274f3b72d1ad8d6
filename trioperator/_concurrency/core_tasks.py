"""Core tasks of an operator, which end only by cancellation. If one ends otherwise, its work is no longer done.

An error in a core task ends the operator, as in any other task. Only a task that returns would go unnoticed.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

import trio

_current: Final[contextvars.ContextVar[CoreTasks | None]] = contextvars.ContextVar("trioperator-core", default=None)


class CoreTasks:
    """The core tasks of one operator, and those among them that have ended."""

    def __init__(self) -> None:
        self._ended: dict[object, tuple[str, bool]] = {}

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Keep an eye on the core tasks that this task and its descendants start within the block."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def report(self) -> Mapping[str, bool]:
        """Return the names of the tasks, and whether any of the name has ended."""
        report: dict[str, bool] = {}
        for name, ended in self._ended.values():
            report[name] = report.get(name, False) or ended
        return report

    async def keep(self, name: str, serve: Callable[..., Awaitable[object]], **options: Any) -> None:
        """Await a core task; see :func:`keep`."""
        key = object()
        self._ended[key] = name, False
        try:
            await serve(**options)
        except BaseException:
            del self._ended[key]
            raise
        self._ended[key] = name, True


async def keep(
    name: str, serve: Callable[..., Awaitable[object]], *, task_status: trio.TaskStatus[Any] | None = None
) -> None:
    """Await *serve*, which ends only by cancellation; if it returns, the operator is dead: ``/livez`` fails.

    Start it in the nursery of the task: ``nursery.start_soon(keep, name, serve, name=name)``, or by ``start()`` if
    *serve* takes a ``task_status``.
    """
    options = {} if task_status is None else {"task_status": task_status}
    tasks = _current.get()
    await (serve(**options) if tasks is None else tasks.keep(name, serve, **options))
