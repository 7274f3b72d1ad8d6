"""The search: sequences are played until the budget is used up, and each finding is confirmed and shrunk."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from trioperator.errors import ConfigError
from trioperator.testing.exploring.findings import Finding, absorb, find_origin, list_known_causes
from trioperator.testing.exploring.oracles import (
    judge_alone,
    judge_perturbed,
    judge_renewals,
    judge_step,
    list_renewed,
    select,
)
from trioperator.testing.exploring.perturbations import Extent, iterate_perturbations
from trioperator.testing.exploring.plays import Player
from trioperator.testing.exploring.sequences import Path, draw_sequences, iterate_paths, list_changed, with_field_of
from trioperator.testing.exploring.shrinking import shrink
from trioperator.testing.exploring.snapshots import ABSENT, Mask, Snapshot, compare
from trioperator.testing.exploring.steps import Play
from trioperator.testing.exploring.subjects import State

# Evaluations by which a finding is shrunk, and states after which a field without effect is reported.
_SHRINKING: Final = 60
_SHRINKING_PERTURBED: Final = 12
_MANY_STATES: Final = 50
# Sequences whose parts are perturbed.
_SHORT: Final = 12
_TRIES: Final = 3
_INTERRUPTED: Final = "by an interrupt"
# Orders in a row that are known: others are not likely to be new.
_SAME_ORDERS: Final = 3
# Findings of one kind, after which no more of it are looked into.
_MAX_FINDINGS: Final = 8


class SubjectReport(msgspec.Struct, kw_only=True):
    """Findings for one kind, and how much was tried. *stopped* is why the search ended early, if it did."""

    resource: str
    kind: str
    states: int = 0
    sequences: int = 0
    transitions: int = 0
    rejected: int = 0
    perturbed: int = 0
    findings: list[Finding] = []
    without_effect: list[str] = []
    stopped: str | None = None

    @property
    def is_interrupted(self) -> bool:
        """Whether the user has ended the search."""
        return self.stopped == _INTERRUPTED


class Budget:
    """How much is tried: a number of sequences, within a number of real seconds."""

    def __init__(self, *, sequences: int, seconds: float) -> None:
        self.sequences = sequences
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self._end - time.monotonic()


class PlayCache:
    """Plays of one subject: each is played once, and masks are found for what is never the same."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.masks: set[Mask] = set()
        self._plays: dict[tuple[str, int, bool], Play] = {}

    def play(self, states: Sequence[State], *, seed: int = 0, to_the_end: bool = True) -> Play:
        """Return the play of a sequence."""
        key = (msgspec.json.encode(states, order="sorted").decode(), seed, to_the_end)
        if key not in self._plays:
            self._plays[key] = self.player.play(states, seed=seed, to_the_end=to_the_end)
        return self._plays[key]

    def play_fresh(self, state: State, *, seed: int = 0) -> Play:
        """Return the play of an object that is created in a state."""
        return self.play([state], seed=seed, to_the_end=False)

    def find_masks(self, states: Sequence[State]) -> bool:
        """Play a sequence and its states again in other times; return whether there are new masks."""
        known = len(self.masks) + len(self.player.anonymous)
        plays = [(self.play(states, to_the_end=False, seed=seed)) for seed in (0, 1)]
        pairs = list(zip(plays[0].steps, plays[1].steps, strict=False))
        for step in plays[0].steps:
            assert step.state is not None
            again = [self.play_fresh(step.state, seed=seed) for seed in (0, 1)]
            pairs += zip(again[0].steps, again[1].steps, strict=False)
        for one, other in pairs:
            self._mask(one.snapshot, other.snapshot)
        for whole in (
            self.play(states),
            *(self.play([step.state]) for step in plays[0].steps if step.state is not None),
        ):
            if whole.hours:  # a matter of time, not of states
                self.masks |= {each.mask for each in compare(whole.hours[-1].snapshot, whole.last.snapshot)}
        return len(self.masks) + len(self.player.anonymous) > known

    def _mask(self, one: Snapshot, other: Snapshot) -> None:
        differences = compare(one, other, masks=self.masks)
        added = {each.obj.partition(" ")[0] for each in differences if not each.path and each.expected == ABSENT}
        removed = {each.obj.partition(" ")[0] for each in differences if not each.path and each.found == ABSENT}
        for kind in added & removed - self.player.anonymous:
            self.player.anonymous.add(kind)
            self._plays.clear()
        self.masks |= {each.mask for each in differences if each.path}


