"""Tests for :mod:`trioperator.testing.exploring.stages`: when a step is over."""

from __future__ import annotations

import pathlib

from tests.testing.exploring.operators import GOOD, make_player


def test_a_step_waits_for_handlers_that_take_long(tmp_path: pathlib.Path) -> None:
    source = "import trio\n" + GOOD + (
        '\n@trioperator.on.create("webapps")\nasync def create_fn(patch):\n'
        "    await trio.sleep(300)\n    patch.status['done'] = True\n"
    )  # fmt: skip
    step = make_player(tmp_path, source).play([{"spec": {}}], to_the_end=False).last
    assert step.snapshot["WebApp default/example"]["status"] == {"done": True}
    assert step.pending == []


def test_a_step_does_not_wait_for_timers_for_ever(tmp_path: pathlib.Path) -> None:
    source = GOOD + (
        '\n@trioperator.timer("webapps", interval=1)\ndef tick(patch, status):\n'
        "    patch.status['ticks'] = status.get('ticks', 0) + 1\n"
    )
    play = make_player(tmp_path, source).play([{"spec": {}}])
    assert len(play.calls) < 1500
    assert play.leftovers == []


def test_dry_runs_are_no_writes_of_a_step(tmp_path: pathlib.Path) -> None:
    source = GOOD + (
        '\n@trioperator.on.reconcile("webapps", owns=[trioperator.Owned("jobs", strategy="recreate")])\n'
        "def run(spec):\n"
        "    container = {'name': 'main', 'image': f'image-{spec[\"size\"]}'}\n"
        "    template = {'spec': {'restartPolicy': 'Never', 'containers': [container]}}\n"
        "    yield {'apiVersion': 'batch/v1', 'kind': 'Job', 'spec': {'template': template}}\n"
    )
    play = make_player(tmp_path, source).play([{"spec": {"size": 1}}, {"spec": {"size": 2}}], to_the_end=False)
    responses = [(verb, code) for verb, path, code in play.last.responses if path.startswith("jobs.batch")]
    assert responses == [("patch", 422), ("delete", 200), ("patch", 201)]


def test_a_status_of_the_name_of_a_handler_is_left_out_only_if_it_is_the_result(tmp_path: pathlib.Path) -> None:
    source = GOOD + (
        '\n@trioperator.on.create("webapps")\ndef size(spec, patch):\n'
        "    patch.status['size'] = spec['size']\n"
        '\n@trioperator.on.create("webapps")\ndef result():\n    return {"a": 1}\n'
        '\n@trioperator.on.create("webapps")\ndef parent():\n'
        '    trioperator.register(lambda **_: "done", id="part")\n'
    )
    step = make_player(tmp_path, source).play([{"spec": {"size": 1}}], to_the_end=False).last
    assert step.snapshot["WebApp default/example"]["status"] == {"size": 1}
