"""Differences for an operator that was written for Kopf: a sentence, its line, and how much it matters."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from typing import TypeAlias

import msgspec


class Effect(enum.StrEnum):
    """Meaning of a line of an operator that was written for Kopf."""

    FAILS = "fails"  # also with `python -m trioperator.kopf`: change it
    DIFFERS = "differs"  # it runs, and does something else than in Kopf
    NATIVE = "native"  # it runs with `python -m trioperator.kopf`: change it when you make the operator native


class Difference(msgspec.Struct, frozen=True):
    """One difference from Kopf, the name of the ``check`` that has found it, its effect, and where it is."""

    check: str
    effect: Effect
    message: str
    file: str
    line: int


class Finding(msgspec.Struct, frozen=True):
    """A difference, at a node of a syntax tree."""

    node: ast.AST
    check: str
    effect: Effect
    message: str

    def place(self, file: str) -> Difference:
        """Return the difference with its place in a file."""
        return Difference(self.check, self.effect, self.message, file, getattr(self.node, "lineno", 0))


Findings: TypeAlias = Iterator[Finding]