def evaluate(
    cache: PlayCache, states: Sequence[State], *, oracles: Collection[str] = (), ignored: Collection[str] = ()
) -> list[Finding]:
    """Return all findings of a sequence of states."""
    play = cache.play(states)
    if not play.steps:
        return []
    found, refused = [*judge_alone(play), *judge_renewals(play, masks=cache.masks)], set[str]()
    for index, step in enumerate(play.steps):
        assert step.state is not None
        for finding in judge_step(play, index, cache.play_fresh(step.state), masks=cache.masks):
            if finding.is_information:
                refused |= finding.causes
            finding.is_information |= finding.causes <= refused  # it stays as it was refused
            found.append(finding)
    return list(select(found, oracles, ignored))


class Explorer:
    """The exploration of one subject."""

    def __init__(
        self,
        player: Player,
        *,
        seed: int = 0,
        steps: int = 5,
        oracles: Collection[str] = (),
        ignored: Collection[str] = (),
        on_progress: Callable[[SubjectReport], object] = lambda _: None,
    ) -> None:
        self._cache = PlayCache(player)
        self._oracles, self._ignored = oracles, ignored
        self._sequences = draw_sequences(player.subject, seed=seed, steps=steps)
        self._on_progress = on_progress
        self._states: set[str] = set()
        self._effects: dict[str, list[bool]] = {}
        self._renewals: dict[str, dict[Path, list[State]]] = {}  # generated values, the fields that replace them, how
        self.report = SubjectReport(resource=player.subject.resource, kind=player.subject.kind)

    def run(self, budget: Budget) -> SubjectReport:
        """Explore until the budget is used up; KeyboardInterrupt ends it, too.

        Raises ConfigError as plays do, and if the API server accepts none of the states that the schema allows.
        """
        try:
            for sequence in self._draw():
                if self.report.sequences >= budget.sequences:
                    break
                if not self.report.sequences:
                    self._cache.find_masks(sequence[:2])
                self.examine(sequence, budget)
                if budget.left <= 0:
                    self.report.stopped = f"after {budget.seconds:.3g} s"
                    break
                self._on_progress(self.report)
        except KeyboardInterrupt:
            self.report.stopped = _INTERRUPTED
        self._conclude()
        return self.report

    def _check_accepted(self, play: Play) -> None:
        """Raise ConfigError if no state was ever accepted, after a number of sequences."""
        if self.report.states or self.report.sequences < _TRIES or not play.rejected:
            return
        resource, reason = self.report.resource, play.rejected[-1].rejected
        raise ConfigError(
            f"The API server rejects all {self.report.rejected} states of {resource} that were drawn from its schema,"
            f" such as by: {reason} Pass manifests of valid objects, --from FILE, or strategies, --setup FILE."
        )

    def draw_short(self) -> list[Sequence[State]]:
        """Return short sequences to perturb: single states, and changes of each field.

        Single states whose fields have been there with other values come last, as they rarely show anything new.
        """
        found: dict[str, Sequence[State]] = {}
        for sequence in itertools.islice(self._draw(), _SHORT):
            for states in (sequence[1:2], sequence[:2], sequence[1:3]):
                if states:
                    found.setdefault(repr(states), states)
        singles = [states for states in found.values() if len(states) == 1]
        first = {tuple(sorted(path for path, _ in iterate_paths(states[0]))): states for states in reversed(singles)}
        pairs = [states for states in found.values() if len(states) > 1]
        chosen = list(reversed(first.values()))
        return [*chosen, *pairs, *(states for states in singles if states not in chosen)]

    def _draw(self) -> Iterator[list[State]]:
        """Return the sequences from the first one on: they are drawn once."""
        self._sequences, again = itertools.tee(self._sequences)
        return again

    def perturb(self, sequences: Iterable[Sequence[State]], faults: Collection[str], budget: Budget) -> None:
        """Play sequences with everything that may happen besides, and add what ends otherwise."""
        if faults and not self.report.is_interrupted:
            try:
                self._perturb(sequences, faults, budget)
            except KeyboardInterrupt:
                self.report.stopped = _INTERRUPTED

    def _perturb(self, sequences: Iterable[Sequence[State]], faults: Collection[str], budget: Budget) -> None:
        for states in sequences:
            plain = self._cache.play(states)
            if not plain.steps or any(step.is_failing for step in plain.steps):
                continue
            self._cache.find_masks(states)
            for finding in self._iterate_perturbed(states, self._cache.play(states), faults, budget):
                if not self._absorb(finding):
                    finding.ignore(self._list_known_causes(finding))
                    self._append(self._shrink_perturbed(finding, budget))
            self.report.transitions = self._cache.player.transitions
            self._on_progress(self.report)

    def _shrink_perturbed(self, finding: Finding, budget: Budget) -> Finding:
        """Return the finding for the simplest sequence that shows it with one perturbation of its fault."""
        best = finding

        def shows(states: Sequence[State]) -> bool:
            nonlocal best
            plain = self._cache.play(states)
            if budget.left <= 0 or not plain.steps or any(step.is_failing for step in plain.steps):
                return False
            found = self._iterate_perturbed(states, plain, {finding.fault}, budget)
            smaller = next((each for each in found if self._is_same(each, finding)), None)
            best = smaller or best
            return smaller is not None

        shrink(finding.states, shows, limit=_SHRINKING_PERTURBED)
        return best

    def _iterate_perturbed(
        self, states: Sequence[State], plain: Play, faults: Collection[str], budget: Budget
    ) -> Iterator[Finding]:
        player = self._cache.player
        extent = Extent(
            writes=len(plain.writes),
            calls=plain.outside_calls,
            steps=len(states),
            watched=plain.watched,
            children=[name for name in plain.last.snapshot if name.partition(" ")[0] in player.subject.owned],
        )
        logs, same = {plain.log}, 0
        for perturbation in iterate_perturbations(faults, extent):
            if perturbation.fault == "order" and same >= _SAME_ORDERS:
                continue
            if budget.left <= 0:
                self.report.stopped = f"after {budget.seconds:.3g} s"
                return
            self.report.perturbed += 1
            play = player.play(states, perturbation=perturbation)
            if perturbation.fault == "order":
                same = same + 1 if play.log in logs else 0
                logs.add(play.log)
            found = judge_perturbed(play, plain, perturbation, masks=self._cache.masks)
            yield from select(found, self._oracles and {*self._oracles, *faults}, self._ignored)

    def play(self, states: Sequence[State]) -> SubjectReport:
        """Play only this sequence, and report all that is found, as it is. Raises ConfigError as plays do."""
        if evaluate(self._cache, states):  # of whatever oracle: what it takes for a difference may be generated
            self._cache.find_masks(states)
        found = self._evaluate(states)
        play = self._cache.play(states)
        self.report.sequences, self.report.rejected = 1, len(play.rejected)
        self.report.states, self.report.transitions = len(play.steps), self._cache.player.transitions
        for finding in found:
            self._append(finding)
        return self.report

    def _evaluate(self, states: Sequence[State]) -> list[Finding]:
        return evaluate(self._cache, states, oracles=self._oracles, ignored=self._ignored)

    def examine(self, states: Sequence[State], budget: Budget) -> None:
        """Play one sequence, and add what is found, as long as there is time to confirm it."""
        report = self.report
        report.sequences += 1
        found = self._evaluate(states)
        play = self._cache.play(states)
        report.rejected += len(play.rejected)
        self._states |= {repr(step.state) for step in play.steps}
        report.states, report.transitions = len(self._states), self._cache.player.transitions
        self._check_accepted(play)
        self._note_effects(play)
        for finding in [*found, *self._follow_renewals(play)]:
            if budget.left > 0:
                self._add(finding, budget)
            elif finding.family[0] != "path":  # what is found in one play need not be confirmed
                self._append(finding)
        report.transitions = self._cache.player.transitions

    def _add(self, finding: Finding, budget: Budget) -> None:
        """Add a finding to the report, confirmed and shrunk, unless all of it is known."""
        if self._absorb(finding):
            return
        finding.ignore(self._list_known_causes(finding))  # what else differs in all states must not hide it
        if sum(each.oracle == finding.oracle for each in self.report.findings) >= _MAX_FINDINGS:
            return
        again = self._find_again(finding, finding.states)
        if again is not None and self._cache.find_masks(finding.states):
            again = self._find_again(finding, finding.states)
        if again is None:
            return

        def shows(smaller: Sequence[State]) -> bool:
            return budget.left > 0 and self._find_again(finding, smaller) is not None

        states = shrink(finding.states, shows, limit=_SHRINKING)
        shrunk = self._find_again(finding, states)
        if shrunk is None:  # it cannot be; what was found counts
            shrunk = again
        self._append(shrunk)

    def _append(self, finding: Finding) -> None:
        """Add a finding without what is known, unless all of it is."""
        if not self._absorb(finding):
            finding.ignore(self._list_known_causes(finding))
            self.report.findings.append(finding)

    def _absorb(self, finding: Finding) -> bool:
        """Note the finding where its cause is known; return whether it is."""
        return absorb(self.report.findings, finding)

    def _list_known_causes(self, finding: Finding) -> frozenset[str]:
        return list_known_causes(self.report.findings, finding)

    def _is_same(self, found: Finding, wanted: Finding) -> bool:
        """Return whether a finding of other states is the wanted one, and no consequence of what is known."""
        return found.is_like(wanted) and find_origin(self.report.findings, found) is None

    def _find_again(self, finding: Finding, states: Sequence[State]) -> Finding | None:
        """Return the finding for other states, if they show it, too."""
        found = self._evaluate(states)
        return next((each for each in found if self._is_same(each, finding)), None)

    def _note_effects(self, play: Play) -> None:
        """Note for each step in which only one field has changed, whether that has changed any other object."""
        own = self._cache.player.subject.kind
        for one, other in zip(play.steps, play.steps[1:], strict=False):
            assert one.state is not None
            assert other.state is not None
            changed = list_changed(one.state, other.state)
            if len(changed) == 1 and not (one.is_failing or other.is_failing):
                fresh = [self._cache.play_fresh(state).steps[:1] for state in (one.state, other.state)]
                pairs = [(one, other), *zip(*fresh, strict=False)]
                is_effective = any(_without_spec(a.snapshot, own) != _without_spec(b.snapshot, own) for a, b in pairs)
                self._effects.setdefault(".".join(changed[0]), []).append(is_effective)

    def _follow_renewals(self, play: Play) -> Iterator[Finding]:
        """Yield what is found by changes of two fields, one after the other, that replace the same generated value."""
        for one, other in itertools.pairwise(play.steps):
            states = [step.state for step in (one, other) if step.state is not None]
            changed = list_changed(*states)
            for value in list_renewed(one, other, self._cache.masks) if len(changed) == 1 else ():
                known = self._renewals.setdefault(value, {})
                for path, before in list(known.items()):
                    if path != changed[0] and len(known) == 1:
                        ends = (with_field_of(before[-1], changed[0], state) for state in states)
                        yield from self._evaluate([*before, next(state for state in ends if state != before[-1])])
                known.setdefault(changed[0], states)

    def _conclude(self) -> None:
        if self.report.states >= _MANY_STATES:
            self.report.without_effect = sorted(
                path for path, effects in self._effects.items() if len(effects) >= _TRIES and not any(effects)
            )


def _without_spec(snapshot: Snapshot, kind: str) -> Mapping[str, Any]:
    """Return a snapshot in which only the status is left of the objects of a kind."""
    return {name: obj.get("status") if name.partition(" ")[0] == kind else obj for name, obj in snapshot.items()}
