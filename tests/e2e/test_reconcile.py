"""Reconcile handlers on a real control plane: what its managed fields say of drift, and what is converged."""

from __future__ import annotations

from collections.abc import Callable

from tests.controlplane import EXAMPLES, ControlPlane
from tests.e2e.test_life import example, some_name, until
from tests.program import Program


def test_children_become_and_stay_as_they_are_desired(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    name = some_name()
    source = (EXAMPLES / "20-reconcile" / "main.py").read_text()
    operator = start_operator(source)
    applied = f"[default/{name}] {{}} default/{name} is applied."
    kubectl = controlplane.kubectl
    controlplane.apply(example(name, host="example.com"))
    operator.wait_for(applied.format("Ingress"))

    kubectl("set", "image", f"deployment/{name}", "web=busybox")
    operator.wait_for(applied.format("Deployment"), count=2)
    (container,) = controlplane.get("deployment", name)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "nginx"
    kubectl("patch", "kex", name, "--type=merge", "-p", '{"spec": {"host": null}}')
    operator.wait_for(f"[default/{name}] Ingress default/{name} is deleted")
    kubectl("delete", "service", name)
    operator.wait_for(applied.format("Service"), count=2)
    kubectl("annotate", "deployment", name, "example.com/other=value")
    kubectl("patch", "kex", name, "--type=merge", "-p", '{"spec": {"replicas": 2}}')
    operator.wait_for(applied.format("Deployment"), count=3)
    assert operator.stop() == 0
    output = operator.output
    assert (output.count(applied.format("Service")), output.count(applied.format("Ingress"))) == (2, 1), "once for each"

    before = controlplane.get("deployment", name)
    again = start_operator(source)
    again.wait_for(applied.format("Service"))
    assert controlplane.get("deployment", name) == before, "a child that is as desired is not written"
    kubectl("delete", "kex", name)
    until(lambda: name not in kubectl("get", "kex", "-o", "name"))
    assert again.stop() == 0
