"""Signals: all operators of the process get them, and the second one ends the process, whatever it takes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
import trio

from trioperator._supervisor.shutdown import Shutdown
from trioperator._supervisor.signals import handle_signals

#: Real seconds after which a signal is another one.
ECHO = 0.11


async def test_each_signal_is_a_request_to_every_operator(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    first, second = Shutdown(lambda: 25.0), Shutdown(lambda: 25.0)
    before = signal.getsignal(signal.SIGTERM)
    with handle_signals(first, describe=str):
        with handle_signals(second, describe=str):
            signal.raise_signal(signal.SIGTERM)
            await trio.testing.wait_all_tasks_blocked()
            assert first.requested.is_set()
            assert second.requested.is_set()
            assert not second.everything.cancel_called
        # Two of them, before the loop has seen the first: both count.
        first = Shutdown(lambda: 25.0)
        with handle_signals(first, describe=str):
            signal.raise_signal(signal.SIGINT)
            time.sleep(ECHO)  # noqa: ASYNC251 -- the event loop sees nothing meanwhile
            signal.raise_signal(signal.SIGINT)
            await trio.testing.wait_all_tasks_blocked()
            assert first.everything.cancel_called
    assert signal.getsignal(signal.SIGTERM) is before
    text = "Signal SIGTERM is received: the operator stops, within 25 seconds. To end it at once, send a second signal"
    assert [message for message in caplog.messages if message.startswith(text)] != []
    assert "Signal SIGINT is received: the operator ends at once." in caplog.messages


async def test_a_signal_that_comes_twice_at_once_is_one() -> None:
    shutdown = Shutdown(lambda: 25.0)
    with handle_signals(shutdown, describe=str):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # as GNU timeout sends it: to its child, and to the group of processes
        await trio.testing.wait_all_tasks_blocked()
        assert shutdown.requested.is_set()
        assert not shutdown.everything.cancel_called
        await trio.sleep(ECHO)
        signal.raise_signal(signal.SIGTERM)
        await trio.testing.wait_all_tasks_blocked()
        assert shutdown.everything.cancel_called


async def test_the_first_signal_after_another_request_to_stop_does_not_end_the_operator_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    shutdown = Shutdown(lambda: 25.0)
    with handle_signals(shutdown, describe=str):
        shutdown.request("the stop flag")
        signal.raise_signal(signal.SIGTERM)
        await trio.testing.wait_all_tasks_blocked()
        assert not shutdown.everything.cancel_called
        assert caplog.messages[-1].startswith("Signal SIGTERM is received: the operator is stopping already, within")
        await trio.sleep(ECHO)
        signal.raise_signal(signal.SIGTERM)
        await trio.testing.wait_all_tasks_blocked()
        assert shutdown.everything.cancel_called


async def test_operators_may_end_in_any_order() -> None:
    before = signal.getsignal(signal.SIGTERM)
    one, other = (handle_signals(Shutdown(lambda: 25.0), describe=str) for _ in range(2))
    shutdown = Shutdown(lambda: 25.0)
    one.__enter__()
    with handle_signals(shutdown, describe=str):
        one.__exit__(None, None, None)
        other.__enter__()
        signal.raise_signal(signal.SIGTERM)
        await trio.testing.wait_all_tasks_blocked()
        assert shutdown.requested.is_set()
    other.__exit__(None, None, None)
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_program_may_handle_signals_itself_from_the_middle_of_an_operator_on() -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("before"))
    seen: list[str] = []
    try:
        operator = handle_signals(Shutdown(lambda: 25.0), describe=str)
        operator.__enter__()
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            operator.__exit__(None, None, None)
            signal.raise_signal(signal.SIGTERM)
            assert await anext(signals) == signal.SIGTERM
        # The receiver has put back the handler that it had replaced: that of an operator that has ended.
        signal.raise_signal(signal.SIGTERM)
        assert seen == ["before"]
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_the_next_operator_gets_signals_where_the_handler_of_the_last_one_was_put_back() -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("before"))
    seen: list[str] = []
    try:
        operator = handle_signals(Shutdown(lambda: 25.0), describe=str)
        operator.__enter__()
        with trio.open_signal_receiver(signal.SIGTERM):
            operator.__exit__(None, None, None)
        with handle_signals(Shutdown(lambda: 25.0), describe=str):
            pass
        signal.raise_signal(signal.SIGTERM)
        assert seen == ["before"]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_process_that_a_handler_has_forked_and_nothing_else(number: signal.Signals) -> None:
    shutdown = Shutdown(lambda: 25.0)
    running, started = os.pipe()

    def fork() -> multiprocessing.process.BaseProcess:
        process = multiprocessing.get_context("fork").Process(target=_work, args=(started,), daemon=True)
        process.start()
        return process

    with handle_signals(shutdown, describe=str):
        process = await trio.to_thread.run_sync(fork)
        try:
            os.read(running, 1)
            assert process.pid is not None
            os.kill(process.pid, number)
            await trio.to_thread.run_sync(process.join, 20)
            # multiprocessing ends processes that are interrupted with 1.
            assert process.exitcode == (-number if number == signal.SIGTERM else 1)
            assert not shutdown.requested.is_set()
        finally:
            process.kill()
        signal.raise_signal(signal.SIGTERM)
        await trio.testing.wait_all_tasks_blocked()
        assert shutdown.requested.is_set()


def _work(started: int) -> None:
    os.write(started, b"1")
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(60)
        return
    sys.exit(1)


def test_nothing_is_handled_outside_of_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[bool] = []

    async def main() -> None:
        with handle_signals(Shutdown(lambda: 25.0), describe=str):
            seen.append(signal.getsignal(signal.SIGTERM) is before)

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    thread.join(60)
    assert seen == [True]


PROGRAM = """
import contextlib, logging, os, signal, sys, threading, time
import trio
from trioperator._supervisor.shutdown import Shutdown
from trioperator._supervisor.signals import handle_signals

logging.basicConfig(level=logging.INFO)

async def swallow():
    while True:
        with contextlib.suppress(BaseException):
            await trio.sleep_forever()

async def shield():
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

async def block():
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(3600)

class Stuck(logging.Handler):
    def emit(self, record):
        time.sleep(3600)

async def log():
    logging.getLogger().addHandler(Stuck())
    logging.info("never")

async def main(work):
    shutdown = Shutdown(lambda: 25.0)
    with handle_signals(shutdown, describe=lambda: "Handler 'it'"), shutdown.everything:
        print("ready", flush=True)
        await work()

trio.run(main, globals()[sys.argv[1]])
"""


def test_the_second_signal_ends_the_process_whatever_is_swallowed() -> None:
    # Some seconds of real time: what is tested is that the process ends without the help of its event loop.
    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(__file__).parents[1])}
    with contextlib.ExitStack() as stack:
        processes: dict[str, subprocess.Popen[str]] = {}
        for work in ("swallow", "shield", "block", "log"):
            command = [sys.executable, "-c", PROGRAM, work]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)
            processes[work] = stack.enter_context(process)
            stack.callback(process.kill)
        for process in processes.values():
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert [process.poll() for process in processes.values()] == [None] * 4
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        for work, process in processes.items():
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 130
            if work != "log":
                assert "The process ends at once, though these have not ended: Handler 'it'." in errors
