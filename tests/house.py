"""The house in figures, measured from the sources: ``python -m tests.house`` prints them, and fails if one is too high.

- crowded classes: slots and assignments to ``self``
- foreign assignments in ``runtime``: an attribute that a class of one module declares is assigned in another module
- long functions: lines with code, from ``def`` to the end, without the docstring
- suppressions without a reason: a ``type: ignore`` or ``noqa`` at the end of its line
- modules without a mirrored test: ``trioperator/_kube/retry.py`` has its tests in ``tests/kube/test_retry.py``
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import gc
import io
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

ROOT: Final = pathlib.Path(__file__).parents[1]

MAX_ATTRIBUTES: Final = 12
MAX_LINES: Final = 30
RUNTIME: Final = "trioperator._runtime"
UNMIRRORED: Final = {
    "trioperator._model.jsontypes": "aliases of types only: mypy tests them",
}

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclasses.dataclass(frozen=True)
class Figure:
    """One figure of the house, its limit (None: for information), and the places that count, as ``file:line what``."""

    name: str
    value: int | None
    limit: int | None
    places: Sequence[str] = ()

    @property
    def is_met(self) -> bool:
        """Whether the figure is within its limit; one that cannot be measured is not."""
        return self.limit is None or (self.value is not None and self.value <= self.limit)


@dataclasses.dataclass(frozen=True)
class Module:
    """One source file: its path from the root, its dotted name, its text."""

    path: pathlib.PurePath
    name: str
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @functools.cached_property
    def code_lines(self) -> frozenset[int]:
        """The numbers of the lines with code: not blank, and not only a comment."""
        skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        lines = (range(token.start[0], token.end[0] + 1) for token in tokens if token.type not in skipped)
        return frozenset(line for span in lines for line in span)

    @functools.cached_property
    def classes(self) -> Mapping[str, frozenset[str]]:
        """The attributes of each class by its name."""
        return {node.name: frozenset(_attributes(node)) for node in self.statements if isinstance(node, ast.ClassDef)}

    @functools.cached_property
    def statements(self) -> Sequence[ast.AST]:
        """All statements, also the nested ones."""
        return list(_statements(self.tree))

    def place(self, line: int, what: str) -> str:
        return f"{self.path}:{line} {what}"


def read_modules(root: pathlib.Path, *folders: str) -> list[Module]:
    """Read all modules in the folders of the root."""
    modules = []
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*.py")):
        relative = path.relative_to(root)
        name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
        modules.append(Module(path=relative, name=name, text=path.read_text()))
    return modules


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Switch garbage collection off: syntax trees are millions of nodes without a cycle."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def measure(root: pathlib.Path = ROOT) -> list[Figure]:
    """Measure all figures of the project in the root."""
    package, tests = read_modules(root, "trioperator"), read_modules(root, "tests")
    with without_gc():
        return [
            count_crowded_classes(package),
            count_foreign_assignments(package),
            count_long_functions(package),
            count_unexplained_suppressions(package),
            count_unmirrored_modules(package, tests),
            find_longest_module(package),
        ]


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from _statements(child)


# -- attributes


def count_crowded_classes(modules: Iterable[Module]) -> Figure:
    """Count the classes that store more attributes than the limit, those with the most first."""
    found = [
        (len(stored), module.place(node.lineno, f"{node.name} has {len(stored)}: {', '.join(sorted(stored))}"))
        for module in modules
        for node in module.statements
        if isinstance(node, ast.ClassDef) and len(stored := set(_stored(node))) > MAX_ATTRIBUTES
    ]
    places = [place for _, place in sorted(found, key=lambda item: -item[0])]
    return Figure(f"classes with more than {MAX_ATTRIBUTES} attributes", len(places), 0, places)


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names of the annotated fields, and of what is stored."""
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(name), annotation=kind) if "ClassVar" not in ast.unparse(kind):
                yield name
    yield from _stored(node)


