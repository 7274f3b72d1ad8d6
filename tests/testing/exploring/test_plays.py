"""Tests for :mod:`trioperator.testing.exploring.plays`: what is kept of a play, and what ends it."""

from __future__ import annotations

import logging
import pathlib

import pytest

from tests.testing.exploring.operators import GOOD, make_crd, make_player
from trioperator.errors import ConfigError
from trioperator.testing.exploring.outside import OutsideCallError
from trioperator.testing.exploring.plays import _kept_logs

ONE, TWO = {"spec": {"size": 1}}, {"spec": {"size": 2}}


def test_a_play_goes_through_its_states_and_ends_with_the_deletion(tmp_path: pathlib.Path) -> None:
    play = make_player(tmp_path, GOOD).play([ONE, TWO])
    assert [step.state for step in play.steps] == [ONE, TWO]
    assert [step.snapshot["ConfigMap default/example"]["data"]["size"] for step in play.steps] == ["1", "2"]
    assert all(step.has_settled and not step.is_failing for step in play.steps)
    assert [len(hour.writes) for hour in play.hours] == [0, 0]
    assert play.release is not None
    assert not play.leftovers
    assert not play.problems


def test_a_play_is_the_same_each_time(tmp_path: pathlib.Path) -> None:
    source = GOOD + (
        '\n@trioperator.on.create("webapps")\n'
        "def create_fn(patch):\n"
        "    import random, datetime\n"
        "    patch.status['x'] = random.random()\n"
    )
    player = make_player(tmp_path, source)
    plays = [player.play([ONE, TWO], seed=seed) for seed in (0, 0, 1)]
    snapshots = [[step.snapshot for step in play.steps] for play in plays]
    assert snapshots[0] == snapshots[1] != snapshots[2]


def test_states_that_the_server_rejects_are_no_steps(tmp_path: pathlib.Path) -> None:
    rule = {"rule": "self.size >= oldSelf.size", "message": "it cannot shrink"}
    crd = make_crd(size={"type": "integer"})
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema["x-kubernetes-validations"] = [rule]
    play = make_player(tmp_path, GOOD, crd).play([TWO, ONE, {"spec": {"size": "x"}}])
    assert [step.state for step in play.steps] == [TWO]
    assert ["it cannot shrink" in (step.rejected or "") for step in play.rejected] == [True, False]


def test_failures_and_rejections_are_kept(tmp_path: pathlib.Path) -> None:
    source = GOOD.replace('"kind": "ConfigMap", "data"', '"kind": "ConfigMap", "metadata": {"name": "A B"}, "data"')
    step = make_player(tmp_path, source).play([ONE], to_the_end=False).last
    assert step.is_failing
    assert set(step.rejections.values()) == {422}
    source = GOOD.replace('spec.get("size", 1)', 'spec["missing"]')
    step = make_player(tmp_path, source).play([ONE], to_the_end=False).last
    assert isinstance(step.last_calls["web_app"].error, KeyError)


def test_what_is_left_behind_is_named(tmp_path: pathlib.Path) -> None:
    source = """\
import trioperator

@trioperator.on.create("webapps")
async def create_fn(client):
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}, owner=None)

@trioperator.on.delete("webapps")
async def delete_fn():
    raise trioperator.TemporaryError("not yet", delay=3600)
"""
    play = make_player(tmp_path, source).play([ONE])
    assert play.leftovers == [
        "ConfigMap default/kept is left behind",
        "WebApp example itself is not deleted: it is kept by the finalizers trioperator.dev/finalizer",
    ]


def test_what_is_logged_in_a_play_is_not_printed(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = GOOD + '\nimport logging\nlogging.getLogger("trioperator.apiserver").warning("seen")\n'
    player = make_player(tmp_path, source)
    capfd.readouterr()
    with _kept_logs():
        logging.getLogger("trioperator.apiserver").warning("before the operator is there")
    player.play([ONE])
    assert capfd.readouterr().err == ""


def test_outside_calls_end_a_play(tmp_path: pathlib.Path) -> None:
    source = GOOD + (
        '\n@trioperator.on.create("webapps")\n'
        "def create_fn():\n"
        "    import socket\n"
        "    socket.create_connection(('127.0.0.1', 1))\n"
    )
    with pytest.raises(OutsideCallError, match=r"Handler 'create_fn' connects to 127\.0\.0\.1:1 .*app\.py:14.*--setup"):
        make_player(tmp_path, source).play([ONE])


def test_a_handler_that_never_returns_ends_a_play(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trioperator.testing.exploring.plays._PATIENCE", 0.5)
    source = GOOD + (
        '\n@trioperator.on.create("webapps")\ndef create_fn():\n    import threading\n    threading.Event().wait(5)\n'
    )
    with pytest.raises(ConfigError, match=r"has not ended within .*app\.py:14, and does not return.*create_fn 1 times"):
        make_player(tmp_path, source).play([ONE])


def test_an_operator_that_does_not_start_ends_a_play(tmp_path: pathlib.Path) -> None:
    source = GOOD + '\n@trioperator.on.startup()\ndef startup_fn():\n    raise trioperator.PermanentError("no")\n'
    with pytest.raises(ConfigError, match=r"The operator fails: .*no"):
        make_player(tmp_path, source).play([ONE])
