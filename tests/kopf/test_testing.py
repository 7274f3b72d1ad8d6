"""``kopf.testing.KopfRunner`` after ``install()``, as in docs/kopf.md: in a process of its own."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from tests.kopf.programs import MANIFESTS, OPERATOR
from tests.processes.conftest import environment

TEST = """
import pathlib
import sys
import time

import trioperator.kopf
trioperator.kopf.install()  # conftest.py would do that

import kopf
import kopf.testing

settings = kopf.OperatorSettings()
settings.watching.server_timeout = 10
with kopf.testing.KopfRunner(
    ["run", "--all-namespaces", "--verbose", "--standalone", "--embedded", "--apply=manifests.yaml", "app.py"],
    timeout=60, settings=settings,
) as runner:
    time.sleep(1)
assert runner.exception is None
assert runner.exit_code == 0, runner.output
assert "[default/s] Creating 7." in runner.output
assert "Cleaned up." in runner.output
assert sys.modules["kopf"] is kopf
"""

ANYIO_OPERATOR = """
import os
import anyio
import httpx
import kopf
import yaml

@kopf.on.create("shapes")
async def create_fn(logger, **_):
    logger.info("thread: %s", await anyio.to_thread.run_sync(lambda: 42))
    with open(os.environ["KUBECONFIG"]) as file:
        content = yaml.safe_load(file)
    headers = {"Authorization": f"Bearer {content['users'][0]['user']['token']}"}
    async with httpx.AsyncClient(verify=False, headers=headers) as client:
        response = await client.get(content["clusters"][0]["cluster"]["server"] + "/version")
    logger.info("httpx: %s", response.status_code)
    open("done", "w").close()
"""
ANYIO_TESTS = """
import asyncio
import pathlib
import sys

import anyio._backends._asyncio
import pytest

import kopf
from kopf.testing import KopfRunner

ARGS = ["run", "-A", "--verbose", "--standalone", "--embedded", "--apply=manifests.yaml", "app.py"]

@pytest.fixture
def anyio_backend():
    return "asyncio"

async def use():
    with KopfRunner(ARGS) as runner:
        while not pathlib.Path("done").exists():
            await asyncio.sleep(0.05)
    assert "thread: 42" in runner.output and "httpx: 200" in runner.output, runner.output

@pytest.mark.anyio
async def test_in_a_loop():
    await asyncio.wait_for(use(), 60)

@pytest.mark.anyio
async def test_too_late():
    pathlib.Path("done").unlink()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.sleep(1000), 0.01)

def test_in_another_loop():
    asyncio.run(use())
"""
RUN_AFTER_ANYIO = """
import anyio._backends._asyncio
import trioperator.kopf
trioperator.kopf.install()
import anyio, kopf

@kopf.on.startup()
async def start(**_):
    assert await anyio.to_thread.run_sync(lambda: 42) == 42
    raise kopf.PermanentError("no way")

try:
    kopf.run(standalone=True)
except trioperator.ActivityError as error:
    assert "no way" in repr(error), error
    print("fine")
"""


def test_operators_with_anyio_run_beside_tests_on_asyncio(tmp_path: pathlib.Path) -> None:
    files = {"app.py": ANYIO_OPERATOR, "manifests.yaml": MANIFESTS, "test_app.py": ANYIO_TESTS}
    files["conftest.py"] = "import trioperator.kopf\ntrioperator.kopf.install()\n"
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=180, check=False
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_a_program_that_has_used_anyio_can_run_operators(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-c", RUN_AFTER_ANYIO]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "fine\n", done.stdout + done.stderr


def test_the_runner_of_kopf_runs_operators_with_asyncio(tmp_path: pathlib.Path) -> None:
    (tmp_path / "app.py").write_text(OPERATOR)
    (tmp_path / "manifests.yaml").write_text(MANIFESTS)
    (tmp_path / "check.py").write_text(TEST)
    command = [sys.executable, "check.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
