"""Properties: Hypothesis tests whose examples are sequences of states."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import hypothesis
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from trioperator.errors import ConfigError
from trioperator.testing.exploring.app import FilesApp
from trioperator.testing.exploring.checks import check_names, make_players, raise_findings
from trioperator.testing.exploring.explorer import Explorer
from trioperator.testing.exploring.oracles import ORACLES
from trioperator.testing.exploring.plays import Player
from trioperator.testing.exploring.sequences import state_strategy
from trioperator.testing.exploring.subjects import State

_EXAMPLES: Final = 20
_PHASES: Final = tuple(phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain)  # of lines of ours


class StatesPlay:
    """A sequence of states that a test plays: ``play.check("path", "quiet")``; without names, all oracles."""

    def __init__(self, player: Player, states: Sequence[State]) -> None:
        self._player = player
        self.states = states

    def check(self, *oracles: str) -> None:
        """Play the states, and raise AssertionError for what these oracles find."""
        chosen = check_names("oracle", oracles, ORACLES)
        raise_findings(Explorer(self._player, oracles=chosen).play(self.states))

    def __repr__(self) -> str:
        return f"the play of {self.states!r}"


def explores(
    kind: str,
    *files: str | os.PathLike[str],
    modules: Sequence[str] = (),
    crds: Iterable[str | os.PathLike[str]] = (),
    examples: Iterable[str | os.PathLike[str]] = (),
    steps: int = 5,
    max_examples: int = _EXAMPLES,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with plays of sequences of states, as its argument *play*. Hypothesis draws and shrinks these.

    ::

        @explores("webapps", "app.py", crds=["crd.yaml"], steps=4)
        def test_the_way_does_not_matter(play):
            play.check("path", "revert")

    The operator is in the *files* and *modules*; *kind* is the one to explore. *crds* and *examples* are paths of
    manifests. Sequences have at most *steps* states; Hypothesis draws *max_examples* of them. The test must not be
    async, as plays have their own virtual time. It can have other fixtures. Raises ConfigError for an ambiguous kind.
    See docs/exploring.md.
    """
    players: list[Player] = []

    def draw() -> SearchStrategy[Any]:
        if not players:
            app = FilesApp([os.fspath(file) for file in files], modules)
            players.extend(make_players(app, crds=crds, examples=examples, kinds=(kind,)))
        if len(players) > 1:
            raise ConfigError(f"{kind} is ambiguous: add the group, with a dot.")
        sequences = st.lists(state_strategy(players[0].subject), min_size=1, max_size=steps)
        return sequences.map(lambda states: StatesPlay(players[0], states))

    limits = hypothesis.settings(
        max_examples=max_examples,
        deadline=None,
        phases=_PHASES,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    return lambda test: limits(hypothesis.given(play=st.deferred(draw))(test))
