"""The commands of docs/day-two.md on a real control plane, without the operator that has left what they remove."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests import forking
from tests.controlplane import ControlPlane
from tests.e2e.deployment import Deployed, define
from tests.e2e.test_life import some_name
from tests.runtime.conftest import CRD

FINALIZER = "trioperator.dev/finalizer"
ROOT = pathlib.Path(__file__).parents[2]
HELM = shutil.which("helm")
# In which order Helm deletes the kinds of a release.
UNINSTALL_ORDER = (
    *("ValidatingWebhookConfiguration", "Service", "Deployment", "RoleBinding", "Role", "ClusterRoleBinding"),
    *("ClusterRole", "ConfigMap", "Secret", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy"),
)
APP = """
import trioperator

@trioperator.on.delete("parcels.example.com")
async def delete(**_): ...
"""


def trioperator(plane: ControlPlane, *args: str, cwd: pathlib.Path | None = None) -> str:
    """Run the command, which must succeed, and return what it prints."""
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    done = forking.run(args, env=environment, cwd=cwd)
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
    more = [*options[1:], "--set=podAnnotations.release=two"]
    subprocess.run([*helm, "upgrade", name, str(ROOT / "deploy/chart"), *more], check=True, capture_output=True)
    [upgraded] = controlplane.get("deployments", "-n", name)["items"]
    assert upgraded["spec"]["template"]["metadata"]["annotations"] == {"release": "two"}
    subprocess.run([*helm, "rollback", name, "1"], check=True, capture_output=True)
    for number in range(20):
        metadata = {"name": f"k{number}", "namespace": name, "finalizers": [FINALIZER]}
        controlplane.apply({"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": metadata})
    [deployment] = controlplane.get("deployments", "-n", name)["items"]
    assert "annotations" not in deployment["spec"]["template"]["metadata"]
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


def test_a_namespace_is_gone_30_seconds_after_the_manifests_are_deleted_in_their_order(
    controlplane: ControlPlane, tmp_path: pathlib.Path
) -> None:
    """The order is the chart's: its hook runs before anything is deleted. The test is the kubelet, as above."""
    name, kubectl = f"leave-{some_name()}", controlplane.kubectl
    (tmp_path / "app.py").write_text(APP)
    controlplane.apply(define("parcels.example.com", "Parcel"))
    kubectl("wait", "--for=condition=Established", "crd", "parcels.example.com", "--timeout=60s")
    kubectl("create", "namespace", name)
    options = (f"--name={name}", f"--pod-namespace={name}", "--leader-elect", f"--namespace={name}")
    made = trioperator(controlplane, "manifests", "app.py", *options, cwd=tmp_path)
    deployed = Deployed(controlplane, tmp_path, [each for each in yaml.safe_load_all(made) if each])
    controlplane.apply(*(each for each in deployed.manifests if each["kind"] != "CustomResourceDefinition"))
    operator = deployed.start()
    operator.wait_for("The operator is ready.")
    for number in range(20):
        controlplane.apply(parcel(f"p{number}", name))
    kubectl("wait", "parcels", "--all", "--for=jsonpath={.metadata.finalizers[0]}", f"-n{name}", "--timeout=60s")
    assert operator.stop() == 0  # no Pod is there whose end would be waited for
    leave = [sys.executable, "-m", "trioperator", "uninstall", "app.py", "--yes", f"--namespace={name}"]
    leave += [f"--stop={name}/{name}", f"--lease={name}/{name}"]
    environment = {**os.environ, "KUBECONFIG": str(controlplane.kubeconfig)}
    with subprocess.Popen(leave, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as uninstalling:
        assert uninstalling.stdout is not None
        printed = uninstalling.stdout.read()
        assert uninstalling.wait(120) == 0, printed
    assert printed.count(FINALIZER) == 20
    assert controlplane.get("deployment", name, f"-n{name}")["spec"]["replicas"] == 0
    assert not controlplane.get("leases", f"-n{name}")["items"]
    ordered = [each for kind in UNINSTALL_ORDER for each in deployed.manifests if each["kind"] == kind]
    assert {each["kind"] for each in deployed.manifests} <= {*UNINSTALL_ORDER, "Namespace", "CustomResourceDefinition"}
    for manifest in ordered:
        kubectl("delete", "-f", "-", input=yaml.safe_dump(manifest))
    kubectl("delete", "namespace", name, "--timeout=30s")


def parcel(name: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "example.com/v1", "kind": "Parcel", "metadata": metadata, "spec": {}}
