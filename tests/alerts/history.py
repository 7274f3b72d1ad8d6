"""Histories of the metrics of operators in virtual time, as Prometheus would have scraped them, judged by promtool."""

from __future__ import annotations

import collections
import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import trio

from trioperator._concurrency.clock import wall_now
from trioperator._endpoints.metrics import OperatorCollector
from trioperator._telemetry.inspector import Inspector
from trioperator._tooling.deployment.alerts import make_rules
from trioperator._tooling.deployment.options import DeploymentOptions

#: Seconds between two scrapes, and between two evaluations of the rules.
STEP: Final = 30.0
PROMTOOL: Final = os.environ.get("PROMTOOL") or shutil.which("promtool")
#: Why tests are skipped without it.
HOW: Final = "install promtool, or set PROMTOOL to its path: go install github.com/prometheus/prometheus/cmd/promtool"

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

    def scrape(self) -> Iterator[tuple[str, float]]:
        """Yield the series that alerts need, with their values."""
        if self._collector is None:
            return
        target = {"namespace": "trioperator", "service": "trioperator-metrics", "instance": self.name}
        for metric in self._collector.collect():
            for sample in metric.samples:
                if sample.name in _NAMES:
                    labels = {**sample.labels, **target}
                    pairs = ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()))
                    yield f"{sample.name}{{{pairs}}}", sample.value


class History:
    """What was scraped, from the start on."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = pods
        self._count = 0
        self._began = math.nan
        self._series: collections.defaultdict[str, list[str]] = collections.defaultdict(list)

    async def record(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Scrape all pods until cancelled."""
        self._began = wall_now().timestamp()
        start = trio.current_time()
        task_status.started()
        while True:
            self._scrape()
            await trio.sleep_until(start + self._count * STEP)

    def _scrape(self) -> None:
        found = {series: value for pod in self.pods for series, value in pod.scrape()}
        for series in found.keys() | self._series.keys():
            values = self._series[series]
            values += ["_"] * (self._count - len(values))
            if series in found:
                values.append(f"{found[series]:.17g}")
            elif values and values[-1] not in ("_", "stale"):
                values.append("stale")
        self._count += 1

    @property
    def now(self) -> float:
        """Seconds that were recorded so far."""
        return max(self._count - 1, 0) * STEP

    def judge(self, folder: pathlib.Path, fired: Mapping[float, Collection[str]]) -> str:
        """Check which alerts have fired up to some times, by promtool; return what it says if they are others."""
        assert PROMTOOL is not None
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
            "input_series": [{"series": each, "values": " ".join(values)} for each, values in self._series.items()],
            "promql_expr_test": tests,
        }
        document = {"rule_files": ["rules.json"], "evaluation_interval": f"{STEP:.0f}s", "tests": [group]}
        (folder / "rules.json").write_text(json.dumps(RULES))
        (folder / "test.json").write_text(json.dumps(document))
        command = [PROMTOOL, "test", "rules", str(folder / "test.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stdout + done.stderr


def find_lasting(alert: str) -> float:
    """Return for how many seconds the condition of an alert has to hold, by its most urgent rule."""
    lasting: dict[str, Any] = {}
    for rule in RULES["groups"][0]["rules"]:
        lasting.setdefault(rule["alert"], rule["for"])
    return float(lasting[alert].removesuffix("m")) * 60
