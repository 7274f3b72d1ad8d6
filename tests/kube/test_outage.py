"""Tests for :mod:`trioperator.kube.outage`."""

from __future__ import annotations

from trioperator.kube.outage import Outage


def test_the_first_one_reports_an_outage_until_it_ends() -> None:
    outage, first, second = Outage(), object(), object()
    assert [outage.claim(each) for each in (first, second, first)] == [True, False, True]
    outage.end()
    assert [outage.claim(each) for each in (second, first)] == [True, False]
