"""Tests for :mod:`trioperator.cli.acting`."""

from __future__ import annotations

import json
import logging
import pathlib
from collections.abc import Iterator

import pytest
import typer

from trioperator.cli.acting import Act, echo, escape_json, run_with_client
from trioperator.cli.failures import FAILURE, USAGE_ERROR
from trioperator.client import Client
from trioperator.errors import ConfigError


@pytest.fixture(autouse=True)
def kubeconfig(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let clients know a cluster, to which nothing is sent. The handlers of logging are those of before afterwards."""
    path = tmp_path / "kubeconfig"
    path.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}"
    )
    monkeypatch.setenv("KUBECONFIG", str(path))
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def test_what_is_not_done_is_a_failure() -> None:
    done: list[bool] = []

    async def act(client: Client) -> bool:
        done.append(isinstance(client, Client))
        return len(done) > 1

    with pytest.raises(typer.Exit) as ended:
        run_with_client(lambda: act)
    assert ended.value.exit_code == FAILURE
    run_with_client(lambda: act)
    assert done == [True, True]


def test_input_that_is_wrong_is_a_usage_error_before_anything_is_done() -> None:
    def prepare() -> Act:
        raise ConfigError("No.")

    with pytest.raises(typer.Exit) as ended:
        run_with_client(prepare)
    assert ended.value.exit_code == USAGE_ERROR


def test_what_others_have_written_does_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    echo("default/a: not released: \x1b]0;x\x07\n\u202eb\x9b2J\r")
    echo("no\x1bsuch object", err=True)
    assert capsys.readouterr() == ("default/a: not released: ?]0;x?\n?b?2J\n", "no?such object\n")


def test_json_that_quotes_others_stays_the_same_json_and_does_not_control_the_terminal() -> None:
    document = '{\n  "field": "a\x9b2J\u202eb\U000e0001\u00e9"\n}'
    escaped = escape_json(document)
    assert escaped == '{\n  "field": "a\\u009b2J\\u202eb\\udb40\\udc01\u00e9"\n}'
    assert json.loads(escaped) == json.loads(document)
