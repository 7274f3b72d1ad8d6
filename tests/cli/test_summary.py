"""Tests for :mod:`trioperator.cli.summary`: what a terminal shows, and nothing anywhere else."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import pytest

import trioperator
from trioperator.cli.run import load_and_show
from trioperator.cli.run_options import LogFormatName, RunOptions
from trioperator.cli.summary import show_summary


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Declare handlers in a registry of the test, for a terminal of a known width and colours."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm-256color")
    before = trioperator.get_default_registry()
    trioperator.set_default_registry(trioperator.OperatorRegistry())

    @trioperator.on.startup()
    def configure(**_: Any) -> None: ...

    @trioperator.on.create("widgets", id="make[bold]")
    @trioperator.on.update("widgets", id="change")
    @trioperator.on.create("widgets", id="make-too")
    def handle(**_: Any) -> None: ...

    yield
    trioperator.set_default_registry(before)


def show(options: RunOptions) -> list[list[str]]:
    """Return the rows of the summary, without colours."""
    terminal = Terminal()
    show_summary(options, terminal)
    text = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


def test_handlers_are_shown_by_kind_with_the_scope() -> None:
    rows = show(RunOptions())
    assert rows[0][0] == "operator"
    assert rows[1:] == [
        ["widgets", "create: make-too, make[bold]; update: change"],
        ["namespaces", "all"],
    ]


def test_what_is_received_of_a_kind_is_shown() -> None:
    trioperator.on.event("gadgets", id="see", labels={"tier": "gold"})(lambda **_: None)
    assert ["gadgets", "event: see; received: tier=gold"] in show(RunOptions())


def test_options_are_shown_that_matter() -> None:
    options = RunOptions(
        namespaces=["a", "b-*"],
        standalone=True,
        leader_elect=True,
        lease="it",
        health="http://:81/",
        live_view="http://[::1]:83/",
        embedded=True,
    )
    assert show(options)[2:] == [
        ["namespaces", "a, b-*"],
        ["coordination", "leader election by the Lease it"],
        ["peering", "none"],
        ["cluster", "embedded"],
        ["health", "http://:81/"],
        ["live view", "http://[::1]:83/"],
    ]
    assert ["coordination", "3 shards"] in show(RunOptions(shards=3, lease="it"))
    assert ["peering", "mine"] in show(RunOptions(peering="mine"))


def test_terminals_have_colours() -> None:
    terminal = Terminal()
    show_summary(RunOptions(), terminal)
    assert "\x1b[1;36m" in terminal.getvalue()


@pytest.mark.parametrize(
    ("stream", "options"),
    [
        (io.StringIO(), RunOptions()),
        (Terminal(), RunOptions(format=LogFormatName.JSON)),
        (Terminal(), RunOptions(quiet=True)),
    ],
)
def test_nothing_is_shown_elsewhere(stream: io.StringIO, options: RunOptions) -> None:
    show_summary(options, stream)
    assert stream.getvalue() == ""


def test_the_command_shows_it_when_the_files_are_loaded(
    monkeypatch: pytest.MonkeyPatch, restored_modules: None, tmp_path: Any
) -> None:
    (tmp_path / "app_of_summary.py").write_text(
        "import trioperator\n\n@trioperator.on.event('pods')\ndef seen(): ...\n"
    )
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    load_and_show(RunOptions(files=[str(tmp_path / "app_of_summary.py")]))
    assert "event: seen" in terminal.getvalue()
