"""What a suite reported, by test, and how two runs differ. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from xml.etree import ElementTree

#: Whether each test that was run has passed, by its name.
Results: TypeAlias = Mapping[str, bool]

_FUNCTION: Final = re.compile(r"=== run_(?P<name>\w+)(?:: (?P<code>\d+))?")
_ASSERTION: Final = re.compile(r"(?:[\w.-]+:\d+: )?Successful")
_CRATE: Final = re.compile(r"Running unittests \S+ \(.*/(\w+)-\w+\)")
_CARGO: Final = re.compile(r"test (\S+) \.\.\. (ok|FAILED)")
_COLOUR: Final = re.compile(r"\x1b(?:\[[0-9;]*m|\(B)")
_RUN: Final = {"passed": True, "failed": False, "panicked": False, "timedout": False, "interrupted": False}


def parse_ginkgo(report: Sequence[Mapping[str, Any]]) -> Results:
    """Parse a JSON report of Ginkgo; tests that are pending or skipped are left out."""
    specs = [spec for suite in report for spec in suite.get("SpecReports") or () if spec["LeafNodeType"] == "It"]
    return _merge(
        (" ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]]), _RUN[spec["State"]])
        for spec in specs
        if spec["State"] in _RUN
    )


def parse_junit(report: str) -> Results:
    """Parse an XML report of pytest; tests that are skipped are left out."""
    cases = ElementTree.fromstring(report).iter("testcase")
    return _merge(
        (f"{case.get('classname')}.{case.get('name')}", case.find("failure") is None and case.find("error") is None)
        for case in cases
        if case.find("skipped") is None
    )


def parse_cargo(log: str) -> Results:
    """Parse the output of ``cargo test``; tests that are ignored are left out."""
    results, crate = [], ""
    for line in log.splitlines():
        if begun := _CRATE.search(line):
            crate = begun[1]
        elif found := _CARGO.fullmatch(line):
            results.append((f"{crate}::{found[1]}", found[2] == "ok"))
    return _merge(results)


def parse_acceptance(log: str) -> Results:
    """Parse the log of kubectl's acceptance suite: functions, and their assertions up to the first that fails."""
    results: dict[str, bool] = {}
    function, count = "", 0
    for line in _COLOUR.sub("", log).splitlines():
        if begun := _FUNCTION.fullmatch(line):
            if begun["code"] is None:
                function, count = begun["name"], 0
            else:
                results[begun["name"]] = begun["code"] == "0"
        elif _ASSERTION.match(line):
            count += 1
            results[f"{function} assertion {count}"] = True
    return results


def _merge(results: Iterable[tuple[str, bool]]) -> Results:
    """Collect results; of tests with the same name, all must have passed."""
    merged: dict[str, bool] = {}
    for name, passed in results:
        merged[name] = merged.get(name, True) and passed
    return merged


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A suite on the embedded server and, if there was one, on the real one. None: it did not run to its end."""

    suite: str
    embedded: Results | None
    real: Results | None

    @property
    def missing(self) -> list[str]:
        """The tests that pass on the real server only; without one, those that fail. A suite without tests is wrong."""
        if not self.embedded and not self.real:
            return ["no test has run"]
        expected = {name for name, passed in (self.real or self.embedded or {}).items() if passed or not self.real}
        return sorted(name for name in expected if not (self.embedded or {}).get(name))

    @property
    def row(self) -> str:
        """A line of the table."""
        cells = [_count(self.embedded), _count(self.real), str(len(self.missing))]
        return f"{self.suite:<44}" + "".join(f"{cell:>14}" for cell in cells)


HEAD: Final = f"{'suite':<44}" + "".join(f"{cell:>14}" for cell in ("embedded", "real", "missing"))


def _count(results: Results | None) -> str:
    return "-" if results is None else f"{sum(results.values())} of {len(results)}"


def share(comparisons: Iterable[Comparison]) -> float:
    """Return the share of what should pass that passes."""
    missing = expected = 0
    for comparison in comparisons:
        results = comparison.real if comparison.real is not None else comparison.embedded
        count = sum(results.values()) if comparison.real is not None and results else len(results or ())
        missing += len(comparison.missing)
        expected += max(count, len(comparison.missing))
    return 1 - missing / expected if expected else 0.0
