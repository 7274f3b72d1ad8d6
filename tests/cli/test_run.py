"""Tests for :mod:`trioperator.cli.run`: the options, and the command as a process with its output and exit code."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests.cli.processes import read_rest, read_until
from trioperator.cli import root
from trioperator.cli.controls import CLIControls
from trioperator.cli.run_options import LogFormatName, RunOptions

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
Start: TypeAlias = Callable[..., subprocess.Popen[str]]
Parse: TypeAlias = Callable[..., RunOptions]

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
MANIFESTS = ("--apply", EXAMPLES / "crd.yaml", "--apply", EXAMPLES / "obj.yaml")
UNREACHABLE = """
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: a, user: {}}]
"""
OPERATOR = """
import trioperator

@trioperator.on.startup()
def configure(settings):
    settings.networking.error_backoffs = []

@trioperator.on.create("kopfexamples")
def create_fn(logger):
    logger.info("Created, says the handler.")

@trioperator.on.cleanup()
def clean(logger):
    logger.info("Cleaned, says the handler.")
"""


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a file with handlers."""
    path = tmp_path / "main.py"
    path.write_text(OPERATOR)
    return path


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Parse:
    """Return a function that parses a command line and its environment variables."""
    for name in list(os.environ):
        if name.startswith("TRIOPERATOR_"):
            monkeypatch.delenv(name)

    def parse(*args: str, **variables: str) -> RunOptions:
        taken: list[RunOptions] = []

        def take(options: RunOptions, controls: CLIControls) -> int:
            taken.append(options)
            return 7

        monkeypatch.setattr("trioperator.cli.run.run_operator", take)
        for name, value in variables.items():
            monkeypatch.setenv(f"TRIOPERATOR_RUN_{name}", value)
        with pytest.raises(SystemExit) as caught:
            root.app(["run", *args], prog_name="trioperator")
        assert caught.value.code == (7 if taken else 2)
        if not taken:
            raise ValueError("wrong")
        return taken[0]

    return parse


