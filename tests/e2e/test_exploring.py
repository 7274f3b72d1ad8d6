"""What exploring says is true of a real control plane: it ends as the embedded one, and what is found is there, too."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence

import pytest

from tests.controlplane import ControlPlane
from tests.e2e.replaying import RealStage, mask_results
from tests.explore.examples import EXAMPLES, FOLDER, Example
from tests.explore.planted import FIELDS, PLANTED, Planted
from tests.program import Program
from tests.testing.exploring.operators import make_crd, make_player
from trioperator.testing.exploring.explorer import PlayCache
from trioperator.testing.exploring.plays import Player
from trioperator.testing.exploring.sequences import draw_sequences
from trioperator.testing.exploring.snapshots import Mask, compare
from trioperator.testing.exploring.subjects import State

_SINGLE = [each for each in EXAMPLES if (FOLDER / each.name / "main.py").exists() and each.name != "21-everything"]
_RECONCILE = next(each for each in EXAMPLES if each.name == "20-reconcile")
#: What follows from nodes, which there are none of.
_OF_NODES: set[Mask] = {("Pod", ("spec", "nodeName")), ("KopfExample", ("status", "ready"))}
#: Sequences of 20-reconcile with findings once: an autoscaler that takes over, and one that the server rejects.
_KNOWN: list[list[State]] = [
    [{"spec": {"replicas": 5}}, {"spec": {"replicas": 5, "maxReplicas": 10}}],
    [{"spec": {"replicas": 5, "host": "a.example.com"}}, {"spec": {"replicas": 5, "maxReplicas": 2}}],
]
_FOUND: dict[str, list[State]] = {
    "a removal that nobody handles": [{"spec": {"greeting": "a"}}, {"spec": {}}],
    "a prune that is forgotten": [{"spec": {"size": 2}}, {"spec": {"size": 1}}],
    "an error that is never forgotten": [{"spec": {"size": 0}}, {"spec": {"size": 2}}],
}


def find_differences(
    player: Player, states: Sequence[State], stage: RealStage, *, ends_like: Sequence[State] | None = None
) -> list[str]:
    """Play states on the real cluster, and return how that ends otherwise than other states on the embedded one."""
    cache = PlayCache(player)
    cache.find_masks(states)
    expected = cache.play(ends_like or states, to_the_end=False).last.snapshot
    masks = {*cache.masks, *mask_results(player), *_OF_NODES}
    return [str(each) for each in compare(stage.play(states), expected, masks=masks)]


@pytest.mark.parametrize("example", _SINGLE, ids=lambda each: each.name)
def test_an_example_ends_as_on_the_embedded_server(
    example: Example, controlplane: ControlPlane, start_operator: Callable[..., Program], tmp_path: pathlib.Path
) -> None:
    player = example.make_player(tmp_path)
    stage = RealStage(controlplane, player.subject)
    start_operator("", "-n", stage.namespace, str(FOLDER / example.name / "main.py"))
    states = next(draw_sequences(player.subject, seed=0, steps=3))
    assert find_differences(player, states, stage) == []


@pytest.mark.parametrize("states", _KNOWN, ids=["handed-over", "rejected"])
def test_what_was_found_of_an_example_is_mended(
    states: list[State], controlplane: ControlPlane, start_operator: Callable[..., Program], tmp_path: pathlib.Path
) -> None:
    player = _RECONCILE.make_player(tmp_path)
    stage = RealStage(controlplane, player.subject)
    start_operator("", "-n", stage.namespace, str(FOLDER / _RECONCILE.name / "main.py"))
    stage.play(states)
    assert stage.find("deployments")["spec"]["replicas"] == 5
    assert stage.find("ingresses") is None


@pytest.mark.parametrize("name", _FOUND)
def test_what_is_found_of_a_planted_defect_is_there(
    name: str, controlplane: ControlPlane, start_operator: Callable[..., Program], tmp_path: pathlib.Path
) -> None:
    planted: Planted = next(each for each in PLANTED if each.name == name)
    states = _FOUND[name]
    player = make_player(tmp_path, planted.code, make_crd(**FIELDS))
    controlplane.apply(make_crd(**FIELDS))
    controlplane.kubectl("wait", "--for=condition=Established", "crd/webapps.example.com", "--timeout=30s")
    stage = RealStage(controlplane, player.subject)
    start_operator("", "-n", stage.namespace, str(tmp_path / "app.py"))
    found = find_differences(player, states, stage, ends_like=states[-1:])
    assert any("ConfigMap default/example" in line for line in found), found
