"""The messages that the page about troubleshooting quotes are those of the operator."""

from __future__ import annotations

import functools
import re

import pytest

from tests.docs.pages import ROOT, read

PAGE = read("docs/troubleshooting.md")
TABLE = PAGE.partition("## The operator does not start")[2].partition("\n## ")[0]
#: Messages in the table, and those that are quoted elsewhere.
MESSAGES = [
    *re.findall(r"^\| `([^`]+)` \|", TABLE, re.MULTILINE),
    "The operator is ready",
    "It does not handle everything",
    "Pausing operations",
    "Possible reconcile loop",
    "is forbidden",
    "blocks the event loop",
]


@functools.cache
def read_sources() -> str:
    """Return the sources of the package."""
    return "\n".join(path.read_text() for path in (ROOT / "trioperator").rglob("*.py"))


@pytest.mark.parametrize("message", MESSAGES)
def test_the_messages_are_those_of_the_operator(message: str) -> None:
    assert message in PAGE
    # Names and numbers are not in the sources, and neither is the punctuation around them.
    parts = [part.strip(" :.") for part in re.split(r"…|\d+|\bstartup\b|GET|[?()]|: Cannot", message)]
    assert [part for part in parts if part not in read_sources()] == []


def test_there_are_messages() -> None:
    assert len(MESSAGES) > 9
