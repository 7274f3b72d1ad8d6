"""Signals: how an operator stops, and what is stored if it cannot."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import httpx
import pytest

from tests.processes.conftest import Api, Start, kubeconfig, starting

SLOW = """
import trio
import trioperator as kopf

@kopf.on.create('kopfexamples')
def quick(logger, **_):
    logger.info("quick has ended")

@kopf.on.create('kopfexamples')
async def slow(logger, **_):
    logger.info("slow has begun")
    await trio.sleep(1)
    logger.info("slow has ended")
    return "done"

@kopf.on.create('kopfexamples')
async def late(logger, **_):
    logger.info("late is called")

@kopf.on.cleanup()
async def clean(logger, **_):
    logger.info("all is cleaned")
"""

ENDLESS = """
import concurrent.futures
import contextlib
import time
import trio
import trioperator as kopf

pool = concurrent.futures.ThreadPoolExecutor()

@kopf.on.startup()
def configure(settings, **_):
    settings.process.grace = GRACE

@kopf.on.create('kopfexamples')
def quick(**_):
    return "done"

@kopf.on.create('kopfexamples', value='sync', field='spec.how')
def endless_sync(logger, **_):
    logger.info("endless has begun")
    while True:
        time.sleep(1)

@kopf.on.create('kopfexamples', value='async', field='spec.how')
async def endless_async(logger, **_):
    logger.info("endless has begun")
    await trio.sleep_forever()

@kopf.on.create('kopfexamples', value='swallow', field='spec.how')
async def endless_swallow(logger, **_):
    logger.info("endless has begun")
    while True:
        with contextlib.suppress(BaseException):
            await trio.sleep_forever()

@kopf.on.create('kopfexamples', value='block', field='spec.how')
async def endless_block(logger, **_):
    logger.info("endless has begun")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(3600)

@kopf.on.create('kopfexamples', value='pool', field='spec.how')
async def endless_pool(logger, **_):
    pool.submit(time.sleep, 3600)
    logger.info("endless has begun")
    await trio.sleep_forever()

@kopf.on.cleanup()
def clean(logger, **_):
    logger.info("all is cleaned")
"""

KILLED = """
import trioperator as kopf

@kopf.on.create('kopfexamples')
def done(logger, **_):
    logger.info("done is called")
    return "done"

@kopf.on.create('kopfexamples')
def waiting(retry, logger, **_):
    logger.info("waiting is called, retry=%s", retry)
    if retry < 3:
        raise kopf.TemporaryError("not yet", delay=1 if retry else 0.1)

@kopf.on.create('kopfexamples')
def failed(logger, **_):
    logger.info("failed is called")
    raise kopf.PermanentError("never")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_waits_for_a_running_handler_and_stores_its_result(
    api: Api, start: Start, number: signal.Signals
) -> None:
    operator = start(SLOW)
    api.create("one")
    operator.wait_for("slow has begun")
    assert operator.stop(number) == 0
    output = operator.output
    assert output.index(f"Signal {number.name} is received") < output.index("slow has ended")
    assert output.index("slow has ended") < output.index("all is cleaned")
    assert "late is called" not in output
    assert "Traceback" not in output
    assert output.splitlines()[-1].endswith("The operator has stopped.")
    body = api.get("one")
    assert body["status"] == {"slow": "done"}
    for handler in ("quick", "slow"):
        record = api.record("one", handler)
        assert record is not None
        assert record["success"] is True
    again = start(SLOW)
    again.wait_for("Creation is processed: 3 succeeded")
    assert again.stop() == 0
    assert "late is called" in again.output
    assert "slow has begun" not in again.output
    assert "quick has ended" not in again.output


@pytest.mark.parametrize("how", ["sync", "async"])
def test_an_endless_handler_does_not_delay_the_exit_beyond_the_grace(api: Api, start: Start, how: str) -> None:
    operator = start(ENDLESS.replace("GRACE", "1"))
    api.create("one", how=how)
    operator.wait_for("endless has begun")
    operator.process.send_signal(signal.SIGTERM)
    assert operator.process.wait(60) == 0
    assert "all is cleaned" in operator.output
    assert "Traceback" not in operator.output
    abandoned = (
        f"[{api.namespace}/one] Handler 'endless_sync/spec.how' is still running in a thread, which is abandoned."
    )
    assert (abandoned in operator.output) is (how == "sync")
    record = api.record("one", "quick")
    assert record is not None
    assert record["success"] is True


