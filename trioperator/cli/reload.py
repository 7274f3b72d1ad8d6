"""``trioperator run --reload``: an operator that is restarted when its files change, for development."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import trio

from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry, set_default_registry
from trioperator._kube.connection_info import ContextChoice
from trioperator._logs import get_logger
from trioperator._supervisor.shutdown import wait_flag
from trioperator._supervisor.signals import notified_of_signals
from trioperator.cli.failures import report_failure
from trioperator.cli.file_changes import Snapshot, wait_for_change
from trioperator.cli.loading import load_all
from trioperator.cli.project import find_project_modules, find_roots
from trioperator.cli.project_metrics import ProjectMetrics
from trioperator.cli.summary import show_summary
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    from trioperator.cli.controls import CLIControls
    from trioperator.cli.run_options import RunOptions

_logger = get_logger(__name__)

# Seconds that an operator may take to stop in order when a file has changed; then it is cancelled.
_PATIENCE: Final = 3.0


class _Project:
    """The modules of the project: ``is_loaded`` is whether the last attempt to load them has succeeded."""

    def __init__(self, options: RunOptions, registry: OperatorRegistry | None) -> None:
        self.is_loaded = False
        self.metrics = ProjectMetrics()
        self._options = options
        self._paths = tuple(map(os.path.abspath, options.files))
        self._registry = registry
        self._kept = frozenset(sys.modules)
        self._path = tuple(sys.path)
        self._known: frozenset[str] = frozenset()
        self._before = Snapshot.take(())

    async def wait_for_change(self) -> str:
        """Wait until a file has changed since the last attempt, and return its path."""
        roots = find_roots(self._options.files, self._options.modules)
        return await wait_for_change(self._known, roots, self._before, new=not self.is_loaded)

    def load(self) -> None:
        """Load the files as they are now, with a new registry; without success, everything is as it was before."""
        roots = find_roots(self._options.files, self._options.modules)
        old = self._find_modules()
        self._before = Snapshot.take([*old.values(), *self._paths])
        modules = {name: sys.modules.pop(name) for name in old}
        registry, path, restore_metrics = get_default_registry(), sys.path[:], self.metrics.forget(roots)
        self.is_loaded = self._try_to_load()
        new = self._find_modules()
        self._known = frozenset({*old.values(), *new.values(), *self._paths})
        if not self.is_loaded:
            for name in new:
                del sys.modules[name]
            sys.modules.update(modules)
            sys.path[:] = path
            set_default_registry(registry)
            self.metrics.forget(roots)
            restore_metrics()

    def _try_to_load(self) -> bool:
        """Load the files with a new registry; return whether that was possible."""
        sys.path[:] = self._path
        importlib.invalidate_caches()
        set_default_registry(self._registry or OperatorRegistry())
        self._registry = None
        try:
            load_all(self._options.files, self._options.modules)
            show_summary(self._options)
        except Exception as error:  # noqa: BLE001 -- it is reported, and may be corrected
            report_failure(error, _logger)
            return False
        return True

    def _find_modules(self) -> Mapping[str, str]:
        """Return the paths of the modules that can be imported again."""
        modules = find_project_modules(self._options.files, self._options.modules)
        return {name: path for name, path in modules.items() if name not in self._kept}


class Reloader:
    """Operators that run one after another, each with the files as they are when it starts.

    *operate* is :func:`trioperator.operator` with its options, which are to include the settings.
    """

    def __init__(self, operate: Callable[..., Awaitable[None]], options: RunOptions, controls: CLIControls) -> None:
        self._operate = operate
        self._project = _Project(options, controls.registry)
        self._define_kinds: Callable[[], Awaitable[None]] | None = None
        self._settings = controls.settings
        self._interrupted = trio.Event()
        self._stop_flags = [flag for flag in (controls.stop_flag, self._interrupted) if flag is not None]

    async def run(self, *, define_kinds: Callable[[], Awaitable[None]] | None = None, **options: Any) -> None:
        """Run operators, with these options in addition, until one ends for another reason than a changed file.

        Before each, *define_kinds* defines the kinds of its classes. Errors are logged; then the next change is waited
        for. An operator goes on until what has changed can be loaded.
        """
        self._define_kinds = define_kinds
        writing, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # it is not as new as it looks for a second
        try:
            with notified_of_signals(self._interrupted.set), self._project.metrics.recording():
                self._project.load()
                with ContextChoice().applying():  # all operators are in the same cluster
                    while await self._run_once(options):
                        pass
        finally:
            sys.dont_write_bytecode = writing

    async def _run_once(self, options: Mapping[str, Any]) -> bool:
        """Run one operator; return whether another one is to follow: files have changed, and nobody has stopped it."""
        run = _Run()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._reload_on_change, run, name="files")
            for flag in self._stop_flags:
                nursery.start_soon(run.stop_on, flag, name="stop flag")
            if not self._project.is_loaded or not await self._serve(run, options):
                await run.wait()
            nursery.cancel_scope.cancel(reason="the operator has ended")
        return run.is_replaced and not any(flag.is_set() for flag in self._stop_flags)

    async def _reload_on_change(self, run: _Run) -> None:
        """Load the files whenever they have changed, until that succeeds or no operator runs; then end the run."""
        while True:
            changed = await self._project.wait_for_change()
            self._project.load()
            if self._project.is_loaded or not run.is_serving:
                break
            _log(changed, "the operator goes on as it was")
        _log(changed, "the operator starts again")
        run.replace()

    async def _serve(self, run: _Run, options: Mapping[str, Any]) -> bool:
        """Run the operator; return whether it has ended without an error."""
        keywords = getattr(self._operate, "keywords", {})
        settings: OperatorSettings = keywords.get("settings") or self._settings or OperatorSettings()
        try:
            with run.serving():
                if self._define_kinds is not None:
                    await self._define_kinds()
                await self._operate(**{**options, "settings": settings.copy(), "stop_flag": run.stopping})
        except Exception as error:  # noqa: BLE001 -- it is reported, and may be corrected
            report_failure(error, _logger)
            return False
        return True


def _log(changed: str, what: str) -> None:
    _logger.info("%s has changed: %s.", os.path.relpath(changed), what)


class _Run:
    """One operator from its start until it is replaced, or ends otherwise."""

    def __init__(self) -> None:
        self.stopping = trio.Event()
        self.is_serving = False
        self.is_replaced = False
        self._scope = trio.CancelScope()

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Mark that the operator runs; it is cancelled if it does not stop in time to be replaced."""
        self.is_serving = True
        try:
            with self._scope:
                yield
        finally:
            self.is_serving = False

    def replace(self) -> None:
        """Stop the operator for the next one."""
        self.is_replaced = True
        self._scope.deadline = trio.current_time() + _PATIENCE
        self.stopping.set()

    async def stop_on(self, flag: trio.Event | threading.Event) -> None:
        """Stop the operator when a flag is set."""
        await wait_flag(flag)
        self.stopping.set()

    async def wait(self) -> None:
        """Wait, without an operator, for the change of a file, the stop flag, or a signal."""
        if not self.stopping.is_set():
            _logger.info("Waiting for a change of the files.")
            await self.stopping.wait()
