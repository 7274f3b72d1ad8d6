"""Findings: what is wrong, and which of them have the same cause, and are reported once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from trioperator.testing.exploring.subjects import State

#: Lines of one sort that are shown.
MAX_DETAILS: Final = 6


class Finding(msgspec.Struct, kw_only=True):
    """A finding, in a sequence of states. *causes* are what findings with one cause have in common.

    *differences* are lines with the cause of each, and *details* further lines. *fault* is the name of the fault that
    it needs, if any, and *perturbation* what has happened. *related* are the causes of other findings that may have
    led to it, in the same play. *also* are the findings of other oracles and faults with the same cause, and
    *consequences* the causes of those it has led to; *ignored* are causes of other findings that its states show, too.
    """

    oracle: str
    summary: str
    details: list[str] = []
    differences: dict[str, str] = {}
    states: list[State] = []
    causes: frozenset[str] = frozenset()
    related: frozenset[str] = frozenset()
    is_information: bool = False
    count: int = 1
    fault: str = ""
    perturbation: str = ""
    also: list[str] = []
    consequences: frozenset[str] = frozenset()
    ignored: list[str] = []

    @property
    def lines(self) -> list[str]:
        """The text below the states."""
        lines = [self.perturbation] if self.perturbation else []
        lines += [*self.differences][:MAX_DETAILS]
        if (more := len(self.differences) - MAX_DETAILS) > 0:
            lines.append(f"… and {more} more difference{'s' * (more != 1)}")
        return [*lines, *self.details]

    def ignore(self, names: Collection[str]) -> bool:
        """Leave out causes, by their names, or by the name of a kind or a field; return whether any other is left."""
        ignored = {each for each in self.causes if any(is_named(each, name) for name in names)}
        self.ignored = sorted({*self.ignored, *ignored})
        self.causes -= ignored
        self.differences = {line: cause for line, cause in self.differences.items() if cause not in ignored}
        return bool(self.causes)

    def has_led_to(self, other: Finding) -> bool:
        """Return whether another finding is a consequence of this one in its play, as with work that an error ends."""
        return bool(other.related & (self.causes | self.consequences))

    def absorb(self, other: Finding) -> None:
        """Note another finding with the same cause."""
        if not other.causes <= self.causes:
            self.consequences |= other.causes
        if other.family == self.family:
            self.count += 1
            return
        is_same = other.oracle == self.oracle and bool(other.fault)  # the same error, with a fault
        name = other.fault if is_same else other.oracle
        if not any(line.startswith(f"{name}: ") for line in self.also):
            error = other.details[0] if other.oracle == "handlers" and other.details and not is_same else ""
            self.also.append(f"{name}: {error or other.perturbation or other.summary}")

    def is_like(self, other: Finding) -> bool:
        """Return whether the other finding may have the same cause."""
        return self.family == other.family and bool(self.causes & other.causes)

    @property
    def family(self) -> tuple[str, str]:
        """The key that this finding shares with the same findings in other sequences."""
        return "path" if self.oracle in ("path", "revert", "wedge") else self.oracle, self.fault


def is_named(cause: str, name: str) -> bool:
    """Return whether the name belongs to a cause, or to the kind or field that it is about."""
    return cause == name or cause.startswith((f"{name} ", f"{name}."))


def list_known_causes(known: Iterable[Finding], finding: Finding) -> frozenset[str]:
    """Return the causes of the known findings that may have the cause of another one."""
    return frozenset().union(*(each.causes for each in _select_known(known, finding)))


def find_origin(known: Iterable[Finding], finding: Finding) -> Finding | None:
    """Return the known finding that has led to another one in its play, if any."""
    return next((each for each in _select_known(known, finding) if each.has_led_to(finding)), None)


def absorb(known: Sequence[Finding], finding: Finding) -> bool:
    """Note a finding where its cause is known; return whether all of its causes are."""
    origin = find_origin(known, finding)
    if origin is None and all(_is_known(cause, list_known_causes(known, finding)) for cause in finding.causes):
        alike = [
            each for each in _select_known(known, finding) if any(_is_known(c, each.causes) for c in finding.causes)
        ]
        origin = min(alike, key=lambda each: each.family != finding.family, default=None)
    if origin is not None:
        origin.absorb(finding)
    return origin is not None


def _is_known(cause: str, known: Iterable[str]) -> bool:
    """Return whether a cause, or the field that it is a part of, is among those that are known."""
    return any(is_named(cause, each) for each in known)


def _select_known(known: Iterable[Finding], finding: Finding) -> list[Finding]:
    """Return the findings that may have the same cause; what is only information hides no alarm."""
    return [each for each in known if finding.is_information or not each.is_information]
