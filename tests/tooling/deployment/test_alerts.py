"""Tests for :mod:`trioperator._tooling.deployment.alerts`: rules that fit the metrics, and their runbooks.

``tests/alerts`` shows that they fire when they should.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any, Final

import pytest

from trioperator._telemetry.statistics import KindStatistics
from trioperator._tooling.deployment.alerts import ALERTS, make_prometheus_rule, make_rules
from trioperator._tooling.deployment.files import render
from trioperator._tooling.deployment.network import make_metrics_service
from trioperator._tooling.deployment.options import DeploymentOptions
from trioperator.errors import ConfigError

ROOT: Final = pathlib.Path(__file__).parents[3]
OPTIONS: Final = DeploymentOptions(name="db", namespace="dbs", prometheus="monitoring", alerts=True)


def rules(options: DeploymentOptions = OPTIONS) -> list[dict[str, Any]]:
    [group] = make_rules(options)["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_every_metric_of_an_alert_is_documented_and_selected_by_the_service_of_metrics() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/monitoring.md").read_text(), re.M))
    service = make_metrics_service(OPTIONS)["metadata"]
    labels = f'namespace="{service["namespace"]}", service="{service["name"]}"'
    for rule in rules():
        used = re.findall(r"((?:trioperator|controller_runtime|leader)_\w+)(\{[^}]*\})?", rule["expr"])
        assert used
        for name, selector in used:
            assert re.sub(r"_(bucket|count)$", "", name) in documented
            assert labels in selector, rule["alert"]


def test_thresholds_of_histograms_are_bounds_of_their_buckets() -> None:
    bounds = KindStatistics("").done_seconds.bounds
    found = re.findall(r'le="([^"]+)"', "".join(alert.condition for alert in ALERTS))
    assert found
    assert all(float(bound) in bounds and str(float(bound)) == bound for bound in found)


def test_each_alert_has_its_section_and_its_row_in_the_runbooks_and_links_there() -> None:
    text = (ROOT / "docs/runbooks.md").read_text()
    names = list(dict.fromkeys(alert.name for alert in ALERTS))
    assert re.findall(r"^## (\w+)$", text, re.M) == names
    rows = re.findall(r"^\| \[(\w+)\]\(#\w+\) \| (\w+) \|.* (\d+) min \|$", text, re.M)
    assert rows == [(alert.name, alert.severity, alert.lasting.removesuffix("m")) for alert in ALERTS]
    for rule in rules(DeploymentOptions(runbooks="https://docs.test/runbooks.html")):
        assert rule["annotations"]["runbook_url"] == f"https://docs.test/runbooks.html#{rule['alert'].lower()}"


def test_the_alerts_of_the_deployment_are_up_to_date() -> None:
    written = (ROOT / "deploy/monitoring/alerts.yaml").read_text()
    assert written == render([make_prometheus_rule(DeploymentOptions())])


def test_alerts_without_metrics_are_an_error() -> None:
    with pytest.raises(ConfigError, match="pass --metrics"):
        DeploymentOptions(alerts=True)
