"""The commands of docs/day-two.md on a real control plane, without the operator that has left what they remove."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import yaml

from tests import forking
from tests.controlplane import ControlPlane
from tests.runtime.conftest import CRD

FINALIZER = "trioperator.dev/finalizer"
ROOT = pathlib.Path(__file__).parents[2]
HELM = shutil.which("helm")


def trioperator(plane: ControlPlane, *args: str) -> str:
    """Run the command, which must succeed, and return what it prints."""
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    done = forking.run(args, env=environment)
    done.check_returncode()
    return done.stdout


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


@pytest.mark.skipif(HELM is None, reason="install helm")
def test_a_namespace_is_gone_30_seconds_after_helm_uninstall(
    controlplane: ControlPlane, tmp_path: pathlib.Path
) -> None:
    """The test is the kubelet: it runs the container of the hook, as its service account."""
    name, kubectl = "leave-helm", controlplane.kubectl
    helm = [str(HELM), f"--kubeconfig={controlplane.kubeconfig}", f"--namespace={name}"]
    options = ["--create-namespace", "--skip-crds", f"--set=namespaces={{{name}}}"]
    subprocess.run([*helm, "install", name, str(ROOT / "deploy/chart"), *options], check=True, capture_output=True)
    for number in range(20):
        metadata = {"name": f"k{number}", "namespace": name, "finalizers": [FINALIZER]}
        controlplane.apply({"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": metadata})
    [deployment] = controlplane.get("deployments", "-n", name)["items"]
    account = deployment["metadata"]["name"]
    job = f"{account}-uninstall"
    with subprocess.Popen([*helm, "uninstall", name, "--timeout=120s"], stdout=subprocess.DEVNULL) as uninstalling:
        kubectl("wait", "--for=create", f"job/{job}", f"--namespace={name}", "--timeout=60s")
        [container] = controlplane.get("job", job, "-n", name)["spec"]["template"]["spec"]["containers"]
        config = yaml.safe_load(controlplane.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": kubectl("create", "token", account, f"--namespace={name}").strip()}
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", *container["command"], *container["args"]]
        environment = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")}
        subprocess.run(command, env=environment, cwd=ROOT / "deploy/operator", timeout=120, check=True)
        [pod] = controlplane.get("pods", "-n", name, f"--selector=job-name={job}")["items"]
        done = json.dumps({"status": {"phase": "Succeeded"}})
        kubectl(
            "patch", "pod", pod["metadata"]["name"], f"--namespace={name}", "--subresource=status", f"--patch={done}"
        )
        assert uninstalling.wait(120) == 0
    kubectl("delete", "namespace", name, "--timeout=30s")
