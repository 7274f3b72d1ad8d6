"""Tests for :mod:`tests.foreign.reports`."""

from __future__ import annotations

import pytest

from tests.foreign.reports import Comparison, parse_acceptance, parse_cargo, parse_ginkgo, parse_junit, share


def spec(text: str, state: str, *containers: str, kind: str = "It") -> dict[str, object]:
    return {
        "ContainerHierarchyTexts": list(containers),
        "LeafNodeText": text,
        "LeafNodeType": kind,
        "State": state,
    }


def test_tests_of_ginkgo_are_named_with_their_containers() -> None:
    specs = [spec("works", "passed", "A", "b"), spec("breaks", "failed"), spec("later", "pending")]
    assert parse_ginkgo([{"SpecReports": [*specs, spec("", "passed", kind="BeforeSuite")]}]) == {
        "A b works": True,
        "breaks": False,
    }


def test_a_suite_that_broke_off_has_no_results() -> None:
    assert parse_ginkgo([{"SpecReports": None}]) == {}


def test_of_tests_with_one_name_all_must_pass() -> None:
    assert parse_ginkgo([{"SpecReports": [spec("a", "failed"), spec("a", "passed")]}]) == {"a": False}


def test_tests_of_cargo_are_named_with_their_crate() -> None:
    log = """
     Running unittests src/lib.rs (target/debug/deps/kube_client-3f5)
running 3 tests
test test::lists ... ok
test test::writes ... FAILED
test test::later ... ignored
     Running unittests src/lib.rs (target/debug/deps/kube-3f5)
test test::lists ... ok
"""
    lists = ("kube_client::test::lists", "kube::test::lists")
    assert parse_cargo(log) == dict.fromkeys(lists, True) | {"kube_client::test::writes": False}


def test_tests_of_pytest() -> None:
    failed, errored, skipped = (f"<testcase classname='c' name='{tag}'><{tag}/></testcase>" for tag in TAGS)
    cases = f"<testcase classname='c' name='a'/>{failed}{errored}{skipped}"
    report = f"<testsuites><testsuite>{cases}</testsuite></testsuites>"
    assert parse_junit(report) == {"c.a": True, "c.failure": False, "c.error": False}


def test_functions_of_the_acceptance_suite_have_numbered_assertions() -> None:
    lines = [
        "=== run_pod_tests",
        "\x1b[32mcore.sh:12: Successful get pods",
        "\x1b(B\x1b[mpod/a created",
        "\x1b(B\x1b[mSuccessful",
    ]
    lines += ["=== run_pod_tests: 0", "=== run_crd_tests", "FAIL!", "=== run_crd_tests: 1"]
    expected = {"pod_tests assertion 1": True, "pod_tests assertion 2": True, "pod_tests": True, "crd_tests": False}
    assert parse_acceptance("\n".join(lines)) == expected


TAGS = ("failure", "error", "skipped")


@pytest.mark.parametrize(
    ("embedded", "real", "missing"),
    [
        ({"a": True, "b": False}, None, ["b"]),
        ({"a": True, "b": False}, {"a": True, "b": False}, []),
        ({"a": False}, {"a": True, "b": True}, ["a", "b"]),
        (None, {"a": True}, ["a"]),
        ({"a": True}, {}, []),
        ({}, None, ["no test has run"]),
        ({}, {}, ["no test has run"]),
    ],
)
def test_what_passes_on_the_real_server_only_is_missing(
    embedded: dict[str, bool] | None, real: dict[str, bool] | None, missing: list[str]
) -> None:
    assert Comparison("s", embedded, real).missing == missing


def test_the_share_counts_what_passes_on_the_real_server() -> None:
    first = Comparison("s", {"a": True, "b": False}, {"a": True, "b": True})
    second = Comparison("t", {"a": True, "b": False}, {"a": True, "b": False})
    assert share([first, second]) == pytest.approx(2 / 3)
    assert share([Comparison("s", {"a": True, "b": False}, None)]) == 0.5
    assert share([Comparison("s", {"a": True}, None), Comparison("t", None, None)]) == 0.5
    assert share([]) == 0
