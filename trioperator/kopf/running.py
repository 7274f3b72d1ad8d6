"""Entry points of operators that were written for Kopf."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import trio

from trioperator import settings
from trioperator._concurrency.clock import make_clock
from trioperator._handling.declaring.registry import get_default_registry
from trioperator._handling.handlers.lifecycles import Lifecycle, asap, find_default_lifecycle
from trioperator._model.exception_groups import unwrap_group
from trioperator._supervisor import app
from trioperator.kopf.bridge import current_loop, is_in_asyncio
from trioperator.kopf.host import open_loop
from trioperator.kopf.settings import OperatorSettings

if TYPE_CHECKING:
    import asyncio

# Options of Kopf's functions that have no meaning here.
_FOREIGN = ("vault", "insights", "memories", "_command")


async def operator(**options: Any) -> None:
    """Run an operator until it is stopped or cancelled, with an asyncio loop for its handlers.

    Options and errors are the same as for ``trioperator.operator()``, with the defaults of Kopf's settings. *indexers*
    is an OperatorIndexers. It may be awaited on Trio and, as in Kopf, on asyncio: then the handlers run in that asyncio
    loop, and flags may be asyncio's. Raises TypeError for options of Kopf's that do not exist here.
    """
    for name in _FOREIGN:
        if options.pop(name, None) is not None:
            raise TypeError(f"The option {name}= does not exist here: the operator runs on Trio.")
    if options.get("settings") is None:
        options["settings"] = OperatorSettings()
    if (indexers := options.pop("indexers", None)) is not None:
        indexers.indices.registry = options.get("registry") or get_default_registry()
    _set_peering(options)
    if options.get("lifecycle") is None:
        options["lifecycle"] = get_default_lifecycle()
    with _raising_one():
        await (_run_on_asyncio(options) if is_in_asyncio() else _run_on_trio(options))


def _set_peering(options: dict[str, Any]) -> None:
    """Move options to the settings that were passed, not to a copy: the program may hold them, and look at them."""
    if not isinstance(options["settings"], settings.OperatorSettings):
        return  # which the operator tells
    peering = options["settings"].peering
    for option in ("standalone", "priority"):
        if (value := options.pop(option, None)) is not None:
            setattr(peering, option, value)
    if (name := options.pop("peering_name", None)) is not None:
        peering.name, peering.mandatory = name, True


def get_default_lifecycle() -> Lifecycle:
    """Return the lifecycle of operators that are run without ``lifecycle=``: ``asap``, unless another one is set."""
    return find_default_lifecycle() or asap


@contextlib.contextmanager
def _raising_one() -> Iterator[None]:
    """Raise a single error without the exception groups of the loops' nurseries."""
    try:
        yield
    except BaseExceptionGroup as group:
        error = unwrap_group(group)
        raise error from error.__cause__


async def _run_on_trio(options: dict[str, Any]) -> None:
    has_loop = current_loop.get(None) is not None
    async with contextlib.nullcontext() if has_loop else open_loop():
        await app.operator(**options)


async def _run_on_asyncio(options: dict[str, Any]) -> None:
    from trioperator.kopf.guest import adapt_flags, run_as_guest

    async with adapt_flags(options):
        await run_as_guest(functools.partial(app.operator, **options))


def run(**options: Any) -> None:
    """Run an operator as a program. Options and errors are the same as for :func:`operator`.

    *loop* is an asyncio loop to run it in, such as uvloop's, as if that awaited :func:`operator`.
    """
    app.check_not_loading("run")
    loop = options.pop("loop", None)
    if loop is not None:
        _run_in_loop(loop, options)
        return
    trio.run(functools.partial(operator, **options), clock=make_clock())


def _run_in_loop(loop: asyncio.AbstractEventLoop, options: dict[str, Any]) -> None:
    import asyncio

    with contextlib.suppress(asyncio.CancelledError):  # as in Kopf: its task was cancelled by somebody else's code
        loop.run_until_complete(operator(**options))


async def spawn_tasks(**options: Any) -> Collection[asyncio.Task[None]]:
    """Start an operator in the current asyncio loop, and return its tasks, for :func:`run_tasks`.

    Options and errors of the task are the same as for :func:`operator`. There is one task, where Kopf has several;
    cancelling it stops the operator. Raises RuntimeError outside of asyncio.
    """
    if not is_in_asyncio():
        raise RuntimeError("kopf.spawn_tasks() works in asyncio only: await kopf.operator() in a nursery of Trio.")
    import asyncio

    return [asyncio.get_running_loop().create_task(operator(**options), name="operator")]


async def run_tasks(root_tasks: Collection[asyncio.Task[None]], *, ignored: Collection[object] = ()) -> None:
    """Wait until one of the tasks of :func:`spawn_tasks` ends, or the current one is cancelled; then stop the others.

    Raises the error of a task that has failed. Other tasks of the loop go on, whether they are *ignored* or not.
    """
    import asyncio

    try:
        await asyncio.wait(root_tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in root_tasks:
            task.cancel()
        await asyncio.wait(root_tasks)
    for task in root_tasks:
        if not task.cancelled():
            task.result()
