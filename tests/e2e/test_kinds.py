"""Kinds whose definitions change while an operator runs, on a real API server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from tests.controlplane import ControlPlane
from tests.e2e.test_life import until
from tests.program import Program

GROUP = "changing.example.com"
OPERATOR = f"""
import trioperator

@trioperator.on.create("{GROUP}", "PLURAL")
def create(name, namespace, resource, logger, **_):
    logger.info("created %s in %s as %s", name, namespace, resource.version)
    return resource.version

@trioperator.on.delete("{GROUP}", "PLURAL")
def delete(name, resource, logger, **_):
    logger.info("deleted %s as %s", name, resource.version)
"""


def definition(plural: str, *versions: str, scope: str = "Namespaced") -> dict[str, Any]:
    """Return the definition of a kind; the last version is stored."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"kind": plural.capitalize(), "plural": plural, "singular": plural[:-1]},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[-1],
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
                for version in versions
            ],
        },
    }


def test_versions_and_scopes_change_while_an_operator_runs(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    plural = f"things{uuid.uuid4().hex[:6]}"
    crd = f"{plural}.{GROUP}"

    def define(*versions: str, scope: str = "Namespaced") -> None:
        controlplane.apply(definition(plural, *versions, scope=scope))
        controlplane.kubectl("wait", "--for=condition=Established", f"crd/{crd}", "--timeout=90s")

    def make(name: str, version: str, where: str = "namespaces/default/") -> bool:
        """Create an object at its URL: kubectl remembers for hours which scope a kind has."""
        manifest = {"apiVersion": f"{GROUP}/{version}", "kind": plural.capitalize(), "metadata": {"name": name}}
        path = f"/apis/{GROUP}/{version}/{where}{plural}"
        return "uid" in controlplane.kubectl(
            "create", "--raw", path, "-f", "-", input=json.dumps(manifest), check=False
        )

    define("v1beta1")
    operator = start_operator(OPERATOR.replace("PLURAL", plural), "--standalone")
    until(lambda: make("old", "v1beta1"))
    operator.wait_for("created old in default as v1beta1")
    until(lambda: "create" in controlplane.get(crd, "old").get("status", {}))

    define("v1beta1", "v1")  # is preferred now
    until(lambda: make("new", "v1"))
    operator.wait_for("created new in default as v1\n")
    controlplane.kubectl("delete", crd, "old", "--timeout=60s")
    operator.wait_for("deleted old as v1\n")  # it was no other object, and it was not created again
    assert operator.output.count("created old") == 1

    controlplane.kubectl("delete", "crd", crd, "--timeout=90s")  # all its objects are cleaned up before
    operator.wait_for("deleted new as v1\n")
    define("v1", scope="Cluster")
    until(lambda: make("wide", "v1", where=""))
    operator.wait_for("created wide in None as v1\n")
    controlplane.kubectl("delete", "crd", crd, "--timeout=90s")
    operator.wait_for("deleted wide as v1\n")
    assert operator.stop() == 0
    assert "Traceback" not in operator.output
