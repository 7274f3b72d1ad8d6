"""Defaults and signatures on the pages are those of the code."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

import trioperator
from tests.docs.pages import ROOT, read
from trioperator.helpers import hierarchies
from trioperator.settings import OperatorSettings

_ROW = re.compile(r"^\| (?P<cells>.+) \|$", re.MULTILINE)
#: A call in a cell of a table or in a sentence, such as `adopt(objs, owner, *, forced)`.
_CALL = re.compile(r"`(?P<name>\w+)\((?P<parameters>\w[^()]*\*[^()]*)\)`")


def read_rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the tables below a heading."""
    _, found, rest = read(page).partition(f"\n{heading}\n")
    assert found, (page, heading)
    return [match["cells"].split(" | ") for match in _ROW.finditer(re.split(r"^#", rest, flags=re.MULTILINE)[0])]


def evaluate(cell: str) -> object:
    """Return the value that a cell shows."""
    text = cell.partition("`")[2].partition("`")[0] or cell
    if (numbers := re.fullmatch(r"(?P<first>[\d, ]+), … (?P<last>\d+)", text)) is not None:
        return [*map(int, numbers["first"].split(",")), ..., int(numbers["last"])]
    return eval(text, {"logging": logging})


def is_shown(shown: Any, value: Any) -> bool:
    """Check whether a value is the one that is shown, which may be abbreviated by an ellipsis."""
    if isinstance(shown, list) and ... in shown:
        first = list(itertools.takewhile(lambda each: each is not ..., shown))
        return list(value)[: len(first)] == first and list(value)[-1] == shown[-1]
    if isinstance(shown, dict):
        return {key: [".".join(path) for path in paths] for key, paths in value.items()} == shown
    return bool(tuple(shown) == tuple(value) if isinstance(shown, tuple) else shown == value)


SECTIONS = [field.name for field in dataclasses.fields(OperatorSettings)]


@pytest.mark.parametrize("section", SECTIONS)
def test_the_settings_have_the_defaults_of_their_page(section: str) -> None:
    settings = getattr(OperatorSettings(), section)
    rows = {row[0].strip("`"): row[1] for row in read_rows("docs/settings.md", f"## `settings.{section}`")[1:]}
    shown = {name: cell for name, cell in rows.items() if name in {each.name for each in dataclasses.fields(settings)}}
    assert shown
    assert {name: cell for name, cell in shown.items() if not is_shown(evaluate(cell), getattr(settings, name))} == {}


@pytest.mark.parametrize(("heading", "section"), [("## Leader election", "leadership"), ("## Peering", "peering")])
def test_the_settings_of_coordination_have_the_defaults_of_their_page(heading: str, section: str) -> None:
    settings = getattr(OperatorSettings(), section)
    shown = {}
    for row in read_rows("docs/coordination.md", heading):
        name, default = row[-3].partition(",")[0].strip("`| "), row[-2]
        if default.startswith("`"):
            shown[name] = default
    assert len(shown) >= 5
    assert {name: cell for name, cell in shown.items() if evaluate(cell) != getattr(settings, name)} == {}


def test_the_storages_have_the_defaults_of_their_page() -> None:
    rows = {row[0].strip("`"): row[1] for row in read_rows("docs/state.md", "## Choosing where to store it")}
    classes = [
        trioperator.AnnotationsProgressStorage,
        trioperator.AnnotationsDiffBaseStorage,
        trioperator.StatusProgressStorage,
        trioperator.StatusDiffBaseStorage,
        trioperator.SmartProgressStorage,
    ]
    for cls in classes:
        for name, parameter in inspect.signature(cls).parameters.items():
            if name in rows:
                assert repr(parameter.default).replace("'", '"') in rows[name], (cls, name)
    assert {"prefix", "key", "name", "field", "ignored_fields", "verbose"} <= set(rows)


def list_calls() -> Iterator[tuple[str, str, str]]:
    """Yield the pages, names and parameters of the public functions whose signatures are shown."""
    for path in sorted(ROOT.glob("docs/*.md")):
        for match in _CALL.finditer(path.read_text()):
            if hasattr(trioperator, match["name"]) or hasattr(hierarchies, match["name"]):
                yield f"docs/{path.name}", match["name"], match["parameters"]


@pytest.mark.parametrize(("page", "name", "parameters"), list(list_calls()))
def test_functions_have_the_signatures_of_their_pages(page: str, name: str, parameters: str) -> None:
    function = getattr(trioperator, name, None) or getattr(hierarchies, name)
    real = inspect.signature(function).parameters
    _, _, keywords = parameters.partition("*, ")
    for each in filter(None, parameters.replace("*, ", "").split(", ")):
        shown, _, default = each.partition("=")
        is_keyword = each in keywords.split(", ")
        assert (real[shown].kind is inspect.Parameter.KEYWORD_ONLY) is is_keyword, shown
        assert not default or real[shown].default == eval(default), shown


def test_signatures_are_shown() -> None:
    assert len(list(list_calls())) > 8


@pytest.mark.parametrize(
    ("cls", "page"),
    [
        (trioperator.ConnectionInfo, "docs/login.md"),
        (trioperator.WebhookServer, "docs/admission.md"),
        (trioperator.WebhookNgrokTunnel, "docs/admission.md"),
    ],
)
def test_all_options_of_a_class_are_on_its_page(cls: type, page: str) -> None:
    text = read(page)
    assert [name for name in inspect.signature(cls).parameters if f"`{name}`" not in text] == []
