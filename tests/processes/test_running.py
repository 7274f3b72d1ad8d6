"""Ways to run an operator: with options or variables of the command, in a script, in a nursery, in a thread."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import httpx
import pytest

import trioperator
from tests.http.attacks import ATTACKS, CONNECT_H2
from tests.processes.conftest import EXAMPLES, Api, Program, Start, environment

SIMPLE = """
import trioperator as kopf

@kopf.on.create('kopfexamples')
def create_fn(name, logger, **_):
    logger.info("made %s", name, color="red")
"""


@pytest.mark.parametrize(
    "command",
    [("-m", "trioperator"), ("-c", "import trioperator.cli; trioperator.cli.main()")],
    ids=["the package", "the entry point"],
)
def test_the_version_is_printed(tmp_path: pathlib.Path, command: tuple[str, ...]) -> None:
    result = subprocess.run(
        [sys.executable, *command, "--version"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert result.stdout == f"trioperator, version {trioperator.__version__}\n"


@pytest.mark.parametrize("command", [("-u", "-m", "trioperator"), ("script.py",)], ids=["the package", "the script"])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_that_handlers_start_import_the_files(
    method: str, command: tuple[str, ...], tmp_path: pathlib.Path, start_process: Start
) -> None:
    (tmp_path / "script.py").write_text(
        "from trioperator.cli import main\nif __name__ == '__main__':\n    main()\n"  # as installers write it
    )
    (tmp_path / "main.py").write_text(
        "import concurrent.futures, multiprocessing, trioperator\n"
        "class Problem(Exception): pass\n"
        "def work(number):\n"
        "    if number < 0: raise Problem(number)\n"
        "    return 2 * number\n"
        "@trioperator.on.startup(errors=trioperator.ErrorsMode.PERMANENT)\n"
        "def start(**_):\n"
        f"    context = multiprocessing.get_context({method!r})\n"
        "    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:\n"
        "        assert pool.submit(work, 4).result() == 8\n"
        "        assert type(pool.submit(work, -4).exception()) is Problem\n"
        "    raise SystemExit(7)\n"
    )
    program = start_process(*command, "run", "--embedded", "-A", "main.py")
    assert program.process.wait(60) == 7, program.log.read_text()


def test_variables_set_options(tmp_path: pathlib.Path, start_process: Start) -> None:
    (tmp_path / "handlers.py").write_text(SIMPLE)
    (tmp_path / "objects.yaml").write_text(
        "{apiVersion: v1, kind: Namespace, metadata: {name: other-1}}\n"
        "---\n{apiVersion: kopf.dev/v1, kind: KopfExample, metadata: {name: one, namespace: default}}\n"
        "---\n{apiVersion: kopf.dev/v1, kind: KopfExample, metadata: {name: two, namespace: other-1}}\n"
    )
    variables = {
        "MODULES": "handlers",
        "EMBEDDED": "1",
        "APPLY": f"{EXAMPLES / 'crd.yaml'} objects.yaml",
        "NAMESPACES": "no-such-namespace other-*",
        "LOG_FORMAT": "json",
        "LOG_REFKEY": "about",
        "VERBOSE": "true",
        "LIVENESS": "http://127.0.0.1:0/health",
    }
    operator = start_process(
        "-m", "trioperator", "run", **{f"TRIOPERATOR_RUN_{key}": value for key, value in variables.items()}
    )
    operator.wait_for("Handling cycle is finished")
    assert operator.stop() == 0
    entries = [json.loads(line) for line in operator.output.splitlines()]
    messages = [entry["message"] for entry in entries]
    assert any(re.fullmatch(r"Serving health status at http://127\.0\.0\.1:\d+/health", text) for text in messages)
    assert any(entry["severity"] == "debug" for entry in entries)
    assert [entry["about"]["namespace"] for entry in entries if entry["message"].startswith("made ")] == ["other-1"]


def test_json_logs_refer_to_the_objects(api: Api, start: Start) -> None:
    operator = start(SIMPLE, "--log-format=json", "--verbose")
    api.create("one")
    operator.wait_for("Handling cycle is finished")
    assert operator.stop() == 0
    entries = [json.loads(line) for line in operator.output.splitlines()]
    assert all({"message", "severity", "timestamp"} <= entry.keys() for entry in entries)
    [made] = [entry for entry in entries if entry["message"] == "made one"]
    uid = api.get("one")["metadata"]["uid"]
    assert made["object"] == {
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "name": "one",
        "uid": uid,
        "namespace": api.namespace,
    }
    assert made["color"] == "red"
    about = [entry["message"] for entry in entries if entry.get("object", {}).get("uid") == uid]
    assert any("Creation is processed" in text for text in about)


def test_the_health_endpoint_returns_the_results_of_probes(api: Api, start: Start) -> None:
    operator = start(
        SIMPLE
        + "\n@kopf.on.probe(id='answer')\ndef answer(**_):\n    return 42\n"
        + "\n@kopf.on.probe(id='now')\nasync def now(**_):\n    return {'time': 'now'}\n",
        "--liveness=http://127.0.0.1:0/healthz",
    )
    [url] = re.findall(r"Serving health status at (\S+)", operator.output)
    with httpx.Client(timeout=60) as client:
        response = client.get(url)
        assert (response.status_code, response.json()) == (200, {"answer": 42, "now": {"time": "now"}})
        assert client.get(url.replace("healthz", "other")).status_code == 404
    assert operator.stop() == 0
    assert "Traceback" not in operator.output


def test_the_health_endpoint_shows_what_is_not_handled(api: Api, start: Start) -> None:
    operator = start(
        SIMPLE + "\n@kopf.on.probe(id='answer')\ndef answer(**_):\n    return 42\n",
        "--liveness=http://127.0.0.1:0/healthz",
        "--namespace=no-such-namespace",
    )
    problem = "The namespace no-such-namespace does not exist."
    assert f"The operator is ready. It does not handle everything: {problem}" in operator.output
    [url] = re.findall(r"Serving health status at (\S+)", operator.output)
    with httpx.Client(timeout=60) as client:
        response = client.get(url)
        assert (response.status_code, response.json()) == (200, {"problems": [problem], "answer": 42})
    assert operator.stop() == 0


def test_an_operator_survives_attacks_on_its_health_endpoint(api: Api, start: Start) -> None:
    operator = start(
        SIMPLE
        + "\n@kopf.on.probe(errors=kopf.ErrorsMode.PERMANENT)\ndef db(**_):\n    raise OSError('the password')\n",
        "--liveness=http://127.0.0.1:0/healthz",
    )
    [url] = re.findall(r"Serving health status at (\S+)", operator.output)
    port = httpx.URL(url).port
    for attack in (CONNECT_H2, *ATTACKS.values()):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port or 0), timeout=60) as sock:
            sock.sendall(attack)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65_536):
                pass
    with httpx.Client(timeout=60) as client:
        response = client.get(url)
        assert (response.status_code, response.json()) == (
            500,
            {"error": "The probe handlers have failed: db: OSError"},
        )
    assert "db: OSError: the password" in operator.output
    api.create("one")
    operator.wait_for("made one")
    assert operator.stop() == 0


FOREIGN = """
import asyncio
import anyio
import trioperator as kopf

