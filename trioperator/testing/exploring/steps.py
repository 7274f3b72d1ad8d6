"""Records of plays: what has happened between one change of the object and the next."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Mapping, Sequence

from trioperator.errors import PermanentError
from trioperator.testing.exploring.snapshots import Snapshot
from trioperator.testing.exploring.subjects import State
from trioperator.testing.records import Call, LogLine, Write


@dataclasses.dataclass(kw_only=True)
class Step:
    """Step of a play: from a change of the object to rest. *rejected* is why the server did not accept it."""

    state: State | None
    rejected: str | None = None
    snapshot: Snapshot = dataclasses.field(default_factory=dict)
    calls: Sequence[Call] = ()
    logs: Sequence[LogLine] = ()
    writes: Sequence[Write] = ()
    responses: Sequence[tuple[str, str, int]] = ()  # verb, path and status code of each write of the operator
    lies: Sequence[str] = ()
    undone: Sequence[str] = ()  # what was there before and after, and not in between
    has_settled: bool = True
    pending: Collection[str] = ()  # handlers that are still called at the end
    spawned: Collection[str] = frozenset()  # ids of daemons and timers
    is_blind: bool = False  # the operator is down at the end, or sees nothing

    @property
    def last_calls(self) -> Mapping[str, Call]:
        """The last call of each handler."""
        return {call.handler: call for call in self.calls if call.handler not in self.spawned}

    @property
    def rejections(self) -> Mapping[str, int]:
        """The writes that the server has not accepted, by path, with the status code; none if later ones were.

        Kubernetes Events do not count: none can be posted in a namespace that is being deleted. Nor does what an
        operator could not send again, as it is down.
        """
        if self.is_blind:
            return {}
        last = {path: code for verb, path, code in self.responses if verb != "delete"}
        return {
            path: code
            for path, code in last.items()
            if code in (400, 403, 422, 500) and path.partition(" ")[0].partition(".")[0] != "events"
        }

    @property
    def is_failing(self) -> bool:
        """Whether the operator has not done what it should by the end of the step."""
        return any(call.error is not None for call in self.last_calls.values()) or bool(self.rejections)

    @property
    def is_refused(self) -> bool:
        """Whether handlers have refused the state for good, by an error of their own for that."""
        errors = [call.error for call in self.last_calls.values() if call.error is not None]
        return bool(errors) and not self.rejections and all(isinstance(each, PermanentError) for each in errors)


@dataclasses.dataclass(kw_only=True)
class Play:
    """Record of a play: its steps, two quiet hours, and what is left after the deletion."""

    seed: int
    steps: list[Step] = dataclasses.field(default_factory=list)
    hours: list[Step] = dataclasses.field(default_factory=list)
    release: Step | None = None
    leftovers: Sequence[str] = ()
    problems: Sequence[str] = ()
    calls: Collection[Call] = ()
    writes: Collection[Write] = ()
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)  # of effects outside that are not idempotent
    outside_calls: int = 0
    watched: Sequence[str] = ()  # resources whose watches have said anything
    rejected: list[Step] = dataclasses.field(default_factory=list)

    @property
    def log(self) -> str:
        """A hash of what has happened, in order: plays in other orders of tasks often go the same way."""
        steps = [*self.steps, *([] if self.release is None else [self.release])]
        happened = [([call.handler for call in step.calls], [str(write) for write in step.writes]) for step in steps]
        return hashlib.sha256(repr((happened, [step.responses for step in steps])).encode()).hexdigest()

    @property
    def last(self) -> Step:
        """The last step that the server has accepted."""
        return self.steps[-1]
