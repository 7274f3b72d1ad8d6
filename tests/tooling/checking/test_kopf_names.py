"""Tests for :mod:`trioperator._tooling.checking.kopf_names`: names of Kopf and others that do not exist."""

from __future__ import annotations

import pytest

from trioperator._tooling.checking import Source, find_kopf_annotations, find_kopf_problems


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


@pytest.mark.parametrize(
    "text",
    [
        "from .config import settings\ndef f(): return settings.zenith.url",
        "import app.settings as settings\nsettings.zenith.url",
        "settings = Settings()\nclass A:\n    def f(self): return settings.zenith.url",
        "from .config import settings\ndef f(settings): return settings.zenith.url",
        "def f(settings: Settings): return settings.zenith.url",
    ],
)
def test_settings_of_the_operators_own_are_left_alone(text: str) -> None:
    assert find(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "from .config import settings\n@kopf.on.startup()\ndef f(settings, **_): settings.zenith.url = 1",
        "from .config import settings\ndef f(settings: kopf.OperatorSettings, **_): settings.zenith.url = 1",
        "from trioperator import OperatorSettings\nsettings = OperatorSettings()\nsettings.zenith.url = 1",
        "def f(settings):\n    def g(): settings.zenith.url = 1",
    ],
)
def test_settings_of_the_operator_are_checked_beside_other_settings(text: str) -> None:
    [(_, message)] = find(text)
    assert "settings.zenith" in message


def find_annotations(*texts: str) -> list[tuple[str, int, str]]:
    sources = [Source.parse("m", f"{number}.py", text) for number, text in enumerate(texts)]
    return [(each.file, each.line, each.message) for each in find_kopf_annotations(sources)]


def test_names_of_kopfs_annotations_are_reported() -> None:
    [(file, line, message)] = find_annotations("", "\nkey = 'kopf.zalando.org/last-handled-configuration'")
    assert (file, line) == ("1.py", 2)
    assert message.startswith("'kopf.zalando.org/last-handled-configuration' names an annotation")
    assert find_annotations("x = f'kopf.zalando.org/{name}'")


def test_names_of_kopfs_annotations_are_right_with_kopfs_prefix_and_in_docstrings() -> None:
    assert find_annotations("SmartProgressStorage(prefix='kopf.zalando.org')", "'kopf.zalando.org/x' in a") == []
    assert find_annotations("'kopf.zalando.org/x is not used.'") == []
