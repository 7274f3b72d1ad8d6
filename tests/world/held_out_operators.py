"""Public operators that were not known while the bridge was written, in the same table as the others."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.world.operators import declare, describe_object, operator
from tests.world.playing import Play


@operator("Emmerson-Miranda/k8s-operator-kopf", "kubernetes", "prometheus-client", ports=True)
async def webapps(play: Play) -> None:
    """Handlers with retries and messages in the status, which count themselves for Prometheus."""
    play.masks += [r"\b10\.\d+\.\d+\.\d+"]
    play.skip("Pod")  # their names are random
    play.environment |= {"METRICS_PORT": "18000", "PYTHONPATH": str(play.root)}
    run = ("--namespace", "web", "-m", "my_operator.operator")
    await play.add_namespaces("web")
    await play.apply("manifests/crd.yaml")

    def describe(name: str, image: str, replicas: int) -> dict[str, Any]:
        spec = {"image": image, "replicas": replicas, "port": 80}
        return describe_object("WebApp", "demo.example.com/v1", name, "web", spec=spec)

    async with play.running(*run):
        await play.apply(describe("one", "nginx:1", 1), describe("two", "nginx:1", 2), describe("three", "nginx:1", 1))
        for name in ("one", "two", "three"):
            await play.until("webapps", name, lambda app: app.get("status", {}).get("message"), namespace="web")
        await play.record("created")
        await play.apply(describe("one", "nginx:2", 2), describe("two", "nginx:1", 1))
        await play.cluster.delete("deployments", "three", "web")
        await play.record("changed")
        await play.cluster.delete("webapps", "two", "web")
        await play.record("deleted")
    await play.apply(describe("one", "nginx:3", 1), describe("four", "nginx:1", 1))
    async with play.running(*run):
        await play.record("started again")
        for name in ("one", "three", "four"):
            await play.cluster.delete("webapps", name, "web")
        await play.record("all deleted")


# Helm, as the operator calls it: a ConfigMap with the values.
_HELM: Final = """#!/usr/bin/env python3
import json, pathlib, sys
values = pathlib.Path(sys.argv[sys.argv.index("--values") + 1]).read_text()
meta = {"name": "values", "namespace": "users"}
print(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"values": values}}))
"""


@operator("redhat-cop/anarchy", "aiofiles", "inflection", "kubernetes_asyncio")
async def anarchy_communes(play: Play) -> None:
    """The state in the status, a finalizer of its own, subprocesses, server-side apply by ``kubernetes_asyncio``."""
    play.put("helm", _HELM)
    play.environment |= {"OPERATOR_NAMESPACE": "operator", "HOSTNAME": "operator"}
    run = ("--namespace", "users", "commune-operator/operator.py")
    await play.add_namespaces("operator", "users")
    await play.apply("helm/crds/anarchycommunes.yaml")
    container = {"name": "main", "image": "quay.io/anarchy:1", "imagePullPolicy": "Always"}
    await play.apply(describe_object("Pod", "v1", "operator", "operator", spec={"containers": [container]}))
    kind = ("AnarchyCommune", "anarchy.gpte.redhat.com/v1")
    async with play.running(*run):
        await play.apply(describe_object(*kind, "one", "users", spec={"replicas": 1}))
        await play.record("created")
        await play.cluster.patch("anarchycommunes", "one", {"spec": {"replicas": 2}}, "users")
        await play.record("changed")
    async with play.running(*run):
        await play.record("started again")
        await play.cluster.delete("anarchycommunes", "one", "users")
        await play.record("deleted")


@operator("awslabs/aws-orbit-workbench", "kubernetes")
async def orbit_podsettings(play: Play) -> None:
    """An index of Namespaces, the state in annotations and in the status, sections of the patch that are assigned."""
    play.environment |= {"IN_CLUSTER_DEPLOYMENT": "no"}
    run = ("--all-namespaces", "--standalone", "orbit_controller/operators/podsetting_operator.py")
    await play.apply(declare("orbit.aws", "v1", "PodSetting", with_status=True))
    await play.apply(declare("kubeflow.org", "v1alpha1", "PodDefault"))

    def describe_user(name: str, team: str) -> dict[str, Any]:
        labels = {"orbit/space": "user", "orbit/team": team}
        return describe_object("Namespace", "v1", name, metadata={"labels": labels})

    def describe_setting(name: str, desc: str, **labels: str) -> dict[str, Any]:
        meta = {"labels": {"orbit/space": "team"} | {f"orbit/{key}": value for key, value in labels.items()}}
        return describe_object("PodSetting", "orbit.aws/v1", name, "red", metadata=meta, spec={"desc": desc})

    await play.add_namespaces("red")
    await play.apply(describe_user("anna", "red"), describe_user("bert", "red"), describe_user("carl", "blue"))
    await play.apply(describe_setting("early", "made before", team="red"))
    async with play.running(*run, cwd="images/orbit-controller/src"):
        await play.apply(describe_setting("one", "some", team="red"), describe_setting("teamless", "some"))
        await play.record("created")
        await play.apply(describe_user("dora", "red"))
        await play.settle()
        await play.apply(describe_setting("two", "some", team="red"))
        await play.cluster.patch("podsettings", "one", {"spec": {"desc": "other"}, "status": None}, "red")
        await play.record("changed")
        await play.cluster.patch("podsettings", "teamless", {"status": None}, "red", subresource="status")
        await play.cluster.patch("podsettings", "teamless", {"spec": {"desc": json.dumps([1])}}, "red")
        await play.record("changed again")
    await play.apply(describe_setting("three", "some", team="red"))
    async with play.running(*run, cwd="images/orbit-controller/src"):
        await play.record("started again")
        for name in ("one", "two", "teamless"):
            await play.cluster.delete("podsettings", name, "red")
        await play.record("deleted")
