"""``trioperator run --reload``: an operator that is started anew when its files change, for development."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import trio

from trioperator.cli.failures import report_failure
from trioperator.cli.file_changes import Snapshot, wait_for_change
from trioperator.cli.loading import load_all
from trioperator.cli.project import find_project_modules, find_roots
from trioperator.cli.summary import show_summary
from trioperator.handling.registry import OperatorRegistry, set_default_registry
from trioperator.logs import get_logger
from trioperator.settings import OperatorSettings
from trioperator.shutdown import wait_flag

if TYPE_CHECKING:
    from trioperator.cli.controls import CLIControls
    from trioperator.cli.run_options import RunOptions

__all__ = ["Reloader"]

_logger = get_logger(__name__)

# Seconds that an operator may take to stop in order when a file has changed; then it is cancelled.
_PATIENCE: Final = 3.0


class Reloader:
    """Operators that run one after another, each with the files as they are when it starts.

    *operate* is :func:`trioperator.operator` with its options, which are to include the settings.
    """

    def __init__(self, operate: Callable[..., Awaitable[None]], options: RunOptions, controls: CLIControls) -> None:
        self._operate = operate
        self._options = options
        self._files, self._modules = options.files, options.modules
        self._paths = tuple(map(os.path.abspath, options.files))
        self._registry = controls.registry
        self._define_kinds: Callable[[], Awaitable[None]] | None = None
        self._settings = controls.settings
        self._interrupted = trio.Event()
        self._stop_flags = [flag for flag in (controls.stop_flag, self._interrupted) if flag is not None]
        self._kept = frozenset(sys.modules)
        self._path = tuple(sys.path)

    async def run(self, *, define_kinds: Callable[[], Awaitable[None]] | None = None, **options: Any) -> None:
        """Run operators, with these options in addition, until one ends for another reason than a changed file.

        Before each, *define_kinds* defines the kinds of its classes. Errors are logged; then the next change is waited
        for.
        """
        self._define_kinds = define_kinds
        writing, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # it is not as new as it looks for a second
        try:
            with self._receive_signals() as signals:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._interrupt_on, signals, name="signals")
                    while await self._run_once(options):
                        pass
                    nursery.cancel_scope.cancel(reason="the last operator has ended")
        finally:
            sys.dont_write_bytecode = writing

    @contextlib.contextmanager
    def _receive_signals(self) -> Iterator[AsyncIterator[int] | None]:
        """Receive the signals while no operator runs, which receives them itself."""
        if threading.current_thread() is not threading.main_thread():
            yield None
            return
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            yield signals

    async def _interrupt_on(self, signals: AsyncIterator[int] | None) -> None:
        if signals is not None:
            await anext(signals)
            self._interrupted.set()

    async def _run_once(self, options: Mapping[str, Any]) -> bool:
        """Load the files, and run one operator; return whether a file has changed since."""
        modules = self._find_modules()
        before = Snapshot.take([*modules.values(), *self._paths])
        for name in modules:
            del sys.modules[name]
        loaded = self._load()
        known = {*modules.values(), *self._find_modules().values(), *self._paths}
        run = _Run()
        async with trio.open_nursery() as nursery:
            roots = find_roots(self._files, self._modules)
            waiting = functools.partial(wait_for_change, known, roots, before, new=not loaded)
            nursery.start_soon(run.stop_on_change, waiting, name="files")
            for flag in self._stop_flags:
                nursery.start_soon(run.stop_on, flag, name="stop flag")
            if not loaded or not await self._serve(run, options):
                await run.wait()
            nursery.cancel_scope.cancel(reason="the operator has ended")
        run.report()
        return run.changed is not None

    def _find_modules(self) -> Mapping[str, str]:
        """Return the paths of the modules that can be imported anew."""
        modules = find_project_modules(self._files, self._modules)
        return {name: path for name, path in modules.items() if name not in self._kept}

    def _load(self) -> bool:
        """Load the files with a new registry; return whether that was possible."""
        sys.path[:] = self._path
        importlib.invalidate_caches()
        set_default_registry(self._registry or OperatorRegistry())
        self._registry = None
        try:
            load_all(self._files, self._modules)
            show_summary(self._options)
        except Exception as error:  # noqa: BLE001 -- it is reported, and may be corrected
            report_failure(error, _logger)
            return False
        return True

    async def _serve(self, run: _Run, options: Mapping[str, Any]) -> bool:
        """Run the operator; return whether it has ended without an error."""
        keywords = getattr(self._operate, "keywords", {})
        settings: OperatorSettings = keywords.get("settings") or self._settings or OperatorSettings()
        try:
            with run.scope:
                if self._define_kinds is not None:
                    await self._define_kinds()
                await self._operate(**{**options, "settings": settings.copy(), "stop_flag": run.stopping})
        except Exception as error:  # noqa: BLE001 -- it is reported, and may be corrected
            report_failure(error, _logger)
            return False
        return True


class _Run:
    """One operator from its start to the change of a file; ``changed`` is that file."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.stopping = trio.Event()
        self.changed: str | None = None

    async def stop_on_change(self, wait: Callable[[], Awaitable[str]]) -> None:
        """Stop the operator when a file changes; *wait* returns which one."""
        self.changed = await wait()
        self.scope.deadline = trio.current_time() + _PATIENCE
        self.stopping.set()

    def report(self) -> None:
        """Log the change, if there was one."""
        if self.changed is not None:
            _logger.info("%s has changed: the operator starts again.", os.path.relpath(self.changed))

    async def stop_on(self, flag: trio.Event | threading.Event) -> None:
        """Stop the operator when a flag is set."""
        await wait_flag(flag)
        self.stopping.set()

    async def wait(self) -> None:
        """Wait, without an operator, for the change of a file, the stop flag, or a signal."""
        if not self.stopping.is_set():
            _logger.info("Waiting for a change of the files.")
            await self.stopping.wait()
