"""Tests for :mod:`trioperator.testing.kopf_runner`: blocking tests beside an operator."""

from __future__ import annotations

import logging
import pathlib
import sys
import threading
from collections.abc import Iterator

import pytest

import trioperator
from trioperator.testing import KopfRunner

APP = """
import trioperator

@trioperator.on.startup()
def configure(memo, **_):
    print("And here we are!")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "app.py").write_text(APP)
    default = trioperator.get_default_registry()
    trioperator.set_default_registry(trioperator.OperatorRegistry())
    yield tmp_path
    trioperator.set_default_registry(default)
    sys.modules.pop("__trioperator_script_0__app%2Epy", None)


def test_an_operator_runs_beside_the_test() -> None:
    registry, settings = trioperator.OperatorRegistry(), trioperator.OperatorSettings()
    default, root = trioperator.get_default_registry(), logging.getLogger()
    handlers = root.handlers[:]
    args = ["run", "-A", "--embedded", "app.py"]
    with KopfRunner(args, registry=registry, settings=settings, timeout=60) as runner:
        assert any(thread.name == "operator" for thread in threading.enumerate())
        with pytest.raises(RuntimeError, match="has not ended yet"):
            _ = runner.exit_code
    assert (runner.exit_code, runner.exception, runner.exc_info) == (0, None, None)
    assert "And here we are!\n" in runner.stdout
    assert "The operator is ready." in runner.stdout == runner.output
    assert "The operator is ready." in runner.stderr
    assert b"And here" in runner.stdout_bytes
    assert b"And here" not in runner.stderr_bytes
    assert [handler.id for handler in registry] == ["configure"]
    assert trioperator.get_default_registry() is default
    assert root.handlers == handlers


def test_the_handlers_of_a_registry_need_no_files() -> None:
    registry = trioperator.OperatorRegistry()
    called: list[str] = []

    @trioperator.on.startup(registry=registry)
    def configure() -> None:
        called.append("startup")

    with KopfRunner(["run", "-A", "--embedded"], registry=registry, timeout=60) as runner:
        pass
    assert (runner.exit_code, called) == (0, ["startup"])


def test_an_operator_that_cannot_start_fails_the_test_with_its_output() -> None:
    failed = pytest.raises(RuntimeError, match=r"(?s)^The operator has ended with the exit code 2:.*missing\.py")
    with failed, KopfRunner(["run", "-A", "missing.py"], timeout=60):
        pass


def test_a_failure_may_be_looked_at_instead() -> None:
    with KopfRunner(["run", "-A", "missing.py"], reraise=False, timeout=60) as runner:
        pass
    assert runner.exit_code == 2
    assert "missing.py" in runner.output


def test_the_error_of_the_test_comes_first() -> None:
    with pytest.raises(AssertionError, match="mine"), KopfRunner(["run", "-A", "missing.py"], timeout=60):
        raise AssertionError("mine")


def test_environment_variables_are_passed_on() -> None:
    with KopfRunner(["run", "-A", "--embedded", "app.py"], env={"TRIOPERATOR_RUN_QUIET": "yes"}, timeout=60) as runner:
        pass
    assert "The operator has stopped." not in runner.output
