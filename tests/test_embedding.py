"""The page about embedding: its recipes run, on a cluster that they find as any program would."""

from __future__ import annotations

import json
import logging
import pathlib
import re
import signal
import socket
import types
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio

import trioperator
from trioperator.apiserver import Cluster
from trioperator.errors import ActivityError
from trioperator.handling.registry import get_default_registry, set_default_registry
from trioperator.testing import LogLine, Records, eventually
from trioperator.testing.recording import record_logs

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "embedding.md").read_text()
TIMEOUT = 90.0


def recipe(title: str) -> Any:
    """Return the code below a heading as a module that is not executed yet, in which further names can be set."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    code, *_ = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    module = types.ModuleType("recipe")
    vars(module)["code"] = compile(code, "embedding.md", "exec")
    return module


@pytest.fixture
async def logs(
    cluster: Cluster, cluster_url: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Records[LogLine]]:
    """Let programs find the cluster, with fresh default handlers, and return what they log."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(cluster.kubeconfig(str(cluster_url))))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    await cluster.apply(ROOT / "examples" / "crd.yaml")
    before = get_default_registry()
    set_default_registry(trioperator.OperatorRegistry())
    logs: Records[LogLine] = Records()
    with record_logs(logs):
        yield logs
    set_default_registry(before)


def declare() -> None:
    @trioperator.on.create("kopfexamples")
    async def created(name: str, logger: trioperator.Logger, **_: object) -> None:
        logger.info("Created %s.", name)


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Respond to each request in the same way."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def test_several_operators_run_in_one_program_and_stop_together(
    cluster: Cluster, logs: Records[LogLine], nursery: trio.Nursery
) -> None:
    module = recipe("Several operators")
    exec(module.code, vars(module))
    ended = trio.Event()

    async def run() -> None:
        await module.main()
        ended.set()

    def find(text: str) -> set[str]:
        return {line.message for line in tuple(logs) if line.message.startswith(text)}

    for name in ("blue", "green"):
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    nursery.start_soon(run)
    await eventually(lambda: len(find("The operator is ready.")) == 2, timeout=TIMEOUT)
    for name in ("blue", "green"):
        meta = {"name": "kopf-example-1", "namespace": name}
        await cluster.create({"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": meta})
    await eventually(lambda: len(find("Created kopf-example-1.")) == 2, timeout=TIMEOUT)
    assert find("Created") == {f"Created kopf-example-1. operator={name}" for name in ("blue", "green")}
    signal.raise_signal(signal.SIGTERM)
    with trio.fail_after(TIMEOUT):
        await ended.wait()


async def test_a_web_server_ends_with_its_operator(
    cluster: Cluster, logs: Records[LogLine], nursery: trio.Nursery
) -> None:
    declare()
    module = recipe("Next to a web server")
    module.app, ended = app, trio.Event()
    exec(module.code, vars(module))
    module.config.bind = ["127.0.0.1:0"]

    async def run() -> None:
        await module.main()
        ended.set()

    nursery.start_soon(run)
    await eventually(lambda: logs.select(message="The operator is ready."), timeout=TIMEOUT)
    signal.raise_signal(signal.SIGTERM)
    with trio.fail_after(TIMEOUT):
        await ended.wait()
    assert logs.select(message="The operator has stopped.")


@pytest.mark.parametrize("library", ["fastapi", "quart_trio"])
async def test_web_frameworks_show_what_handlers_know(
    cluster: Cluster, logs: Records[LogLine], nursery: trio.Nursery, library: str
) -> None:
    pytest.importorskip(library)
    module = recipe("Next to a web server")
    section = PAGE.split("\n## Next to a web server\n")[1].split("\n## ")[0]
    _, *blocks = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    vars(module).update(names=set(), trioperator=trioperator)
    for block in blocks:
        if library in block or "@trioperator" in block:
            exec(compile(block, "embedding.md", "exec"), vars(module))
    exec(module.code, vars(module))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        host, port = listener.getsockname()
        module.config.bind = [f"fd://{listener.detach()}"]
    ended = trio.Event()

    async def run() -> None:
        await module.main()
        ended.set()

    await cluster.apply(ROOT / "examples" / "obj.yaml")
    nursery.start_soon(run)
    await eventually(lambda: module.names, timeout=TIMEOUT)
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=TIMEOUT) as client:
        assert (await client.get("/names")).json() == ["kopf-example-1"]
    signal.raise_signal(signal.SIGTERM)
    with trio.fail_after(TIMEOUT):
        await ended.wait()


async def test_a_web_server_is_cancelled_if_its_operator_cannot_start(cluster: Cluster, logs: Records[LogLine]) -> None:
    @trioperator.on.startup()
    async def fail(**_: object) -> None:
        raise trioperator.PermanentError("no database")

    module = recipe("Next to a web server")
    module.app = app
    exec(module.code, vars(module))
    module.config.bind = ["127.0.0.1:0"]
    with trio.fail_after(TIMEOUT), pytest.RaisesGroup(pytest.RaisesExc(ActivityError, match="no database")):
        await module.main()


async def test_an_operator_in_a_thread_runs_beside_a_synchronous_program(
    cluster: Cluster, logs: Records[LogLine]
) -> None:
    declare()
    module = recipe("In a thread")
    token = trio.lowlevel.current_trio_token()

    async def create_and_wait() -> None:
        await cluster.apply(ROOT / "examples" / "obj.yaml")
        await cluster.wait_for("kex", "kopf-example-1", is_handled, timeout=TIMEOUT)

    def is_handled(found: dict[str, Any]) -> bool:
        return "last-handled-configuration" in str(found["metadata"]["annotations"])

    module.run_main_program = lambda: trio.from_thread.run(create_and_wait, trio_token=token)
    await trio.to_thread.run_sync(exec, module.code, vars(module))
    assert not module.thread.is_alive()
    assert logs.select(message="Created kopf-example-1.", name="kopf-example-1")
    assert logs.select(message="The operator has stopped.")


async def test_an_operator_in_a_thread_that_cannot_start_lets_the_program_go_on(
    logs: Records[LogLine], monkeypatch: pytest.MonkeyPatch
) -> None:
    @trioperator.on.startup()
    async def fail(**_: object) -> None:
        raise trioperator.PermanentError("no database")

    errors: list[BaseException | None] = []
    monkeypatch.setattr("threading.excepthook", lambda args: errors.append(args.exc_value))
    module = recipe("In a thread")
    module.run_main_program = lambda: None
    await trio.to_thread.run_sync(exec, module.code, vars(module))
    assert [type(error) for error in errors] == [ActivityError]


def test_programs_log_as_the_command_does_after_configure(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        trioperator.configure()
        trioperator.logs.get_logger("trioperator.test").info("seen")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert re.search(r"^\[.*\] trioperator\.test +\[INFO +\] seen$", capsys.readouterr().err, re.MULTILINE)
