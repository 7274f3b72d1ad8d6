"""Names in sources that this package does not have: Kopf's that are missing here, settings, and typos."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from typing import Final

from trioperator._model.kopf_names import explain_missing
from trioperator._model.similar_names import suggest
from trioperator._tooling.checking.problems import Problem
from trioperator._tooling.checking.sources import Function, Source
from trioperator.settings import OperatorSettings

_PACKAGE: Final = "trioperator"
_OWN_KOPF: Final = (
    "imports Kopf itself, whose decorators register nothing for this operator: write import trioperator as kopf."
)
_KOPF_PREFIX: Final = "kopf.zalando.org"
_FOREIGN_ANNOTATION: Final = (
    "an annotation or finalizer of Kopf, but this operator stores its own under trioperator.dev: name that, too, or"
    ' keep Kopf\'s prefix (docs/kopf.md, "Replace a running operator").'
)


def find_kopf_problems(source: Source) -> Iterator[Problem]:
    """Yield imports of Kopf itself, names that this package does not have, and settings that do not exist."""
    for node in ast.walk(source.tree):
        message = None
        if isinstance(node, ast.Import) and any(is_kopf(alias.name) for alias in node.names):
            message = f"The file {_OWN_KOPF}"
        elif isinstance(node, ast.ImportFrom):
            message = _check_import(node)
        elif isinstance(node, ast.Attribute):
            message = _check_name(source.resolve(node) or "")
        if message:
            yield Problem(check="names", message=message, file=source.path, line=getattr(node, "lineno", 0))
    for attribute in find_settings(source.tree, ours=not has_own_settings(source)):
        if message := check_setting(attribute):
            yield Problem(check="names", message=message, file=source.path, line=attribute.lineno)


def find_kopf_annotations(sources: Sequence[Source]) -> Iterator[Problem]:
    """Yield names of Kopf's annotations and finalizer, unless the operator is configured to use Kopf's prefix."""
    found = [(source, node, text) for source in sources for node, text in find_strings(source.tree)]
    if any(text == _KOPF_PREFIX for _, _, text in found):
        return
    for source, node, text in found:
        if f"{_KOPF_PREFIX}/" in text:
            message = f"{text!r} names {_FOREIGN_ANNOTATION}"
            yield Problem(check="names", message=message, file=source.path, line=node.lineno)


def find_strings(tree: ast.AST) -> Iterator[tuple[ast.Constant, str]]:
    """Yield the strings of a file, but not its docstrings."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node, node.value


def has_own_settings(source: Source) -> bool:
    """Return whether the file has a global variable ``settings`` that is not an operator's."""
    made = source.names.get("settings")
    assigned = any(
        isinstance(target, ast.Name) and target.id == "settings"
        for node in source.tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
    )
    return (assigned or made is not None) and not (made or "").endswith(".OperatorSettings")


def find_settings(node: ast.AST, *, ours: bool) -> Iterator[ast.Attribute]:
    """Yield the attributes of sections of ``settings``, where that name is the settings of the operator.

    Where the file has other settings of that name, these are arguments of handlers, or annotated so.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Attribute) and ours:
            yield child
        is_ours = _takes_settings(child, ours=ours) if isinstance(child, Function) else ours
        yield from find_settings(child, ours=is_ours)


def _takes_settings(function: Function, *, ours: bool) -> bool:
    """Return whether ``settings`` in a function are the operator's; *ours* tells it of the code around it."""
    every = function.args
    for argument in (*every.posonlyargs, *every.args, *every.kwonlyargs):
        if argument.arg == "settings":
            if argument.annotation is not None:
                return "OperatorSettings" in ast.unparse(argument.annotation)
            return ours or bool(function.decorator_list)
    return ours


def is_kopf(module: str) -> bool:
    """Return whether a dotted name is Kopf, or something in it."""
    return module == "kopf" or module.startswith("kopf.")


def _check_import(node: ast.ImportFrom) -> str | None:
    if node.level or node.module is None:
        return None
    if is_kopf(node.module):
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


def check_setting(node: ast.Attribute) -> str | None:
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
