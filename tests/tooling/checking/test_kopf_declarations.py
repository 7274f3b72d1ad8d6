"""Tests for :mod:`trioperator._tooling.checking.kopf_declarations`.

Decorators of Kopf, and the functions that have them.
"""

from __future__ import annotations

import pytest

from trioperator._tooling.checking import Effect, Source
from trioperator._tooling.checking.kopf_declarations import find_declaration_differences


def find(text: str) -> list[tuple[Effect, str]]:
    source = Source.parse("m", "m.py", f"import kopf\nfrom kopf import on\n{text}")
    return [(each.effect, each.message) for each in find_declaration_differences(source)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("@kopf.on.startup\ndef f(**_): ...", "@startup has no parentheses"),
        ("@on.create('pods')\nclass F: ...", "decorates a class"),
        ("@kopf.timer('pods', interval=1)\nasync def f(**_):\n    yield", "f() is a generator"),
        ("@kopf.on.create('pods', colour=1)\ndef f(**_): ...", "@create has no option colour="),
        ("@kopf.on.startup(labels={})\ndef f(**_): ...", "@startup has no option labels="),
        ("@kopf.on.create('pods', labels={'a': 1})\ndef f(**_): ...", "whose values must be strings"),
        ("@kopf.timer('pods', interval=0)\ndef f(**_): ...", "which must be more than 0"),
        ("@kopf.on.create('pods', errors='ignored')\ndef f(**_): ...", "must be a kopf.ErrorsMode"),
        ("@kopf.on.create('pods', when=True)\ndef f(**_): ...", "must be a function"),
    ],
)
def test_what_is_an_error_here_is_found(text: str, words: str) -> None:
    [(effect, message)] = find(text)
    assert effect is Effect.FAILS
    assert words in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("@kopf.on.create('pods', timeout=5)\nasync def f(**_): ...", "also cancels f()"),
        ("@kopf.on.delete('pods', optional=True)\ndef f(**_): ...", "for an object that is gone at once"),
    ],
)
def test_options_that_mean_something_else_are_found(text: str, words: str) -> None:
    [(effect, message)] = find(text)
    assert effect is Effect.DIFFERS
    assert words in message


@pytest.mark.parametrize(
    "text",
    [
        "@kopf.on.create('g', 'v1', 'pods', labels={'a': kopf.PRESENT, 'b': 'c'}, errors=kopf.ErrorsMode.IGNORED)"
        "\ndef f(**_):\n    def g(): yield",
        "@kopf.on.create('pods', timeout=5, **OPTIONS)\ndef f(**_): ...",
        "@kopf.on.create('pods', timeout=None)\nasync def f(**_): ...",
        "@kopf.on.delete('pods', optional=False)\ndef f(**_): ...",
        "@kopf.on.validate('pods', operation='CREATE', persistent=True)\ndef f(**_): ...",
        "@kopf.index('pods')\ndef f(**_): ...",
        "@kopf.daemon('pods', cancellation_backoff=1)\nasync def f(**_): ...",
        "@kopf.adopt\n@other.on.create\ndef f(**_): ...",
    ],
)
def test_what_is_the_same_is_left_alone(text: str) -> None:
    assert find(text) == []
