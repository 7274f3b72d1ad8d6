"""Sources of an operator as syntax trees, with what their names stand for."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

# Levels of a syntax tree, at most: checks call themselves for each.
_MAX_DEPTH: Final = 250


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """One source file: the name of its module, its path, and its syntax tree."""

    module: str
    path: str
    tree: ast.Module

    @classmethod
    def parse(cls, module: str, path: str, text: str | bytes) -> Source:
        """Parse a file. Raises SyntaxError, or ValueError for null bytes and what is nested too deeply."""
        try:
            tree = ast.parse(text, path)
        except (RecursionError, MemoryError):  # the latter by the parser of Python 3.11
            tree = None
        if tree is None or _is_deep(tree):
            raise ValueError("it is nested too deeply")
        return cls(module, path, tree)

    @functools.cached_property
    def names(self) -> Mapping[str, str]:
        """Dotted names of what the file imports, and of the calls whose results its global variables are."""
        names: dict[str, str] = {}
        for node in ast.walk(self.tree):
            names.update(self._imports(node))
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                made = _resolve(node.value.func, names)
                names.update({target.id: made for target in node.targets if made and isinstance(target, ast.Name)})
        return names

    @functools.cached_property
    def functions(self) -> Mapping[str, Function]:
        """Functions of the module by their names, methods included."""
        return {node.name: node for node in ast.walk(self.tree) if isinstance(node, Function)}

    def find_function(self, line: int) -> Function | None:
        """Return the function that begins in a line, with its first decorator if it has any."""
        return next((node for node in self.functions_by_line.get(line, ())), None)

    @functools.cached_property
    def functions_by_line(self) -> Mapping[int, tuple[Function, ...]]:
        """Functions by their first lines, where Python says that their code begins."""
        found: dict[int, tuple[Function, ...]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                line = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                found[line] = (*found.get(line, ()), node)
        return found

    def resolve(self, node: ast.expr) -> str | None:
        """Return the dotted name of what an expression refers to, such as ``asyncio.sleep``; None if it is unknown."""
        return _resolve(node, self.names)

    def _imports(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            base = self._absolute(node)
            for alias in node.names:
                yield alias.asname or alias.name, f"{base}.{alias.name}"

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        up = node.level - self.path.endswith("__init__.py")
        return ".".join([*parts[: max(len(parts) - up, 0)], *filter(None, [node.module])])


def _is_deep(tree: ast.Module) -> bool:
    level: list[ast.AST] = [tree]
    for _ in range(_MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return False
    return True


def _resolve(node: ast.expr, names: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _resolve(node.value, names)
        return f"{base}.{node.attr}" if base else None
    return None
