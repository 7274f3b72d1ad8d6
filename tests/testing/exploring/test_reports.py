"""Tests for :mod:`trioperator.testing.exploring.reports`: what people, programs and pytest get."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import shlex
import subprocess
import sys

import pytest

from tests.testing.exploring.forgetful import FORGETFUL
from tests.testing.exploring.operators import GOOD, write_crd
from trioperator.testing.exploring import reports
from trioperator.testing.exploring.explorer import SubjectReport
from trioperator.testing.exploring.findings import Finding
from trioperator.testing.exploring.oracles import ORACLES
from trioperator.testing.exploring.perturbations import FAULTS
from trioperator.testing.exploring.reports import Inputs, Report, render_json, render_text, write_tests
from trioperator.testing.exploring.subjects import State

ROOT = pathlib.Path(__file__).parents[3]
STATES: list[State] = [{"spec": {"greeting": "it's"}}, {"spec": {}}]


@pytest.fixture
def report(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.chdir(tmp_path)
    finding = Finding(oracle="path", summary="It differs.", details=['A "x" \\ y'], states=STATES, count=3)
    noted = Finding(oracle="handlers", summary="It refuses.", details=[], states=STATES[:1], is_information=True)
    subject = SubjectReport(
        resource="webapps.example.com",
        kind="WebApp",
        states=7,
        sequences=2,
        transitions=20,
        findings=[finding, noted],
        without_effect=["spec.unused"],
        stopped="after 1 s",
    )
    return Report(inputs=Inputs(files=["app.py"], crds=["crd.yaml"], seed=5), subjects=[subject], seconds=1.25)


def test_people_get_the_states_the_difference_and_a_command(report: Report) -> None:
    lines = render_text(report).splitlines()
    assert lines[0] == "1. path: It differs."
    assert '     2. {"spec":{}}' in lines
    assert "   seen 3 times" in lines
    assert "information: It refuses." in lines
    assert lines[-2] == "webapps.example.com: 7 states in 2 sequences, 20 transitions, stopped after 1 s"
    assert lines[-1] == "1 finding in 1.2 s, with the seed 5."
    (command,) = (line.partition(": ")[2] for line in lines if "play it again" in line)
    words = shlex.split(command)
    assert words[:5] == ["trioperator", "explore", "app.py", "--crds", "crd.yaml"]
    assert json.loads(words[-1]) == STATES


def test_nothing_that_is_quoted_controls_the_terminal(report: Report) -> None:
    report.subjects[0].findings[:] = [
        Finding(oracle="handlers", summary="\x1b[2J", details=["a\x9b5mb\u202e"], states=[{"spec": {"a": "\x1b"}}])
    ]
    lines = render_text(report).splitlines()
    assert lines[0] == "1. handlers: ?[2J"
    assert "   a?5mb?" in lines
    assert all(line.isprintable() for line in lines)


def test_what_needs_a_fault_is_played_again_with_it(report: Report, tmp_path: pathlib.Path) -> None:
    raised = Finding(oracle="handlers", summary="It fails.", details=[], states=STATES, fault="crash")
    report.subjects[0].findings[:] = [raised]
    assert "--faults crash --kind" in render_text(report)
    (path,) = write_tests(report, str(tmp_path))
    assert "oracles=['handlers'],\n        faults=['crash'],\n" in pathlib.Path(path).read_text()


def test_programs_get_the_same(report: Report) -> None:
    document = json.loads(render_json(report))
    (subject,) = document["subjects"]
    assert document["seed"] == 5
    assert subject["withoutEffect"] == ["spec.unused"]
    assert [each["information"] for each in subject["findings"]] == [False, True]
    assert subject["findings"][0]["states"] == STATES


def run_pytest(folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_tests_fail_for_the_finding_alone_and_pass_when_it_is_mended(report: Report, tmp_path: pathlib.Path) -> None:
    write_crd(tmp_path)
    (tmp_path / "app.py").write_text(FORGETFUL)
    assert write_tests(report, "tests") == [os.path.join("tests", "test_webapp_path.py")]
    failed = run_pytest(tmp_path)
    assert "1 failed" in failed.stdout, failed.stdout + failed.stderr
    assert "ConfigMap default/example should not be there" in failed.stdout
    (tmp_path / "app.py").write_text(GOOD)
    passed = run_pytest(tmp_path)
    assert "1 passed" in passed.stdout, passed.stdout + passed.stderr


@pytest.mark.parametrize("text", ['"""\nimport os\n"""', 'a"""', "\0", "\ud800", "\\", '""'])
def test_no_text_becomes_code(text: str, report: Report, tmp_path: pathlib.Path) -> None:
    hostile: list[State] = [{"spec": {text.replace("\ud800", "x"): text.replace("\ud800", "x")}}]
    report.subjects[0].findings[:] = [
        Finding(oracle="handlers", summary=text, details=[text], states=hostile, ignored=[text.replace("\ud800", "x")])
    ]
    (path,) = write_tests(report, str(tmp_path))
    module = ast.parse(pathlib.Path(path).read_text(encoding="utf-8"))
    kinds = [type(node).__name__ for node in module.body]
    assert kinds == ["Expr", "Import", "ImportFrom", "Assign", "Assign", "FunctionDef"]


def test_tests_of_one_kind_and_oracle_have_names_of_their_own(report: Report) -> None:
    report.subjects[0].findings.append(report.subjects[0].findings[0])
    assert [os.path.basename(path) for path in write_tests(report, "tests")] == [
        "test_webapp_path.py",
        "test_webapp_path_2.py",
    ]


def test_tests_of_others_are_not_overwritten(report: Report) -> None:
    own, other = pathlib.Path("tests/test_webapp_path.py"), pathlib.Path("tests/test_webapp_path_2.py")
    own.parent.mkdir()
    own.write_text("def test_of_mine(): ...\n")
    for _ in range(2):
        assert write_tests(report, "tests") == [str(other)]
    assert own.read_text() == "def test_of_mine(): ...\n"


def test_the_command_and_the_test_leave_out_the_causes_of_other_findings(report: Report) -> None:
    (finding, _) = report.subjects[0].findings
    finding.ignored, finding.also = ["WebApp status.phase"], ["edit: Somebody labels it."]
    text = render_text(report)
    assert "--ignore 'WebApp status.phase' --kind" in text
    assert "   also shows as edit: Somebody labels it." in text
    assert "Typical causes: an update handler is missing" in text
    (path,) = write_tests(report, "tests")
    assert "ignore=['WebApp status.phase'],\n" in pathlib.Path(path).read_text()


def test_each_oracle_and_fault_has_typical_causes() -> None:
    assert reports._HINTS.keys() == {*ORACLES, *FAULTS}
