"""Tests for :mod:`trioperator.cli.reload`: an operator that follows its files, with errors in them."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import pathlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeAlias

import httpx
import prometheus_client
import pytest
import trio

import trioperator
from tests.cli.processes import read_rest, read_until
from trioperator.apiserver import Cluster
from trioperator.cli.controls import CLIControls
from trioperator.cli.reload import Reloader
from trioperator.cli.run_options import RunOptions
from trioperator.testing import eventually

Start: TypeAlias = Callable[..., subprocess.Popen[str]]

APP = """\
import trioperator
import helper_of_app

@trioperator.on.startup()
async def configure(settings, memo):
    memo.send(f"VERSION 1 {helper_of_app.name} {settings.process.grace:g}")
    settings.process.grace += 1
"""


class Development:
    """A running reloader; the handlers in its files send strings by ``memo.send``."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.stop = trio.Event()
        self.cluster = Cluster()
        self.transport: httpx.AsyncBaseTransport = self.cluster.transport()
        self.connection: trioperator.ConnectionInfo | None = trioperator.ConnectionInfo(server="http://embedded")
        self._waits = 0
        self.send, self._received = trio.open_memory_channel[str](100)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        memo = trioperator.Memo(send=self.send.send_nowait)
        operate = functools.partial(trioperator.operator, memo=memo, handle_signals=False)
        controls = CLIControls(stop_flag=self.stop)
        reloader = Reloader(operate, RunOptions(files=["app.py"]), controls)
        options: dict[str, Any] = {"transport": self.transport, "connection": self.connection}
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(functools.partial(reloader.run, **options))
                yield
                self.stop.set()

    async def wait_until_it_waits(self, caplog: pytest.LogCaptureFixture) -> None:
        """Wait until the log says that a change is waited for, once more than before."""
        self._waits += 1
        handler = _Waits()
        logger = logging.getLogger("trioperator.cli.reload")
        logger.addHandler(handler)
        try:
            if sum("Waiting for a change" in text for text in caplog.messages) < self._waits:
                await handler.event.wait()
        finally:
            logger.removeHandler(handler)

    async def wait_for_log(self, text: str, caplog: pytest.LogCaptureFixture) -> None:
        """Wait until the log has a message with the text."""
        await eventually(lambda: any(text in message for message in caplog.messages))

    async def receive(self) -> str:
        return await self._received.receive()

    def write(self, app: str = APP, helper: str = "name = 'first'\n") -> None:
        """Write those files that differ."""
        for name, text in {"helper_of_app.py": helper, "app.py": app}.items():
            path = self.root / name
            if not path.exists() or path.read_text() != text:
                (self.root / "new").write_text(text)
                (self.root / "new").replace(path)  # in one step, as otherwise an empty file may be loaded


@pytest.fixture
def development(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, restored_modules: None
) -> Iterator[Development]:
    monkeypatch.chdir(tmp_path)
    registry = trioperator.get_default_registry()
    development = Development(tmp_path)
    development.write()
    yield development
    trioperator.set_default_registry(registry)


async def test_a_changed_file_starts_the_operator_anew_with_new_handlers_and_settings(development: Development) -> None:
    async with development.running():
        assert await development.receive() == "VERSION 1 first 25"
        development.write(APP.replace("VERSION 1", "VERSION 2"))
        assert await development.receive() == "VERSION 2 first 25"
        assert len(list(trioperator.get_default_registry())) == 1
        development.write(APP.replace("VERSION 1", "VERSION 2"), "name = 'other'\n")
        assert await development.receive() == "VERSION 2 other 25"


