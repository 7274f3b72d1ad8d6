"""Oracles: what must hold in each play, and between plays. Each finding has the name of its oracle."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from trioperator.errors import (
    ApiError,
    ConflictError,
    HandlerRetriesError,
    HandlerTimeoutError,
    NotFoundError,
    PermanentError,
    TemporaryError,
)
from trioperator.testing.exploring.findings import MAX_DETAILS, Finding
from trioperator.testing.exploring.outside import describe_path
from trioperator.testing.exploring.perturbations import FAULTS, PAUSES, Perturbation
from trioperator.testing.exploring.sequences import Path, list_changed
from trioperator.testing.exploring.snapshots import ABSENT, Difference, Mask, compare, is_masked
from trioperator.testing.exploring.steps import Play, Step
from trioperator.testing.exploring.subjects import State
from trioperator.testing.records import Call, Write

#: The names of all oracles, with what they find.
ORACLES: Final = {
    "path": "the way to a state decides how it ends",
    "revert": "going back to a state does not lead back",
    "wedge": "after a step that fails, the operator does not recover",
    "quiet": "the operator never comes to rest",
    "release": "something is left behind after the deletion",
    "effects": "what was there before and after is undone in between",
    "cost": "more calls or requests than there is work",
    "honesty": "the object claims what is not true",
    "handlers": "a handler fails",
}
# Waiting is no failure, and limits only follow from failures.
_LIMITS: Final = (TemporaryError, HandlerRetriesError, HandlerTimeoutError)
# Calls and writes of one step: more than any number of children explains.
_MAX_CALLS: Final = 60
_MAX_WRITES: Final = 40
_MAX_HOURLY_CALLS: Final = 720
# Virtual seconds within which the patch of a handler is stored.
_AT_ONCE: Final = 2.0
# Writes of one object in an hour, from which on they are no schedule.
_OFTEN: Final = 4
# Handlers that are called less often, by this factor, than another one are not what goes on and on.
_SELDOM: Final = 4
_NOWHERE: Final = "?"
_DELAY: Final = re.compile(r" \(will try again in [\d.]+ seconds\)$| and will try again in [\d.]+ seconds(?=:)")


def judge_step(play: Play, index: int, fresh: Play, *, masks: Collection[Mask] = ()) -> Iterator[Finding]:
    """Yield how a step has ended otherwise than an object that was created in its state."""
    if not fresh.steps:
        return
    step, expected = play.steps[index], fresh.steps[0]
    differences = compare(step.snapshot, expected.snapshot, masks=masks)
    states = [each.state for each in play.steps[: index + 1] if each.state is not None]
    has_failed = any(each.is_failing for each in play.steps[:index])
    if expected.is_failing:
        if not expected.rejections:
            return
        known = {name for each in play.steps[:index] for name in each.snapshot} - set(_list_rejected(step, expected))
        left = [each for each in differences if not each.path and each.obj in step.snapshot and each.obj in known]
        if left:
            text = "While another object is rejected, what is no longer wanted is not deleted."
            yield _describe("wedge", text, left, states)
        return
    if not differences:
        return
    if has_failed:
        text = "After a step that fails, the operator does not recover."
        yield _describe("wedge", text, differences, states, step=step)
    elif step.state in states[:-1]:
        text = "An object that goes back to a state does not end as it was in it."
        yield _describe("revert", text, differences, states, step=step)
    else:
        text = "An object that is changed to a state does not end as one that is created in it."
        yield _describe("path", text, differences, states, step=step)


def _list_failures(step: Step, handlers: Collection[str] | None = None) -> frozenset[str]:
    """Return the causes of what fails in a step: at its end, or whenever these handlers are called."""
    calls = step.last_calls.values() if handlers is None else [each for each in step.calls if each.handler in handlers]
    failures = {_name_error(call, call.error) for call in calls if call.error is not None}
    rejected = {f"rejected {path}" for path in step.rejections}
    return frozenset({*failures, *rejected, *(f"{handler} hangs" for handler in step.pending)})


def _list_rejected(step: Step, expected: Step) -> Iterator[str]:
    """Yield the objects that are as they were because the server has rejected what they should be."""
    for path in (*step.rejections, *expected.rejections):
        resource = path.split(" ")[0].partition(".")[0]
        yield from (name for name in step.snapshot if resource.startswith(name.partition(" ")[0].lower()))


def _describe(
    oracle: str, text: str, differences: Sequence[Difference], states: list[State], *, step: Step | None = None
) -> Finding:
    lines = {str(each): each.cause for each in differences}
    return Finding(
        oracle=oracle,
        summary=text,
        differences=lines,
        details=_list_errors(step) if step is not None and step.is_failing else [],
        states=states,
        causes=frozenset(lines.values()),
        related=frozenset() if step is None else _list_failures(step),
        is_information=step is not None and step.is_refused,
    )


def _list_errors(step: Step) -> list[str]:
    """Return the last errors of a step, once each."""
    lines = [str(line).splitlines()[0] for line in step.logs if line.level in ("ERROR", "WARNING")]
    return list(dict.fromkeys(_DELAY.sub("", line)[:300] for line in lines))[-2:]


def judge_alone(play: Play) -> Iterator[Finding]:
    """Yield what is wrong in a play by itself."""
    for index, step in enumerate(play.steps):
        states = [each.state for each in play.steps[: index + 1] if each.state is not None]
        for finding in (
            *_judge_handlers(step),
            *_judge_effects(step),
            *_judge_cost(step),
            *_judge_honesty(step),
        ):
            finding.states = states
            yield finding
    states = [each.state for each in play.steps if each.state is not None]
    for finding in (*_judge_quiet(play.hours), *_judge_release(play), *_judge_leaks(play)):
        finding.states = states
        yield finding


def _judge_handlers(step: Step) -> Iterator[Finding]:
    last = step.last_calls
    loops = _list_loops(step)
    seen: set[str] = set()
    for handler in step.pending:
        text = f"{handler} does not return."
        yield Finding(oracle="handlers", summary=text, details=[], causes=frozenset({f"{handler} hangs"}))
    for call in step.calls:
        error = call.error
        if error is None or isinstance(error, _LIMITS) or call.denied:
            continue
        if isinstance(error, ApiError) and last.get(call.handler) is not call:
            continue  # it is tried again, and has no more trouble
        if (name := _name_error(call, error)) not in seen:
            seen.add(name)
            finding = _describe_failure(call, error)
            finding.causes, finding.related = frozenset({name}), loops & {_name_loop(call.handler)}
            yield finding
    for path, code in step.rejections.items():
        lines = [line for line in _list_errors(step) if f"HTTP {code}" in line]
        text = "The API server rejects a child for a state that the schema of its parent allows."
        cause = frozenset({f"rejected {path}"})
        if not any(isinstance(call.error, ApiError) for call in last.values()):
            yield Finding(oracle="handlers", summary=text, details=lines or [f"{path}: HTTP {code}"], causes=cause)


def _name_error(call: Call, error: BaseException) -> str:
    """Return the cause of an error: the same place is the same cause, whichever handler comes there."""
    place = describe_place(call)
    return f"{type(error).__name__} at {call.handler if place == _NOWHERE else place}"


def _describe_failure(call: Call, error: BaseException) -> Finding:
    kind = type(error).__name__
    details = [f"{kind}: {error} ({describe_place(call)})".splitlines()[0][:500]]
    if isinstance(error, PermanentError):
        text = f"{call.handler} fails for good in a state that the schema allows: the schema could refuse it."
        return Finding(oracle="handlers", summary=text, details=details, is_information=True)
    if isinstance(error, ApiError) and not isinstance(error, (ConflictError, NotFoundError)):
        text = f"The API server rejects what {call.handler} sends for a state that the schema allows."
    else:
        text = f"{call.handler} raises {kind}."
    return Finding(oracle="handlers", summary=text, details=details)


def describe_place(call: Call) -> str:
    """Return the file and line of the user's code that has raised the error of a call."""
    entries = reversed(call.stack or ())
    return next((text for entry in entries if (text := describe_path(entry.filename, entry.lineno))), _NOWHERE)


