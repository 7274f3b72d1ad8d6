"""A kind and operators for the tests of exploration: as files, as users have them."""

from __future__ import annotations

import pathlib
from typing import Any, Final

import yaml

from trioperator.testing.exploring.app import FilesApp
from trioperator.testing.exploring.checks import make_players
from trioperator.testing.exploring.plays import Player


def make_crd(**properties: Any) -> dict[str, Any]:
    """Return the definition of WebApps whose spec has these properties."""
    spec = {"type": "object", "properties": properties}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "webapps.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "WebApp", "plural": "webapps", "singular": "webapp"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
                }
            ],
        },
    }


CRD: Final = make_crd(size={"type": "integer", "minimum": 0, "maximum": 3}, greeting={"type": "string"})

#: An operator of which nothing is to be found.
GOOD: Final = """\
import trioperator


@trioperator.on.reconcile("webapps", owns=["configmaps"])
def web_app(name, spec):
    yield {"apiVersion": "v1", "kind": "ConfigMap", "data": {"size": str(spec.get("size", 1))}}
    if spec.get("greeting"):
        data = {"greeting": spec["greeting"]}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-greeting"}, "data": data}
"""

#: The same, in shards, and with a condition that tools understand.
SHARDED: Final = GOOD.replace(
    "import trioperator\n",
    """\
import trioperator


@trioperator.on.startup()
async def start_fn(settings):
    settings.leadership.shards = 2
""",
).replace("])", '], condition="Ready")')
#: Two handlers that undo each other's changes: the operator soon holds those of one back, and writes less and less.
CONTENDED: Final = (
    GOOD
    + """

@trioperator.on.event("configmaps")
async def undo_fn(name, body, type, client):
    if type != "DELETED" and body.get("data") != {"size": "7"}:
        await client.patch("configmaps", name, merge={"data": {"size": "7"}})
"""
)


def write_crd(folder: pathlib.Path, definition: dict[str, Any] = CRD) -> str:
    """Write a definition, and return its path."""
    path = folder / "crd.yaml"
    path.write_text(yaml.safe_dump(definition))
    return str(path)


def make_player(folder: pathlib.Path, source: str, definition: dict[str, Any] = CRD) -> Player:
    """Return a player of an operator that is written to a file."""
    path = folder / "app.py"
    path.write_text(source)
    (player,) = make_players(FilesApp([str(path)]), crds=[write_crd(folder, definition)])
    return player
