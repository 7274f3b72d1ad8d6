"""Conformance: validation errors of built-in kinds.

``invalid_objects.json`` holds what is sent, and what a real server answers.
"""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any, Final

import pytest

from tests.apiserver.conftest import Target

CASES: Final = json.loads(pathlib.Path(__file__).with_name("invalid_objects.json").read_text())
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


def title(case: dict[str, Any]) -> str:
    return f"{case['path'].rpartition('/')[2]}-{case['message'].partition('invalid: ')[2][:60]}"


@pytest.mark.parametrize("case", CASES, ids=title)
async def test_invalid_objects_are_rejected(target: Target, case: dict[str, Any]) -> None:
    answer = await target.request("POST", case["path"].format(target.namespace), case["sent"], dryRun="All")
    assert (answer.code, answer.message) == (case["code"], case["message"])


@pytest.mark.parametrize("case", CASES[:6], ids=title)
async def test_each_error_is_a_separate_cause(target: Target, case: dict[str, Any]) -> None:
    answer = await target.request("POST", case["path"].format(target.namespace), case["sent"], dryRun="All")
    for cause in answer.content["details"]["causes"]:
        assert f"{cause['field']}: {cause['message']}" in case["message"]


@pytest.mark.parametrize(
    ("finalizers", "text"),
    [
        (
            ["a.b/c", "plain"],
            'metadata.finalizers[1]: Invalid value: "plain": name is neither a standard finalizer name nor is it '
            "fully qualified",
        ),
        (
            ["orphan", "foregroundDeletion"],
            'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and '
            "foregroundDeletion cannot be both set",
        ),
    ],
)
async def test_finalizers_of_builtin_kinds_are_qualified(target: Target, finalizers: list[str], text: str) -> None:
    answer = await target.create("configmaps", "a", meta={"finalizers": finalizers})
    assert (answer.code, answer.message) == (422, f'ConfigMap "a" is invalid: {text}')


async def test_data_is_limited_to_one_mebibyte(target: Target) -> None:
    text = "Too long: may not be more than 1048576 bytes"
    answer = await target.create("configmaps", "a", data={"a": "x" * 1_048_577})
    assert (answer.code, answer.message) == (422, f'ConfigMap "a" is invalid: []: {text}')
    data: dict[str, Any] = {"data": {"a": "x" * 1_048_574}, "binaryData": {"b": "YWI="}}
    assert (await target.create("configmaps", "b", **data)).code == 201
    secret = {"metadata": {"name": "a"}, "data": {"a": "YWFh" * 349_526}}
    answer = await target.request("POST", target.path("secrets"), secret)
    assert (answer.code, answer.message) == (422, f'Secret "a" is invalid: data: {text}')


