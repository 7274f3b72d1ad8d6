"""The page about embedding: its recipes run, on a cluster that they find as any program would."""

from __future__ import annotations

import contextlib
import functools
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
import hypercorn.config
import hypercorn.trio
import pytest
import trio

import trioperator
from tests.webhooks.admission import make_review
from trioperator._handling.declaring.registry import get_default_registry, set_default_registry
from trioperator.apiserver import Cluster
from trioperator.errors import ActivityError
from trioperator.testing import LogLine, RecordLog, eventually
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
) -> AsyncIterator[RecordLog[LogLine]]:
    """Let programs find the cluster, with fresh default handlers, and return what they log."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(cluster.kubeconfig(str(cluster_url))))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    await cluster.apply(ROOT / "examples" / "crd.yaml")
    before = get_default_registry()
    set_default_registry(trioperator.OperatorRegistry())
    logs: RecordLog[LogLine] = RecordLog()
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
    cluster: Cluster, logs: RecordLog[LogLine], nursery: trio.Nursery
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
    cluster: Cluster, logs: RecordLog[LogLine], nursery: trio.Nursery
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
    cluster: Cluster, logs: RecordLog[LogLine], nursery: trio.Nursery, library: str
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


async def test_a_web_server_is_cancelled_if_its_operator_cannot_start(
    cluster: Cluster, logs: RecordLog[LogLine]
) -> None:
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
    cluster: Cluster, logs: RecordLog[LogLine]
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
    logs: RecordLog[LogLine], monkeypatch: pytest.MonkeyPatch
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
        trioperator._logs.get_logger("trioperator.test").info("seen")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert re.search(r"^\[.*\] trioperator\.test +\[INFO +\] seen$", capsys.readouterr().err, re.MULTILINE)


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Serve an application by a stock Hypercorn in the block, as `hypercorn -k trio` does."""
    config, stop = hypercorn.config.Config(), trio.Event()
    config.graceful_timeout = 1
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        host, port = listener.getsockname()
        config.bind = [f"fd://{listener.detach()}"]
    async with trio.open_nursery() as nursery:
        await nursery.start(functools.partial(hypercorn.trio.serve, app, config, shutdown_trigger=stop.wait))
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=TIMEOUT) as client:
            yield client
        stop.set()


async def check_stream(host: str, port: int) -> None:
    """Check that a page is a stream, too. Without a library, as theirs cannot be left in the middle."""
    headers = f"Host: {host}:{port}\r\nAuthorization: Bearer secret\r\nAccept: text/event-stream\r\n"
    received = b""
    async with await trio.open_tcp_stream(host, port) as stream:
        await stream.send_all(f"GET /debug/kinds HTTP/1.1\r\n{headers}\r\n".encode())
        with trio.fail_after(TIMEOUT):
            while b"data: " not in received or b"kopfexamples.kopf.dev" not in received:
                received += await stream.receive_some()


async def check_pages(client: httpx.AsyncClient) -> None:
    """Check that the live view is at /debug, with its stream, and the webhooks are at /webhooks."""
    bearer = {"Authorization": "Bearer secret"}
    login = await client.get("/debug/kinds", headers={"Accept": "text/html"})
    assert login.headers["location"].startswith("/debug/login")
    await check_stream(client.base_url.host, client.base_url.port or 0)
    page = await client.get("/debug/handlers", headers=bearer)
    assert (page.status_code, "created" in page.text, 'href="/debug/errors"' in page.text) == (200, True, True)
    review = make_review(new={"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "x"}})
    review["request"]["resource"] = {"group": "kopf.dev", "version": "v1", "resource": "kopfexamples"}
    response = await client.post("/webhooks/check", json=review)
    assert (response.status_code, response.json()["response"]["allowed"]) == (200, False)
    assert (await client.get("/webhooks/check")).status_code == 405


def embed() -> Any:
    """Return the module of the recipe with FastAPI, with handlers."""
    declare()

    @trioperator.on.validate("kopfexamples", id="check")
    async def check(**_: object) -> None:
        raise trioperator.AdmissionError("no")

    module = recipe("The live view and webhooks in your web application")
    exec(module.code, vars(module))
    return module


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVE_VIEW_TOKEN", "secret")


@pytest.mark.usefixtures("token")
async def test_fastapi_serves_the_live_view_and_webhooks_of_an_operator(logs: RecordLog[LogLine]) -> None:
    pytest.importorskip("fastapi")
    module = embed()
    async with serving(module.app) as client:
        await eventually(lambda: logs.select(message="The operator is ready."), timeout=TIMEOUT)
        await check_pages(client)
    assert logs.select(message="The operator has stopped.")


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize("kind", ["starlette", "quart_trio"])
async def test_other_applications_mount_the_live_view_and_webhooks(
    logs: RecordLog[LogLine], nursery: trio.Nursery, kind: str
) -> None:
    pytest.importorskip("fastapi")
    module = embed()
    if kind == "starlette":
        routing = pytest.importorskip("starlette.routing")
        applications = pytest.importorskip("starlette.applications")
        mounts = [routing.Mount("/debug", module.view), routing.Mount("/webhooks", module.webhooks)]
        app = applications.Starlette(routes=mounts)
    else:
        pytest.importorskip("quart_trio")
        section = PAGE.split("\n## The live view and webhooks in your web application\n")[1].split("\n## ")[0]
        block = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)[1]
        exec(compile(block, "embedding.md", "exec"), vars(module))
        app = module.app

        @module.pages.get("/own")  # type: ignore[untyped-decorator]  # of any framework
        async def own() -> str:
            return "my own page"

    run = functools.partial(trioperator.operator, live_view_app=module.view, handle_signals=False)
    nursery.start_soon(run)
    await eventually(lambda: logs.select(message="The operator is ready."), timeout=TIMEOUT)
    async with serving(app) as client:
        await check_pages(client)
        if kind == "quart_trio":
            assert (await client.get("/own")).text == "my own page"


async def test_a_stock_hypercorn_serves_the_live_view_alone(logs: RecordLog[LogLine], nursery: trio.Nursery) -> None:
    declare()
    view = trioperator.live_view_app()
    async with serving(view) as client:
        assert (await client.get("/kinds")).status_code == 503
        nursery.start_soon(functools.partial(trioperator.operator, live_view_app=view, handle_signals=False))
        await eventually(lambda: logs.select(message="The operator is ready."), timeout=TIMEOUT)
        assert (await client.get("/kinds")).status_code == 200
        assert (await client.get("/", headers={"Host": "evil.example"})).status_code == 403
