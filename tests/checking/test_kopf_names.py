"""Tests for :mod:`trioperator.checking.kopf_names`: names of Kopf and others that do not exist."""

from __future__ import annotations

import pytest

from trioperator.checking import Source, find_kopf_problems


def find(text: str) -> list[tuple[int, str]]:
    return [(problem.line, problem.message) for problem in find_kopf_problems(Source.parse("m", "m.py", text))]


@pytest.mark.parametrize("text", ["import kopf", "from kopf import on", "import kopf.testing as t", "import os, kopf"])
def test_importing_kopf_itself_is_reported_with_the_replacement(text: str) -> None:
    [(line, message)] = find(text)
    assert line == 1
    assert message.startswith("The file imports Kopf itself")
    assert "import trioperator as kopf" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import trioperator as kopf\nkopf.AiohttpSession()", "Kopf's AiohttpSession does not exist"),
        ("import trioperator as kopf\nkopf.KopfRunner", "from trioperator.testing import KopfRunner"),
        ("import trioperator\ntrioperator.adop({})", "no attribute adop (did you mean adopt?)"),
        (
            "import trioperator as kopf\n@kopf.on.craete('a')\ndef f(): ...",
            "craete (did you mean create?)",
        ),
        ("pass\nfrom trioperator import adop", "no attribute adop (did you mean adopt?)"),
        ("from trioperator import on\non.nothing", "trioperator.on has no attribute nothing."),
        ("def f(settings):\n    settings.queueing.idle_timeout = 1", "no setting settings.queueing.idle_timeout"),
        ("def f(settings):\n    settings.wrong.idle_timeout = 1", "settings.wrong"),
    ],
)
def test_names_that_do_not_exist_are_reported_in_their_lines(text: str, words: str) -> None:
    [(line, message)] = find(text)
    assert line == 2
    assert words in message


@pytest.mark.parametrize(
    "text",
    [
        "import trioperator as kopf\nkopf.on.create, kopf.adopt, kopf.Client, kopf.WebhookServer, kopf.__version__",
        "import trioperator\ntrioperator.testing, trioperator.cli.main",
        "from trioperator import *",
        "from . import kopf",
        "def f(settings): settings.batching.worker_limit = settings.posting.level; settings.copy()",
        "import os\nos.kopf",
    ],
)
def test_names_that_exist_are_left_alone(text: str) -> None:
    assert find(text) == []