STOPPED_BY_ITSELF = """
import logging, pathlib, sys
import trio
import trioperator as kopf

logging.basicConfig(level=logging.INFO)
stop, release = trio.Event(), pathlib.Path("release")

@kopf.on.create('kopfexamples')
async def slow(logger, **_):
    stop.set()
    while not release.exists():
        await trio.sleep(0.01)
    logger.info("slow has ended in order")

kopf.run(namespaces=[sys.argv[1]], stop_flag=stop)
"""


def test_a_signal_after_the_stop_flag_lets_the_handler_end(
    api: Api, start_process: Start, tmp_path: pathlib.Path
) -> None:
    """Kubernetes sends one to each pod that ends, also to one whose program has stopped the operator before."""
    (tmp_path / "main.py").write_text(STOPPED_BY_ITSELF)
    operator = start_process("main.py", api.namespace, KUBECONFIG=str(api.kubeconfig))
    operator.wait_for("The operator is ready.")
    api.create("one")
    operator.wait_for("Waiting for Handler 'slow'")
    operator.process.send_signal(signal.SIGTERM)
    operator.wait_for("Signal SIGTERM is received: the operator is stopping already")
    assert re.search(r"is stopping already, within [0-9]+(\.[0-9])? seconds\.", operator.output)
    (tmp_path / "release").touch()
    assert operator.process.wait(60) == 0
    assert "slow has ended in order" in operator.output
    assert "at once" not in operator.output.partition("slow has ended")[2]
    assert "Traceback" not in operator.output


@pytest.mark.parametrize("how", ["sync", "async", "pool"])
def test_a_second_signal_cancels_everything(api: Api, start: Start, how: str) -> None:
    operator = start(ENDLESS.replace("GRACE", "3600"))
    api.create("one", how=how)
    operator.wait_for("endless has begun")
    operator.process.send_signal(signal.SIGTERM)
    operator.wait_for("the operator stops, within 3600 seconds. To end it at once, send a second signal (Ctrl-C).")
    waiting = f"Waiting for Handler 'endless_{how}/spec.how' of KopfExample {api.namespace}/one ("
    line = operator.wait_for(waiting).splitlines()[-1]
    assert re.search(
        r"\(cancelled in 21[0-9]{2} s\)\. ", line
    )  # before the 3600 s are over: what is cancelled may take time
    assert line.endswith("To end it at once, send a second signal (Ctrl-C).")
    operator.process.send_signal(signal.SIGINT)
    assert operator.process.wait(60) == 130
    assert "the operator ends at once" in operator.output
    assert "The operator has stopped." in operator.output
    assert "Traceback" not in operator.output


@pytest.mark.parametrize("how", ["swallow", "block"])
def test_a_second_signal_ends_the_process_whatever_handlers_swallow(api: Api, start: Start, how: str) -> None:
    operator = start(ENDLESS.replace("GRACE", "3600"))
    api.create("one", how=how)
    operator.wait_for("endless has begun")
    operator.process.send_signal(signal.SIGINT)
    time.sleep(0.5)  # or both would be one signal; nothing is logged where the event loop is blocked
    operator.process.send_signal(signal.SIGINT)
    assert operator.process.wait(60) == 130
    last = operator.output.splitlines()[-1]
    awaited = f"Handler 'endless_{how}/spec.how' of KopfExample {api.namespace}/one"
    assert last.endswith(f"The process ends at once, though these have not ended: {awaited}.")


