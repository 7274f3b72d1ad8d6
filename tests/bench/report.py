"""Figures of all repetitions: a table of medians with ratios and goals, and JSON with everything."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import statistics
from typing import Final

from tests.bench.scenarios import Figures

Key = tuple[str, str, str]

GOALS: dict[tuple[str, str], float] = {
    **{(phase, "cpu s"): 0.5 for phase in ("create", "update", "delete", "restart", "events")},
    **{(phase, "patch"): 1.0 for phase in ("create", "update", "delete")},
    ("memory", "start MiB"): 0.9,
    ("memory", "growth MiB"): 0.3,
    ("create one by one", "p50 ms"): 1.0,
    **{(phase, "cpu s"): 0.5 for phase in ("spawn daemons", "stop daemons")},
    ("spawn daemons", "growth MiB"): 0.5,
    ("timers", "cpu s per s"): 0.5,
    ("create one by one", "p99 ms"): 1.0,
    ("reviews", "cpu s"): 0.5,
    ("reviews", "p99 ms"): 1.0,
    ("import", "cpu s"): 1.0,
    ("--help", "cpu s"): 1.0,
}
"""The most that trioperator may take of what Kopf takes, by phase and figure."""

PEER_GOALS: dict[tuple[str, str], float] = {
    **{(phase, "cpu s"): 1.0 for phase in ("create", "update", "delete")},
    **{(phase, name): 1.5 for phase in ("restart", "big restart") for name in ("cpu s", "wall s")},
    ("big restart", "memory MiB"): 0.5,
    **{(f"{what} one by one", name): 0.9 for what in ("create", "update") for name in ("p50 ms", "p99 ms")},
}
"""The most that trioperator may take of what the same operator takes on controller-runtime."""


@dataclasses.dataclass(slots=True)
class Results:
    """Everything measured so far."""

    scale: int
    server: str = ""
    rounds: dict[str, dict[Key, list[float]]] = dataclasses.field(default_factory=dict)
    failures: list[str] = dataclasses.field(default_factory=list)

    def add(self, framework: str, style: str, phases: dict[str, Figures]) -> None:
        """Add the figures of one run."""
        mine = self.rounds.setdefault(framework, {})
        for phase, figures in phases.items():
            for name, value in figures.items():
                mine.setdefault((phase, style, name), []).append(value)

    def add_failure(self, text: str) -> None:
        """Note what could not be measured, and why."""
        self.failures.append(text)

    def spread(self, framework: str, key: Key) -> float | None:
        """Return how far the repetitions are apart, as a part of their median; None if there is only one."""
        values = self.rounds.get(framework, {}).get(key, [])
        middle = statistics.median(values) if values else 0.0
        return (max(values) - min(values)) / middle if len(values) > 1 and middle else None

    def medians(self, framework: str) -> dict[Key, float]:
        """Return the median of all repetitions for each figure."""
        return {key: statistics.median(values) for key, values in self.rounds.get(framework, {}).items()}


_COLUMNS: Final = ("kopf", "peer", "trioperator", "/kopf", "/peer", "spread", "before")


def render_table(results: Results, *, before: Results | None = None) -> str:
    """Draw a table: one line for each figure that at least one framework has other than zero.

    ``spread`` is that of trioperator's repetitions; ``before`` compares with its figures in other results.
    """
    kopf, peer, ours = (results.medians(name) for name in ("kopf", "peer", "trioperator"))
    earlier = {} if before is None else before.medians("trioperator")
    lines = [f"{f'{results.server}, {results.scale} objects':<46}{''.join(f'{name:>12}' for name in _COLUMNS)}  goal"]
    group: tuple[str, str] | None = None
    for key in dict.fromkeys([*kopf, *peer, *ours]):
        mine = ours.get(key)
        if not kopf.get(key) and not peer.get(key) and not mine:
            continue
        phase, style, name = key
        if (phase, style) != group:
            group = (phase, style)
            lines.append("")
        ratios = _divide(mine, kopf.get(key)), _divide(mine, peer.get(key))
        values = [kopf.get(key), peer.get(key), mine, *ratios]
        values += [results.spread("trioperator", key), _divide(mine, earlier.get(key))]
        cells = "".join(f"{_number(value):>12}" for value in values)
        lines.append(f"{f'{phase} ({style}): {name}':<46}{cells}  {_verdict(phase, name, *ratios)}")
    lines += [f"\nFAILED {failure}" for failure in results.failures]
    return "\n".join(line.rstrip() for line in lines)


def _divide(mine: float | None, theirs: float | None) -> float | None:
    return mine / theirs if mine is not None and theirs else None


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value == int(value) and abs(value) >= 10 else f"{value:.2f}"


def _verdict(phase: str, name: str, to_kopf: float | None, to_peer: float | None) -> str:
    """Return which goals are met: of what Kopf takes, and of what the peer takes."""
    verdicts = []
    for who, goals, ratio in (("kopf", GOALS, to_kopf), ("peer", PEER_GOALS, to_peer)):
        goal = goals.get((phase, name))
        if goal is not None and ratio is not None:
            verdicts.append(f"<= {goal:.2f} of {who}: {'ok' if ratio <= goal else 'MISSED'}")
    return ", ".join(verdicts)


def read_json(path: pathlib.Path) -> Results:
    """Read what :func:`write_json` has written."""
    content = json.loads(path.read_text())
    results = Results(scale=content["objects"], server=content["server"], failures=content["failures"])
    for framework, phases in content["figures"].items():
        results.rounds[framework] = {
            (phase, style, name): numbers
            for phase, styles in phases.items()
            for style, figures in styles.items()
            for name, numbers in figures.items()
        }
    return results


def write_json(results: Results, path: pathlib.Path) -> None:
    """Write the figures of all repetitions: ``{"figures": {framework: {phase: {style: {figure: [values]}}}}}``."""
    figures: dict[str, dict[str, dict[str, Figures | dict[str, list[float]]]]] = {}
    for framework, values in results.rounds.items():
        for (phase, style, name), numbers in values.items():
            styles = figures.setdefault(framework, {}).setdefault(phase, {})
            styles.setdefault(style, {})[name] = numbers  # type: ignore[assignment]
    content = {"server": results.server, "objects": results.scale, "figures": figures, "failures": results.failures}
    path.write_text(json.dumps(content, indent=2) + "\n")
