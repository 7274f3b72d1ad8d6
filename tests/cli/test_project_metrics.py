"""Tests for :mod:`trioperator.cli.project_metrics`; metrics of files that change: see ``test_reload.py``."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import prometheus_client
import pytest

from trioperator.cli.project_metrics import ProjectMetrics

REGISTRY = prometheus_client.REGISTRY
METRIC = "import prometheus_client\nmetric = prometheus_client.Gauge('project_metric', 'A metric.')\n"


def run(path: pathlib.Path, text: str) -> None:
    exec(compile(text, str(path), "exec"), {"__name__": "module"})


def value() -> float | None:
    return REGISTRY.get_sample_value("project_metric")


@pytest.fixture
def metrics() -> Iterator[ProjectMetrics]:
    metrics = ProjectMetrics()
    with metrics.recording():
        yield metrics
    metrics.forget(["/"])


def test_metrics_of_the_project_are_forgotten_and_can_be_restored(
    metrics: ProjectMetrics, tmp_path: pathlib.Path
) -> None:
    run(tmp_path / "app.py", METRIC)
    restore = metrics.forget([str(tmp_path)])
    assert value() is None
    run(tmp_path / "app.py", METRIC)
    metrics.forget([str(tmp_path)])
    restore()
    assert value() == 0
    metrics.forget([str(tmp_path)])
    assert value() is None


def test_metrics_of_libraries_and_of_other_projects_are_kept(metrics: ProjectMetrics, tmp_path: pathlib.Path) -> None:
    library = tmp_path / "site-packages" / "library.py"
    run(tmp_path / "app.py", f"exec(compile({METRIC!r}, {str(library)!r}, 'exec'), {{}})")
    metrics.forget([str(tmp_path)])
    metrics.forget([str(tmp_path / "other")])
    assert value() == 0
    REGISTRY.unregister(REGISTRY._names_to_collectors["project_metric"])


def test_metrics_that_a_library_makes_for_the_project_are_its_own(
    metrics: ProjectMetrics, tmp_path: pathlib.Path
) -> None:
    library = tmp_path / "site-packages" / "library.py"
    make = "import prometheus_client\ndef make(): prometheus_client.Gauge('project_metric', 'A metric.')\n"
    text = f"names = {{}}\nexec(compile({make!r}, {str(library)!r}, 'exec'), names)\nnames['make']()\n"
    run(tmp_path / "app.py", text)
    metrics.forget([str(tmp_path)])
    assert value() is None


def test_metrics_that_the_project_has_unregistered_are_no_error(
    metrics: ProjectMetrics, tmp_path: pathlib.Path
) -> None:
    run(tmp_path / "app.py", f"{METRIC}prometheus_client.REGISTRY.unregister(metric)\n")
    metrics.forget([str(tmp_path)])
    assert value() is None


def test_the_registry_is_as_before_in_the_end() -> None:
    with ProjectMetrics().recording():
        assert "register" in vars(REGISTRY)
    assert "register" not in vars(REGISTRY)
