"""Kopf's documentation has no topic without a page here."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, read

#: The requirements, where they are kept beside the project.
SEEDS = next((found for folder in ROOT.parents if (found := folder / "shared" / "seeds" / "code.md").exists()), None)
ROWS = dict(re.findall(r"^\| ([^|]+) \| (.+) \|$", read("docs/kopf-topics.md"), re.MULTILINE))


def test_each_topic_has_a_page() -> None:
    assert len(ROWS) > 45
    assert [topic for topic, pages in ROWS.items() if topic != "Kopf's chapter" and "](" not in pages] == [
        "kopf package"
    ]


@pytest.mark.skipif(SEEDS is None, reason="the requirements are not here")
def test_all_chapters_with_code_are_in_the_table() -> None:
    assert SEEDS is not None
    chapters = set(re.findall(r"^### \S+ · (.+?) / ", SEEDS.read_text(), re.MULTILINE))
    assert len(chapters) > 30
    assert chapters - set(ROWS) == set()
