"""Tests for :mod:`trioperator.apiserver.model.builtin_kinds`: the table of the built-in kinds is consistent."""

from __future__ import annotations

import re

import pytest

from trioperator.apiserver.model.builtin_kinds import BUILTIN_KINDS, DEFAULT_NAMESPACES, IMMORTAL_NAMESPACES

ROWS = [line.split() for line in BUILTIN_KINDS.strip().splitlines() if line.startswith(" ")]
GROUPS = [line for line in BUILTIN_KINDS.strip().splitlines() if not line.startswith(" ")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[1]))
def test_each_line_is_a_resource_with_known_traits(row: list[str]) -> None:
    plural, kind, traits, short_names, categories = row
    assert re.fullmatch(r"[a-z]+", plural)
    assert re.fullmatch(r"[A-Z][A-Za-z]+", kind)
    assert re.fullmatch(r"[NC][asrtegucdvl]*", traits)
    assert len(set(traits)) == len(traits)
    assert re.fullmatch(r"-|[a-z]+(,[a-z]+)*", short_names)
    assert categories in {"-", "all", "api-extensions"}


def test_each_group_and_version_is_listed_once() -> None:
    assert len(set(GROUPS)) == len(GROUPS)
    assert all(re.fullmatch(r"([a-z0-9.]+/)?v\d+", line) for line in GROUPS)


def test_short_names_are_unambiguous() -> None:
    owners: dict[str, set[str]] = {}
    for plural, _, _, short_names, _ in ROWS:
        for name in filter(None, short_names.replace("-", "").split(",")):
            owners.setdefault(name, set()).add(plural)
    assert {name: plurals for name, plurals in owners.items() if len(plurals) > 1} == {}


def test_a_review_has_no_other_traits() -> None:
    reviews = [(plural, traits) for plural, _, traits, _, _ in ROWS if "v" in traits]
    assert reviews
    assert all(plural.endswith("reviews") and traits[1:] == "v" for plural, traits in reviews)


def test_immortal_namespaces_exist_by_default() -> None:
    assert set(DEFAULT_NAMESPACES) >= IMMORTAL_NAMESPACES
    assert "default" in IMMORTAL_NAMESPACES
    assert "kube-node-lease" not in IMMORTAL_NAMESPACES
