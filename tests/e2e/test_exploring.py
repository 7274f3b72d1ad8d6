"""What exploring says is true of a real control plane: it ends as the embedded one, and what is found is there, too."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import pytest

from tests.controlplane import ControlPlane
from tests.e2e.replaying import Replay, Result, mask_results, replay
from tests.explore.examples import EXAMPLES, FOLDER
from tests.explore.planted import FIELDS, PLANTED
from tests.testing.exploring.operators import make_crd, make_player
from trioperator.testing.exploring.explorer import PlayCache
from trioperator.testing.exploring.sequences import draw_sequences
from trioperator.testing.exploring.snapshots import Mask, compare
from trioperator.testing.exploring.subjects import State

_EXAMPLES: Final = {each.name: each for each in EXAMPLES}
_SINGLE: Final = [each for each in _EXAMPLES if (FOLDER / each / "main.py").exists() and each != "21-everything"]
#: What follows from nodes, which there are none of.
_OF_NODES: Final[set[Mask]] = {("Pod", ("spec", "nodeName")), ("KopfExample", ("status", "ready"))}
#: Sequences of 20-reconcile with findings once: an autoscaler that takes over, and one that the server rejected.
_KNOWN: Final[dict[str, list[State]]] = {
    "handed over": [{"spec": {"replicas": 5}}, {"spec": {"replicas": 5, "maxReplicas": 10}}],
    "limited": [{"spec": {"replicas": 5, "host": "a.example.com"}}, {"spec": {"replicas": 5, "maxReplicas": 2}}],
}
_FOUND: Final[dict[str, list[State]]] = {
    "a removal that nobody handles": [{"spec": {"greeting": "a"}}, {"spec": {}}],
    "a prune that is forgotten": [{"spec": {"size": 2}}, {"spec": {"size": 1}}],
    "an error that is never forgotten": [{"spec": {"size": 0}}, {"spec": {"size": 2}}],
}

Replayed: TypeAlias = Mapping[str, tuple[Replay, Result]]


def list_replays(folder: pathlib.Path) -> Iterator[tuple[str, Replay]]:
    for name in (*_SINGLE, *_KNOWN, *_FOUND):
        (folder / name).mkdir()
    for name in _SINGLE:
        player = _EXAMPLES[name].make_player(folder / name)
        yield name, Replay(player, next(draw_sequences(player.subject, seed=0, steps=3)))
    for name, states in _KNOWN.items():
        yield name, Replay(_EXAMPLES["20-reconcile"].make_player(folder / name), states)
    for name, states in _FOUND.items():
        (planted,) = (each for each in PLANTED if each.name == name)
        yield name, Replay(make_player(folder / name, planted.code, make_crd(**FIELDS)), states)


@pytest.fixture(scope="module")
def replayed(controlplane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    """Replay all at the same time: most of it is waiting for what does not come."""
    controlplane.apply(make_crd(**FIELDS))
    controlplane.kubectl("wait", "--for=condition=Established", "crd/webapps.example.com", "--timeout=30s")
    replays = dict(list_replays(tmp_path_factory.mktemp("replays")))
    results = replay(controlplane, replays)
    return {name: (replays[name], results[name]) for name in replays}


def find_differences(replay: Replay, result: Result, *, ends_like: Sequence[State]) -> list[str]:
    """Return how a replay has ended otherwise than these states do on the embedded server."""
    cache = PlayCache(replay.player)
    masks = {*mask_results(replay.player), *_OF_NODES}
    expected = cache.play(ends_like, to_the_end=False).last.snapshot
    if compare(result.snapshot, expected, masks=masks) and cache.find_masks(replay.states):
        expected = cache.play(ends_like, to_the_end=False).last.snapshot
    return [str(each) for each in compare(result.snapshot, expected, masks={*masks, *cache.masks})]


@pytest.mark.parametrize("name", [*_SINGLE, *_KNOWN])
def test_an_example_ends_as_on_the_embedded_server(name: str, replayed: Replayed) -> None:
    replay, result = replayed[name]
    assert find_differences(replay, result, ends_like=replay.states) == []


@pytest.mark.parametrize(("name", "replicas"), [("handed over", 5), ("limited", 2)])
def test_what_was_found_of_an_example_is_mended(name: str, replicas: int, replayed: Replayed) -> None:
    _, result = replayed[name]
    assert result.find("Deployment")["spec"]["replicas"] == replicas
    assert result.find("Ingress") is None


@pytest.mark.parametrize("name", _FOUND)
def test_what_is_found_of_a_planted_defect_is_there(name: str, replayed: Replayed) -> None:
    replay, result = replayed[name]
    found = find_differences(replay, result, ends_like=replay.states[-1:])
    assert any("ConfigMap default/example" in line for line in found), found
