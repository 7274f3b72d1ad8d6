"""Tests for :mod:`trioperator.cli.controls`: programs that run the command themselves."""

from __future__ import annotations

import logging
import pathlib
import sys
import threading
from collections.abc import Iterator

import pytest

import trioperator
from trioperator import cli
from trioperator.cli import CLIControls

APP = """
import trioperator

@trioperator.on.startup()
def configure(settings, **_):
    settings.watching.server_timeout += 1
    print(settings.watching.server_timeout, settings.leadership.name)
"""


@pytest.fixture
def program(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[trioperator.OperatorRegistry, trioperator.OperatorSettings]]:
    """Return a registry and settings of a program, in a folder with a file; restore what commands change."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "app.py").write_text(APP)
    default, root = trioperator.get_default_registry(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    settings = trioperator.OperatorSettings()
    settings.watching.server_timeout = 10
    yield trioperator.OperatorRegistry(), settings
    sys.modules.pop("__trioperator_script_0__app%2Epy", None)
    trioperator.set_default_registry(default)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    ("options", "name", "left"), [((), "trioperator", 11), (("--leader-elect", "--lease=default/mine"), "mine", 10)]
)
def test_a_program_controls_the_operator_that_it_runs(
    options: tuple[str, ...],
    name: str,
    left: float,
    program: tuple[trioperator.OperatorRegistry, trioperator.OperatorSettings],
    capsys: pytest.CaptureFixture[str],
) -> None:
    registry, settings = program
    ready, stop = threading.Event(), threading.Event()
    was_ready: list[bool] = []

    def wait_and_stop() -> None:
        was_ready.append(ready.wait(90))
        stop.set()

    thread = threading.Thread(target=wait_and_stop)
    thread.start()
    controls = CLIControls(ready_flag=ready, stop_flag=stop, registry=registry, settings=settings)
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", "--embedded", *options, "app.py"], controls=controls)
    thread.join()
    assert (caught.value.code, was_ready) == (0, [True])
    assert trioperator.get_default_registry() is registry
    assert [handler.id for handler in registry] == ["configure"]
    assert f"11 {name}\n" in capsys.readouterr().out
    assert settings.watching.server_timeout == left  # options change a copy


def test_other_commands_take_no_controls(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"], controls=CLIControls())
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("trioperator, version ")


def test_controls_are_named() -> None:
    with pytest.raises(TypeError):
        CLIControls(threading.Event())  # type: ignore[call-arg]
