"""The pages as a site: `nox -s docs` builds it. Here, each page has its place."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, read

DOCS = ROOT / "docs"
PAGES = {path.stem for path in DOCS.glob("*.md")} - {"README"}
PAGES |= {f"decisions/{path.stem}" for path in DOCS.glob("decisions/*.md")}
NAVIGATION = read("docs/site/navigation.md")
ENTRIES = re.findall(r"^[/\w*-][^`:\s]*$", NAVIGATION, re.MULTILINE)


def test_each_page_has_one_place_in_the_navigation() -> None:
    assert len(ENTRIES) == len(set(ENTRIES))
    assert PAGES - set(ENTRIES) == set()


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_the_navigation_names_exists(entry: str) -> None:
    folder, name = (ROOT, entry[1:]) if entry.startswith("/") else (ROOT / "docs", entry)
    assert list(folder.glob(f"{name}.md"))


@pytest.mark.parametrize("page", sorted(PAGES))
def test_each_page_is_listed_on_the_first_one(page: str) -> None:
    assert f"]({page}.md)" in read("docs/README.md")


def test_the_pages_are_those_of_a_tutorial_recipes_a_reference_and_explanations() -> None:
    assert re.findall(r"^:caption: (.+)$", NAVIGATION, re.MULTILINE) == [
        "Tutorial",
        "Examples",
        "How to",
        "Reference",
        "Explanation",
    ]


def test_idempotent_links_to_its_page() -> None:
    pages = {path: path.read_text() for path in DOCS.glob("*.md")}
    targets = {target for text in pages.values() for target in re.findall(r"\[idempotent\w*\]\(([^)]*)\)", text)}
    assert targets == {"idempotence.md"}
