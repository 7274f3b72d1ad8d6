"""Reconcile handlers on a real control plane: what its managed fields say of drift, and what is converged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.controlplane import EXAMPLES, ControlPlane
from tests.e2e.test_life import example, some_name, until
from tests.program import Program
from trioperator.client.adoption import CREATE_ONLY


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

    def find_writes() -> list[Any]:  # but for those of the controller, which come at any time
        fields = controlplane.get("deployment", name, "--show-managed-fields")["metadata"]["managedFields"]
        return [each for each in fields if each["manager"] != "kube-controller-manager"]

    before = find_writes()
    again = start_operator(source)
    again.wait_for(applied.format("Service"))
    assert find_writes() == before, "a child that is as desired is not written"
    kubectl("delete", "kex", name)
    until(lambda: name not in kubectl("get", "kex", "-o", "name"))
    assert again.stop() == 0


ORPHANS = """
import trioperator


@trioperator.on.reconcile("kopfexamples", owns=[trioperator.Owned("statefulsets", bodies=True)])
async def reconcile(name, spec, children, client):
    labels = {"app": name}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": spec["size"]}}}
    actual = children["statefulsets"].get(name)
    if actual and "deletionTimestamp" not in actual["metadata"]:
        (template,) = actual["spec"]["volumeClaimTemplates"]
        if template["spec"]["resources"] != claim["resources"]:
            await client.delete(actual, propagation="Orphan")
            return trioperator.Requeue(after=10)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "web"}]},
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    }
"""


def test_the_pods_of_a_statefulset_survive_if_it_is_replaced_without_them(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    name = some_name()
    operator = start_operator(ORPHANS)
    applied = f"[default/{name}] StatefulSet default/{name} is applied."
    controlplane.apply(example(name, size="1Gi"))
    operator.wait_for(applied)
    until(lambda: f"pod/{name}-0" in controlplane.kubectl("get", "pods", "-o", "name"))
    before = controlplane.get("statefulset", name)["metadata"]["uid"]
    pod = controlplane.get("pod", f"{name}-0")["metadata"]
    controlplane.kubectl("patch", "kex", name, "--type=merge", "-p", '{"spec": {"size": "2Gi"}}')
    operator.wait_for(applied, count=2)
    after = controlplane.get("statefulset", name)["metadata"]["uid"]
    assert after != before

    def owner() -> str:
        owners = controlplane.get("pod", f"{name}-0")["metadata"].get("ownerReferences") or [{}]
        return str(owners[0].get("uid"))

    until(lambda: owner() == after)
    assert controlplane.get("pod", f"{name}-0")["metadata"]["uid"] == pod["uid"]
    controlplane.kubectl("delete", "kex", name)
    assert operator.stop() == 0


INDEXED = """
import trioperator


@trioperator.index("secrets", labels={"part": trioperator.PRESENT})
def by_part(name, labels):
    return {labels["part"]: name}


@trioperator.index("secrets", labels={"part": trioperator.PRESENT})
async def names(name):
    return {name: name}


def find_parts(labels):
    return labels.get("part")


@trioperator.on.reconcile("kopfexamples", owns=["configmaps"], watches={"secrets": find_parts})
async def reconcile(name, by_part: trioperator.Index, names: trioperator.Index):
    found = sorted(by_part.get(name, []))
    yield {"apiVersion": "v1", "kind": "ConfigMap", "data": {"found": ",".join(found), "all": str(len(names))}}
"""


def test_handlers_find_the_change_for_which_they_are_called_in_the_indices(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    name = some_name()
    operator = start_operator(INDEXED)
    controlplane.apply(example(name))
    operator.wait_for(f"ConfigMap default/{name} is applied.")
    secrets = [f"{name}-{number}" for number in range(5)]
    for number, secret in enumerate(secrets, 1):
        metadata = {"name": secret, "namespace": "default", "labels": {"part": name}}
        controlplane.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
        operator.wait_for(f"ConfigMap default/{name} is applied.", count=number + 1)
        found = {"found": ",".join(secrets[:number]), "all": str(number)}
        assert controlplane.get("configmap", name)["data"] == found
    controlplane.kubectl("delete", "secret", secrets[0])
    until(lambda: controlplane.get("configmap", name)["data"]["found"] == ",".join(secrets[1:]))
    assert operator.output.count(f"ConfigMap default/{name} is applied.") == 7, "once for each change"
    controlplane.kubectl("delete", "kex", name)
    controlplane.kubectl("delete", "secret", *secrets[1:])
    assert operator.stop() == 0


def test_a_configuration_can_be_applied_to_nothing_or_to_one_object_only(controlplane: ControlPlane) -> None:
    name = some_name()
    kubectl = controlplane.kubectl

    def apply(*options: str, **metadata: str) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"mine": "1"}}
        kubectl("apply", "--server-side", "--force-conflicts", *options, "-f", "-", input=yaml.safe_dump(body))

    with pytest.raises(AssertionError, match="no existing object was found"):
        apply(uid="7d1cdd4b-5a1f-4e7b-8fd4-8f2b1f2d9a3c")
    apply("--dry-run=server", **CREATE_ONLY)
    apply(**CREATE_ONLY)
    assert controlplane.get("configmap", name)["data"] == {"mine": "1"}
    kubectl("delete", "configmap", name)
    kubectl("create", "configmap", name, "--from-literal=payroll=secret")
    foreign = controlplane.get("configmap", name)
    with pytest.raises(AssertionError, match="the object has been modified"):
        apply(**CREATE_ONLY)
    with pytest.raises(AssertionError, match=r"metadata\.uid.*field is immutable"):
        apply(uid="7d1cdd4b-5a1f-4e7b-8fd4-8f2b1f2d9a3c")
    assert controlplane.get("configmap", name) == foreign