options = {'errors': kopf.ErrorsMode.PERMANENT}

@kopf.on.create('kopfexamples', **options)
async def sleeping(**_):
    await asyncio.sleep(1)

@kopf.on.create('kopfexamples', **options)
async def gathering(**_):
    async def nothing(): ...
    coroutine = nothing()
    try:
        await asyncio.create_task(coroutine)
    finally:
        coroutine.close()

@kopf.on.create('kopfexamples', **options)
async def waiting(**_):
    await asyncio.wait_for(asyncio.Event().wait(), 1)

@kopf.on.create('kopfexamples', **options)
async def threading(**_):
    await asyncio.to_thread(print)

@kopf.on.create('kopfexamples', **options)
def running(**_):
    async def sleep():
        await asyncio.sleep(0.01)
        return "run"
    return asyncio.run(sleep())

@kopf.on.create('kopfexamples', **options)
async def any_io(**_):
    results = []
    async def append(value):
        await anyio.sleep(0.01)
        results.append(value)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, await anyio.to_thread.run_sync(lambda: "anyio"))
    with anyio.move_on_after(0.01):
        await anyio.sleep_forever()
    return results
"""


def test_handlers_on_asyncio_get_advice_and_those_on_anyio_run(api: Api, start: Start) -> None:
    operator = start(FOREIGN, "--log-format=plain")
    api.create("one")
    operator.wait_for("Creation is processed: 2 succeeded; 4 failed.")
    assert operator.stop() == 0
    output = operator.output
    for handler, foreign, ours in (
        ("sleeping", "sleep", "trio.sleep()"),
        ("gathering", "create_task", "nursery"),
        ("waiting", "wait_for", "trio.fail_after()"),
        ("threading", "to_thread", "trio.to_thread.run_sync()"),
    ):
        [hint] = [line for line in output.splitlines() if f"Handler '{handler}' uses asyncio" in line]
        assert f"asyncio's {foreign}() cannot work here" in hint
        assert ours in hint
    tracebacks = output.split("Traceback (most recent call last):\n")[1:]
    assert len(tracebacks) == 4
    assert all('main.py", line' in text.splitlines()[0] for text in tracebacks)
    assert api.get("one")["status"] == {"running": "run", "any_io": ["anyio"]}


SCRIPT = """
import functools, logging, threading, sys
import trio
import trioperator as kopf

