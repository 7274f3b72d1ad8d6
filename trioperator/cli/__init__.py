"""The command ``trioperator``: parses options, calls the library, prints messages, and exits with a code."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from trioperator.cli.controls import CLIControls
from trioperator.cli.scripts import install_finder

if TYPE_CHECKING:
    from trioperator.cli.click_types import LogFormatParamType

__all__ = ["CLIControls", "LogFormatParamType", "main"]

# The exit code of an interrupted command, as in trioperator._supervisor.signals, which is not imported just to look.
_INTERRUPTED: Final = 130
# Seconds that Python may take to exit then.
_PATIENCE: Final = 2.0
# Handling an object allocates some hundred containers, nearly all of which are freed without the garbage collector.
_ALLOCATIONS: Final = 30_000
# Bytes of freed memory that glibc keeps at the end of its heap. By default, it keeps ever more with the sizes of blocks
# that are freed, up to 64 MiB: after lists, whose pages have megabytes, that is a tenth of an operator's memory.
_KEPT_MEMORY: Final = 256 * 1024
_M_TRIM_THRESHOLD: Final = -1

install_finder()  # here, as worker processes of an operator import this module, and do not call main()


def main(args: Sequence[str] | None = None, *, controls: CLIControls | None = None) -> None:
    """Run the command with *args*, by default the arguments of the process, and exit.

    *controls* are for what options cannot express, such as a flag that stops the operator.
    """
    _end_on_sigterm()
    try:
        _run(args, controls)
    except KeyboardInterrupt:  # while nothing runs yet, or the first one is being reported
        raise SystemExit(_INTERRUPTED) from None


def _run(args: Sequence[str] | None, controls: CLIControls | None) -> None:
    try:
        with _collecting_rarely():
            _return_memory()
            from trioperator.cli.root import app

            app(args, obj=controls)
    except SystemExit as error:
        if error.code == _INTERRUPTED:
            from trioperator._supervisor.signals import end_process_after

            end_process_after(_PATIENCE)  # threads of handlers may keep Python from exiting
        raise


def _end_on_sigterm() -> None:
    """Let SIGTERM end the first process of a container, too, until an operator handles signals.

    The kernel ignores signals to it that have no handler, so that a pod which is stopped while its files are imported
    would start, and be killed.
    """
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


@contextlib.contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Run the garbage collector less often: with Python's default of 700 allocations, it takes a tenth of the CPU."""
    thresholds = gc.get_threshold()
    gc.set_threshold(max(_ALLOCATIONS, thresholds[0]) if thresholds[0] else 0, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _return_memory() -> None:
    """Let glibc return freed memory to the system, unless the environment has a threshold for that."""
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        with contextlib.suppress(AttributeError, OSError):  # of other libraries
            ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, _KEPT_MEMORY)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name != "LogFormatParamType":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from trioperator.cli.click_types import LogFormatParamType  # Click is not needed otherwise

        return LogFormatParamType
