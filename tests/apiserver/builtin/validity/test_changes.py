"""Tests for :mod:`trioperator.apiserver.builtin.validity.changes`: immutable fields cannot change."""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest

from tests.apiserver.conftest import Answer, Target

POD: Final = {"containers": [{"name": "main", "image": "one"}]}
LABELS: Final = {"a": "b"}
CORE: Final = "/api/v1/namespaces/{}"
CLAIM: Final = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
PORT: Final = {"name": "p", "port": 80}
TEMPLATE: Final = {"metadata": {"labels": LABELS}, "spec": POD}
# Path, kind and content of an object, with pairs of a merge patch and the start of its error message (empty if the
# patch is accepted). The messages of the real server continue with Go structures.
CHANGES: Final[Any] = [
    (
        f"{CORE}/pods",
        "Pod",
        {"spec": {**POD, "activeDeadlineSeconds": 5, "tolerations": [{"key": "a", "operator": "Exists"}]}},
        [
            ({"spec": {"nodeSelector": LABELS}}, "spec: Forbidden: pod updates may not change fields other than `spec"),
            ({"spec": {"terminationGracePeriodSeconds": 1}}, "spec: Forbidden: pod updates may not change fields"),
            (
                {"spec": {"containers": [*POD["containers"], {"name": "b", "image": "two"}]}},
                "spec.containers: Forbidden: p",
            ),
            (
                {"spec": {"activeDeadlineSeconds": 6}},
                "spec.activeDeadlineSeconds: Invalid value: 6: must be less than or",
            ),
            (
                {"spec": {"activeDeadlineSeconds": None}},
                "spec.activeDeadlineSeconds: Invalid value: null: must not upd",
            ),
            ({"spec": {"tolerations": None}}, "spec.tolerations: Forbidden: existing toleration can not be modified"),
            ({"spec": {"activeDeadlineSeconds": 4}}, ""),
        ],
    ),
    (
        f"{CORE}/persistentvolumeclaims",
        "PersistentVolumeClaim",
        {"spec": {**CLAIM, "storageClassName": "s"}},
        [
            (
                {"spec": {"resources": {"requests": {"storage": "2Gi"}}}},
                "spec: Forbidden: spec is immutable after creat",
            ),
            (
                {"spec": {"storageClassName": "t"}},
                "spec: Forbidden: spec is immutable after creation except resources.r",
            ),
            ({"spec": {"volumeName": "v"}}, ""),
        ],
    ),
    (
        f"{CORE}/services",
        "Service",
        {"spec": {"ports": [PORT]}},
        [
            ({"spec": {"clusterIP": "None"}}, 'spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set'),
            ({"spec": {"ports": [{**PORT, "port": 81}], "type": "NodePort"}}, ""),
            ({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}, ""),
        ],
    ),
    (
        "/apis/apps/v1/namespaces/{}/statefulsets",
        "StatefulSet.apps",
        {"spec": {"serviceName": "s", "selector": {"matchLabels": LABELS}, "template": TEMPLATE}},
        [
            (
                {"spec": {"serviceName": "t"}},
                "spec: Forbidden: updates to statefulset spec for fields other than 'replicas'",
            ),
            (
                {"spec": {"volumeClaimTemplates": [{"metadata": {"name": "c"}, "spec": CLAIM}]}},
                "spec: Forbidden: updates",
            ),
            ({"spec": {"replicas": 2, "updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}, ""),
        ],
    ),
    (
        "/apis/batch/v1/namespaces/{}/jobs",
        "Job.batch",
        {"spec": {"template": {"spec": {**POD, "restartPolicy": "Never"}}}},
        [
            ({"spec": {"completions": 2}}, "spec.completions: Invalid value: 2: field is immutable"),
            ({"spec": {"template": {"spec": {"nodeSelector": LABELS}}}}, "spec.template: Invalid value: {"),
            ({"spec": {"parallelism": 2, "suspend": True}}, ""),
        ],
    ),
    (
        "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
        "EndpointSlice.discovery.k8s.io",
        {"addressType": "IPv4", "endpoints": []},
        [({"addressType": "IPv6"}, 'addressType: Invalid value: "IPv6": field is immutable')],
    ),
    (
        "/api/v1/persistentvolumes",
        "PersistentVolume",
        {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}},
        [
            (
                {"spec": {"hostPath": {"path": "/y"}}},
                "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource",
            ),
            ({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}, ""),
        ],
    ),
    (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "PriorityClass.scheduling.k8s.io",
        {"value": 1},
        [({"value": 2}, "value: Forbidden: may not be changed in an update."), ({"description": "d"}, "")],
    ),
    (
        "/apis/storage.k8s.io/v1/storageclasses",
        "StorageClass.storage.k8s.io",
        {"provisioner": "a.b/c"},
        [
            ({"provisioner": "a.b/d"}, 'provisioner: Invalid value: "a.b/d": field is immutable'),
            ({"allowVolumeExpansion": True}, ""),
        ],
    ),
    (
        "/apis/networking.k8s.io/v1/ingressclasses",
        "IngressClass.networking.k8s.io",
        {"spec": {"controller": "a.b/c"}},
        [({"spec": {"controller": "a.b/d"}}, 'spec.controller: Invalid value: "a.b/d": field is immutable')],
    ),
]
DEPLOYMENT: Final = {
    "metadata": {"name": "a"},
    "spec": {"selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": POD}},
}


@pytest.mark.parametrize(("path", "title", "content", "changes"), CHANGES, ids=[change[1] for change in CHANGES])
async def test_immutable_fields_cannot_change(
    target: Target, path: str, title: str, content: Any, changes: Any
) -> None:
    name, path = target.namespace, path.format(target.namespace)
    assert (await target.request("POST", path, {"metadata": {"name": name}, **content})).code == 201
    for patch, text in changes:
        answer = await target.merge(f"{path}/{name}", patch, dryRun="All")
        assert answer.code == (422 if text else 200), (patch, answer.content)
        assert not text or answer.message.startswith(f'{title} "{name}" is invalid: {text}'), answer.message
    await target.delete(f"{path}/{name}")


async def test_the_selector_of_a_deployment_is_immutable(target: Target) -> None:
    assert (await target.request("POST", target.path("deployments"), DEPLOYMENT)).code == 201
    changed: dict[str, Any] = copy.deepcopy(DEPLOYMENT)
    changed["spec"]["template"]["metadata"]["labels"]["c"] = "d"
    changed["spec"]["selector"]["matchLabels"]["c"] = "d"
    answer = await target.request("PUT", target.path("deployments", "a"), changed)
    shown = '{"matchLabels":{"a":"b","c":"d"}}'
    expected = f'Deployment.apps "a" is invalid: spec.selector: Invalid value: {shown}: field is immutable'
    assert (answer.code, answer.message) == (422, expected)


async def test_immutable_data_cannot_change(target: Target) -> None:
    await target.create("configmaps", "a", data={"a": "1"}, immutable=True)
    path = target.path("configmaps", "a")
    answer = await target.merge(path, {"data": {"a": "2"}})
    expected = 'ConfigMap "a" is invalid: data: Forbidden: field is immutable when `immutable` is set'
    assert (answer.code, answer.message) == (422, expected)
    answer = await target.merge(path, {"immutable": False})
    expected = 'ConfigMap "a" is invalid: immutable: Forbidden: field is immutable when `immutable` is set'
    assert (answer.code, answer.message) == (422, expected)
    assert (await target.merge(path, {"metadata": {"labels": {"a": "b"}}})).code == 200


async def test_the_type_of_a_secret_is_immutable(target: Target) -> None:
    path = target.path("secrets")
    await target.request("POST", path, {"metadata": {"name": "a"}, "type": "example.com/one"})
    answer = await target.merge(f"{path}/a", {"type": "example.com/two"})
    expected = 'Secret "a" is invalid: type: Invalid value: "example.com/two": field is immutable'
    assert (answer.code, answer.message) == (422, expected)


def sized(size: str, resource: str = "requests") -> dict[str, Any]:
    return {"spec": {"resources": {resource: {"storage": size}}}}


async def test_a_bound_claim_cannot_shrink_below_its_capacity(target: Target) -> None:
    path = f"{CORE}/persistentvolumeclaims".format(target.namespace)
    spec = {**CLAIM, "resources": {"requests": {"storage": "5Gi"}}, "storageClassName": "s", "volumeName": "v"}
    content = {"metadata": {"name": "c"}, "spec": spec}
    assert (await target.request("POST", path, content)).code == 201
    status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}}

    async def resize(patch: Any) -> Answer:
        await target.merge(f"{path}/c/status", {"status": status})
        return await target.merge(f"{path}/c", patch, dryRun="All")

    async def resize_bound(patch: Any) -> Answer:
        """Resize while the claim is bound: the controller of a real server finds no volume, and sets another phase."""
        return await target.eventually(lambda: resize(patch), lambda answer: "immutable" not in answer.message)

    refused = 'PersistentVolumeClaim "c" is invalid: spec.resources.requests.storage: Forbidden: '
    for size, text in (("2Gi", refused), ("1Gi", refused), ("3Gi", ""), ("3072Mi", "")):
        answer = await resize_bound(sized(size))
        assert answer.message == (f"{text}field can not be less than status.capacity" if text else "")
    answer = await resize(sized("9Gi", "limits"))
    assert answer.message.startswith('PersistentVolumeClaim "c" is invalid: spec: Forbidden: spec is immutable')


async def test_what_a_node_was_given_stays(target: Target) -> None:
    path, name = "/api/v1/nodes", target.namespace
    spec = {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": "a://b"}
    assert (await target.request("POST", path, {"metadata": {"name": name}, "spec": spec})).code == 201
    other = {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}
    for change, field in ((other, "podCIDRs"), ({"providerID": "c://d"}, "providerID")):
        answer = await target.merge(f"{path}/{name}", {"spec": change})
        text = f'spec.{field}: Forbidden: node updates may not change {field.removesuffix("s")} except from "" to valid'
        assert (answer.code, answer.message) == (422, f'Node "{name}" is invalid: {text}')
    assert (await target.merge(f"{path}/{name}", {"metadata": {"labels": LABELS}})).code == 200
    await target.delete(f"{path}/{name}")
