"""Tests for :mod:`trioperator.testing.exploring.command`: exit codes, and what is said about bad input."""

from __future__ import annotations

import json
import logging
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import pytest
import yaml
from typer.testing import CliRunner, Result

import trioperator
from tests.cli.conftest import environment, restored_modules, run
from tests.testing.exploring.forgetful import FORGETFUL
from tests.testing.exploring.operators import GOOD, make_crd, write_crd
from trioperator.cli.root import app as command

__all__ = ["environment", "restored_modules", "run"]

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
Explore: TypeAlias = Callable[..., Result]


#: How often the same is explored; 50 of 50 reports must be the same, which needs `pytest -o faulthandler_timeout=0`.
RUNS: Final = int(os.environ.get("TRIOPERATOR_SEEDS", "2"))
#: An operator with threads, passwords and generated names, of which several things are found.
UNSTEADY: Final = (
    FORGETFUL
    + """

@trioperator.on.create("webapps")
@trioperator.on.update("webapps")
def note_fn(spec, patch):
    patch.status["size"] = spec.get("size", 1)


@trioperator.on.create("webapps")
async def create_fn(name, client):
    import secrets

    data = {"password": secrets.token_hex(8)}
    await client.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "a-"}, "stringData": data})
"""
)


@pytest.fixture
def explore(restored_modules: None, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[Explore]:
    """Return a function that explores an operator, whose source it gets, in this process."""
    monkeypatch.chdir(tmp_path)
    registry, handlers, level = trioperator.get_default_registry(), logging.root.handlers[:], logging.root.level
    write_crd(tmp_path)

    def explore(source: str, *args: str) -> Result:
        (tmp_path / "app.py").write_text(source)
        return CliRunner().invoke(command, ["explore", "app.py", "--crds", "crd.yaml", "--seconds", "600", *args])

    yield explore
    trioperator.set_default_registry(registry)
    logging.root.handlers[:], logging.root.level = handlers, level


@pytest.fixture
def start(run: Run, tmp_path: pathlib.Path) -> Run:
    """Return a function that explores an operator in a process of its own."""

    def start(source: str, *args: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "app.py").write_text(source)
        write_crd(tmp_path)
        return run("explore", "app.py", "--crds", "crd.yaml", "--seconds", "600", *args)

    return start


def test_a_good_operator_exits_with_0(explore: Explore) -> None:
    result = explore(GOOD, "--sequences", "4")
    assert result.exit_code == 0, result.output
    assert "no findings in" in result.stdout
    assert result.stderr == ""


def test_operators_for_kopf_are_explored_with_their_asyncio_handlers(
    environment: dict[str, str], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "app.py").write_text(
        "import asyncio\nimport kopf\n\n@kopf.on.create('webapps')\nasync def create_fn(spec, patch, **_):\n"
        "    await asyncio.sleep(30)\n    patch.status['greeting'] = spec.get('greeting', '')\n"
    )
    write_crd(tmp_path)
    words = [sys.executable, "-m", "trioperator.kopf", "explore", "app.py", "--crds", "crd.yaml", "--sequences", "2"]
    result = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1, result.stderr
    assert "WebApp default/example: status.greeting is" in result.stdout


def test_what_handlers_print_is_not_shown(start: Run) -> None:
    handler = 'import sys\n    print("out")\n    print("err", file=sys.stderr)\n'
    source = f'@trioperator.on.create("webapps")\ndef create_fn():\n    {handler}'
    result = start(f"{GOOD}\n{source}", "--sequences", "1")
    assert result.returncode == 0, result.stderr
    assert "out" not in result.stdout.split()
    assert "err" not in result.stderr.split()


def test_findings_exit_with_1_and_the_command_plays_them_again(explore: Explore) -> None:
    source = FORGETFUL.replace("    meta", '    print("called")\n    meta')
    result = explore(source, "--sequences", "4", "--format", "json", "--write-tests", "found")
    assert result.exit_code == 1, result.output
    (finding,) = json.loads(result.stdout)["subjects"][0]["findings"]
    path = os.path.join("found", f"test_webapp_{finding['oracle']}.py")
    assert result.stderr == f"Written: {path}\n"
    again = explore(source, "--play", json.dumps(finding["states"]))
    assert again.exit_code == 1
    assert finding["summary"] in again.stdout


def test_a_report_that_cannot_be_written_is_an_error_without_a_traceback(
    environment: dict[str, str], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "app.py").write_text(GOOD)
    command = [sys.executable, "-m", "trioperator", "explore", "app.py", "--crds", write_crd(tmp_path)]
    command += ["--play", '[{"spec": {}}]']
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "Cannot write the report: No space left on device.\n")


