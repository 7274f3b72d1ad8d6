"""The commands of docs/day-two.md on a real control plane, without the operator that has left what they remove."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.controlplane import ControlPlane
from tests.runtime.conftest import CRD

FINALIZER = "trioperator.dev/finalizer"


def trioperator(plane: ControlPlane, *args: str) -> str:
    """Run the command, which must succeed, and return what it prints."""
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    command = [sys.executable, "-m", "trioperator", *args]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize("leave", ["release", "uninstall"])
def test_a_namespace_of_objects_whose_operator_is_gone_can_be_deleted(
    controlplane: ControlPlane, tmp_path: object, leave: str
) -> None:
    group = f"{leave}.example.com"
    spec = {**CRD["spec"], "group": group}
    crd = {**CRD, "metadata": {"name": f"widgets.{group}"}, "spec": spec}
    controlplane.apply(crd)
    controlplane.kubectl("wait", "--for=condition=Established", "crd", f"widgets.{group}")
    controlplane.kubectl("create", "namespace", leave)
    for number in range(3):
        metadata = {"name": f"w{number}", "namespace": leave, "finalizers": [FINALIZER]}
        controlplane.apply({"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": metadata})
    controlplane.kubectl("delete", "namespace", leave, "--wait=false")
    if leave == "release":
        output = trioperator(controlplane, "release", f"widgets.{group}", "-A")
    else:
        path = f"{tmp_path}/app.py"
        with open(path, "w") as file:
            file.write(f"import trioperator\n\n@trioperator.on.delete('{group}', 'widgets')\ndef delete(**_): ...\n")
        output = trioperator(controlplane, "uninstall", path, "--yes")
    assert "Released 3 of 3 objects." in output or output.count(FINALIZER) == 3
    controlplane.kubectl("wait", "--for=delete", f"namespace/{leave}", "--timeout=60s")
