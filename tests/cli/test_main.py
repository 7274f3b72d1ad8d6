"""Tests for the command as a process: what it prints, and with which code it exits."""

from __future__ import annotations

import json
import pathlib
import re
import signal
import subprocess
from collections.abc import Callable
from typing import TypeAlias

import pytest

import trioperator

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
Start: TypeAlias = Callable[..., subprocess.Popen[str]]

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
    """Be a file with handlers."""
    path = tmp_path / "main.py"
    path.write_text(OPERATOR)
    return path


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stderr is not None
    lines = ""
    for line in process.stderr:
        lines += line
        if text in line:
            return lines
    raise AssertionError(f"There is no {text!r} in: {lines}")


def read_rest(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=120)[1]


class TestHelp:
    def test_version(self, run: Run) -> None:
        result = run("--version")
        assert result.returncode == 0
        assert result.stdout == f"trioperator, version {trioperator.__version__}\n"

    def test_options_are_explained(self, run: Run) -> None:
        result = run("run", "--help")
        assert result.returncode == 0
        assert "--log-format" in result.stdout
        assert "TRIOPERATOR_RUN_NAMESPACES" in result.stdout

    def test_nothing_given_is_wrong_use(self, run: Run) -> None:
        assert run().returncode == 2
        result = run("run")
        assert result.returncode == 2
        assert "give files or modules (-m) with handlers" in result.stderr


class TestWrongUse:
    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["nothing.py"], "The file nothing.py cannot be read: No such file or directory."),
            (["-m", "no_such_module"], "There is no module no_such_module: No module named 'no_such_module'."),
            (["main.py", "-L", "https://localhost/"], "must start with http://, the only supported scheme."),
            (["main.py", "--embedded", "--apply", "no.yaml"], "The manifests of no.yaml cannot be read: No such file"),
        ],
    )
    def test_it_is_told_in_one_line(self, run: Run, file: pathlib.Path, args: list[str], message: str) -> None:
        result = run("run", "--log-format=plain", *args)
        assert result.returncode == 2
        [line] = result.stderr.splitlines()
        assert message in line

    def test_no_cluster(self, run: Run, file: pathlib.Path) -> None:
        result = run("run", "--quiet", file, KUBECONFIG="/nothing")
        assert result.returncode == 2
        [line] = result.stderr.splitlines()
        assert "/nothing" in line

    def test_a_manifest_that_the_server_refuses(self, run: Run, file: pathlib.Path) -> None:
        result = run("run", "--quiet", "--embedded", "--apply", EXAMPLES / "obj.yaml", file)
        assert result.returncode == 2
        assert "The API server refuses KopfExample kopf-example-1" in result.stderr
        assert "Traceback" not in result.stderr

    def test_errors_in_user_code_have_a_traceback_that_begins_there(self, run: Run, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "bad.py"
        path.write_text("def f():\n    raise ValueError('bad')\nf()\n")
        result = run("run", "--log-format=plain", path)
        assert result.returncode == 2
        lines = result.stderr.splitlines()
        assert lines[0] == f"The file {path} cannot be loaded: ValueError: bad"
        assert lines[1:3] == ["Traceback (most recent call last):", f'  File "{path}", line 3, in <module>']
        assert lines[-1] == "ValueError: bad"

    def test_syntax_errors_show_the_place_and_no_traceback(self, run: Run, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "bad.py"
        path.write_text("def (\n")
        result = run("run", "--log-format=json", path)
        assert result.returncode == 2
        entry = json.loads(result.stderr)
        assert entry["severity"] == "error"
        assert f'File "{path}", line 1' in entry["exc_info"]
        assert "Traceback" not in entry["exc_info"]

    def test_settings_that_make_no_sense(self, run: Run, tmp_path: pathlib.Path) -> None:
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

    def test_a_startup_handler_that_fails_for_good(self, run: Run, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "bad.py"
        path.write_text(
            "import trioperator\n@trioperator.on.startup()\ndef begin():\n    raise trioperator.PermanentError('no')\n"
        )
        result = run("run", "--log-format=plain", "--embedded", path)
        assert result.returncode == 1
        assert "Traceback" not in result.stderr
        assert "no" in result.stderr.splitlines()[-1]


class TestRunning:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_objects_are_handled_and_a_signal_ends_it_in_order(
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

    def test_nothing_is_lost_when_nobody_reads_the_logs(
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

    def test_the_format_is_that_of_the_options(self, start: Start, file: pathlib.Path) -> None:
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
        process = start("run", "--embedded", "--liveness=http://127.0.0.1:0/healthz", file)
        lines = read_until(process, "Serving health status at")
        url = re.findall(r"http://127\.0\.0\.1:\d+/healthz", lines)[-1]
        response = httpx.get(url, timeout=30)
        assert (response.status_code, response.json()) == (200, {"answer": 42})
        process.send_signal(signal.SIGTERM)
        assert "Traceback" not in read_rest(process)
        assert process.returncode == 0
