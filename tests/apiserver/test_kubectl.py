"""Everyday kubectl commands on the embedded server."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import trio
import yaml

from tests.apiserver.builtin.certificate_requests import make_request
from tests.apiserver.conftest import SCALE, definition
from tests.apiserver.kubectl import KUBECTL, Kubectl
from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers import Pace

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="put kubectl on PATH, or its folder into KUBEBUILDER_ASSETS")

OBJECT = """
apiVersion: conformance.dev/v1
kind: Shape
metadata: {name: a, labels: {x: one}}
spec: {size: 1}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 2
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: one, image: first}, {name: two, image: second}]}
"""


@pytest.fixture
async def kubectl(cluster: Cluster, cluster_url: str, tmp_path: pathlib.Path) -> Kubectl:
    shape = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    subresources = {"status": {}, "scale": SCALE}
    await cluster.apply(
        definition("shapes", "Shape", schema=shape, subresources=subresources, additionalPrinterColumns=columns)
    )
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(cluster.kubeconfig(cluster_url)))
    return Kubectl(path)


async def test_a_custom_object_is_created_changed_and_deleted(cluster: Cluster, kubectl: Kubectl) -> None:
    assert "shape.conformance.dev/a created" in await kubectl("apply", "-f", "-", text=OBJECT)
    assert "shape.conformance.dev/a unchanged" in await kubectl("apply", "-f", "-", text=OBJECT)
    changed = OBJECT.replace("size: 1", "size: 2")
    assert "shape.conformance.dev/a configured" in await kubectl("apply", "-f", "-", text=changed)
    table = (await kubectl("get", "shapes")).splitlines()
    assert table[0].split() == ["NAME", "SIZE"]
    assert table[1].split() == ["a", "2"]
    assert yaml.safe_load(await kubectl("get", "shape", "a", "-o", "yaml"))["spec"] == {"size": 2}
    await kubectl("label", "shape", "a", "x=two", "--overwrite")
    await kubectl("annotate", "shape", "a", "note=1")
    await kubectl("patch", "shape", "a", "--type=json", "-p", '[{"op":"add","path":"/spec/more","value":1}]')
    await kubectl("edit", "shape", "a", edit="sed -i s/more/less/")
    await kubectl("scale", "shape/a", "--replicas=3")
    obj = await cluster.get("shapes", "a")
    assert obj["spec"] == {"size": 2, "less": 1, "replicas": 3}
    assert (obj["metadata"]["labels"], obj["metadata"]["annotations"]["note"]) == ({"x": "two"}, "1")
    assert "Size:" in await kubectl("describe", "shape", "a")
    await kubectl("wait", "--for=jsonpath={.spec.size}=2", "shape/a", "--timeout=10s")
    assert "deleted" in await kubectl("delete", "-f", "-", text=OBJECT)
    assert "No resources found" in await kubectl("get", "shapes")


async def test_a_deployment_takes_strategic_merge_patches(cluster: Cluster, kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", text=DEPLOYMENT)
    await kubectl("apply", "-f", "-", text=DEPLOYMENT.replace("second", "third"))
    await kubectl("set", "image", "deployment/d", "one=fourth")
    await kubectl("scale", "deployment/d", "--replicas=5")
    spec = (await cluster.get("deployments", "d"))["spec"]
    assert [item["image"] for item in spec["template"]["spec"]["containers"]] == ["fourth", "third"]
    assert spec["replicas"] == 5
    assert "0/5" in await kubectl("get", "deployments")
    await kubectl("delete", "deployments", "--all")
    assert await cluster.list("deployments") == []


async def test_discovery_and_schemas_are_readable(kubectl: Kubectl) -> None:
    resources = await kubectl("api-resources")
    assert "deployments" in resources
    assert "conformance.dev/v1" in resources
    assert "conformance.dev/v1" in await kubectl("api-versions")
    assert "Server Version" in await kubectl("version")
    assert "KIND:       Shape" in await kubectl("explain", "shapes")


async def test_built_in_kinds_are_explained(kubectl: Kubectl) -> None:
    text = await kubectl("explain", "pod.spec.containers")
    assert "FIELD: containers <[]Container>" in text
    assert "enum: Always, IfNotPresent, Never" in text
    text = await kubectl("explain", "deployment", "--recursive")
    assert "          imagePullPolicy\t<string>" in text
    assert "replicas\t<integer>" in text
    assert "VERSION:    v2" in await kubectl("explain", "hpa.spec", "--api-version=autoscaling/v2")


@pytest.mark.parametrize("verb", ["create", "apply"])
@pytest.mark.parametrize(
    ("version", "kind"), [("conformance.dev/v1", "Shappe"), ("apps/v1", "Deploymnt"), ("else.dev/v1", "Shape")]
)
async def test_a_kind_with_a_typo_is_unknown(kubectl: Kubectl, verb: str, version: str, kind: str) -> None:
    with pytest.raises(AssertionError, match=f'no matches for kind "{kind}" in version "{version}"'):
        await kubectl(verb, "-f", "-", text=f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}")


async def test_a_certificate_request_is_approved(cluster: Cluster, kubectl: Kubectl) -> None:
    spec = {"request": make_request(), "signerName": "example.com/it", "usages": ["client auth"]}
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    await cluster.create({**kind, "metadata": {"name": "it"}, "spec": spec})
    assert "certificatesigningrequest.certificates.k8s.io/it approved" in await kubectl("certificate", "approve", "it")
    assert (await cluster.get("csr", "it"))["status"]["conditions"][0]["type"] == "Approved"


async def test_metadata_is_explained(kubectl: Kubectl) -> None:
    text = await kubectl("explain", "shapes.metadata")
    assert "Standard object's metadata." in text
    assert "OwnerReferences name the objects with which this one is deleted." in text


async def test_kinds_are_explained_from_the_older_document(kubectl: Kubectl) -> None:
    text = await kubectl("explain", "deployment.spec.replicas", "--output=plaintext-openapiv2")
    assert "FIELD:    replicas <integer>" in text
    assert "KIND:     Shape" in await kubectl("explain", "shapes", "--output=plaintext-openapiv2")


async def test_custom_kinds_are_explained_with_their_descriptions(cluster: Cluster, kubectl: Kubectl) -> None:
    size = {"type": "integer", "description": "How large it is."}
    spec = {"type": "object", "description": "What it shall be.", "properties": {"size": size}, "required": ["size"]}
    schema = {"openAPIV3Schema": {"type": "object", "description": "A tool.", "properties": {"spec": spec}}}
    await cluster.apply(definition("tools", "Tool", schema=schema))
    text = await kubectl("explain", "tools.spec")
    assert "What it shall be." in text
    assert "size\t<integer> -required-\n    How large it is." in text
    assert "labels\t<map[string]string>" in await kubectl("explain", "tool", "--recursive")


@pytest.mark.parametrize("verb", ["create", "apply"])
async def test_mistakes_in_built_in_kinds_are_reported(cluster: Cluster, kubectl: Kubectl, verb: str) -> None:
    mistaken = DEPLOYMENT.replace("replicas", "replicsa")
    with pytest.raises(AssertionError, match=r'strict decoding error: unknown field "spec\.replicsa"'):
        await kubectl(verb, "-f", "-", text=mistaken)
    with pytest.raises(AssertionError, match=r"cannot unmarshal string into Go struct field DeploymentSpec"):
        await kubectl(verb, "-f", "-", text=DEPLOYMENT.replace("replicas: 2", "replicas: many"))
    assert 'unknown field "spec.replicsa"' in await kubectl(verb, "--validate=warn", "-f", "-", text=mistaken)
    assert (await cluster.get("deployments", "d"))["spec"]["replicas"] == 1


async def test_unknown_fields_are_rejected_with_strict_validation(cluster: Cluster, kubectl: Kubectl) -> None:
    strict = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
    await cluster.apply(definition("stricts", "Strict", schema=strict))
    text = OBJECT.replace("Shape", "Strict")
    with pytest.raises(AssertionError, match=r'unknown field "spec\.size"'):
        await kubectl("apply", "-f", "-", text=text)


async def test_a_definition_can_be_awaited_and_deleted(cluster: Cluster, kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", text=yaml.safe_dump(definition("mores", "More")))
    await kubectl("wait", "--for=condition=Established", "crd/mores.conformance.dev", "--timeout=10s")
    await kubectl("delete", "crd", "mores.conformance.dev")
    assert await cluster.find("crds", "mores.conformance.dev") is None


async def test_a_finalizer_blocks_a_deletion(cluster: Cluster, kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", text=OBJECT.replace("{name: a,", "{name: a, finalizers: [a.b/c],"))
    await kubectl("delete", "shape", "a", "--wait=false")
    assert "deletionTimestamp" in (await cluster.get("shapes", "a"))["metadata"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: kubectl("wait", "--for=delete", "shape/a", "--timeout=20s"))
        await trio.sleep(0.5)
        await cluster.patch("shapes", "a", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    ("command", "kind", "expected"),
    [
        ("create namespace made", "namespaces", {}),
        ("create configmap made --from-literal=a=b", "configmaps", {"data": {"a": "b"}}),
        ("create secret generic made --from-literal=a=b", "secrets", {"data": {"a": "Yg=="}}),
        ("create serviceaccount made", "serviceaccounts", {}),
        ("run made --image=nginx --env=A=B", "pods", {"spec.containers.0.env": [{"name": "A", "value": "B"}]}),
        ("create deployment made --image=nginx --replicas=0", "deployments", {"spec.replicas": 0}),
        ("create job made --image=busybox -- date", "jobs", {"spec.template.spec.containers.0.command": ["date"]}),
        ("create service clusterip made --tcp=80:http", "services", {"spec.ports.0.targetPort": "http"}),
        ("create service clusterip made --tcp=80:8080", "services", {"spec.ports.0.targetPort": 8080}),
        ("create quota made --hard=pods=5", "resourcequotas", {"spec.hard": {"pods": "5"}}),
        ("create pdb made --selector=a=b --min-available=50%", "poddisruptionbudgets", {"spec.minAvailable": "50%"}),
        ("create role made --verb=get,list --resource=pods", "roles", {"rules.0.verbs": ["get", "list"]}),
        ("create priorityclass made --value=-5", "priorityclasses", {"value": -5}),
    ],
)
async def test_built_in_objects_are_created_by_commands(
    cluster: Cluster, kubectl: Kubectl, command: str, kind: str, expected: dict[str, Any]
) -> None:
    assert "created" in await kubectl(*command.split())
    obj: Any = await cluster.get(kind, "made")
    assert obj["metadata"]["creationTimestamp"]
    for path, value in expected.items():
        found = obj
        for part in path.split("."):
            found = found[int(part)] if part.isdigit() else found[part]
        assert found == value


async def test_a_deployment_is_exposed_and_restarted(cluster: Cluster, kubectl: Kubectl) -> None:
    await kubectl("create", "deployment", "d", "--image=nginx", "--port=80")
    await kubectl("expose", "deployment", "d", "--target-port=8080")
    assert (await cluster.get("services", "d"))["spec"]["ports"][0]["targetPort"] == 8080
    await kubectl("rollout", "restart", "deployment/d")
    template = (await cluster.get("deployments", "d"))["spec"]["template"]
    assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]


async def test_rollouts_are_followed(cluster: Cluster, kubectl: Kubectl) -> None:
    pace = Pace(start=0.1, run=0.1, stop=0.1)
    async with cluster.open_controllers(pace=pace):
        await kubectl("apply", "-f", "-", text=DEPLOYMENT)
        assert 'deployment "d" successfully rolled out' in await kubectl("rollout", "status", "deploy/d")
        await kubectl("set", "image", "deploy/d", "one=other")
        assert 'deployment "d" successfully rolled out' in await kubectl("rollout", "status", "deploy/d")
        await kubectl("rollout", "undo", "deploy/d")
        await kubectl("rollout", "status", "deploy/d")
        assert "condition met" in await kubectl("wait", "--for=condition=available", "deploy/d")
        images = "jsonpath={.items[*].spec.containers[0].image}"
        assert await kubectl("get", "pods", "-o", images) == "first first"
        rows = [row.split() for row in (await kubectl("get", "deploy,rs", "--no-headers")).splitlines() if row]
        assert rows[0][:2] == ["deployment.apps/d", "2/2"]
        assert sorted(row[1] for row in rows[1:]) == ["0", "2"]


async def test_jobs_and_stateful_sets_can_be_awaited(cluster: Cluster, kubectl: Kubectl) -> None:
    manifest = DEPLOYMENT.replace("kind: Deployment", "kind: StatefulSet")
    async with cluster.open_controllers(pace=Pace(start=0.1, run=0.1, stop=0.1)):
        await kubectl("apply", "-f", "-", text=manifest)
        assert "complete" in await kubectl("rollout", "status", "sts/d")
        await kubectl("rollout", "restart", "sts/d")
        assert "complete" in await kubectl("rollout", "status", "sts/d")
        await kubectl("create", "job", "j", "--image=any")
        assert "condition met" in await kubectl("wait", "--for=condition=complete", "job/j")
        await kubectl("delete", "pod", "d-0")
        await kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "sts/d")


async def test_objects_can_be_applied_server_side(cluster: Cluster, kubectl: Kubectl) -> None:
    assert "deployment.apps/d serverside-applied" in await kubectl("apply", "--server-side", "-f", "-", text=DEPLOYMENT)
    changed = DEPLOYMENT.replace("second", "third")
    with pytest.raises(AssertionError, match=r"(?s)conflict with \"kubectl\".*image"):
        await kubectl("apply", "--server-side", "--field-manager=other", "-f", "-", text=changed)
    force = ("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-")
    assert "deployment.apps/d serverside-applied" in await kubectl(*force, text=changed)
    shown = yaml.safe_load(await kubectl("get", "deployment", "d", "-o", "yaml", "--show-managed-fields"))
    assert {entry["manager"] for entry in shown["metadata"]["managedFields"]} >= {"kubectl", "other"}
    assert "managedFields" not in await kubectl("get", "deployment", "d", "-o", "yaml")
    containers = (await cluster.get("deployments", "d"))["spec"]["template"]["spec"]["containers"]
    assert [item["image"] for item in containers] == ["first", "third"]


async def test_switching_to_server_side_apply_causes_no_conflicts(cluster: Cluster, kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", text=OBJECT)
    changed = OBJECT.replace("size: 1", "size: 2")
    assert "shape.conformance.dev/a serverside-applied" in await kubectl(
        "apply", "--server-side", "-f", "-", text=changed
    )
    assert (await cluster.get("shapes", "a"))["spec"] == {"size": 2}
    assert "shape.conformance.dev/a configured" in await kubectl("apply", "-f", "-", text=changed)  # its own record
    dry = ("apply", "--server-side", "--dry-run=server", "-f", "-")
    assert "serverside-applied (server dry run)" in await kubectl(*dry, text=OBJECT)
    assert (await cluster.get("shapes", "a"))["spec"] == {"size": 2}


async def test_an_edit_is_managed_by_kubectl(cluster: Cluster, kubectl: Kubectl) -> None:
    await cluster.create({**yaml.safe_load(OBJECT), "spec": {"size": 1, "more": 1}})
    await kubectl("edit", "shape", "a", "--show-managed-fields", edit="sed -i 's/size: 1/size: 2/'")
    entries = (await cluster.get("shapes", "a"))["metadata"]["managedFields"]
    fields = {entry["manager"]: entry["fieldsV1"] for entry in entries}
    assert fields["kubectl-edit"] == {"f:spec": {"f:size": {}}}
    assert "f:size" not in fields["unknown"]["f:spec"]