def test_tests_that_cannot_be_written_are_an_error_before_the_search(explore: Explore) -> None:
    result = explore(GOOD, "--write-tests", "/proc")
    assert result.exit_code == 2
    assert "--write-tests: No such file or directory: /proc" in result.stderr
    assert result.stdout == ""


def test_definitions_of_versions_that_are_not_served_say_which_are(explore: Explore, tmp_path: pathlib.Path) -> None:
    write_crd(tmp_path, {**make_crd(), "apiVersion": "apiextensions.k8s.io/v1beta1"})
    result = explore(GOOD)
    assert result.exit_code == 2
    text = "no kind 'CustomResourceDefinition' in 'apiextensions.k8s.io/v1beta1', but in apiextensions.k8s.io/v1."
    assert text in result.stderr


def test_a_seed_has_the_same_report_in_each_process(tmp_path: pathlib.Path, environment: dict[str, str]) -> None:
    (tmp_path / "app.py").write_text(UNSTEADY)
    write_crd(tmp_path)
    options = ["--crds", "crd.yaml", "--sequences", "2", "--seconds", "600", "--seed", "3", "--format", "json"]
    reports = [
        subprocess.run(
            [sys.executable, "-m", "trioperator", "explore", "app.py", *options, "--faults", "crash,order"],
            cwd=tmp_path,
            env={**environment, "PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        ).stdout
        for seed in range(RUNS)
    ]
    oracles = {finding["oracle"] for finding in json.loads(reports[0])["subjects"][0]["findings"]}
    assert oracles >= {"path", "crash"}
    assert [report for report in reports if report != reports[0]] == []


def test_what_is_ignored_is_no_finding(explore: Explore) -> None:
    result = explore(FORGETFUL, "--sequences", "2", "--ignore", "ConfigMap")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("source", "args", "text"),
    [
        (GOOD, ("--oracles", "truth"), "There is no oracle truth"),
        (GOOD, ("--faults", "storm"), "There is no fault storm: choose from crash, blind"),
        (GOOD, ("--status", "ready"), "A status by rule is KIND=CONDITION"),
        (GOOD, ("--steps", "0"), "0 is not in the range"),
        (GOOD, ("--kind", "pods"), "handles no such kind as pods"),
        (GOOD, ("--play", "{"), "--play must be a list of states as JSON"),
        (GOOD, ("--write-tests", "app.py/found"), "--write-tests: Not a directory: app.py/found"),
        (GOOD, ("--from", "missing.yaml"), "Cannot read the manifests in missing.yaml"),
        ("import missing_module\n", (), "Cannot load the file app.py: ModuleNotFoundError"),
        ("import sys\nsys.exit('go away')\n", (), "it ends the program, with SystemExit('go away')"),
        (
            f'{GOOD}@trioperator.on.create("webapps")\ndef create_fn():\n    raise SystemExit(3)\n',
            (),
            "A handler ends the process: SystemExit(3)",
        ),
        (
            f"{GOOD}@trioperator.on.startup()\ndef start_fn():\n    raise ValueError('no database')\n",
            (),
            "The operator fails: The startup handlers have failed: start_fn:",
        ),
        ("", (), "no decorator has registered a function"),
        (GOOD.replace('"webapps"', '"pods"'), (), "the operator handles pods"),
    ],
)
def test_bad_input_exits_with_2(explore: Explore, source: str, args: tuple[str, ...], text: str) -> None:
    result = explore(source, *args)
    assert result.exit_code == 2, result.output
    assert text in result.stderr


def test_a_schema_without_fields_needs_examples(explore: Explore, tmp_path: pathlib.Path) -> None:
    write_crd(tmp_path, make_crd())
    result = explore(GOOD)
    assert result.exit_code == 2
    assert "--from FILE" in result.stderr
    example = {"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {"name": "a"}, "spec": {"size": 1}}
    (tmp_path / "example.yaml").write_text(yaml.safe_dump(example))
    assert explore(GOOD, "--from", "example.yaml", "--sequences", "2").exit_code == 0


def test_an_outside_call_is_refused(explore: Explore) -> None:
    source = GOOD + (
        '\n@trioperator.on.create("webapps")\n'
        "def create_fn():\n    import socket\n    socket.create_connection(('db', 1))\n"
    )
    result = explore(source)
    assert result.exit_code == 2
    assert "Handler 'create_fn' looks up db (app.py:14)" in result.stderr


def test_a_handler_that_blocks_for_ever_is_named(start: Run) -> None:
    source = (
        "import trioperator.testing.exploring.plays as plays\n"
        "import trioperator.testing.exploring.outside as outside\n"
        "plays._PATIENCE = outside._GRACE = 0.5\n"
    )
    source += GOOD + '\n@trioperator.on.create("webapps")\nasync def create_fn():\n    while True:\n        pass\n'
    result = start(source)
    assert result.returncode == 2
    assert "blocks the event loop at app.py:1" in result.stderr


def test_a_thread_that_blocks_for_ever_is_named(start: Run) -> None:
    source = "import trioperator.testing.exploring.plays as plays\nplays._PATIENCE = 3\n"
    handler = "def create_fn():\n    import threading\n    threading.Event().wait()\n"
    result = start(f'{source}{GOOD}\n@trioperator.on.create("webapps")\n{handler}')
    assert result.returncode == 2
    assert "a handler is at app.py:16, and does not return" in result.stderr


def test_a_handler_that_waits_for_ever_is_a_finding(explore: Explore) -> None:
    handler = "async def create_fn():\n    import trio\n    await trio.sleep_forever()\n"
    result = explore(f'{GOOD}\n@trioperator.on.create("webapps")\n{handler}', "--sequences", "1")
    assert result.exit_code == 1
    assert "1. handlers: create_fn does not return." in result.stdout


def test_ctrl_c_reports_what_was_found(environment: dict[str, str], tmp_path: pathlib.Path) -> None:
    (tmp_path / "app.py").write_text(
        FORGETFUL + "\nimport os, signal\n\n@trioperator.on.delete('webapps')\ndef delete_fn(spec):\n"
        "    if os.path.exists('now'):\n        os.kill(os.getpid(), signal.SIGINT)\n    open('now', 'w')\n"
    )
    write_crd(tmp_path)
    command = [sys.executable, "-m", "trioperator", "explore", "app.py", "--crds", "crd.yaml", "--seconds", "60"]
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert "stopped by an interrupt" in result.stdout, result.stdout + result.stderr


def test_a_terminal_shows_how_far_the_search_is(environment: dict[str, str], tmp_path: pathlib.Path) -> None:
    (tmp_path / "app.py").write_text(FORGETFUL)
    write_crd(tmp_path)
    words = [sys.executable, "-m", "trioperator", "explore", "app.py", "--crds", "crd.yaml", "--sequences", "2"]
    terminal, stderr = pty.openpty()
    try:
        subprocess.run(words, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=stderr, check=False)
        shown = os.read(terminal, 65536).decode()
    finally:
        os.close(stderr)
        os.close(terminal)
    assert re.search(r"webapps\.example\.com: \d+ states, \d+ transitions, [12] findings, \d+ s left", shown), shown
    assert shown.endswith("\r\x1b[K")


def test_hypothesis_is_named_if_it_is_missing(start: Run, tmp_path: pathlib.Path) -> None:
    (tmp_path / "hypothesis.py").write_text("raise ImportError('hidden')\n")
    result = start(GOOD)
    assert result.returncode == 2
    assert "pip install 'trioperator[testing]'" in result.stderr
