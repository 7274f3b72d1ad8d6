"""Signals: the first one stops the operators of the process in order, the second one ends them at once.

Ending at once is cancellation first. Handlers may swallow that, or block the event loop, which then does not even see
the signal; so a thread ends the process if it has not ended by itself in time.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import trio

from trioperator._logs import get_logger
from trioperator._supervisor.shutdown import Shutdown

#: The exit code of a process that was interrupted before it had shut down.
INTERRUPTED: Final = 130
#: Advice for when stopping takes too long.
HINT: Final = " To end it at once, send a second signal (Ctrl-C)."
_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
# Seconds that cancellation may take after the second signal. Reconciles take up to one to store what has ended.
_PATIENCE = 2.0
# Seconds in which the same signal is no second one: GNU timeout sends each of them twice, and nobody is so fast.
_ECHO = 0.1
# Seconds that the last log message may take: the logging may be what blocks.
_LAST_WORDS = 1.0

_logger = get_logger("trioperator.supervisor")


class _Listener:
    """One operator that is stopped by signals. *describe* returns, in any thread, what has not ended."""

    def __init__(self, shutdown: Shutdown, describe: Callable[[], str]) -> None:
        self._shutdown = shutdown
        self._describe = describe
        self._token = trio.lowlevel.current_trio_token()
        self._received = 0  # by Python
        self._last = 0, -math.inf  # its number, and when it came
        self._clock = trio.lowlevel.current_clock()
        self._seen = 0  # by the event loop
        self._has_timer = False
        self._ended = False

    def receive(self, number: int) -> None:
        """Take a signal. Called by Python in the main thread, between any two instructions of any code."""
        (last, last_at), now = self._last, self._clock.current_time()
        if number == last and now < last_at + _ECHO:
            return
        self._last = number, now
        self._received += 1
        if not self._has_timer and self._received >= 2:
            self._has_timer = True
            # Not threading.Thread: its locks may be held by the code that this has interrupted.
            _thread.start_new_thread(self._end_process, ())
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._request, number)

    def end(self) -> None:
        """Note that the operator has ended by itself."""
        self._ended = True

    def _request(self, number: int) -> None:
        if self._ended:  # a signal for who comes next
            signal.raise_signal(number)
            return
        self._seen += 1
        name, seconds = signal.Signals(number).name, round(self._shutdown.remaining, 1)
        if self._seen >= 2:
            _logger.info("Signal %s is received: the operator ends at once.", name)
            self._shutdown.end_at_once(name)
            return
        is_stopping = self._shutdown.requested.is_set()  # the program has stopped it, or an error
        state = "is stopping already" if is_stopping else "stops"
        _logger.info("Signal %s is received: the operator %s, within %g seconds.%s", name, state, seconds, HINT)
        self._shutdown.request(name)

    def _end_process(self) -> None:
        time.sleep(_PATIENCE)  # in a thread of its own
        if not self._ended:
            _end_process(f"The process ends at once, though these have not ended: {self._describe()}.")


class _Notifier:
    """Calls a function for each signal, whatever the operators of the process make of it."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self._token = trio.lowlevel.current_trio_token()

    def receive(self, _: int) -> None:
        """Take a signal. Called by Python in the main thread, between any two instructions of any code."""
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._notify)


_listeners: Final[list[_Listener | _Notifier]] = []
_originals: Final[dict[int, Any]] = {}


@contextlib.contextmanager
def handle_signals(shutdown: Shutdown, *, describe: Callable[[], str]) -> Iterator[None]:
    """Request a stop in the block for each SIGINT and SIGTERM; all operators of the process get each signal.

    If the block has not ended two seconds after the second signal, the process exits with 130, and *describe* is called
    in a thread to log what has not ended. Does nothing outside of the main thread, where Python delivers no signals.
    """
    listener = _Listener(shutdown, describe)
    with _receiving(listener):
        try:
            yield
        finally:
            listener.end()


@contextlib.contextmanager
def notified_of_signals(notify: Callable[[], None]) -> Iterator[None]:
    """Call a function in the block for each SIGINT and SIGTERM, also while operators handle them, and between them."""
    with _receiving(_Notifier(notify)):
        yield


@contextlib.contextmanager
def _receiving(listener: _Listener | _Notifier) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        _logger.debug("Signals are not handled: the operator does not run in the main thread.")
        yield
        return
    if not _listeners:
        replaced = {number: signal.signal(number, _receive) for number in _NUMBERS}
        _originals.update({number: handler for number, handler in replaced.items() if handler is not _receive})
    _listeners.append(listener)
    try:
        yield
    finally:
        if listener in _listeners:  # unless this is a fork of the process
            _listeners.remove(listener)
        if not _listeners:
            for number in _NUMBERS:
                if signal.getsignal(number) is _receive:  # else the program has set its own meanwhile, which stays
                    _restore(number)


def _restore(number: int) -> None:
    original = _originals[number]
    signal.signal(number, signal.SIG_DFL if original is None else original)


def _receive(number: int, _: object) -> None:
    for listener in tuple(_listeners):
        listener.receive(number)
    if not _listeners:  # the program has put this back, in place of a handler of its own, after the last operator
        _restore(number)
        signal.raise_signal(number)


def _leave_in_fork() -> None:
    """Let signals end a fork of the process, such as a worker of ``multiprocessing``: no operator runs in it.

    What was replaced is not put back: it may be Trio's handler, which tells the event loop of the parent process.
    """
    if _listeners:
        _listeners.clear()
        for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            if signal.getsignal(number) is _receive:
                signal.signal(number, default)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_in_fork)


def end_process_after(seconds: float) -> None:
    """End the process with the code 130 unless it has ended by itself, in spite of threads that Python waits for."""

    def end() -> None:
        time.sleep(seconds)  # in a thread of its own, which nothing waits for
        _end_process("The process ends at once, though its threads have not ended.")

    _thread.start_new_thread(end, ())


def _end_process(message: str) -> None:
    said = _thread.allocate_lock()
    said.acquire()

    def say() -> None:
        with contextlib.suppress(Exception):
            _logger.critical("%s", message)
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
        said.release()

    try:
        _thread.start_new_thread(say, ())
    except RuntimeError:  # since Python 3.12, an interpreter that exits starts no threads
        os.write(2, f"{message}\n".encode())
    else:
        said.acquire(timeout=_LAST_WORDS)
    os._exit(INTERRUPTED)
