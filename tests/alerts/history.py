"""Histories of the metrics of operators in virtual time, as Prometheus would have scraped them, and their alerts."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import trio

from tests.alerts.promql import Evaluator, Labels, Series, parse_duration
from trioperator._concurrency.clock import wall_now
from trioperator._endpoints.metrics import OperatorCollector
from trioperator._telemetry.inspector import Inspector
from trioperator._tooling.deployment.alerts import make_rules
from trioperator._tooling.deployment.options import DeploymentOptions

#: Seconds between two scrapes, and between two evaluations of the rules.
STEP: Final = 30.0
#: Where promtool is, which has to agree, if it is installed.
PROMTOOL: Final = os.environ.get("PROMTOOL") or shutil.which("promtool")
RULES: Final = make_rules(DeploymentOptions(prometheus="monitoring", alerts=True))
_NAMES: Final = frozenset(
    name
    for group in RULES["groups"]
    for rule in group["rules"]
    for name in re.findall(r"(?:trioperator|controller_runtime)_[a-z_]+", rule["expr"])
)


class Pod:
    """A pod whose metrics are scraped while an operator runs in it, which gets it as its ``live_view_app``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._collector: OperatorCollector | None = None

    @contextlib.contextmanager
    def showing(self, parts: Inspector, root: trio.lowlevel.Task) -> Iterator[None]:
        """Take the parts of an operator, within which its metrics are."""
        assert parts.instruments is not None
        self._collector = OperatorCollector(parts, parts.instruments)
        try:
            yield
        finally:
            self._collector = None

    def scrape(self) -> Iterator[tuple[Labels, float]]:
        """Yield the series that alerts need, with their values."""
        if self._collector is None:
            return
        target = {"namespace": "trioperator", "service": "trioperator-metrics", "instance": self.name}
        for metric in self._collector.collect():
            for sample in metric.samples:
                if sample.name in _NAMES:
                    labels = {**sample.labels, **target, "__name__": sample.name}
                    yield frozenset(labels.items()), sample.value


class History:
    """What was scraped, from the start on."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = pods
        self._count = 0
        self._began = math.nan
        self._series: dict[Labels, Series] = {}
        self._found = frozenset[Labels]()

    async def record(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Scrape all pods until cancelled."""
        self._began = wall_now().timestamp()
        start = trio.current_time()
        task_status.started()
        while True:
            self._scrape()
            await trio.sleep_until(start + self._count * STEP)

    def _scrape(self) -> None:
        time = self._count * STEP
        found = {labels: value for pod in self.pods for labels, value in pod.scrape()}
        for labels, value in found.items():
            self._series.setdefault(labels, Series(labels)).add(time, value)
        for labels in self._found - found.keys():
            self._series[labels].end(time)
        self._found = frozenset(found)
        self._count += 1

    @property
    def now(self) -> float:
        """Seconds that were recorded so far."""
        return max(self._count - 1, 0) * STEP

    def judge(self, folder: pathlib.Path, fired: Mapping[float, Collection[str]]) -> str:
        """Check which alerts have fired up to some times; return what is wrong if they are others.

        If promtool is installed, it is asked, too.
        """
        [group] = RULES["groups"]
        evaluator = Evaluator(list(self._series.values()), began=round(self._began))
        for until, names in fired.items():
            found = set(evaluator.find_firing(group["rules"], step=STEP, until=until))
            if found != set(names):
                return f"{until:g} s: {sorted(found)} instead of {sorted(names)}"
        return "" if PROMTOOL is None else self._ask(PROMTOOL, folder, fired)

    def _ask(self, promtool: str, folder: pathlib.Path, fired: Mapping[float, Collection[str]]) -> str:
        tests = [
            {
                "expr": 'group by (alertname) (count_over_time(ALERTS{alertstate="firing"}[7d]))',
                "eval_time": f"{time:.0f}s",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)],
            }
            for time, names in fired.items()
        ]
        group = {
            "interval": f"{STEP:.0f}s",
            "start_timestamp": f"{self._began:.0f}",
            "input_series": [self._format(series) for series in self._series.values()],
            "promql_expr_test": tests,
        }
        document = {"rule_files": ["rules.json"], "evaluation_interval": f"{STEP:.0f}s", "tests": [group]}
        (folder / "rules.json").write_text(json.dumps(RULES))
        (folder / "test.json").write_text(json.dumps(document))
        command = [promtool, "test", "rules", str(folder / "test.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def _format(self, series: Series) -> dict[str, str]:
        """Return a series as promtool reads it."""
        values = ["_"] * self._count
        for time in series.ends:
            values[round(time / STEP)] = "stale"
        for time, value in zip(series.times, series.values, strict=True):
            values[round(time / STEP)] = f"{value:.17g}"
        labels = dict(series.labels)
        name = labels.pop("__name__")
        pairs = ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()))
        return {"series": f"{name}{{{pairs}}}", "values": " ".join(values)}


def find_lasting(alert: str) -> float:
    """Return for how many seconds the condition of an alert has to hold, by its most urgent rule."""
    [group] = RULES["groups"]
    return next(parse_duration(rule["for"]) for rule in group["rules"] if rule["alert"] == alert)
