"""Kopf's own tests: their reports, and what is known of those that fail."""

from __future__ import annotations

from tests.world.suite import find_unexplained, read_report

REPORT = """
.F
=========================== short test summary info ============================
PASSED tmp/suite/hierarchies/test_a.py::test_one
PASSED tmp/suite/hierarchies/test_a.py::test_two[a - b]
FAILED tmp/suite/hierarchies/test_a.py::test_adopting[True] - AssertionError: x
ERROR tmp/suite/test_b.py::test_three - TypeError
ERROR tmp/suite/test_c.py - SyntaxError
"""


def test_reports_of_pytest_are_read() -> None:
    found = read_report(REPORT)
    assert [name for name, passed in found.items() if not passed] == [
        "test_a.py::test_adopting[True]",
        "test_b.py::test_three",
    ]
    assert sum(found.values()) == 2


def test_failures_without_a_reason_are_found() -> None:
    assert find_unexplained(["test_a.py::test_adopting[True]", "test_b.py::test_three"]) == ["test_b.py::test_three"]
