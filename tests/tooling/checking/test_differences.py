"""Tests for :mod:`trioperator._tooling.checking.differences`."""

from __future__ import annotations

import ast

from trioperator._tooling.checking.differences import Difference, Effect, Finding


def test_a_finding_becomes_a_difference_in_the_line_of_its_node() -> None:
    node = ast.parse("\n\nname").body[0]
    finding = Finding(node, "names", Effect.FAILS, "No such name.")
    assert finding.place("app.py") == Difference("names", Effect.FAILS, "No such name.", "app.py", 3)


def test_what_has_no_line_is_about_the_file() -> None:
    assert Finding(ast.parse(""), "names", Effect.NATIVE, "text").place("app.py").line == 0
