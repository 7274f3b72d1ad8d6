"""The report of ``trioperator check --kopf``: what differs for an operator that was written for Kopf.

Nothing of the operator is imported: its sources are parsed, and the modules that they import.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import typer

from trioperator.cli.acting import to_printable
from trioperator.cli.project import is_library
from trioperator.errors import ConfigError

if TYPE_CHECKING:
    from trioperator._tooling.checking import Difference, Source

_COLOURS: Final = {"fails": "red", "differs": "yellow", "native": "cyan"}


def examine_migration(files: Sequence[str], modules: Sequence[str]) -> list[Difference]:
    """Return the differences in the sources of an operator, by files and lines.

    A directory stands for the files in it. Raises ConfigError for files and modules that cannot be read.
    """
    from trioperator._tooling.checking import find_kopf_differences

    roots = [os.getcwd(), *(str(_find_root(pathlib.Path(file))) for file in files), *filter(os.path.isdir, files)]
    paths = [path for file in files for path in _list_files(pathlib.Path(file))]
    paths += [_find_module(name, roots) for name in modules]
    found = (difference for source in _read(paths, roots) for difference in find_kopf_differences(source))
    return sorted(found, key=lambda each: (each.file, each.line))


def _list_files(path: pathlib.Path) -> Iterable[pathlib.Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _find_module(name: str, roots: Sequence[str]) -> pathlib.Path:
    path = _locate(name, roots)
    if path is None:
        raise ConfigError(f"There is no module {name} in {' or '.join(roots)}.")
    return path


def _locate(name: str, roots: Sequence[str]) -> pathlib.Path | None:
    """Return the file of a module below the *roots*; None if it is not there. Nothing is imported."""
    places: Sequence[str] | None = roots
    spec = None
    for part in name.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, places) if places else None
        if spec is None:
            return None
        places = list(spec.submodule_search_locations or ())
    origin = spec.origin if spec is not None else None
    if origin is None or not origin.endswith(".py") or is_library(origin, os.getcwd()):
        return None
    return pathlib.Path(origin)


def _read(paths: Iterable[pathlib.Path], roots: Sequence[str]) -> Iterator[Source]:
    """Yield the sources, and the sources of the project that they import, each once."""
    from trioperator._tooling.checking import Source

    seen: set[str] = set()
    waiting = list(paths)
    while waiting:
        path = waiting.pop(0)
        if str(path.resolve()) in seen:
            continue
        seen.add(str(path.resolve()))
        try:
            source = Source.parse(_name(path), str(path), path.read_bytes())
        except OSError as error:
            raise ConfigError(f"Cannot read the file {path}: {error.strerror}.") from error
        except (SyntaxError, ValueError) as error:
            raise ConfigError(f"Cannot read the file {path}: {error}") from error
        yield source
        waiting += filter(None, (_locate(name, roots) for name in _list_imports(source)))


def _find_root(path: pathlib.Path) -> pathlib.Path:
    """Return the directory from which a file is imported: the one that its outermost package is in."""
    root = path.resolve().parent
    while (root / "__init__.py").exists():
        root = root.parent
    return root


def _name(path: pathlib.Path) -> str:
    """Return the dotted name by which a file is imported."""
    parts = path.resolve().relative_to(_find_root(path)).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _list_imports(source: Source) -> Iterator[str]:
    """Yield the names of what a file imports: of modules, and of what may be modules in packages."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
    for name in source.names.values():
        yield from (name, name.rpartition(".")[0] or name)


# -- output


def print_differences(differences: Sequence[Difference]) -> None:
    """Print the differences as lines, and how many there are of each effect."""
    for each in differences:
        what = typer.style(f"[{each.check}: {each.effect}]", fg=_COLOURS[each.effect])
        place = typer.style(to_printable(f"{each.file}:{each.line}"), bold=True)
        typer.echo(f"{place}: {to_printable(each.message)} {what}")
    count = {effect: sum(each.effect == effect for each in differences) for effect in _COLOURS}
    if differences:
        typer.echo()
    typer.echo(
        f"{count['fails']} to change before it runs with python -m trioperator.kopf, {count['differs']} that differ"
        f" from Kopf there, {count['native']} to change to make it native."
    )


def print_differences_as_json(differences: Sequence[Difference]) -> None:
    """Print the differences as a JSON document."""
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode({"differences": differences}), indent=2).decode())
