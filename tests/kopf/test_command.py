"""Kopf's command: options, environment variables, failures."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tomllib
from typing import Any

import pytest
import typer

from tests.processes.conftest import ROOT, environment
from trioperator.cli.root import app
from trioperator.kopf.command import kopf_environment

# The options of Kopf's command line, as its documentation has them.
SHARED = [
    "-v",
    "--verbose",
    "-d",
    "--debug",
    "-q",
    "--quiet",
    "--log-format",
    "--log-prefix",
    "--no-log-prefix",
    "--log-refkey",
]
OPTIONS = {
    "run": "-A --all-namespaces -n --namespace --standalone --dev -L --liveness -P --peering -p --priority -m --module",
    "freeze": "-A --all-namespaces -n --namespace -i --id --dev -P --peering -p --priority -t --lifetime -m --message",
    "resume": "-A --all-namespaces -n --namespace -i --id -P --peering",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_all_options_of_kopf_exist(name: str) -> None:
    command: Any = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    assert [option for option in (*OPTIONS[name].split(), *SHARED) if option not in known] == []


@pytest.mark.parametrize(
    ("args", "theirs", "ours"),
    [
        (["run", "app.py"], "KOPF_RUN_NAMESPACES", "TRIOPERATOR_RUN_NAMESPACES"),
        (["run"], "KOPF_RUN_LIVENESS_ENDPOINT", "TRIOPERATOR_RUN_LIVENESS_ENDPOINT"),
        (["freeze", "-t", "5"], "KOPF_FREEZE_PEERING", "TRIOPERATOR_PEERING_NAME"),
        (["freeze"], "KOPF_FREEZE_LIFETIME", "TRIOPERATOR_FREEZE_LIFETIME"),
        (["resume"], "KOPF_RESUME_CLUSTERWIDE", "TRIOPERATOR_PEERING_ALL_NAMESPACES"),
    ],
)
def test_environment_variables_of_kopf_are_read(
    args: list[str], theirs: str, ours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ours, raising=False)
    monkeypatch.setenv(theirs, "value")
    with kopf_environment(args):
        assert os.environ[ours] == "value"
    assert ours not in os.environ


def test_own_environment_variables_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPF_RUN_PEERING", "theirs")
    monkeypatch.setenv("TRIOPERATOR_RUN_PEERING", "ours")
    with kopf_environment(["run"]):
        assert os.environ["TRIOPERATOR_RUN_PEERING"] == "ours"
    assert os.environ["TRIOPERATOR_RUN_PEERING"] == "ours"


def test_all_variables_that_are_translated_to_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    dests = {"--all-namespaces": "CLUSTERWIDE", "--namespace": "NAMESPACES", "--liveness": "LIVENESS_ENDPOINT"}
    dests |= {"--module": "MODULES"}
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, options in OPTIONS.items():
        known = {variable for param in commands[name].params for variable in _variables(param)}
        for option in (option for option in (*options.split(), *SHARED) if option[:2] == "--" and "no-" not in option):
            variable = f"KOPF_{name.upper()}_{dests.get(option, option[2:].replace('-', '_').upper())}"
            monkeypatch.setenv(variable, "x")
            before = set(os.environ)
            with kopf_environment([name]):
                (added,) = set(os.environ) - before
            assert added in known, variable
            monkeypatch.delenv(variable)


def _variables(param: Any) -> list[str]:
    found = param.envvar or []
    return [found] if isinstance(found, str) else list(found)


def test_failures_have_the_exit_codes_of_the_command(tmp_path: pathlib.Path) -> None:
    (tmp_path / "app.py").write_text("import kopf\nfrom kopf._core import nothing\n")
    command = [sys.executable, "-m", "trioperator.kopf", "run", "app.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "The module kopf._core.nothing does not exist here" in done.stderr


def test_the_script_runs_a_file_that_is_called_as_a_module_of_python(tmp_path: pathlib.Path) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts["trioperator-kopf"].split(":")
    # As pip writes it: its own folder is on the path, not the current one.
    script = tmp_path / "bin" / "trioperator-kopf"
    script.parent.mkdir()
    script.write_text(f"from {module} import {function}\n{function}()\n")
    lines = ["import kopf", "@kopf.on.startup()", "def start(**_):", "    raise kopf.PermanentError('reached')"]
    (tmp_path / "operator.py").write_text("\n".join(lines))
    command = [sys.executable, str(script), "run", "--all-namespaces", "--standalone", "operator.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False
    )
    assert "reached" in done.stderr


def test_a_program_with_handlers_of_its_own_runs_the_command_without_files(tmp_path: pathlib.Path) -> None:
    lines = [
        "import kopf, kopf.cli",
        "@kopf.on.startup()",
        "def start(**_):",
        "    raise kopf.PermanentError('reached')",
    ]
    (tmp_path / "app.py").write_text("\n".join([*lines, "kopf.cli.main()"]))
    code = "import trioperator.kopf as k, runpy; k.install(); runpy.run_path('app.py', run_name='__main__')"
    command = [sys.executable, "-c", code, "run", "--all-namespaces", "--standalone"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False
    )
    assert "reached" in done.stderr
