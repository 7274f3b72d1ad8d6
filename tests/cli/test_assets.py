"""Tests for :mod:`trioperator.cli.assets`."""

from __future__ import annotations

import os
import pathlib
import shlex
import subprocess

import pytest

from trioperator.cli import root
from trioperator.cli.assets import write_assets
from trioperator.errors import ConfigError

PROGRAMS = ["etcd", "kube-apiserver", "kubectl"]


def run(program: pathlib.Path, *args: str, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": path}
    return subprocess.run([program, *args], capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_the_output_is_for_eval(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    with pytest.raises(SystemExit) as caught:
        root.app(["cluster", "assets"], prog_name="trioperator")
    assert caught.value.code == 0
    export, assignment = shlex.split(capsys.readouterr().out)
    name, _, folder = assignment.partition("=")
    assert (export, name) == ("export", "KUBEBUILDER_ASSETS")
    assert sorted(os.listdir(folder)) == PROGRAMS


def test_a_folder_of_ones_own_is_printed(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        root.app(["cluster", "--print-assets", str(tmp_path / "new")], prog_name="trioperator")
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"{tmp_path}/new\n"
    assert sorted(os.listdir(tmp_path / "new")) == PROGRAMS


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_assets(tmp_path / "file")


def test_no_flags_of_old_versions_are_in_the_help(tmp_path: pathlib.Path) -> None:
    for program in ("etcd", "kube-apiserver"):
        result = run(write_assets(tmp_path) / program, "--help")
        assert result.returncode == 0
        assert "trioperator" in result.stdout
        assert "--" not in result.stdout


def test_the_api_server_runs_with_the_python_that_wrote_it(tmp_path: pathlib.Path) -> None:
    assert run(write_assets(tmp_path) / "kube-apiserver", "--version").stdout.startswith("Kubernetes v1.")


def test_no_module_of_the_folder_in_which_it_is_started_is_imported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test suites start it where their sources are, which may be anybody's."""
    program = write_assets(tmp_path / "assets") / "kube-apiserver"
    (tmp_path / "csv.py").write_text("raise SystemExit('the file of the folder is imported')\n")
    monkeypatch.chdir(tmp_path)
    result = run(program, "--version")
    assert result.stdout.startswith("Kubernetes v1."), result.stderr


class TestKubectl:
    def test_it_is_the_first_real_one_in_path(self, tmp_path: pathlib.Path) -> None:
        first, second = write_assets(tmp_path / "one"), write_assets(tmp_path / "two")
        real = tmp_path / "real folder"
        real.mkdir()
        (real / "kubectl").write_text('#!/bin/sh\necho "$1: $PATH"; exit 3\n')
        (real / "kubectl").chmod(0o755)
        path = f"{first}:{second}:{real}:/usr/bin:/bin"
        result = run(first / "kubectl", "get x", path=path)
        assert (result.returncode, result.stdout) == (3, f"get x: {path}\n")

    def test_without_a_real_one_it_says_so(self, tmp_path: pathlib.Path) -> None:
        folder = write_assets(tmp_path / "one")
        for tool in ("head", "grep"):
            os.symlink(f"/usr/bin/{tool}", folder / tool)
        result = run(folder / "kubectl", "get", "pods", path=str(folder))
        assert (result.returncode, result.stdout) == (127, "")
        assert "there is none in PATH" in result.stderr
