"""Perturbations: what may happen to an operator besides changes of its objects, and must not matter in the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from trioperator.testing.faults import Fault
from trioperator.testing.plans import FaultPlan

#: The names of all faults, with what it means if they lead to another end.
FAULTS: Final = {
    "crash": "A crash of the operator leads to another end.",
    "blind": "What happens while the operator is down leads to another end.",
    "late": "Watch events that come late lead to another end.",
    "order": "The order of events decides how it ends.",
    "edit": "A change at the same time as a handler leads to another end.",
    "drift": "A child that others change is not put right.",
}
#: Of watches that are cut, while their events are compacted.
CUT: Final = "cut"
#: Edits of the object while a handler is at work.
LABELS: Final = "somebody labels the object"
NEXT: Final = "the next change comes"
DELETES: Final = "somebody deletes the object"
PAUSES: Final = "somebody pauses the object, until all is at rest"
POKES: Final = "somebody pokes the object"
_LAGS: Final = (2.0, 20.0)  # seconds for each event
_ORDERS: Final = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perturbation:
    """One thing that happens in a play: at the write or step with the number *at*, up to the step *until*.

    *what* tells perturbations of one fault apart.
    """

    fault: str
    at: int = 0
    until: int = 0
    what: str = ""
    seconds: float = 0

    def __str__(self) -> str:
        match self.fault:
            case "crash":
                return f"The operator crashes {self.what} {self.at + 1}"
            case "blind" if self.what == "after write":
                return f"The operator crashes after write {self.at + 1}, and is down until the next change"
            case "blind":
                where = f"from change {self.at + 1} to change {self.until + 1}"
                return f"The operator {'sees nothing' if self.what == CUT else 'is down'} {where}"
            case "late":
                return f"Watch events of {self.what} come {self.seconds:g} seconds late"
            case "order":
                return f"Tasks run in another order (seed {self.at})"
            case "edit":
                return f"At write {self.at + 1}, {self.what}"
        return f"When all is at rest, {self.what}"


NONE: Final = Perturbation(fault="")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extent:
    """What can be perturbed in a play: the numbers of its writes, calls to the outside and steps.

    The deletion at the end is one more step. *watched* are the resources that are watched, *children* the objects that
    the operator keeps as they are.
    """

    writes: int
    calls: int = 0
    steps: int = 0
    watched: Sequence[str] = ()
    children: Sequence[str] = ()


def iterate_perturbations(faults: Collection[str], extent: Extent) -> Iterator[Perturbation]:
    """Yield the perturbations of a play."""
    writes, steps = extent.writes, extent.steps
    for at in range(writes if "crash" in faults else 0):
        yield from (Perturbation(fault="crash", at=at, what=f"{when} write") for when in ("before", "after"))
    for at in range(extent.calls if "crash" in faults else 0):
        yield from (Perturbation(fault="crash", at=at, what=f"{when} outside call") for when in ("before", "after"))
    for at in range(1, steps + 1 if "blind" in faults else 0):
        for until in range(at, steps + 1):
            yield from (Perturbation(fault="blind", at=at, until=until, what=what) for what in ("", CUT))
    for at in range(writes if "blind" in faults else 0):
        yield Perturbation(fault="blind", at=at, what="after write")
    for resource in extent.watched if "late" in faults else ():
        yield from (Perturbation(fault="late", what=resource, seconds=seconds) for seconds in _LAGS)
    for seed in range(1, _ORDERS + 1 if "order" in faults else 0):
        yield Perturbation(fault="order", at=seed)
    for at in range(writes if "edit" in faults else 0):
        for what in (LABELS, NEXT, DELETES, PAUSES, POKES):
            if (what != NEXT or steps > 1) and (what != POKES or at == 0):
                yield Perturbation(fault="edit", at=at, what=what)
    for child in extent.children if "drift" in faults else ():
        yield from (Perturbation(fault="drift", what=f"somebody {verb} {child}") for verb in ("deletes", "changes"))


def make_plan(perturbation: Perturbation) -> FaultPlan:
    """Return the faults of requests that a perturbation consists of."""
    plan = FaultPlan()
    if perturbation.fault == "late":
        plan.add(Fault.lag(perturbation.seconds), watch=True, resource=perturbation.what)
    return plan