class TestOptions:
    def test_a_file_is_enough(self, parse: Parse) -> None:
        assert parse("main.py") == RunOptions(files=["main.py"])

    def test_all_options(self, parse: Parse) -> None:
        options = parse(
            *("-m", "one", "--module", "two.three", "-n", "a", "--namespace", "b-*,!b-c", "--standalone"),
            *("-p", "5", "--dev", "-P", "mine", "--leader-elect", "--lease", "ns/it", "--shards", "4"),
            *(
                "-L",
                "http://:80/x",
                "--health",
                "http://:81/",
                "--metrics",
                "http://:82/",
                "--tracing",
                "--live-view",
                "http://[::1]:83/",
                "--live-view-token",
                "t",
                "-v",
                "-d",
                "-q",
                "--log-format",
                "json",
                "--log-prefix",
                "--log-refkey",
                "k8s",
            ),
            *("--embedded", "--embedded-port", "5", "--apply", "a.yaml", "--apply", "b.yaml"),
            *("--controllers", "pods, workloads", "--kubeconfig", "k", "x.py", "y.py"),
            "--reload",
        )
        assert options == RunOptions(
            files=["x.py", "y.py"],
            modules=["one", "two.three"],
            namespaces=["a", "b-*,!b-c"],
            standalone=True,
            dev=True,
            priority=5,
            peering="mine",
            leader_elect=True,
            lease="ns/it",
            shards=4,
            liveness="http://:80/x",
            health="http://:81/",
            metrics="http://:82/",
            tracing=True,
            live_view="http://[::1]:83/",
            live_view_token="t",
            embedded=True,
            port=5,
            manifests=["a.yaml", "b.yaml"],
            controllers="pods, workloads",
            kubeconfig="k",
            reload=True,
            verbose=True,
            debug=True,
            quiet=True,
            format=LogFormatName.JSON,
            prefix=True,
            refkey="k8s",
        )

    def test_all_variables(self, parse: Parse) -> None:
        options = parse(
            "x.py",
            MODULES="one two.three",
            NAMESPACES="a b",
            STANDALONE="1",
            PRIORITY="-3",
            PEERING="mine",
            SHARDS="3",
            LIVENESS="http://:80/x",
            HEALTH="http://:81/",
            METRICS="http://:82/",
            TRACING="yes",
            LIVE_VIEW="http://[::1]:83/",
            LIVE_VIEW_TOKEN="t",
            VERBOSE="true",
            DEBUG="yes",
            QUIET="on",
            LOG_FORMAT="PLAIN",
            LOG_PREFIX="no",
            LOG_REFKEY="k8s",
            EMBEDDED="1",
            EMBEDDED_PORT="5",
            APPLY="a.yaml b.yaml",
            CONTROLLERS="pods,workloads",
            KUBECONFIG="k",
        )
        assert options == RunOptions(
            files=["x.py"],
            modules=["one", "two.three"],
            namespaces=["a", "b"],
            standalone=True,
            priority=-3,
            peering="mine",
            shards=3,
            liveness="http://:80/x",
            health="http://:81/",
            metrics="http://:82/",
            tracing=True,
            live_view="http://[::1]:83/",
            live_view_token="t",
            embedded=True,
            port=5,
            manifests=["a.yaml", "b.yaml"],
            controllers="pods,workloads",
            kubeconfig="k",
            verbose=True,
            debug=True,
            quiet=True,
            format=LogFormatName.PLAIN,
            prefix=False,
            refkey="k8s",
        )

    def test_variables_have_other_names_too(self, parse: Parse) -> None:
        options = parse(MODULE="one", CLUSTERWIDE="1", LIVENESS_ENDPOINT="http://x/")
        assert options == RunOptions(modules=["one"], clusterwide=True, liveness="http://x/")
        assert parse("x.py", ALL_NAMESPACES="1").clusterwide

    def test_options_win_over_variables(self, parse: Parse) -> None:
        options = parse(
            "x.py", "-n", "a", "--log-format", "full", "--log-prefix", NAMESPACE="b", LOG_FORMAT="json", LOG_PREFIX="0"
        )
        assert options.namespaces == ["a"]
        assert (options.format, options.prefix) == (LogFormatName.FULL, True)

    def test_empty_variables_count_as_unset(self, parse: Parse) -> None:
        names = ("MODULES", "NAMESPACES", "LIVENESS", "LOG_REFKEY", "APPLY", "VERBOSE", "ALL_NAMESPACES", "LOG_PREFIX")
        assert parse("x.py", **dict.fromkeys(names, "")) == RunOptions(files=["x.py"])

    @pytest.mark.parametrize("option", [[], ["--log-prefix"], ["--no-log-prefix"]])
    def test_the_prefix_is_left_to_the_format_unless_it_is_given(self, parse: Parse, option: list[str]) -> None:
        expected = {"--log-prefix": True, "--no-log-prefix": False}.get("".join(option))
        assert parse("x.py", *option).prefix is expected

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            ((), "pass files or modules"),
            (("-A",), "pass files or modules"),
            (("-n", "a", "-A", "x.py"), "pass either -n or -A, not both"),
            (("--apply", "a.yaml", "x.py"), "it requires --embedded"),
            (("--embedded-port", "5", "x.py"), "it requires --embedded"),
            (("--controllers", "all", "x.py"), "it requires --embedded"),
            (("--lease", "ops/mine", "x.py"), "it requires --leader-elect or --shards"),
            (("--lease", "ops/mine", "--shards", "1", "x.py"), "it requires --leader-elect or --shards"),
            (("--kubeconfig", "k", "x.py"), "set the environment variable KUBECONFIG"),
            (("--embedded", "--embedded-port", "65536", "x.py"), "65535"),
            (("--log-format", "xml", "x.py"), "xml"),
            (("--priority", "high", "x.py"), "high"),
            (("--peerings", "p", "x.py"), "No such option: --peerings"),
            (("--liveness",), "--liveness"),
        ],
    )
    def test_usage_errors_are_reported(
        self, parse: Parse, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str
    ) -> None:
        with pytest.raises(ValueError, match="wrong"):
            parse(*args)
        stderr = capsys.readouterr().err
        assert message in stderr
        assert "Traceback" not in stderr


