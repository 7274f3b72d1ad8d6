"""Names in sources that this package does not have: Kopf's that are missing here, settings, and typos."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from typing import Final

from trioperator._kopf_names import explain_missing
from trioperator.checking.problems import Problem
from trioperator.checking.sources import Source
from trioperator.handling.handler import suggest
from trioperator.settings import OperatorSettings

__all__ = ["find_kopf_problems"]

_PACKAGE: Final = "trioperator"
_OWN_KOPF: Final = (
    "imports Kopf itself, whose decorators register nothing for this operator: write import trioperator as kopf."
)


def find_kopf_problems(source: Source) -> Iterator[Problem]:
    """Yield imports of Kopf itself, names that this package does not have, and settings that do not exist."""
    for node in ast.walk(source.tree):
        message = None
        if isinstance(node, ast.Import) and any(_is_kopf(alias.name) for alias in node.names):
            message = f"The file {_OWN_KOPF}"
        elif isinstance(node, ast.ImportFrom):
            message = _check_import(node)
        elif isinstance(node, ast.Attribute):
            message = _check_name(source.resolve(node) or "") or _check_setting(node)
        if message:
            yield Problem(check="names", message=message, file=source.path, line=getattr(node, "lineno", 0))


def _is_kopf(module: str) -> bool:
    return module == "kopf" or module.startswith("kopf.")


def _check_import(node: ast.ImportFrom) -> str | None:
    if node.level or node.module is None:
        return None
    if _is_kopf(node.module):
        return f"The file {_OWN_KOPF}"
    messages = (_check_name(f"{node.module}.{alias.name}") for alias in node.names if alias.name != "*")
    return next(filter(None, messages), None)


def _check_name(name: str) -> str | None:
    """Return what is wrong with a dotted name of this package or of its decorators."""
    module, _, attribute = name.rpartition(".")
    if module not in (_PACKAGE, f"{_PACKAGE}.on") or attribute.startswith("__"):
        return None
    known = dir(importlib.import_module(module))
    if attribute in known or (module == _PACKAGE and importlib.util.find_spec(name) is not None):
        return None
    text = explain_missing(module, attribute)
    if text.startswith("Kopf's"):
        return text
    return f"{module} has no attribute {suggest([attribute], [each for each in known if each[:1] != '_'])}."


def _check_setting(node: ast.Attribute) -> str | None:
    """Return what is wrong with an expression ``settings.section.name``."""
    section = node.value
    if not (isinstance(section, ast.Attribute) and isinstance(section.value, ast.Name)):
        return None
    if section.value.id != "settings":
        return None
    try:
        getattr(getattr(OperatorSettings(), section.attr), node.attr)
    except AttributeError as error:
        return str(error)
    return None
