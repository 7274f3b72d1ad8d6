"""Tests for :mod:`trioperator.testing.plugin`, in a separate pytest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import trioperator
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner

ROOT = Path(__file__).parents[2]


def run(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_fixtures_work_without_configuration_and_beside_other_plugins(tmp_path: Path) -> None:
    source = """
        import asyncio, importlib.util
        import httpx, pytest, trio, trio.testing, trioperator
        from trioperator.testing import eventually, open_runner

        CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}

        async def handle_for_an_hour(cluster, operator):
            @trioperator.on.create("configmaps")
            async def create_fn(**_):
                await trio.sleep(3600)

            await operator.start()
            await cluster.create(CONFIG_MAP)
            await trio.sleep(3660)
            assert [(call.handler, call.final) for call in operator.calls] == [("create_fn", True)]

        @pytest.mark.trio
        async def test_of_pytest_trio(operator, cluster, autojump_clock):
            await handle_for_an_hour(cluster, operator)

        @pytest.fixture
        def anyio_backend():
            return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}

        @pytest.mark.anyio
        async def test_of_anyio(cluster):
            async with open_runner(cluster) as operator:
                await handle_for_an_hour(cluster, operator)

        @pytest.mark.skipif(not importlib.util.find_spec("pytest_asyncio"), reason="pytest-asyncio is not installed")
        @pytest.mark.asyncio
        async def test_of_pytest_asyncio():
            await asyncio.sleep(0)

        @pytest.mark.trio
        async def test_in_memory(cluster, autojump_clock):
            async with cluster.client() as client:
                assert (await client.get("/readyz")).text == "ok"

        @pytest.mark.trio
        async def test_on_a_port(cluster_url):
            async with httpx.AsyncClient(base_url=cluster_url, timeout=60) as client:
                assert (await client.get("/readyz")).text == "ok"

        def test_modules_are_imported_with_the_bytecode_that_is_installed():
            import trioperator.apiserver.cluster, package_with_plugin.module
            assert type(trioperator.apiserver.cluster.__loader__).__name__ == "SourceFileLoader"
            assert type(package_with_plugin.module.__loader__).__name__ == "AssertionRewritingHook"
    """
    (tmp_path / "test_it.py").write_text(textwrap.dedent(source))
    (tmp_path / "package_with_plugin").mkdir()
    (tmp_path / "package_with_plugin" / "module.py").touch()
    # As pytest does with all packages that have a plugin, unless they are installed as editable.
    rewrite = "import pytest; pytest.register_assert_rewrite('trioperator.apiserver', 'package_with_plugin')"
    (tmp_path / "rewriting.py").write_text(rewrite)
    plugin = [] if "trioperator" in _entry_points() else ["-p", "trioperator.testing.plugin"]
    result = run("-m", "pytest", "-q", "-p", "rewriting", *plugin, cwd=tmp_path)
    assert "6 passed" in result.stdout or "5 passed, 1 skipped" in result.stdout, result.stdout + result.stderr


ENDLESS = """
import trioperator

@trioperator.on.startup(errors=trioperator.ErrorsMode.TEMPORARY)
async def fail(settings, logger, **_):
    settings.execution.activity_retries = None
    if attempts.append(1) or len(attempts) == 20:
        print("it fails for ever", flush=True)
    raise OSError("no database")

attempts = []

async def test_it(operator, autojump_clock):
    await operator.start()

def test_other():
    raise AssertionError
"""


def test_ctrl_c_ends_tests_of_an_operator_that_is_retried_for_ever(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(ENDLESS)
    plugin = [] if "trioperator" in _entry_points() else ["-p", "trioperator.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-o", "trio_mode=true", "--show-capture=no", *plugin]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            while "it fails for ever" not in (line := process.stdout.readline()):
                assert line
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output + errors
    assert "KeyboardInterrupt" in output


async def test_operators_run_on_the_cluster_of_the_test_and_leave_signals_alone(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    seen: list[str] = []

    @trioperator.on.event("v1", "configmaps")
    async def see(name: str, **_: object) -> None:
        seen.append(name)

    before = signal.getsignal(signal.SIGINT)
    await operator.start(namespaces=["default"])
    assert signal.getsignal(signal.SIGINT) is before
    await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}})
    await trio.sleep(10)
    assert seen == ["c"]


FAILING = """
import trio, trioperator

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}

@trioperator.on.create("configmaps")
async def fail(memo, **_):
    if memo.test == "fails":
        raise ValueError("no database")

@trioperator.on.startup()
async def start(memo, **_):
    if memo.test == "cannot start":
        raise trioperator.PermanentError("no database")

async def test_a_handler_that_fails(operator, cluster, autojump_clock):
    await operator.start(memo=trioperator.Memo(test="fails"))
    await cluster.create(CONFIG_MAP)
    await trio.sleep(10)