class TestUsageErrors:
    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["nothing.py"], "Cannot read the file nothing.py: No such file or directory."),
            (["-m", "no_such_module"], "Cannot import the module no_such_module: No module named 'no_such_module'."),
            (["main.py", "-L", "https://localhost/"], "must start with http://, the only supported scheme."),
            (["main.py", "--health", "localhost"], "must start with http://, the only supported scheme."),
            (["main.py", "--embedded", "--apply", "no.yaml"], "Cannot read the manifests in no.yaml: No such file"),
        ],
    )
    def test_they_are_one_line(self, run: Run, file: pathlib.Path, args: list[str], message: str) -> None:
        result = run("run", "--log-format=plain", *args)
        assert result.returncode == 2
        [line] = result.stderr.splitlines()
        assert message in line

    def test_no_cluster(self, run: Run, file: pathlib.Path) -> None:
        result = run("run", "--quiet", file, KUBECONFIG="/nothing")
        assert result.returncode == 2
        [line] = result.stderr.splitlines()
        assert "/nothing" in line

    def test_a_manifest_that_the_server_rejects(self, run: Run, file: pathlib.Path) -> None:
        result = run("run", "--quiet", "--embedded", "--apply", EXAMPLES / "obj.yaml", file)
        assert result.returncode == 2
        assert "The API server rejected KopfExample kopf-example-1" in result.stderr
        assert "Traceback" not in result.stderr

    def test_errors_in_user_code_have_a_traceback_that_starts_there(self, run: Run, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "bad.py"
        path.write_text("def f():\n    raise ValueError('bad')\nf()\n")
        result = run("run", "--log-format=plain", path)
        assert result.returncode == 2
        lines = result.stderr.splitlines()
        assert lines[0] == f"Cannot load the file {path}: ValueError: bad"
        assert lines[1:3] == ["  Traceback (most recent call last):", f'    File "{path}", line 3, in <module>']
        assert lines[-1] == "  ValueError: bad"

    def test_syntax_errors_show_the_place_and_no_traceback(self, run: Run, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "bad.py"
        path.write_text("def (\n")
        result = run("run", "--log-format=json", path)
        assert result.returncode == 2
        entry = json.loads(result.stderr)
        assert entry["severity"] == "error"
        assert f'File "{path}", line 1' in entry["exc_info"]
        assert "Traceback" not in entry["exc_info"]

    def test_invalid_settings(self, run: Run, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "bad.py"
        path.write_text(
            "import trioperator\n@trioperator.on.startup(errors=trioperator.ErrorsMode.PERMANENT)\n"
            "def configure(settings):\n    settings.process.grace = -1\n"
        )
        result = run("run", "--embedded", path)
        assert result.returncode == 1
        assert "settings.process.grace is -1, but it must be a number of seconds, 0 or more." in result.stderr
        assert f'File "{path}", line 4, in configure' in result.stderr
        assert "supervisor.py" not in result.stderr


class TestFailures:
    def test_a_server_that_cannot_be_reached(self, run: Run, file: pathlib.Path, tmp_path: pathlib.Path) -> None:
        (tmp_path / "kubeconfig").write_text(UNREACHABLE)
        result = run("run", "--log-format=plain", file, KUBECONFIG=str(tmp_path / "kubeconfig"))
        assert result.returncode == 1
        assert "Cannot connect to 127.0.0.1:1" in result.stderr
        assert "Traceback" not in result.stderr

    def test_a_startup_handler_that_calls_asyncio(self, run: Run, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "foreign.py"
        path.write_text(
            "import asyncio, trioperator\n"
            "@trioperator.on.startup()\n"
            "async def start(**_):\n"
            "    await asyncio.sleep(1)\n"
        )
        result = run("run", "--log-format=plain", "--embedded", path)
        assert result.returncode == 1
        assert "The startup handlers have failed: start: It uses asyncio" in result.stderr
        assert "asyncio's sleep() cannot work here; use trio.sleep() instead." in result.stderr

    def test_a_startup_handler_that_fails_permanently(self, run: Run, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "bad.py"
        path.write_text(
            "import os, trioperator\nfound = open(os.environ['KUBECONFIG']).read()\n"
            "@trioperator.on.startup()\ndef begin():\n    raise trioperator.PermanentError('no')\n"
        )
        result = run("run", "--log-format=plain", "--embedded", path)
        assert result.returncode == 1
        assert "Traceback" not in result.stderr
        assert "no" in result.stderr.splitlines()[-1]


class TestRunning:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_objects_are_handled_and_a_signal_shuts_it_down(
        self, start: Start, file: pathlib.Path, number: signal.Signals
    ) -> None:
        process = start("run", "--embedded", *MANIFESTS, file)
        before = read_until(process, "Creation is processed")
        assert "[default/kopf-example-1] Created, says the handler." in before
        process.send_signal(number)
        after = read_rest(process)
        assert process.returncode == 0
        assert "Cleaned, says the handler." in after
        assert "Traceback" not in before + after

    def test_cleanup_runs_when_the_reader_of_the_logs_has_gone(
        self, start: Start, file: pathlib.Path, tmp_path: pathlib.Path
    ) -> None:
        mark = tmp_path / "mark"
        with file.open("a") as source:
            source.write(f"\n@trioperator.on.cleanup()\ndef last(**_):\n    open({str(mark)!r}, 'w').close()\n")
        process = start("run", "--embedded", file)
        read_until(process, "The operator is ready.")
        assert process.stderr is not None
        process.stderr.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        assert mark.exists()

    def test_options_set_the_log_format(self, start: Start, file: pathlib.Path) -> None:
        process = start("run", "--embedded", "--log-format=json", "--log-refkey=k8s", "--verbose", *MANIFESTS, file)
        lines = read_until(process, "Creation is processed").splitlines()
        process.send_signal(signal.SIGTERM)
        lines += read_rest(process).splitlines()
        entries = [json.loads(line) for line in lines]
        [created] = [entry for entry in entries if entry["message"] == "Created, says the handler."]
        assert created["k8s"]["name"] == "kopf-example-1"
        assert {entry["severity"] for entry in entries} == {"debug", "info"}

    def test_probes_are_served(self, start: Start, file: pathlib.Path) -> None:
        import httpx

        with file.open("a") as source:
            source.write("\n@trioperator.on.probe(id='answer')\ndef probe(**_):\n    return 42\n")
        process = start("run", "--embedded", "--liveness=http://127.0.0.1:0/healthz", *MANIFESTS, file)
        lines = read_until(process, "Serving health status at")
        url = re.findall(r"http://127\.0\.0\.1:\d+/healthz", lines)[-1]
        response = httpx.get(url, timeout=30)
        assert (response.status_code, response.json()) == (200, {"answer": 42})
        process.send_signal(signal.SIGTERM)
        assert "Traceback" not in read_rest(process)
        assert process.returncode == 0


def test_the_garbage_collector_runs_less_often_while_an_operator_runs(run: Run, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "main.py"
    file.write_text(
        "import atexit, gc\natexit.register(lambda: print(gc.get_threshold()[0]))\nprint(gc.get_threshold()[0])\nx"
    )
    ended = run("run", file)
    during, after = map(int, ended.stdout.split())
    assert during == 30_000 > after


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have rules of their own")
def test_memory_of_pages_is_returned_to_the_system_while_an_operator_runs(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "main.py"
    file.write_text("""
import gc, pathlib

def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

page = bytes(range(256)) * 2**14  # as a large page of a list: glibc expects more of its size
del page
for number in 200, 400, 600:
    before = resident()
    objects = [b"x" * 100_000 for _ in range(number)]
    during = resident()
    del objects
    gc.collect()
    print(during - before, resident() - before)
x
""")
    command = [sys.executable, "-m", "trioperator", "run", str(file)]  # not forked: what others have freed is kept
    output = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    rounds = [(int(taken), int(kept)) for taken, kept in map(str.split, output.splitlines())]
    # Something else that comes to lie among the objects keeps those before it. It does so once, and the next are more.
    assert all(taken > 2**24 for taken, _ in rounds)
    assert min(kept for _, kept in rounds) < 2**20
