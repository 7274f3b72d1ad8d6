"""Tests for :mod:`trioperator.testing.exploring.findings`: one cause is one finding."""

from __future__ import annotations

from trioperator.testing.exploring.findings import Finding, absorb


def make_finding(oracle: str, *causes: str, related: frozenset[str] = frozenset(), fault: str = "") -> Finding:
    return Finding(
        oracle=oracle,
        summary=f"It is {oracle}.",
        details=["KeyError: 'a' (app.py:3)"] if oracle == "handlers" else [],
        causes=frozenset(causes),
        related=related,
        fault=fault,
    )


ERROR = frozenset({"KeyError at app.py:3"})
LOOP = frozenset({"loop of deploy"})


def test_one_error_in_several_faults_is_one_finding() -> None:
    known = [make_finding("handlers", *ERROR)]
    for fault in ("edit", "edit", "crash"):
        perturbed = make_finding("handlers", *ERROR, fault=fault)
        perturbed.perturbation = f"It meets {fault}"
        assert absorb(known, perturbed)
    assert absorb(known, make_finding("handlers", *ERROR))
    assert (known[0].count, known[0].also) == (2, ["edit: It meets edit", "crash: It meets crash"])


def test_a_field_in_one_that_differs_is_the_same_finding() -> None:
    known = [make_finding("path", "WebApp status")]
    assert absorb(known, make_finding("edit", "WebApp status.phase", fault="edit"))
    assert not absorb(known, make_finding("path", "WebApp status2"))
    assert known[0].also == ["edit: It is edit."]


def test_what_follows_from_an_error_in_its_play_is_no_finding_of_its_own() -> None:
    known = [make_finding("handlers", *ERROR)]
    for oracle, cause in (("cost", "loop of deploy"), ("quiet", "loop of deploy"), ("path", "ConfigMap data.size")):
        assert absorb(known, make_finding(oracle, cause, related=ERROR))
    assert [line.partition(":")[0] for line in known[0].also] == ["cost", "quiet", "path"]


def test_the_same_without_the_error_is_a_finding_of_its_own() -> None:
    known = [make_finding("handlers", *ERROR)]
    assert absorb(known, make_finding("path", "ConfigMap data.size", related=ERROR))
    assert not absorb(known, make_finding("path", "ConfigMap data.size"))


def test_what_follows_from_a_consequence_has_the_same_origin() -> None:
    known = [make_finding("cost", *LOOP)]
    assert absorb(known, make_finding("handlers", *ERROR, related=LOOP))
    assert absorb(known, make_finding("path", "ConfigMap data.size", related=ERROR))
    assert known[0].also == ["handlers: KeyError: 'a' (app.py:3)", "path: It is path."]


def test_information_hides_no_alarm() -> None:
    known = [make_finding("handlers", *ERROR)]
    known[0].is_information = True
    assert not absorb(known, make_finding("path", "ConfigMap data.size", related=ERROR))
