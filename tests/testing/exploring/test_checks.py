"""Tests for :mod:`trioperator.testing.exploring.checks`."""

from __future__ import annotations

import pathlib
import time

import pytest

from tests.testing.exploring.forgetful import FORGETFUL
from tests.testing.exploring.operators import GOOD, write_crd
from trioperator import OperatorRegistry
from trioperator.errors import ConfigError
from trioperator.testing import check_states
from trioperator.testing.exploring.app import App
from trioperator.testing.exploring.checks import make_players
from trioperator.testing.exploring.outside import OutsideCallError
from trioperator.testing.exploring.subjects import State

STATES: list[State] = [{"spec": {"greeting": "a"}}, {"spec": {}}]


def write(folder: pathlib.Path, source: str) -> pathlib.Path:
    (folder / "app.py").write_text(source)
    write_crd(folder)
    return folder


def test_a_sequence_without_findings_passes(tmp_path: pathlib.Path) -> None:
    folder = write(tmp_path, GOOD)
    check_states(STATES, folder / "app.py", crds=[folder / "crd.yaml"])


def test_what_is_found_is_raised(tmp_path: pathlib.Path) -> None:
    folder = write(tmp_path, FORGETFUL)
    with pytest.raises(AssertionError, match=r"path: An object that is changed.*\n  ConfigMap .* should not be there"):
        check_states(STATES, folder / "app.py", crds=[folder / "crd.yaml"])
    check_states(STATES, folder / "app.py", crds=[folder / "crd.yaml"], oracles=["release"])


def test_files_that_do_not_return_from_their_import_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trioperator.testing.exploring.checks._PATIENCE_OF_IMPORTS", 0.05)
    places: list[str] = []

    class Endless(App):
        def load(self) -> OperatorRegistry:
            while not places:
                time.sleep(0.001)
            return OperatorRegistry()

    with pytest.raises(ConfigError, match="no decorator"):
        make_players(Endless(), on_blocked=places.append)
    assert "test_checks.py:" in places[0]
    assert places[0].endswith(", while it is imported")


def test_requests_on_import_reach_the_cluster_and_nothing_else(tmp_path: pathlib.Path) -> None:
    request = "import httpx\n\nassert httpx.get('{}/api').json()['kind'] == 'APIVersions'\n"
    folder = write(tmp_path, GOOD + request.format("http://cluster"))
    check_states(STATES, folder / "app.py", crds=[folder / "crd.yaml"])
    folder = write(tmp_path, GOOD + request.format("http://db.example.com"))
    with pytest.raises(OutsideCallError, match=r"looks up db.example.com \(.*app.py:\d+\), while it is imported\."):
        check_states(STATES, folder / "app.py", crds=[folder / "crd.yaml"])


def test_bad_input_is_an_error_that_says_what_to_do(tmp_path: pathlib.Path) -> None:
    folder = write(tmp_path, GOOD)
    with pytest.raises(ConfigError, match="no oracle truth: choose from path,"):
        check_states(STATES, folder / "app.py", crds=[folder / "crd.yaml"], oracles=["truth"])
    with pytest.raises(ConfigError, match="pass the definitions of its kinds, --crds FILE"):
        check_states(STATES, folder / "app.py")
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(ConfigError, match="no decorator has registered a function"):
        check_states(STATES, tmp_path / "empty.py")