logging.basicConfig(level=logging.INFO)

@kopf.on.create('kopfexamples')
async def create_fn(name, **_):
    print("made", name, flush=True)

@kopf.on.cleanup()
async def clean(**_):
    print("cleaned", flush=True)

namespace = sys.argv[1]
"""
WAYS = {
    "run": """
kopf.run(namespaces=[namespace])
""",
    "trio": """
trio.run(functools.partial(kopf.operator, namespaces=[namespace]))
""",
    "nursery": """
async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(functools.partial(kopf.operator, namespaces=[namespace]))
        print("it has started", flush=True)

trio.run(main)
""",
    "thread": """
stop, ready = threading.Event(), threading.Event()
options = dict(namespaces=[namespace], stop_flag=stop, ready_flag=ready)
thread = threading.Thread(target=kopf.run, kwargs=options)
thread.start()
assert ready.wait(20)
print("it has started", flush=True)
try:
    threading.Event().wait()
except KeyboardInterrupt:
    stop.set()
thread.join()
""",
}


LIMITED = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))\n"
SHOWS_LIMIT = """
import resource
import trioperator

@trioperator.on.startup()
def show(**_):
    print("files:", resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
"""


@pytest.mark.parametrize("way", ["command", "script"])
def test_an_operator_may_open_as_many_files_as_the_system_allows(
    way: str, api: Api, start_process: Callable[..., Program], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "main.py").write_text(SHOWS_LIMIT)
    ways = {
        "command": f"from trioperator.cli import main\nmain(['run', '-n', {api.namespace!r}, 'main.py'])",
        "script": f"{SHOWS_LIMIT}\ntrioperator.run(namespaces=[{api.namespace!r}])",
    }
    program = start_process("-c", LIMITED + ways[way], KUBECONFIG=str(api.kubeconfig))
    program.wait_for("files: 4096")
    assert program.stop(signal.SIGINT) == 0, program.output


def test_scripts_run_operators_in_several_ways(api: Api, start_process: Callable[..., Program]) -> None:
    places = {way: api.elsewhere() for way in WAYS}
    scripts = {
        way: start_process("-c", SCRIPT + text, places[way].namespace, KUBECONFIG=str(api.kubeconfig))
        for way, text in WAYS.items()
    }
    for way, script in scripts.items():
        script.wait_for("it has started" if way in ("nursery", "thread") else "The operator is ready.")
        places[way].create("one")
        script.wait_for("made one")
        script.wait_for("Creation is processed")
        assert script.stop(signal.SIGINT) == 0, script.output
        assert "cleaned" in script.output
        assert "Traceback" not in script.output