def _waits(call: Call) -> bool:
    """Return whether a handler wants to be called again after a while."""
    return isinstance(call.error, TemporaryError)


def _judge_cost(step: Step) -> Iterator[Finding]:
    calls = [call for call in step.calls if call.handler not in step.spawned and not _waits(call)]
    children = len(step.snapshot)
    if len(calls) > _MAX_CALLS + 10 * children:
        text = f"Handlers are called {len(calls)} times for one change of an object with {children - 1} children."
        yield _describe_loop(text, sorted({call.handler for call in calls}), step, calls)
    if len(step.writes) > _MAX_WRITES + 10 * children + 2 * (len(step.calls) - len(calls)):
        text = f"{len(step.writes)} writes follow one change of an object with {children - 1} children."
        yield _describe_loop(text, dict.fromkeys(map(str, step.writes)), step, calls, step.writes)


def _describe_loop(
    text: str,
    details: Iterable[str],
    step: Step,
    calls: Iterable[Call],
    writes: Iterable[Write] = (),
) -> Finding:
    """Return the finding that handlers are called, or write, again and again: which ones is the cause."""
    counts = collections.Counter(call.handler for call in calls)
    most = max(counts.values(), default=0)
    busy = {handler for handler, count in counts.items() if count * _SELDOM >= most}
    busy |= {write.handler for write in writes if write.handler is not None}
    causes = {_name_loop(handler) for handler in busy} or {str(write).rpartition("/")[0] for write in writes}
    return Finding(
        oracle="cost",
        summary=text,
        details=list(details)[:MAX_DETAILS],
        causes=frozenset(causes),
        related=_list_failures(step, busy),
    )


