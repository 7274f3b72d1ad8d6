"""Figures of all repetitions: a table of medians with ratios and goals, and JSON with everything."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import statistics

from tests.bench.scenarios import Figures

__all__ = ["GOALS", "Results", "render_table", "write_json"]

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

    def medians(self, framework: str) -> dict[Key, float]:
        """Return the median of all repetitions for each figure."""
        return {key: statistics.median(values) for key, values in self.rounds.get(framework, {}).items()}


def render_table(results: Results) -> str:
    """Draw a table: one line for each figure that at least one framework has other than zero."""
    kopf, ours = results.medians("kopf"), results.medians("trioperator")
    title = f"{results.server}, {results.scale} objects"
    lines = [f"{title:<46}{'kopf':>10}{'trioperator':>13}{'ratio':>8}  goal"]
    group: tuple[str, str] | None = None
    for key in dict.fromkeys([*kopf, *ours]):
        theirs, mine = kopf.get(key), ours.get(key)
        if not theirs and not mine:
            continue
        phase, style, name = key
        if (phase, style) != group:
            group = (phase, style)
            lines.append("")
        ratio = mine / theirs if mine is not None and theirs else None
        cells = f"{_number(theirs):>10}{_number(mine):>13}{_number(ratio):>8}"
        lines.append(f"{f'{phase} ({style}): {name}':<46}{cells}  {_verdict(phase, name, ratio)}")
    lines += [f"\nFAILED {failure}" for failure in results.failures]
    return "\n".join(line.rstrip() for line in lines)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value == int(value) and abs(value) >= 10 else f"{value:.2f}"


def _verdict(phase: str, name: str, ratio: float | None) -> str:
    goal = GOALS.get((phase, name))
    if goal is None or ratio is None:
        return ""
    return f"<= {goal:.2f} {'ok' if ratio <= goal else 'MISSED'}"


def write_json(results: Results, path: pathlib.Path) -> None:
    """Write the figures of all repetitions: ``{"figures": {framework: {phase: {style: {figure: [values]}}}}}``."""
    figures: dict[str, dict[str, dict[str, Figures | dict[str, list[float]]]]] = {}
    for framework, values in results.rounds.items():
        for (phase, style, name), numbers in values.items():
            styles = figures.setdefault(framework, {}).setdefault(phase, {})
            styles.setdefault(style, {})[name] = numbers  # type: ignore[assignment]
    content = {"server": results.server, "objects": results.scale, "figures": figures, "failures": results.failures}
    path.write_text(json.dumps(content, indent=2) + "\n")
