"""Public operators that were not known while the bridge was written, in the same table as the others."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.world.operators import declare, describe_object, operator
from tests.world.playing import Play

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