async def test_operators_stay_in_their_cluster_when_another_context_becomes_the_current_one(
    development: Development, monkeypatch: pytest.MonkeyPatch
) -> None:
    def select(name: str) -> None:
        clusters = [{"name": each, "cluster": {"server": f"http://{each}"}} for each in ("mine", "production")]
        contexts = [{"name": each, "context": {"cluster": each}} for each in ("mine", "production")]
        config = {"current-context": name, "contexts": contexts, "clusters": clusters}
        (development.root / "config").write_text(json.dumps(config))

    async def respond(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        return await transport.handle_async_request(request)

    hosts, transport = list[str](), development.transport
    development.connection, development.transport = None, httpx.MockTransport(respond)
    monkeypatch.setenv("KUBECONFIG", str(development.root / "config"))
    select("mine")
    handler = '\n@trioperator.on.event("pods")\ndef see(**_): ...\n'
    development.write(APP + handler)
    async with development.running():
        assert await development.receive() == "VERSION 1 first 25"
        await eventually(lambda: len(hosts) > 5)
        select("production")  # as by kubectl config use-context
        development.write(APP.replace("VERSION 1", "VERSION 2") + handler)
        assert await development.receive() == "VERSION 2 first 25"
        hosts.clear()
        await eventually(lambda: len(hosts) > 5)
    assert {*hosts} == {"mine"}


async def test_a_file_that_fails_is_reported_and_its_correction_waited_for(
    development: Development, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    development.write("def (\n")
    async with development.running():
        await development.wait_until_it_waits(caplog)
        development.write("1 / 0\n")
        await development.wait_until_it_waits(caplog)
        development.write()
        assert await development.receive() == "VERSION 1 first 25"
    failures = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [text.partition("Error")[0] for text in failures] == [
        "Cannot load the file app.py: Syntax",
        "Cannot load the file app.py: ZeroDivision",
    ]


async def test_a_module_that_could_not_be_imported_is_watched_too(
    development: Development, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    development.write(helper="1 / 0\n")
    async with development.running():
        await development.wait_until_it_waits(caplog)
        development.write()
        assert await development.receive() == "VERSION 1 first 25"


async def test_an_operator_that_fails_is_reported_and_the_next_change_waited_for(
    development: Development, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    development.write(APP.replace("memo.send(", "raise trioperator.PermanentError("))
    async with development.running():
        await development.wait_until_it_waits(caplog)
        assert "The startup handlers have failed: configure: VERSION 1" in caplog.text
        development.write()
        assert await development.receive() == "VERSION 1 first 25"


async def test_the_operator_goes_on_until_a_changed_file_can_be_loaded(
    development: Development, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handler = """
@trioperator.on.create("configmaps")
async def create_fn(memo, name):
    import helper_of_app
    memo.send(f"{name} {helper_of_app.name}")
"""
    development.write(APP + handler)
    async with development.running():
        assert await development.receive() == "VERSION 1 first 25"
        development.write(APP + handler + "1 / 0\n", "name = 'other'\n")
        await development.wait_for_log("app.py has changed: the operator goes on as it was.", caplog)
        await development.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "it"}})
        assert await development.receive() == "it first"
        development.write(APP.replace("VERSION 1", "VERSION 2"), "name = 'other'\n")
        assert await development.receive() == "VERSION 2 other 25"


METRICS = """
from prometheus_client import Counter

made = Counter("reload_made", "Widgets made.", ["how"])
"""


async def test_metrics_of_the_project_are_registered_anew(
    development: Development, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    later = "    import prometheus_client\n    prometheus_client.Gauge('reload_later', 'Later.')\n"
    send = "    memo.send(str(prometheus_client.REGISTRY.get_sample_value('reload_kept')))\n"
    (development.root / "venv" / "site-packages").mkdir(parents=True)
    library = development.root / "venv" / "site-packages" / "library_of_app.py"
    library.write_text("import prometheus_client\n\nkept = prometheus_client.Gauge('reload_kept', 'Kept.')\n")
    path = f"import sys\nsys.path.append({str(library.parent)!r})\nimport library_of_app\n"
    app = path + METRICS + APP + later + send
    development.write(app)
    try:
        async with development.running():
            for version in ("1", "2", "3"):
                assert await development.receive() == f"VERSION {version} first 25"
                assert await development.receive() == "0.0"
                development.write(app.replace("VERSION 1", f"VERSION {int(version) + 1}"))
                if version == "2":  # the metrics of a file that fails are forgotten, too
                    development.write(app + "1 / 0\n")
                    await development.wait_for_log("the operator goes on as it was", caplog)
                    assert prometheus_client.REGISTRY.get_sample_value("reload_later") == 0
                    development.write(app.replace("VERSION 1", "VERSION 3"))
    finally:
        for name in ("reload_made", "reload_later", "reload_kept"):
            collector = prometheus_client.REGISTRY._names_to_collectors.get(name)
            if collector is not None:
                prometheus_client.REGISTRY.unregister(collector)


async def test_the_stop_flag_ends_it_also_while_a_change_is_waited_for(
    development: Development, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    development.write("1 / 0\n")
    async with development.running():
        await development.wait_until_it_waits(caplog)


async def test_handlers_that_do_not_end_in_time_are_cancelled(
    development: Development, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioperator.cli.reload._PATIENCE", 0.01)
    handler = """
import trio

@trioperator.on.create("configmaps")
async def create_fn(memo):
    memo.send("created")
    await trio.sleep_forever()
"""
    development.write(APP.replace("+= 1", "= 10_000") + handler)
    await development.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "it"}})
    async with development.running():
        assert await development.receive() == "VERSION 1 first 25"
        assert await development.receive() == "created"
        development.write(APP.replace("VERSION 1", "VERSION 2"))
        assert await development.receive() == "VERSION 2 first 25"


async def test_what_it_changes_is_restored(development: Development) -> None:
    before = sys.dont_write_bytecode
    async with development.running():
        await development.receive()
    assert sys.dont_write_bytecode is before
    assert not (development.root / "__pycache__").exists()


class _Waits(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.event = trio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "Waiting for a change" in record.getMessage():
            self.event.set()


def test_the_command_keeps_the_embedded_cluster_and_ends_on_a_signal(start: Start, tmp_path: pathlib.Path) -> None:
    text = 'import trioperator\n\n@trioperator.on.startup()\ndef fn(logger): logger.info("VERSION 1")\n'
    (tmp_path / "main.py").write_text(text)
    process = start("run", "--embedded", "--reload", "main.py")
    lines = read_until(process, "The operator is ready")
    (tmp_path / "main.py").write_text(text.replace("VERSION 1", "VERSION 2"))
    lines += read_until(process, "VERSION 2")
    lines += read_until(process, "The operator is ready")
    (tmp_path / "main.py").write_text("1 / 0\n")
    lines += read_until(process, "main.py has changed: the operator goes on as it was.")
    process.send_signal(signal.SIGINT)
    lines += read_rest(process)
    assert process.returncode == 0
    assert lines.count("The embedded API server is at") == 1
    assert lines.count("ZeroDivisionError") >= 1


def test_a_signal_that_comes_while_an_operator_stops_for_the_next_one_ends_the_command(
    start: Start, tmp_path: pathlib.Path
) -> None:
    text = """\
import time
import trioperator

@trioperator.on.cleanup()
def fn(logger):
    logger.info("CLEANING UP")
    time.sleep(1)
"""
    (tmp_path / "main.py").write_text(text)
    process = start("run", "--embedded", "--reload", "main.py")
    lines = read_until(process, "The operator is ready")
    (tmp_path / "main.py").write_text(f"{text}\n")
    lines += read_until(process, "CLEANING UP")
    process.send_signal(signal.SIGTERM)
    lines += read_rest(process)
    assert process.returncode == 0
    assert lines.count("The operator is ready") == 1