def _stored(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names of the slots, and of what methods assign to ``self``."""
    for statement in node.body:
        if isinstance(statement, ast.Assign) and "__slots__" in map(ast.unparse, statement.targets):
            slots = ast.literal_eval(statement.value)
            yield from (name for name in ([slots] if isinstance(slots, str) else slots) if name != "__weakref__")
    for target in _targets(node):
        if isinstance(target.value, ast.Name) and target.value.id == "self":
            yield target.attr


def _targets(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that are assigned or deleted, in whatever statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node


# -- foreign assignments


def count_foreign_assignments(modules: Iterable[Module]) -> Figure:
    """Count assignments in the runtime to attributes that a class in another of its modules declares.

    The class of an object is taken from the annotation of the parameter, variable or attribute, or from a call of the
    class. Where neither tells, an attribute belongs to this module if a class in it declares that name.
    """
    runtime = [module for module in modules if module.name.startswith(f"{RUNTIME}.")]
    places = [place for module in runtime for place in _ForeignAssignments(module, runtime).find()]
    return Figure(f"foreign assignments in {RUNTIME}", len(places), 0, places)


class _ForeignAssignments(ast.NodeVisitor):
    """Visitor of one module that knows the classes of the objects in scope, by their expressions."""

    def __init__(self, module: Module, runtime: Sequence[Module]) -> None:
        self._module = module
        self._owners = [(other, name) for other in runtime for name in other.classes]
        self._scopes: list[Mapping[str, str]] = [{}]
        self._places: list[str] = []

    def find(self) -> list[str]:
        """Return the places of all foreign assignments."""
        self.visit(self._module.tree)
        return self._places

    def visit(self, node: ast.AST) -> None:
        """Visit a node; classes and functions are scopes."""
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            self._check(node)
        is_scope = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if is_scope:
            self._scopes.append({**self._scopes[-1], **_classes_in_scope(node)})
        self.generic_visit(node)
        if is_scope:
            self._scopes.pop()

    def _check(self, target: ast.Attribute) -> None:
        base = ast.unparse(target.value)
        if base in {"self", "cls"}:
            return
        found = self._scopes[-1].get(base)
        if found is not None and found not in {name for _, name in self._owners}:
            return  # an object of another package
        owners = [(module, name) for module, name in self._owners if target.attr in module.classes[name]]
        owners = [owner for owner in owners if owner[1] == found] or owners
        if owners and all(module is not self._module for module, _ in owners):
            names = " or ".join(f"{module.name}.{name}" for module, name in owners)
            self._places.append(self._module.place(target.lineno, f"{ast.unparse(target)} belongs to {names}"))


def _classes_in_scope(scope: ast.AST) -> Mapping[str, str]:
    """Return the classes of parameters, variables and attributes by their expressions, such as ``self.queue``."""
    classes: dict[str, str | None] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.arg):
            classes[node.arg] = _class_of_annotation(node.annotation)
        elif isinstance(node, ast.AnnAssign):
            classes[ast.unparse(node.target)] = _class_of_annotation(node.annotation)
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            value = node.value
            found = _class_of_annotation(value.func) if isinstance(value, ast.Call) else classes.get(ast.unparse(value))
            for target in map(ast.unparse, node.targets):
                if found is not None and found[:1].isupper():
                    classes.setdefault(target, found)
    return {expression: name for expression, name in classes.items() if name is not None}


def _class_of_annotation(annotation: ast.expr | None) -> str | None:
    """Return the name of the class in ``Class``, ``module.Class``, ``Class | None`` or a string of these."""
    match annotation:
        case ast.Constant(value=str() as text):
            return _class_of_annotation(ast.parse(text, mode="eval").body)
        case ast.BinOp(left=left, right=ast.Constant(value=None)):
            return _class_of_annotation(left)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


# -- long functions


def count_long_functions(modules: Iterable[Module]) -> Figure:
    """Count the functions that have more lines of code than the limit, the longest first."""
    found = [
        (lines, module.place(node.lineno, f"{node.name}() has {lines} lines"))
        for module in modules
        for node in module.statements
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := _length(node, module)) > MAX_LINES
    ]
    places = [place for _, place in sorted(found, key=lambda item: -item[0])]
    return Figure(f"functions above {MAX_LINES} lines", len(places), 0, places)


def _length(node: Function, module: Module) -> int:
    """Return the lines of code of a body: options with their types may take as many lines as they need."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    if not body:
        return 0
    assert node.end_lineno is not None
    lines = range(body[0].lineno, node.end_lineno + 1)
    return len(lines) if len(lines) <= MAX_LINES else len(module.code_lines.intersection(lines))


# -- suppressions


def count_unexplained_suppressions(modules: Iterable[Module]) -> Figure:
    """Count the comments that silence a tool and do not say why."""
    pattern = re.compile(r"# (type: ignore\[[^]]*\]|noqa: [A-Z0-9, ]+|pragma: .*)$")
    places = [
        module.place(number, found.group())
        for module in modules
        for number, line in enumerate(module.text.splitlines(), 1)
        if (found := pattern.search(line))
    ]
    return Figure("suppressions without a reason", len(places), 0, places)


# -- modules


def count_unmirrored_modules(package: Iterable[Module], tests: Iterable[Module]) -> Figure:
    """Count the modules without tests in the mirrored folder.

    Packages, ``__main__`` and private modules are tested with what uses them; other exceptions have their reasons.
    """
    present = {test.path for test in tests}
    places = []
    for module in package:
        folder = pathlib.PurePath("tests", *(part.lstrip("_") for part in module.path.parts[1:-1]))
        test = folder / f"test_{module.path.name}"
        if not (module.path.name.startswith("_") or module.name in UNMIRRORED or test in present):
            places.append(f"{module.path} has no {test}")
    return Figure("modules without a mirrored test", len(places), 0, places)


def find_longest_module(modules: Iterable[Module]) -> Figure:
    """Find the module with the most lines."""
    lines, module = max((len(module.text.splitlines()), str(module.path)) for module in modules)
    return Figure("lines of the longest module", lines, None, [module])


# -- output


def report(figures: Sequence[Figure]) -> str:
    """Return a table of the figures, and the places of those that are above their limits."""
    width = max(len(figure.name) for figure in figures)
    lines = [f"{'figure':<{width}}  value  limit"]
    for figure in figures:
        value = "none" if figure.value is None else figure.value
        limit = "" if figure.limit is None else figure.limit
        verdict = "" if figure.is_met else "  too high" if figure.value is not None else "  cannot be measured"
        lines.append(f"{figure.name:<{width}}  {value:>5}  {limit:>5}{verdict}".rstrip())
    for figure in figures:
        if not figure.is_met or figure.limit is None:
            lines += ["", f"{figure.name}:", *(f"  {place}" for place in figure.places)]
    return "\n".join(lines)


def main(root: pathlib.Path = ROOT) -> int:
    """Print the figures of the project in the root, and return 1 if one is above its limit."""
    figures = measure(root)
    print(report(figures))
    return 0 if all(figure.is_met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
