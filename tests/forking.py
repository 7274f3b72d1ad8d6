"""The command ``trioperator`` in processes of its own that need not import it: they are forked from one that has.

Importing takes half a second of CPU time, which is most of what a short command takes. Whatever else a process has is
its own: arguments, environment, directory, output, signals, exit code. ``python -m trioperator`` itself is called by
:mod:`tests.processes.test_running` and others.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pathlib
import random
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

ROOT: Final = pathlib.Path(__file__).parents[1]

#: What running an operator imports besides the command.
_IMPORTED: Final = (
    *("trioperator.cli.failures", "trioperator.cli.loading", "trioperator.cli.root", "trioperator.cli.run"),
    *("trioperator.cli.summary", "trioperator._coordination.identity", "trioperator._kube.kubeconfig"),
    "trioperator._supervisor.tree",
)
_LENGTH: Final = 1 << 16
_NUMBER: Final = 16
_ENTRY: Final = threading.Lock()


class Forked:
    """A process that runs the command, with those methods of ``subprocess.Popen`` that tests use."""

    def __init__(self, connection: socket.socket, args: Sequence[str]) -> None:
        self.args = args
        self.pid = int(connection.recv(_NUMBER))
        self.returncode: int | None = None
        self._connection = connection

    def poll(self) -> int | None:
        """Return the exit code if the process has ended."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended, and return its exit code."""
        if (code := self._wait(timeout)) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process at once."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = int(self._connection.recv(_NUMBER))
            except (BlockingIOError, TimeoutError):
                return None
            self._connection.close()
        return self.returncode


def start(
    args: Sequence[Any], *, env: Mapping[str, str], cwd: pathlib.Path | None = None, stdout: int, stderr: int
) -> Forked:
    """Start the command with its output in files that are open."""
    words = list(map(str, args))
    request = json.dumps({"args": words, "env": dict(env), "cwd": str(cwd or pathlib.Path.cwd())}).encode() + b"\n"
    ours, theirs = socket.socketpair()
    with _ENTRY, open(os.devnull) as nothing:
        with theirs:
            socket.send_fds(_start_parent(), [request], [nothing.fileno(), stdout, stderr, theirs.fileno()])
        return Forked(ours, words)


def run(
    args: Sequence[Any], *, env: Mapping[str, str], cwd: pathlib.Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = start(args, env=env, cwd=cwd, stdout=out.fileno(), stderr=err.fileno())
        with process:
            process.wait(120)
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(process.args, process.wait(), out.read(), err.read())


@functools.cache
def _start_parent() -> socket.socket:
    """Start the process that imports the command, and forks. It ends with this one."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.forking", str(theirs.fileno())]
    with theirs:
        parent = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], start_new_session=True)
    atexit.register(parent.wait)
    atexit.register(ours.close)
    return ours


def _serve(connection: socket.socket) -> dict[str, Any]:
    """Fork a process for each request, and return the request in that process. Exit when no more can come."""
    waiting: set[int] = set()
    while True:
        data, fds, *_ = socket.recv_fds(connection, _LENGTH, 4)
        while data and not data.endswith(b"\n"):
            data += connection.recv(_LENGTH)
        waiting = {pid for pid in waiting if os.waitpid(pid, os.WNOHANG)[0] == 0}
        if not data:
            sys.exit()
        if (pid := os.fork()) == 0:
            connection.close()
            _fork_and_wait(fds)
            return dict(json.loads(data))
        waiting.add(pid)
        for fd in fds:
            os.close(fd)


def _fork_and_wait(fds: Sequence[int]) -> None:
    """Return in another process, and tell its id and its exit code."""
    if pid := os.fork():
        try:
            for fd in (0, 1, 2, *fds[:3]):  # whoever reads the output sees its end
                os.close(fd)
            os.write(fds[3], b"%-*d" % (_NUMBER, pid))
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.write(fds[3], b"%-*d" % (_NUMBER, code))
        finally:
            os._exit(0)
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)


def _prepare(request: Mapping[str, Any]) -> None:
    """Let the process be as if it had been started with ``python -m trioperator``."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    random.seed()
    sys.argv[1:] = request["args"]
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[0:1] = [request["cwd"], *paths]


if __name__ == "__main__":
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        _prepare(_serve(listener))
    runpy.run_module("trioperator", run_name="__main__", alter_sys=True)