def _list_loops(step: Step) -> frozenset[str]:
    """Return the causes of too many calls and writes in a step."""
    return frozenset(cause for finding in _judge_cost(step) for cause in finding.causes)


def _name_loop(handler: str) -> str:
    return f"loop of {handler}"


def _judge_honesty(step: Step) -> Iterator[Finding]:
    if step.lies:
        text = "The object claims to be ready before its children are."
        details = list(dict.fromkeys(step.lies))[:MAX_DETAILS]
        yield Finding(oracle="honesty", summary=text, details=details, causes=frozenset({"lies"}))


def _judge_effects(step: Step) -> Iterator[Finding]:
    if step.undone:
        text = "On the way to a state, something is undone that was there before and is there after."
        causes = frozenset(line.partition(" ")[0] for line in step.undone)
        yield Finding(oracle="effects", summary=text, details=list(step.undone), causes=causes)


def judge_renewals(play: Play, *, masks: Collection[Mask]) -> Iterator[Finding]:
    """Yield a generated value of a Secret that has become another one by changes that have nothing in common.

    One that follows from a field, as a certificate from its host names, becomes another by changes of that field.
    """
    reasons: dict[str, set[Path]] = {}
    for index, (one, other) in enumerate(itertools.pairwise(play.steps), start=2):
        changed = set(list_changed(one.state or {}, other.state or {}))
        for value in list_renewed(one, other, masks) if changed else ():
            reasons[value] = reasons.get(value, changed) & changed
            if not reasons[value]:
                cause = f"{value} again"
                yield Finding(
                    oracle="effects",
                    summary="A generated value, such as a password, is replaced by changes that it does not depend on.",
                    differences={f"{value} is generated again, whatever changes": cause},
                    states=[step.state for step in play.steps[:index] if step.state is not None],
                    causes=frozenset({cause}),
                )
                return


def list_renewed(one: Step, other: Step, masks: Collection[Mask]) -> list[str]:
    """Return the values of Secrets that are the same in no two plays, and have become others in a step."""
    if one.is_failing or other.is_failing:
        return []
    differences = [each for each in compare(one.snapshot, other.snapshot) if is_masked(each.mask, masks)]
    values = [each for each in differences if each.mask[1][:1] == ("data",) and ABSENT not in each[2:]]
    return sorted({each.cause for each in values if each.mask[0] == "Secret"})


def _judge_quiet(hours: Sequence[Step]) -> Iterator[Finding]:
    if not hours or any(step.is_failing for step in hours):
        return
    last = hours[-1]
    calls = [call for call in last.calls if call.handler not in last.spawned and not _waits(call)]
    writes = [write for write in last.writes if write.changed and not _is_spawned(write, last)]
    if writes:
        text = f"An hour after the last change, the operator still writes: {len(writes)} times an hour."
        details = dict.fromkeys(f"{write} {write.body.decode(errors='replace')[:200]}" for write in writes)
        finding = _describe_loop(text, details, last, calls, writes)
        finding.oracle = "quiet"
        finding.is_information = collections.Counter(map(str, writes)).most_common(1)[0][1] < _OFTEN
        yield finding
    if len(calls) > _MAX_HOURLY_CALLS:
        text = f"An hour after the last change, handlers are called {len(calls)} times an hour."
        yield _describe_loop(text, sorted({call.handler for call in calls}), last, calls)


def _is_spawned(write: Write, step: Step) -> bool:
    """Return whether a timer or daemon has sent a write, or the operator has stored what it has left in its patch."""
    if write.handler is not None:
        return write.handler in step.spawned
    ends = (call.ended for call in step.calls if call.handler in step.spawned)
    return any(ended is not None and abs(write.time - ended) < _AT_ONCE for ended in ends)


