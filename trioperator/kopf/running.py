"""Running operators that were written for Kopf."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import trio

from trioperator import app
from trioperator.kopf.bridge import load, open_loop
from trioperator.kopf.settings import OperatorSettings
from trioperator.shutdown import unwrap_group

__all__ = ["operator", "run", "run_tasks", "spawn_tasks"]

# Options of Kopf's functions that make no sense here.
_FOREIGN = ("loop", "vault", "indexers", "insights", "_command")


async def operator(**options: Any) -> None:
    """Run an operator until it is stopped or cancelled, with an asyncio loop for its handlers.

    Options and errors are those of ``trioperator.operator()``, with the defaults of Kopf's settings. In an asyncio
    program, await it in an asyncio task.
    """
    for name in _FOREIGN:
        if options.pop(name, None) is not None:
            raise TypeError(f"The option {name}= does not exist here: the operator runs on Trio.")
    if options.get("settings") is None:
        options["settings"] = OperatorSettings()
    try:
        async with open_loop():
            await app.operator(**options)
    except BaseExceptionGroup as group:
        error = unwrap_group(group)
        raise error from error.__cause__  # without the exception groups of the loop's nurseries


def run(**options: Any) -> None:
    """Run an operator as a program. Options and errors are those of :func:`operator`."""

    load()
    trio.run(functools.partial(operator, **options))


def spawn_tasks(*_: object, **__: object) -> NoReturn:
    """Raise RuntimeError: an operator has no asyncio tasks of its own."""
    _refuse("spawn_tasks")


def run_tasks(*_: object, **__: object) -> NoReturn:
    """Raise RuntimeError: an operator has no asyncio tasks of its own."""
    _refuse("run_tasks")


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"kopf.{name}() does not work here, as the operator's tasks are Trio's: await kopf.operator(), or call"
        " kopf.run()."
    )