class TestChanges:
    @pytest.mark.parametrize(("path", "title", "content", "changes"), CHANGES, ids=[change[1] for change in CHANGES])
    async def test_immutable_fields_cannot_change(
        self, target: Target, path: str, title: str, content: Any, changes: Any
    ) -> None:
        name, path = target.namespace, path.format(target.namespace)
        assert (await target.request("POST", path, {"metadata": {"name": name}, **content})).code == 201
        for patch, text in changes:
            answer = await target.merge(f"{path}/{name}", patch, dryRun="All")
            assert answer.code == (422 if text else 200), (patch, answer.content)
            assert not text or answer.message.startswith(f'{title} "{name}" is invalid: {text}'), answer.message
        await target.delete(f"{path}/{name}")

    async def test_fields_of_a_service_type_are_dropped_with_the_type(self, target: Target) -> None:
        path = target.path("services", "1a")
        spec = {"type": "LoadBalancer", "ports": [{**PORT, "targetPort": 0}]}
        answer = await target.request("POST", target.path("services"), {"metadata": {"name": "1a"}, "spec": spec})
        assert answer.content["spec"]["ports"][0]["targetPort"] == 80
        answer = await target.merge(f"{path}/status", {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}})
        assert answer.content["status"]["loadBalancer"] == {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}
        service = (await target.merge(path, {"spec": {"type": "ClusterIP"}})).content
        assert service["status"] == {"loadBalancer": {}}
        assert "nodePort" not in service["spec"]["ports"][0]
        assert not {"allocateLoadBalancerNodePorts", "externalTrafficPolicy"} & set(service["spec"])
        answer = await target.merge(f"{path}/status", {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}})
        expected = "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"
        assert (answer.code, answer.message) == (422, f'Service "1a" is invalid: {expected}')
        assert (
            "clusterIP"
            not in (await target.merge(path, {"spec": {"type": "ExternalName", "externalName": "a.b"}})).content["spec"]
        )

    async def test_a_headless_service_has_no_node_port(self, target: Target) -> None:
        spec = {"clusterIP": "None", "type": "NodePort", "ports": [PORT]}
        answer = await target.request("POST", target.path("services"), {"metadata": {"name": "a"}, "spec": spec})
        expected = "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services"
        assert (answer.code, answer.message) == (422, f'Service "a" is invalid: {expected}')

    async def test_conditions_show_missing_times_as_null(self, target: Target) -> None:
        assert (await target.request("POST", target.path("deployments"), DEPLOYMENT)).code == 201
        status = {"conditions": [{"type": "A", "status": "True"}]}
        answer = await target.merge(target.path("deployments", "a", "status"), {"status": status})
        (found,) = (item for item in answer.content["status"]["conditions"] if item["type"] == "A")
        assert found == {"type": "A", "status": "True", "lastTransitionTime": None, "lastUpdateTime": None}

    async def test_fields_that_admission_sets_in_pods_have_no_manager(self, target: Target) -> None:
        pod = (await target.create("pods", "a", spec=POD)).content
        assert (len(pod["spec"]["tolerations"]), pod["spec"]["priority"]) == (2, 0)
        assert not {"f:priority", "f:tolerations"} & set(pod["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"])
        pod["spec"].pop("priority")
        answer = await target.request("PUT", target.path("pods", "a"), pod)
        assert (answer.code, answer.content["spec"]["priority"]) == (200, 0)

    async def test_the_selector_of_a_deployment_is_immutable(self, target: Target) -> None:
        assert (await target.request("POST", target.path("deployments"), DEPLOYMENT)).code == 201
        changed: dict[str, Any] = copy.deepcopy(DEPLOYMENT)
        changed["spec"]["template"]["metadata"]["labels"]["c"] = "d"
        changed["spec"]["selector"]["matchLabels"]["c"] = "d"
        answer = await target.request("PUT", target.path("deployments", "a"), changed)
        shown = '{"matchLabels":{"a":"b","c":"d"}}'
        expected = f'Deployment.apps "a" is invalid: spec.selector: Invalid value: {shown}: field is immutable'
        assert (answer.code, answer.message) == (422, expected)

    async def test_immutable_data_cannot_change(self, target: Target) -> None:
        await target.create("configmaps", "a", data={"a": "1"}, immutable=True)
        path = target.path("configmaps", "a")
        answer = await target.merge(path, {"data": {"a": "2"}})
        expected = 'ConfigMap "a" is invalid: data: Forbidden: field is immutable when `immutable` is set'
        assert (answer.code, answer.message) == (422, expected)
        answer = await target.merge(path, {"immutable": False})
        expected = 'ConfigMap "a" is invalid: immutable: Forbidden: field is immutable when `immutable` is set'
        assert (answer.code, answer.message) == (422, expected)
        assert (await target.merge(path, {"metadata": {"labels": {"a": "b"}}})).code == 200

    async def test_the_type_of_a_secret_is_immutable(self, target: Target) -> None:
        path = target.path("secrets")
        await target.request("POST", path, {"metadata": {"name": "a"}, "type": "example.com/one"})
        answer = await target.merge(f"{path}/a", {"type": "example.com/two"})
        expected = 'Secret "a" is invalid: type: Invalid value: "example.com/two": field is immutable'
        assert (answer.code, answer.message) == (422, expected)

    async def test_an_invalid_patch_is_rejected(self, target: Target) -> None:
        assert (await target.request("POST", target.path("deployments"), DEPLOYMENT)).code == 201
        answer = await target.merge(target.path("deployments", "a"), {"spec": {"replicas": -1}})
        expected = (
            'Deployment.apps "a" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
        )
        assert (answer.code, answer.message) == (422, expected)
