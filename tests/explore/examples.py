"""The operators of examples/, with the fields that their handlers read: exploring finds nothing wrong with them."""

from __future__ import annotations

import pathlib
import sys
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml

from trioperator.testing.exploring.app import FilesApp
from trioperator.testing.exploring.checks import make_players
from trioperator.testing.exploring.plays import Player

FOLDER: Final = pathlib.Path(__file__).parents[2] / "examples"
_VALUES: Final = {"field": "value", "items": ["item1", "item2"], "duration": "1m"}


class Example(NamedTuple):
    """An example, and a spec of its objects, whose fields are varied. *intended* are differences by its design."""

    name: str
    spec: Mapping[str, Any] = _VALUES
    intended: Sequence[str] = ()

    def make_player(self, folder: pathlib.Path) -> Player:
        """Return a player of the operator."""
        if (project := FOLDER / self.name / "pyproject.toml").exists():
            return self._make_project_player(project, folder)
        obj = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "a"}, "spec": self.spec}
        path = folder / "obj.yaml"
        path.write_text(yaml.safe_dump(obj))
        app = FilesApp([str(FOLDER / self.name / "main.py")])
        (player,) = make_players(app, crds=[FOLDER / "crd.yaml"], examples=[path], kinds=["kopfexamples"])
        return player

    def _make_project_player(self, project: pathlib.Path, folder: pathlib.Path) -> Player:
        if str(project.parent) not in sys.path:
            sys.path.append(str(project.parent))
        modules = tomllib.loads(project.read_text())["tool"]["trioperator"]["modules"]
        other = folder / "settings.yaml"
        other.write_text(yaml.safe_dump(_OTHER_SETTINGS))
        shown = [project.parent / "examples", other]
        (player,) = make_players(FilesApp([], modules), examples=shown, kinds=["databases"])
        return player


#: A webhook keeps the version of a database that is replaced without one, as its docstring says.
_KEPT_VERSION: Final = (
    "Database spec.version",
    "Database metadata.annotations.trioperator.dev/last-handled-configuration.spec",
    "StatefulSet spec.template.spec.containers",
)
#: The other Secret with settings that is drawn: without it, new databases wait for it, and others stay as they are.
_OTHER_SETTINGS: Final = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "orders-settings-2", "labels": {"db.example.com/settings": ""}},
    "stringData": {"max_connections": "20"},
}
EXAMPLES: Final = (
    Example("01-minimal"),
    Example("02-children"),
    Example("04-events"),
    Example("05-handlers"),
    Example("07-subhandlers"),
    Example("09-testing"),
    Example("11-filtering"),
    Example("13-hooks"),
    Example("14-daemons"),
    Example("16-indexing"),
    Example("19-database", {"replicas": 2, "users": ["ada", "bob"]}),
    Example("20-reconcile", {"image": "nginx", "replicas": 5, "maxReplicas": 10, "host": "a.example.com"}),
    Example("21-everything", intended=_KEPT_VERSION),
)
#: What is not explored, and why.
EXCLUDED: Final = {
    "03-exceptions": "it fails on purpose",
    "06-peering": "it waits for peers",
    "08-events": "it fails on purpose",
    "10-builtins": "it handles no custom kind",
    "12-embedded": "it is a web server",
    "15-timers": "it fails on purpose",
    "18-authentication": "it is about logging in",
    "21-typed": "it is explored as 21-everything is",
    "99-all-at-once": "it fails on purpose, as it is Kopf's",
}