def test_the_next_operator_continues_from_the_state_of_a_killed_one(api: Api, start: Start) -> None:
    first = start(KILLED)
    api.create("one")
    first.wait_for("waiting is called, retry=1")
    until(lambda: (api.record("one", "waiting") or {}).get("retries") == 2)
    assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    second = start(KILLED)
    second.wait_for("waiting is called, retry=2")
    until(lambda: (api.record("one", "waiting") or {}).get("retries") == 3)
    assert second.stop(signal.SIGKILL) == -signal.SIGKILL
    third = start(KILLED)
    third.wait_for("Creation is processed: 2 succeeded; 1 failed.")
    assert "waiting is called, retry=3" in third.output
    assert third.stop() == 0
    for later in (second, third):
        assert "done is called" not in later.output
        assert "failed is called" not in later.output
    body = api.get("one")
    assert body["status"] == {"done": "done"}
    assert not [key for key in body["metadata"]["annotations"] if key.endswith(("/done", "/waiting", "/failed"))]


def test_a_server_that_hangs_does_not_delay_the_exit(tmp_path: pathlib.Path, start_process: Start) -> None:
    (tmp_path / "main.py").write_text(ENDLESS.replace("GRACE", "1"))
    with starting(tmp_path) as (process, url), httpx.Client(base_url=url, timeout=60) as client:
        api = Api(client, kubeconfig(tmp_path / "kubeconfig", url))
        operator = start_process("-m", "trioperator", "run", "-A", "main.py", KUBECONFIG=str(api.kubeconfig))
        operator.wait_for("The operator is ready.")
        api.create("one", how="async")
        operator.wait_for("endless has begun")
        process.send_signal(signal.SIGSTOP)
        operator.process.send_signal(signal.SIGTERM)
        operator.process.wait(60)
    assert "all is cleaned" in operator.output
    assert "Traceback" not in operator.output


def test_an_operator_that_cannot_start_yet_can_be_stopped(tmp_path: pathlib.Path, start_process: Start) -> None:
    (tmp_path / "starting.py").write_text(
        "import trio, trioperator as kopf\n"
        "@kopf.on.startup()\n"
        "async def begin(logger, **_):\n"
        "    logger.info('it begins')\n"
        "    await trio.sleep_forever()\n"
    )
    (tmp_path / "connecting.py").write_text(
        "import trioperator as kopf\n"
        "@kopf.on.startup()\n"
        "def begin(settings, **_):\n"
        "    settings.networking.error_backoffs = [3600]\n"
        "@kopf.on.create('kopfexamples')\n"
        "def create(**_): ...\n"
    )
    (tmp_path / "importing.py").write_text("import sys, time\nprint('it is imported', flush=True)\ntime.sleep(3600)\n")
    config = kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    expected = {
        "starting": ("it begins", 0),
        "connecting": (" in 3600 s: ", 0),
        "importing": ("imported", 130),
    }
    operators = {
        name: start_process("-m", "trioperator", "run", "-A", f"{name}.py", KUBECONFIG=str(config)) for name in expected
    }
    for name, (text, code) in expected.items():
        operators[name].wait_for(text)
        assert operators[name].stop(signal.SIGINT) == code, operators[name].output
        assert "Traceback" not in operators[name].output


INTERRUPTED_AT = """
import os, signal, sys
from trioperator.cli import main

def interrupt(frame, event, _):
    if event == "call" and frame.f_code.co_name == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGINT)

sys.setprofile(interrupt)
main(["pause", "kopfexamples.kopf.dev/w"])
"""


@pytest.mark.parametrize(("place", "is_running"), [("_return_memory", False), ("end_process_after", True)])
def test_a_command_that_is_interrupted_before_it_runs_or_twice_has_no_traceback(
    tmp_path: pathlib.Path, start_process: Start, place: str, is_running: bool
) -> None:
    (tmp_path / "main.py").write_text(INTERRUPTED_AT)
    config = kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    command = start_process("main.py", place, KUBECONFIG=str(config))
    if is_running:
        command.wait_for("retrying")
        command.process.send_signal(signal.SIGINT)
    assert command.process.wait(60) == 130, command.output
    assert "Traceback" not in command.output


def until(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not check():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.02)


def test_a_signal_ends_the_first_process_of_a_container_while_it_imports_its_files(tmp_path: pathlib.Path) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("there are no namespaces of processes")
    (tmp_path / "app.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(600)\n")
    command = [*unshare, sys.executable, "-m", "trioperator", "run", "app.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "importing\n"
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            os.kill(int(children), signal.SIGTERM)
            assert process.wait(10) == 128 + signal.SIGTERM
        finally:
            process.kill()
