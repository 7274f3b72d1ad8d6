"""Advice for handlers that call asyncio: what to use on Trio instead. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trioperator._handling.guard import package_of
from trioperator._handling.handlers.outcome import describe

_NURSERY = "a nursery: trio.open_nursery() and nursery.start_soon()"
_LOOP = "a nursery for its tasks, and trio.to_thread.run_sync() for its threads"
_CHANNEL = "trio.open_memory_channel()"

# Replacements by the qualified names of asyncio's functions.
_REPLACEMENTS: Mapping[str, str] = {
    "sleep": "trio.sleep()",
    "create_task": _NURSERY,
    "ensure_future": _NURSERY,
    "gather": _NURSERY,
    "wait": _NURSERY,
    "TaskGroup.__aenter__": _NURSERY,
    "wait_for": "trio.fail_after()",
    "timeout": "trio.fail_after()",
    "Timeout.__aenter__": "trio.fail_after()",
    "to_thread": "trio.to_thread.run_sync()",
    "Event.wait": "trio.Event",
    "Condition.wait": "trio.Condition",
    "Lock.acquire": "trio.Lock",
    "Semaphore.acquire": "trio.Semaphore",
    "Queue.get": _CHANNEL,
    "Queue.put": _CHANNEL,
    "open_connection": "trio.open_tcp_stream()",
    "create_subprocess_exec": "trio.run_process()",
    "create_subprocess_shell": "trio.run_process()",
    "get_event_loop": _LOOP,
    "get_running_loop": _LOOP,
}

# Functions by texts of errors, for those without a frame in the traceback: they are written in C, or have returned.
_FRAMELESS: Mapping[str, str] = {
    "<_GatheringFuture ": "gather",
    "no current event loop": "get_event_loop",
    "no running event loop": "get_running_loop",
}


def find_replacement(name: str) -> str | None:
    """Return what replaces a function or a class of asyncio on Trio, by its name; None if that is not known."""
    return next((text for known, text in _REPLACEMENTS.items() if known == name or known.startswith(f"{name}.")), None)


def asyncio_advice(error: BaseException) -> str:
    """Return which asyncio function a handler called, and its replacement; "" for errors unrelated to asyncio."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(asyncio_advice, error.exceptions)), "")
    called, last = _asyncio_frames(error)
    text = describe(error)
    if isinstance(error, TypeError | RuntimeError):
        # Trio throws a TypeError into a task that awaits something unknown to it.
        foreign = "event loop" in text or "unrecognized yield message" in text
    else:  # asyncio's primitives assume that there is a loop
        foreign = isinstance(error, AttributeError) and last == "asyncio"
    if not foreign:
        return ""
    called += [name for words, name in _FRAMELESS.items() if words in text]
    if not called:
        return "what it awaits cannot work here; see Trio's documentation for a replacement."
    name = next((name for name in called if name in _REPLACEMENTS), called[0])
    return f"asyncio's {name}() cannot work here; use {_REPLACEMENTS.get(name, 'what Trio offers for it')} instead."


def _asyncio_frames(error: BaseException) -> tuple[list[str], str]:
    """Return the qualified names of asyncio's functions in the traceback, and the package of its last entry."""
    names: list[str] = []
    package = ""
    traceback = error.__traceback__
    while traceback is not None:
        package = package_of(traceback)
        if package == "asyncio":
            names.append(traceback.tb_frame.f_code.co_qualname)
        traceback = traceback.tb_next
    return names, package
