"""Modules of files that were passed to a command: their names, and how worker processes import them.

A worker that is not forked, but spawned, as is the default since Python 3.14, imports the module of each function and
exception that it gets. It imports this package before, with the main module, and its ``sys.path`` is the operator's.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_PREFIX: Final = "__trioperator_script_"


def name_script(path: str, *, index: int) -> str:
    """Return the name of the module of a file: as Kopf names it, but without dots, which would mean packages."""
    return f"{_PREFIX}{index}__{path.replace('%', '%25').replace('.', '%2E')}"


def find_script(name: str) -> str | None:
    """Return the path of the file whose module has this name; None if it is the name of another module."""
    if not name.startswith(_PREFIX):
        return None
    quoted = name.removeprefix(_PREFIX).partition("__")[2]
    return quoted.replace("%2E", ".").replace("%25", "%") or None


class ScriptFinder:
    """Finder of the modules of files, for worker processes."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return how to import a module, if it is the module of a file that exists."""
        script = find_script(name)
        if script is None or not os.path.isfile(script):
            return None
        return make_spec(name, script)


def make_spec(name: str, path: str) -> ModuleSpec:
    """Return how to import a file as the module *name*, whatever the file is called."""
    import importlib.machinery
    import importlib.util

    full = os.path.abspath(path)
    loader = importlib.machinery.SourceFileLoader(name, full)
    spec = importlib.util.spec_from_file_location(name, full, loader=loader)
    assert spec is not None  # because it has a loader
    return spec


def install_finder() -> None:
    """Let modules of files be imported in this process, after those that other finders know."""
    if ScriptFinder not in sys.meta_path:
        sys.meta_path.append(ScriptFinder)