async def test_a_failed_test_with_its_cause(operator, cluster, autojump_clock):
    await operator.start(memo=trioperator.Memo(test="fails"))
    await cluster.create(CONFIG_MAP)
    await trio.sleep(10)
    assert operator.calls == "something else"

async def test_an_operator_that_cannot_start(operator, autojump_clock):
    await operator.start(memo=trioperator.Memo(test="cannot start"))

async def test_that_passes(operator, cluster, autojump_clock):
    await operator.start(memo=trioperator.Memo(test=""))
    await cluster.create(CONFIG_MAP)
    await trio.sleep(10)
    assert [call.handler for call in operator.calls] == ["start", "fail"]
"""


def test_failures_of_operators_fail_their_tests_without_exception_groups(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(textwrap.dedent(FAILING))
    plugin = [] if "trioperator" in _entry_points() else ["-p", "trioperator.testing.plugin"]
    result = run("-m", "pytest", "-q", "-o", "trio_mode=true", "--show-capture=no", *plugin, cwd=tmp_path)
    assert "3 failed, 1 passed" in result.stdout, result.stdout + result.stderr
    assert "ExceptionGroup" not in result.stdout
    handler, cause, start = result.stdout.split("\n____")[1:]
    assert "fail for ConfigMap default/c has failed. If it should, call operator.expect_failures('fail')." in handler
    assert "ValueError: no database" in handler
    assert "AssertionError" in cause
    assert "ValueError: no database" in cause
    assert ">   " in start
    assert "ActivityError: The startup handlers have failed: start: no database" in start
    assert "run_activity" not in start  # no frames of the framework


def test_a_failed_test_that_is_run_again_can_pass(tmp_path: Path) -> None:
    rerunning = """
        import _pytest.runner, pytest

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_protocol(item, nextitem):  # as pytest-rerunfailures does
            reports = _pytest.runner.runtestprotocol(item, nextitem=nextitem, log=False)
            if any(report.failed for report in reports):
                item._initrequest()
                reports = _pytest.runner.runtestprotocol(item, nextitem=nextitem, log=False)
            for report in reports:
                item.ihook.pytest_runtest_logreport(report=report)
            return True
    """
    source = """
        import trio, trioperator

        runs = []

        async def test_it(operator, cluster, autojump_clock):
            @trioperator.on.create("configmaps")
            async def fail(**_):
                if len(runs) == 1:
                    raise ValueError("no database")

            runs.append(1)
            await operator.start()
            await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
            await trio.sleep(1)
            assert len(operator.calls) == 1
    """
    (tmp_path / "conftest.py").write_text(textwrap.dedent(rerunning))
    (tmp_path / "test_it.py").write_text(textwrap.dedent(source))
    plugin = [] if "trioperator" in _entry_points() else ["-p", "trioperator.testing.plugin"]
    result = run("-m", "pytest", "-q", "-o", "trio_mode=true", *plugin, cwd=tmp_path)
    assert "1 passed" in result.stdout, result.stdout + result.stderr


def _entry_points() -> set[str]:
    from importlib.metadata import entry_points

    return {entry.name for entry in entry_points(group="pytest11")}


def test_each_test_has_its_own_cluster(cluster: Cluster) -> None:
    assert isinstance(cluster, Cluster)
    assert cluster.revision == 4  # the default namespaces


def test_the_package_and_the_plugin_load_lazily() -> None:
    code = "import sys; sys.modules['trioperator'] = type(sys)('trioperator'); "
    code += f"sys.modules['trioperator'].__path__ = [{str(ROOT / 'trioperator')!r}]; "
    code += "import trioperator.testing, trioperator.testing.plugin; "
    code += "print([name for name in ('httpx', 'yaml', 'trioperator.apiserver') if name in sys.modules])"
    result = run("-c", code, cwd=ROOT)
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_run_of_tests_ends_with_the_rights_that_handlers_lack(tmp_path: Path, workers: tuple[str, ...]) -> None:
    source = """
        import trio, trioperator
        from tests.runtime.conftest import CRD, widget

        @trioperator.on.create("widgets")
        async def make(client, name, **_):
            await client.list("pods" if name == "w" else "secrets")

        async def live(cluster, operator, name):
            await cluster.apply(CRD)
            await operator.start()
            await cluster.create(widget(name))
            await trio.sleep(1)

        async def test_one(cluster, operator, autojump_clock):
            await live(cluster, operator, "w")

        async def test_two(cluster, operator, autojump_clock):
            await live(cluster, operator, "x")
    """
    (tmp_path / "test_it.py").write_text(textwrap.dedent(source))
    result = run("-m", "pytest", "-o", "trio_mode=true", "--operator-rights", *workers, cwd=tmp_path)
    assert "2 passed" in result.stdout
    assert "rights of handlers" in result.stdout
    assert "Handler 'make' (test_it.py:5)" in result.stdout
    assert '    rights=["list:pods,secrets"]' in result.stdout
