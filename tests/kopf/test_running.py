"""Kopf's command as a process: files that import kopf, with a cluster in the same process."""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.kopf.programs import MANIFESTS, OPERATOR
from tests.processes.conftest import ROOT, Program, environment
from trioperator.errors import ConfigError
from trioperator.kopf import running


@contextlib.contextmanager
def running_operator(home: pathlib.Path, *args: str, source: str = OPERATOR, **env: str) -> Iterator[Program]:
    (home / "app.py").write_text(source)
    (home / "manifests.yaml").write_text(MANIFESTS)
    command = [sys.executable, "-m", "trioperator.kopf", "run", "--embedded", "--apply=manifests.yaml", *args, "app.py"]
    with (home / "log").open("wb") as log:
        env = environment(home, **env)
        with subprocess.Popen(command, cwd=home, env=env, stdout=log, stderr=subprocess.STDOUT) as process:
            try:
                yield Program(process, home / "log")
            finally:
                process.kill()


def test_the_file_of_a_kopf_operator_runs_unchanged(tmp_path: pathlib.Path) -> None:
    with running_operator(tmp_path, KOPF_RUN_CLUSTERWIDE="true", KOPF_RUN_VERBOSE="true") as operator:
        operator.wait_for("[default/s] Creating 7.")
        operator.wait_for("Handler 'create_fn' succeeded.")
        operator.wait_for("[default/s] Sync daemon begins.")
        assert operator.stop() == 0
    log = operator.output
    expected = ["Started.", "Sync daemon ends.", "Async daemon ends.", "Cleaned up.", "ultimate_exiting_timeout = 5"]
    assert [text for text in expected if text not in log] == []
    assert "Traceback" not in log
    assert log.index("daemon ends.") < log.index("Cleaned up."), "the loop goes on until the end"


@pytest.mark.skipif(importlib.util.find_spec("aiohttp") is None, reason="aiohttp is not installed")
@pytest.mark.skipif(importlib.util.find_spec("kubernetes_asyncio") is None, reason="kubernetes_asyncio is missing")
def test_asyncio_clients_work_in_handlers(tmp_path: pathlib.Path) -> None:
    source = """
import base64
import os
import ssl
import aiohttp
import kopf
import yaml
from kubernetes_asyncio import client, config, watch

@kopf.on.login()
async def login(**kwargs):
    return await kopf.login_via_async_client(**kwargs)

@kopf.on.create("shapes")
async def create_fn(name, namespace, logger, **_):
    await config.load_kube_config()
    async with client.ApiClient() as api:
        shapes = client.CustomObjectsApi(api)
        found = await shapes.get_namespaced_custom_object("conformance.dev", "v1", namespace, "shapes", name)
        logger.info(f"kubernetes_asyncio: {found['spec']}")
        async for event in watch.Watch().stream(client.CoreV1Api(api).list_namespace, timeout_seconds=5):
            logger.info(f"watched: {event['type']}")
            break
    with open(os.environ["KUBECONFIG"]) as file:
        content = yaml.safe_load(file)
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    headers = {"Authorization": f"Bearer {user['token']}"}
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.get(f"{cluster['server']}/version", ssl=context) as response:
            logger.info(f"aiohttp: {(await response.json())['major']}")
"""
    with running_operator(tmp_path, "-A", source=source) as operator:
        operator.wait_for("Handler 'create_fn' ")
        assert operator.stop() == 0
    log = operator.output
    assert "Handler 'create_fn' succeeded." in log, log
    assert "kubernetes_asyncio: {'size': 7}" in log
    assert "watched: ADDED" in log
    assert "aiohttp: 1" in log


@pytest.mark.parametrize("module", ["trioperator.kopf", "trioperator"])
def test_nothing_blocks_the_loop_while_a_handler_waits_for_one_response_after_another(
    module: str, tmp_path: pathlib.Path
) -> None:
    code = f"""
import runpy, sys, threading, time, unittest.mock
slept, main, sleep = [], threading.current_thread(), time.sleep

def note(seconds):
    (slept.append if threading.current_thread() is main else sleep)(seconds)

with unittest.mock.patch("time.sleep", note):
    sys.argv = [{module!r}, "run", "-A", "--standalone", "--embedded", "app.py"]
    try:
        runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
    finally:
        print("slept:", slept)
"""
    source = """
import os, signal
import anyio
import kopf

async def answer(stream):
    async for word in stream:
        await stream.send(word)

@kopf.on.startup()
async def ask(**_):
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            for _ in range(200):
                await stream.send(b"?")
                await stream.receive()
        group.cancel_scope.cancel()
    print("asked")
    os.kill(os.getpid(), signal.SIGTERM)
"""
    (tmp_path / "app.py").write_text(
        source if "kopf" in module else source.replace("import kopf", "import trioperator as kopf")
    )
    (tmp_path / "program.py").write_text(code)
    command, env = [sys.executable, "program.py"], environment(tmp_path, PYTHONPATH=str(ROOT))
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "asked\nslept: []\n", done.stdout + done.stderr


def test_a_module_may_be_called_as_a_command(tmp_path: pathlib.Path) -> None:
    (tmp_path / "explore.py").write_text("import kopf\n@kopf.on.startup()\nasync def start(**_): print('reached')\n")
    with running_operator(tmp_path, "-m", "explore") as operator:
        operator.wait_for("reached")
        assert operator.stop() == 0


@pytest.mark.parametrize("name", ["vault", "insights", "memories"])
async def test_options_that_make_no_sense_on_trio_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"The option {name}= does not exist here"):
        await running.operator(**{name: object()})


def test_options_of_kopf_that_are_none_are_accepted(tmp_path: pathlib.Path) -> None:
    code = """
import trioperator.kopf
trioperator.kopf.install()
import kopf
try:
    kopf.run(loop=None, vault=None, memories=None, registry=kopf.OperatorRegistry(), liveness_endpoint="nonsense")
except kopf.PermanentError:
    pass
"""
    env = environment(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith(f"{ConfigError.__module__}.ConfigError: "), done.stderr
    assert "nonsense" in done.stderr
    assert not re.search(r"ExceptionGroup", done.stderr), "errors are raised without the groups of nurseries"
