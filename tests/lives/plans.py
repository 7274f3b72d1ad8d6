"""Plans of lives: who lives, and what goes wrong when. A seed stands for a plan, which can be printed and shortened."""

from __future__ import annotations

import dataclasses
from typing import Any

# For so long things go wrong, and after so long they have surely settled, both in seconds.
TROUBLE, PEACE = 60.0, 240.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """A deed at a time, in seconds since the life began."""

    at: float
    deed: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"at {self.at:g} s: {self.deed}{self.args}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ambush:
    """A deed at a checkpoint of an operator: when it sends its *nth* matching request, or before its response arrives.

    With *stopping*, only requests count that it sends while it stops in order. The request, or the response, is held up
    meanwhile, and for *pause* seconds more.
    """

    verb: str
    resource: str
    nth: int
    answered: bool
    pause: float
    deed: str
    args: tuple[Any, ...] = ()
    stopping: bool = False

    def __str__(self) -> str:
        where = "the response to" if self.answered else "sending"
        request = f"{self.verb or 'request'} {self.resource}".strip()
        request += " while it stops" if self.stopping else ""
        return f"before {where} {request} number {self.nth}, for {self.pause:g} s more: {self.deed}{self.args}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartPlan:
    """A part of the operator, with its options."""

    name: str
    options: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """All about a life that its seed decides, but what handlers do, which the seed decides as well."""

    seed: int
    together: str  # alone, leader, shards, peering, apart
    replicas: int
    parts: tuple[PartPlan, ...]
    troubles: frozenset[str]
    options: dict[str, Any]
    steps: tuple[Step, ...]
    ambushes: tuple[Ambush, ...]

    def has(self, name: str) -> bool:
        """Check whether it has a trouble or a part of this name, or one with this option, or operators of this way."""
        options = (value for part in self.parts for value in part.options.values() if isinstance(value, str))
        names = (self.together, *self.troubles, *(part.name for part in self.parts), *self.options.get("tuning", ()))
        return name in {*names, *options}

    def __str__(self) -> str:
        troubles = ", ".join(sorted(self.troubles)) or "none"
        lines = [
            f"seed {self.seed}: {self.replicas} operators, {self.together}; troubles: {troubles}",
            f"options: {self.options}",
            *map(str, self.parts),
            *map(str, sorted(self.steps, key=lambda step: step.at)),
            *map(str, self.ambushes),
        ]
        return "\n  ".join(lines)
