"""Operators as processes: real signals, real sockets, and an API server that outlives them."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import httpx
import pytest

from tests import forking
from tests.program import Program

__all__ = ["Api", "Program", "Start", "environment", "kubeconfig", "starting"]

Start: TypeAlias = Callable[..., Program]

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def environment(home: pathlib.Path, **more: str) -> dict[str, str]:
    """Return environment variables without those that configure a cluster or the command."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TRIOPERATOR_", "KUBE"))}
    paths = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "HOME": str(home), "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "120", **more}


def kubeconfig(path: pathlib.Path, url: str, **user: Any) -> pathlib.Path:
    """Write a kubeconfig."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path.write_text(json.dumps(content))
    return path


@contextlib.contextmanager
def starting(home: pathlib.Path, *args: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the server of this directory as a process, and yield it with its URL."""
    command = [sys.executable, "-m", "tests.processes.server", *args]
    with subprocess.Popen(command, env=environment(home), cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


class Api:
    """Client of an API server in another process, in a namespace of the test."""

    def __init__(self, client: httpx.Client, kubeconfig: pathlib.Path) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = f"p-{uuid.uuid4().hex[:8]}"
        self._client = client
        self._send("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def elsewhere(self) -> Api:
        """Return a client in another namespace of the same server."""
        return Api(self._client, self.kubeconfig)

    def create(self, name: str, **spec: Any) -> None:
        body = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": name}, "spec": spec}
        self._send("POST", self._path(), body)

    def get(self, name: str) -> dict[str, Any]:
        return self._send("GET", self._path(name))

    def record(self, name: str, handler: str) -> dict[str, Any] | None:
        """Return the stored progress of a handler."""
        text = self.get(name)["metadata"].get("annotations", {}).get(f"trioperator.dev/{handler}")
        record: dict[str, Any] | None = None if text is None else json.loads(text)
        return record

    def _path(self, *name: str) -> str:
        return "/".join(["/apis/kopf.dev/v1/namespaces", self.namespace, "kopfexamples", *name])

    def _send(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        response = self._client.request(method, path, json=body)
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of one API server for all tests."""
    with starting(tmp_path_factory.mktemp("server")) as (_, url):
        yield url


@pytest.fixture
def api(server_url: str, tmp_path: pathlib.Path) -> Iterator[Api]:
    """Yield a client of the API server."""
    with httpx.Client(base_url=server_url, timeout=60) as client:
        yield Api(client, kubeconfig(tmp_path / "kubeconfig", server_url, token="operator-token"))


@pytest.fixture
def start_process(tmp_path: pathlib.Path) -> Iterator[Callable[..., Program]]:
    """Yield a function that starts Python with its output in a file; afterwards the processes are killed.

    The command is started without importing it again.
    """
    programs: list[Program] = []

    def start(*args: str | pathlib.Path, **variables: str) -> Program:
        log, env = tmp_path / f"log{len(programs)}.txt", environment(tmp_path, **variables)
        process: subprocess.Popen[bytes] | forking.Forked
        with log.open("wb") as out:
            if args[:2] == ("-m", "trioperator"):
                process = forking.start(args[2:], env=env, cwd=tmp_path, stdout=out.fileno(), stderr=out.fileno())
            else:
                command = [sys.executable, *args]
                process = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=out, stderr=subprocess.STDOUT)
        programs.append(Program(process, log))
        return programs[-1]

    try:
        yield start
    finally:
        for program in programs:
            if program.process.poll() is None:
                program.stop(signal.SIGKILL)


@pytest.fixture
def start(start_process: Callable[..., Program], api: Api, tmp_path: pathlib.Path) -> Start:
    """Return a function that starts an operator with this source in the namespace of the test."""

    def start(source: str, *options: str, ready: bool = True) -> Program:
        file = tmp_path / "main.py"
        file.write_text(source)
        command = ("-m", "trioperator", "run", "-n", api.namespace, *options, file)
        program = start_process(*command, KUBECONFIG=str(api.kubeconfig))
        if ready:
            program.wait_for("The operator is ready.")
        return program

    return start
