"""Entry points: players for an operator and the kinds that it handles, and the check of one sequence of states."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import trio

from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator.apiserver import Cluster
from trioperator.cli.manifests import load_manifests
from trioperator.errors import ConfigError
from trioperator.testing.exploring.app import App, FilesApp
from trioperator.testing.exploring.explorer import Budget, Explorer, SubjectReport
from trioperator.testing.exploring.oracles import ORACLES
from trioperator.testing.exploring.outside import HOW_TO_FAKE, Deadline, OutsideCallError, refuse_outside_calls
from trioperator.testing.exploring.perturbations import FAULTS
from trioperator.testing.exploring.plays import Player
from trioperator.testing.exploring.subjects import State, World, find_subjects
from trioperator.testing.exploring.worlds import StatusRule
from trioperator.testing.library_clients import routed_libraries
from trioperator.testing.library_routes import routing_to

# Real seconds for the perturbations of one sequence.
_PATIENCE: Final = 600.0
# Real seconds after which the import of a file counts as blocked.
_PATIENCE_OF_IMPORTS: Final = 60.0


def make_players(
    app: App,
    *,
    crds: Iterable[str | os.PathLike[str]] = (),
    examples: Iterable[str | os.PathLike[str]] = (),
    statuses: Iterable[str] = (),
    kinds: Collection[str] = (),
    on_blocked: Callable[[str], object] | None = None,
) -> list[Player]:
    """Return a player for each kind that is explored. *crds* and *examples* are files or directories of manifests.

    Raises ConfigError for files that cannot be read or loaded, and operators that cannot be explored.
    """
    definitions, objects = _read(crds), _read(examples)
    world = World(
        definitions=[each for each in definitions if each["kind"] == "CustomResourceDefinition"],
        statuses=[StatusRule.parse(text) for text in statuses],
    )
    others = [each for each in definitions if each["kind"] != "CustomResourceDefinition"]

    def end_blocked(place: str | None) -> None:
        if on_blocked is not None:
            on_blocked(f"at {place or 'an unknown place'}, while it is imported")

    async def find() -> list[Player]:
        with Deadline(_PATIENCE_OF_IMPORTS, on_blocked=end_blocked).guard_import():
            registry = _load(app)
        if not tuple(registry):
            raise ConfigError("There is nothing to explore: no decorator has registered a function.")
        whole, subjects = await find_subjects(registry, world, [*others, *objects], kinds=kinds)
        return [Player(app, subject, whole, on_blocked=on_blocked) for subject in subjects]

    return trio.run(find)


def _load(app: App) -> OperatorRegistry:
    """Load the handlers. On import, their files may send requests to the API server, and nowhere else."""
    while True:  # again where a library was imported in it, which had not been routed
        with routed_libraries() as libraries, routing_to(Cluster().transport()), refuse_outside_calls() as refused:
            try:
                registry = app.load()
            except ConfigError:
                if libraries.are_whole and not refused:
                    raise
        if libraries.are_whole:
            break
    if refused:
        raise OutsideCallError(f"{refused[0]}, while it is imported. {HOW_TO_FAKE}")
    return registry


def _read(paths: Iterable[str | os.PathLike[str]]) -> list[Mapping[str, Any]]:
    return [manifest.content for manifest in load_manifests([os.fspath(path) for path in paths])]


def check_names(what: str, names: Iterable[str], known: Mapping[str, str]) -> frozenset[str]:
    """Return the names of oracles or faults; "all" stands for all of them. Raises ConfigError for others."""
    chosen = frozenset(names)
    if unknown := sorted(chosen - known.keys() - {"all"}):
        raise ConfigError(f"There is no {what} {', '.join(unknown)}: choose from {', '.join(known)}.")
    return frozenset(known) if "all" in chosen else chosen


def check_states(
    states: Sequence[State],
    *files: str | os.PathLike[str],
    modules: Sequence[str] = (),
    kind: str | None = None,
    crds: Iterable[str | os.PathLike[str]] = (),
    examples: Iterable[str | os.PathLike[str]] = (),
    statuses: Iterable[str] = (),
    oracles: Iterable[str] = (),
    faults: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> None:
    """Play a sequence of states of an object, and raise AssertionError for what the oracles find.

    ::

        def test_an_autoscaler_can_take_over():
            check_states(
                [{"spec": {"replicas": 5}}, {"spec": {"replicas": 5, "maxReplicas": 10}}],
                "app.py",
                kind="webapps",
                crds=["crd.yaml"],
                oracles=["path"],
            )

    - *files*, *modules*: the operator
    - *kind*: the kind of the object; may be left out if the operator handles only one kind with a definition
    - *crds*, *examples*: paths of manifests; objects of other kinds are created before the play
    - *statuses*: conditions to set by kind, such as ``certificates=Ready``, for kinds that no controller handles
    - *oracles*: names of oracles; default: all
    - *faults*: names of faults to inject, such as ``crash``, or ``all``; default: none
    - *ignore*: kinds and fields whose differences do not matter, such as ``WebApp status.phase``

    It has its own virtual time: call it in a test that is not async. Raises ConfigError for an operator that cannot be
    explored. See docs/exploring.md.
    """
    chosen = check_names("oracle", oracles, {**ORACLES, **FAULTS})
    perturbing = check_names("fault", faults, FAULTS)
    app = FilesApp([os.fspath(file) for file in files], modules)
    players = make_players(app, crds=crds, examples=examples, statuses=statuses, kinds=() if kind is None else (kind,))
    if len(players) > 1:
        names = ", ".join(player.subject.resource for player in players)
        raise ConfigError(f"The operator handles several kinds, {names}: pass one of them as kind=.")
    explorer = Explorer(players[0], oracles=chosen, ignored=tuple(ignore))
    report = explorer.play(states)
    explorer.perturb([states], perturbing, Budget(sequences=1, seconds=_PATIENCE))
    raise_findings(report)


def raise_findings(report: SubjectReport) -> None:
    """Raise AssertionError for the findings that are not only information."""
    found = [each for each in report.findings if not each.is_information]
    if found:
        texts = ("\n  ".join([f"{each.oracle}: {each.summary}", *each.lines]) for each in found)
        raise AssertionError("\n\n".join(texts))
