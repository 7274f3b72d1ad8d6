"""Descriptions of classes and their fields, from their docstrings.

The docstring of a field is the string below it, as of Sphinx and PEP 257. Python keeps none of these, so they are read
from the source of the class; without the source, there are none. The other places for docs would say the same with more
words: ``Annotated[..., Meta(description="...")]``, which works too and takes precedence, or a section of the class's
docstring, whose names nothing compares with the fields.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import functools
import inspect
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence


def describe_class(cls: type) -> str | None:
    """Return the docstring of a class, its paragraphs unwrapped; None without one, or with a generated one only."""
    text = cls.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{cls.__name__}(") or _is_inherited(cls, text):
        return None
    return _unwrap(text) or None


def describe_fields(cls: type) -> dict[str, str]:
    """Return the docstrings of the fields of a class and of its base classes."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__ not in ("builtins", "msgspec", "typing", "pydantic.main"):
            found |= dict(_read_docstrings(base))
    return found


def _is_inherited(cls: type, text: str) -> bool:
    """Return whether a docstring is a base class's, or Python's own, as enumerations have."""
    return any(base.__dict__.get("__doc__") == text for base in cls.__mro__[1:]) or (
        issubclass(cls, enum.Enum) and text == "An enumeration."
    )


def _read_docstrings(cls: type) -> Iterator[tuple[str, str]]:
    module = sys.modules.get(cls.__module__)
    try:
        source = inspect.getsource(module) if module is not None else ""
    except (OSError, TypeError):
        return
    for field, below in itertools.pairwise(_find_classes(source).get(cls.__qualname__, ())):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, _unwrap(text)


@functools.lru_cache(maxsize=16)
def _find_classes(source: str) -> Mapping[str, Sequence[ast.stmt]]:
    """Return the statements of all classes in a module, by their qualified names."""
    found: dict[str, Sequence[ast.stmt]] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.ClassDef):
                found[prefix + child.name] = child.body
                inner = f"{prefix}{child.name}."
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{prefix}{child.name}.<locals>."
            if isinstance(child, ast.stmt):
                visit(child, inner)

    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        visit(ast.parse(source), "")
    return found


def _unwrap(text: str) -> str:
    """Return a docstring with one line for each paragraph."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip())
