"""Waiting until something holds, without polling: it is checked again when other tasks have run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Final, TypeVar

import trio

T = TypeVar("T")


async def eventually(check: Callable[[], T], *, timeout: float = 60) -> T:
    """Wait until *check* returns something true, and return that.

    ::

        call = await eventually(lambda: operator.calls.select(handler="create_fn", name="orders"))

    *check* is a sync function, which is called now, and again whenever other tasks have run. It may also assert:
    AssertionError and LookupError count as "not yet". *timeout* is in seconds of Trio's time; default: 60.

    Raises TimeoutError after *timeout*, with what *check* has returned or raised last, and all other errors of *check*
    at once. Raises TypeError for an async function.
    """
    await trio.lowlevel.checkpoint()  # ends a step in which this task may have changed what others wait for
    pulse = _Pulse()
    waiting = _waiting.get()
    task = trio.lowlevel.current_task()
    waiting.add(task)
    trio.lowlevel.add_instrument(pulse)
    try:
        with trio.move_on_after(timeout):
            while True:
                pulse.event = trio.Event()
                done, last = _try(check)
                if done:
                    break
                await pulse.event.wait()
    finally:
        trio.lowlevel.remove_instrument(pulse)
        waiting.discard(task)
    if done:
        return last  # type: ignore[return-value]  # of check
    outcome = f"raises {last!r}" if isinstance(last, Exception) else f"returns {last!r}"
    raise TimeoutError(f"{_describe(check)} still {outcome} after {timeout:g} seconds.") from (
        last if isinstance(last, Exception) else None
    )


def _try(check: Callable[[], T]) -> tuple[bool, T | Exception]:
    """Return whether the check is met, and what it has returned or raised."""
    try:
        result = check()
    except (AssertionError, LookupError) as error:
        return False, error
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"eventually() takes a sync function, not {_describe(check)}, whose result must be awaited.")
    return bool(result), result


def _describe(check: Callable[[], object]) -> str:
    """Return a check in words: its name, and where it is if it has none."""
    name = getattr(check, "__qualname__", None)
    if name is None:
        return repr(check)
    code = getattr(check, "__code__", None)
    return f"the lambda in line {code.co_firstlineno}" if name.endswith("<lambda>") and code else name


class _Pulse(trio.abc.Instrument):
    """An event that is set when a task has run, other than tasks that wait here themselves."""

    def __init__(self) -> None:
        self.event = trio.Event()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Wake the task that waits."""
        if task not in _waiting.get() and not self.event.is_set():
            self.event.set()


class _WaitingTasks:
    """The tasks of each run that are in :func:`eventually`: their steps change nothing that others wait for."""

    def __init__(self) -> None:
        self._tasks: trio.lowlevel.RunVar[set[trio.lowlevel.Task]] = trio.lowlevel.RunVar("trioperator-eventually")

    def get(self) -> set[trio.lowlevel.Task]:
        """Return the ones of the current run."""
        try:
            return self._tasks.get()
        except LookupError:
            tasks: set[trio.lowlevel.Task] = set()
            self._tasks.set(tasks)
            return tasks


_waiting: Final = _WaitingTasks()
