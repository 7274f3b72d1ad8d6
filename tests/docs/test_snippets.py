"""Every block of Python in README and in docs/ runs, in virtual time: see :mod:`tests.docs.running`."""

from __future__ import annotations

import pathlib

import pytest
from trio.testing import MockClock

from tests.docs.pages import ROOT, read_blocks
from tests.docs.running import Page

PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))]
BLOCKS = {page: blocks for page in PAGES if (blocks := read_blocks(page, "python"))}


@pytest.mark.parametrize("page", BLOCKS)
async def test_the_snippets_of_a_page_run(
    page: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    runner = Page(monkeypatch, autojump_clock)
    for block in BLOCKS[page]:
        try:
            await runner.run(block)
        except BaseException as error:
            error.add_note(f"The snippet is in {block}.")
            raise


@pytest.mark.parametrize("page", BLOCKS)
def test_whoever_opens_a_client_is_shown_a_whole_program(page: str) -> None:
    for block in BLOCKS[page]:
        if "trioperator.open_client(" in block.text:
            compile(block.text, str(block), "exec")  # no await outside of functions


@pytest.mark.parametrize("page", PAGES)
def test_what_is_not_run_has_a_reason(page: str) -> None:
    for block in read_blocks(page):
        how, _, reason = block.directive.partition(",")
        assert how in ("", "declared", "compiled", "in real time") or how.startswith("see tests/"), block
        assert not how or how.startswith("see ") or len(reason.split()) > 2, block
        assert not (how or block.context) or block.language == "python", block
