"""Handlers as they are declared for Kopf: what of the declarations is an error here, or means something else."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection
from typing import Any, Final, TypeAlias

from trioperator import on
from trioperator._tooling.checking.differences import Effect, Finding, Findings
from trioperator._tooling.checking.sources import Source

_Declared: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Those that are names of the module ``kopf``, too.
_TOP_LEVEL: Final = frozenset({"daemon", "index", "register", "subhandler", "timer"})


def find_declaration_differences(source: Source) -> Findings:
    """Yield the differences in the decorators of Kopf, and in the functions that have them."""
    for node in ast.walk(source.tree):
        if not isinstance(node, _Declared):
            continue
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = _find_decorator(source.resolve(called) or "")
            if name is not None:
                yield from _check_function(node, name)
                yield from _check_options(node, decorator, name)


def _find_decorator(name: str) -> str | None:
    """Return the decorator that a dotted name stands for, such as ``create``; None if it is not one of Kopf's."""
    module, _, last = name.rpartition(".")
    known = on.__all__ if module == "kopf.on" else _TOP_LEVEL if module == "kopf" else ()
    return last if last in known else None


def _check_function(node: _Declared, name: str) -> Findings:
    if isinstance(node, ast.ClassDef):
        yield _fail(node, f"@{name} decorates a class, which is an error: declare a function.")
    elif any(isinstance(each, ast.Yield | ast.YieldFrom) for each in _walk_own(node)):
        yield _fail(node, f"{node.name}() is a generator, which is an error: return the result instead.")


def _walk_own(node: ast.AST) -> Collection[ast.AST]:
    """Return what is in a function, but not in functions within it."""
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        found.append(child)
        if not isinstance(child, _Declared | ast.Lambda):
            found += _walk_own(child)
    return found


def _check_options(node: _Declared, decorator: ast.expr, name: str) -> Findings:
    if not isinstance(decorator, ast.Call):
        yield _fail(decorator, f"@{name} has no parentheses, which is an error: add them.")
        return
    known = _find_options(name)
    for option in decorator.keywords:
        if option.arg is None:
            continue
        if option.arg not in known:
            yield _fail(option, f"@{name} has no option {option.arg}=: remove it.")
        elif text := _describe_wrong(option.arg, option.value):
            yield _fail(option, f"@{name} has {option.arg}={ast.unparse(option.value)}, {text}")
        elif text := _describe_changed(option.arg, name, node, option.value):
            yield Finding(option, "options", Effect.DIFFERS, text)


def _find_options(name: str) -> Collection[str]:
    """Return the options of a decorator, from its annotation ``Unpack[…]``, or by their own names."""
    decorator: Callable[..., Any] = getattr(on, name)
    parameters = inspect.signature(decorator).parameters
    annotation = str(parameters["options"].annotation) if "options" in parameters else ""
    known = getattr(on, annotation.removeprefix("Unpack[").removesuffix("]"), None)
    return {*parameters, *getattr(known, "__annotations__", ())}


def _describe_wrong(option: str, value: ast.expr) -> str | None:
    """Return what is wrong with a constant as the value of an option; None if nothing is, or it is not constant."""
    if option in ("labels", "annotations") and _has_other_values(value):
        return "whose values must be strings, or kopf.PRESENT and kopf.ABSENT: Kopf would never match others."
    constant = value.value if isinstance(value, ast.Constant) else None
    if option == "interval" and constant == 0 and constant is not False:
        return "which must be more than 0."
    if option == "errors" and constant is not None:
        return "which must be a kopf.ErrorsMode."
    if option == "when" and constant is not None:
        return "which must be a function."
    return None


def _has_other_values(value: ast.expr) -> bool:
    """Return whether a dictionary has constants as values that are not strings."""
    values = value.values if isinstance(value, ast.Dict) else ()
    return any(isinstance(each, ast.Constant) and not isinstance(each.value, str) for each in values)


def _describe_changed(option: str, name: str, node: _Declared, value: ast.expr) -> str | None:
    """Describe how an option differs from Kopf's."""
    if isinstance(value, ast.Constant) and value.value in (None, False):
        return None
    if option == "timeout" and isinstance(node, ast.AsyncFunctionDef) and name not in ("validate", "mutate"):
        return f"timeout= also cancels {node.name}() while it runs; Kopf checks it between attempts."
    if option == "optional" and name == "delete":
        return f"optional=True: {node.name}() is also called, unlike in Kopf, for an object that is gone at once."
    return None


def _fail(node: ast.AST, message: str) -> Finding:
    return Finding(node, "options", Effect.FAILS, message)