def _judge_release(play: Play) -> Iterator[Finding]:
    if play.release is not None:
        yield from _judge_handlers(play.release)
    if play.leftovers:
        lines = {line: _name_leftover(line) for line in play.leftovers}
        details = [] if play.release is None else _list_errors(play.release)
        causes = frozenset(lines.values())
        text = "Something is left behind after the deletion of the object."
        related = frozenset() if play.release is None else _list_failures(play.release)
        yield Finding(
            oracle="release", summary=text, differences=lines, details=details, causes=causes, related=related
        )


def _name_leftover(line: str) -> str:
    """Return the cause of what is left behind: the kind of an object, or the handler that does not return."""
    first = line.partition(" ")[0]
    return f"{first} hangs" if line.endswith(" is still running") else f"{first} outlives it"


def _judge_leaks(play: Play) -> Iterator[Finding]:
    for problem in play.problems:
        if problem.startswith("Tasks "):
            yield Finding(oracle="handlers", summary=problem, details=[], causes=frozenset({problem}))


def judge_perturbed(
    play: Play, plain: Play, perturbation: Perturbation, *, masks: Collection[Mask] = ()
) -> Iterator[Finding]:
    """Yield how a play with a perturbation has ended otherwise than the plain one."""
    found = [*_judge_perturbed_handlers(play, perturbation), *_compare_plays(play, plain, perturbation, masks)]
    for finding in found:
        finding.states = [each.state for each in plain.steps if each.state is not None]
        finding.fault, finding.perturbation = perturbation.fault, str(perturbation)
        yield finding


def _judge_perturbed_handlers(play: Play, perturbation: Perturbation) -> Iterator[Finding]:
    steps: Sequence[Step] = play.steps
    if perturbation.what == PAUSES:  # a write that met the pause is repeated after it, which is no step
        steps = [dataclasses.replace(step, responses=()) for step in steps]
    for step in steps:
        yield from _judge_handlers(step)


def _compare_plays(play: Play, plain: Play, perturbation: Perturbation, masks: Collection[Mask]) -> Iterator[Finding]:
    lines: dict[str, str] = {}
    if play.steps and not (play.last.is_refused or any(step.is_blind for step in (play.last, *play.rejected))):
        lines = {str(each): each.cause for each in compare(play.last.snapshot, plain.last.snapshot, masks=masks)}
    lines |= {line: _name_leftover(line) for line in play.leftovers if line not in plain.leftovers}
    if perturbation.fault in ("crash", "late", "order"):
        repeated = _list_repetitions(play, plain, {kind for kind, path in masks if not path})
        lines |= {line: f"{line.partition(' ')[0]} again" for line in repeated}
    if lines:
        ends = [step for step in (*play.steps[-1:], play.release) if step is not None]
        yield Finding(
            oracle=perturbation.fault,
            summary=FAULTS[perturbation.fault],
            differences=lines,
            details=_list_errors(play.last) if play.steps else [],
            causes=frozenset(lines.values()),
            related=frozenset().union(*map(_list_failures, ends), *map(_list_loops, play.steps)),
        )


def _list_repetitions(play: Play, plain: Play, masked: Collection[str]) -> Iterator[str]:
    """Yield what was created or done outside more often than without a perturbation, except for *masked* kinds."""
    counts = [collections.Counter(_list_created(each)) for each in (play, plain)]
    for resource, count in counts[0].items():
        is_masked = any(resource.startswith(kind.lower()) for kind in masked)
        if count > counts[1][resource] and not is_masked:
            yield f"{resource} is created {count} times instead of {counts[1][resource]}"
    for effect, count in play.counts.items():
        if count > plain.counts.get(effect, 0):
            yield f"{effect} happens {count} times instead of {plain.counts.get(effect, 0)}"


def _list_created(play: Play) -> Iterator[str]:
    for _, path, code in (response for step in play.steps for response in step.responses):
        resource = path.partition(" ")[0]
        if code == 201 and resource.partition(".")[0] not in ("events", "leases"):
            yield resource


def select(findings: Iterable[Finding], oracles: Collection[str], ignored: Collection[str] = ()) -> Iterator[Finding]:
    """Yield the findings of these oracles; of all, if none is named. Those with *ignored* causes alone are none."""
    for finding in findings:
        if (not oracles or finding.oracle in oracles) and (not ignored or finding.ignore(ignored)):
            yield finding
