"""Tables: what kubectl shows of built-in kinds, on both servers; and cells that are computed."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.apiserver.conftest import Target
from trioperator.apiserver.reading.column_values import human_duration, since


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (429, "7m9s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (18_060, "5h1m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (63_158_400, "2y1d"),
        (315_360_000, "10y"),
    ],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_ages_are_durations() -> None:
    now = datetime.datetime(2020, 1, 1, 0, 5, tzinfo=datetime.UTC)
    assert since("2020-01-01T00:00:00Z", now) == "5m"
    assert since(None, now) == "<unknown>"


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
CONTAINERS = [{"name": "one", "image": "first"}, {"name": "two", "image": "second"}]
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": CONTAINERS}}
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}
STORAGE = {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}}
METRIC = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "5Mi"}}}
WORK = {"Containers": "one,two", "Images": "first,second"}

# By API version and plural name: the kind, what is in an object, and what is shown of it.
SHOWN: dict[tuple[str, str], tuple[str, dict[str, Any], dict[str, Any]]] = {
    ("v1", "configmaps"): ("ConfigMap", {"data": {"a": "b"}, "binaryData": {"c": "YQ=="}}, {"Data": 2}),
    ("v1", "secrets"): ("Secret", {"stringData": {"a": "b"}}, {"Type": "Opaque", "Data": 1}),
    ("v1", "pods"): (
        "Pod",
        {"spec": {"containers": CONTAINERS}},
        {
            "Ready": "0/2",
            "Status": "Pending",
            "Restarts": "0",
            "IP": "<none>",
            "Node": "<none>",
            "Nominated Node": "<none>",
            "Readiness Gates": "<none>",
        },
    ),
    ("v1", "podtemplates"): ("PodTemplate", {"template": TEMPLATE}, {**WORK, "Pod Labels": "a=b"}),
    ("v1", "services"): (
        "Service",
        {
            "spec": {
                "clusterIP": "None",
                "selector": {"z": "1", "a": "b"},
                "ports": [{"port": 80, "name": "x"}, {"port": 53, "name": "y", "protocol": "UDP"}],
            }
        },
        {
            "Type": "ClusterIP",
            "Cluster-IP": "None",
            "External-IP": "<none>",
            "Port(s)": "80/TCP,53/UDP",
            "Selector": "a=b,z=1",
        },
    ),
    ("v1", "persistentvolumeclaims"): (
        "PersistentVolumeClaim",
        {"spec": {**STORAGE, "storageClassName": "none"}},
        {
            "Status": "Pending",
            "Volume": "",
            "Capacity": "",
            "Access Modes": "",
            "StorageClass": "none",
            "VolumeAttributesClass": "<unset>",
            "VolumeMode": "Filesystem",
        },
    ),
    ("v1", "events"): (
        "Event",
        {
            "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
            "reason": "Because",
            "message": "It is so. ",
            "type": "Normal",
            "count": 3,
            "source": {"component": "us", "host": "here"},
        },
        {
            "Type": "Normal",
            "Reason": "Because",
            "Object": "pod/p",
            "Subobject": "spec",
            "Source": "us, here",
            "Message": "It is so.",
            "Count": 3,
            "Last Seen": "<unknown>",
        },
    ),
    ("v1", "serviceaccounts"): ("ServiceAccount", {}, {}),
    ("apps/v1", "deployments"): (
        "Deployment",
        {"spec": {"replicas": 0, "selector": SELECTOR, "template": TEMPLATE}},
        {"Ready": "0/0", "Up-to-date": 0, "Available": 0, "Selector": "a=b,!c", **WORK},
    ),
    ("apps/v1", "replicasets"): (
        "ReplicaSet",
        {"spec": {"replicas": 0, "selector": SELECTOR, "template": TEMPLATE}},
        {"Desired": 0, "Current": 0, "Ready": 0, "Selector": "a=b,!c", **WORK},
    ),
    ("apps/v1", "statefulsets"): (
        "StatefulSet",
        {"spec": {"replicas": 0, "serviceName": "s", "selector": SELECTOR, "template": TEMPLATE}},
        {"Ready": "0/0", **WORK},
    ),
    ("apps/v1", "daemonsets"): (
        "DaemonSet",
        {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
        {"Desired": 0, "Current": 0, "Ready": 0, "Up-to-date": 0, "Available": 0, "Node Selector": "<none>", **WORK},
    ),
    ("batch/v1", "jobs"): (
        "Job",
        {"spec": {"suspend": True, "template": {"spec": {"containers": CONTAINERS, "restartPolicy": "Never"}}}},
        {"Completions": "0/1", **WORK},
    ),
    ("batch/v1", "cronjobs"): (
        "CronJob",
        {
            "spec": {
                "schedule": "0 0 1 1 *",
                "suspend": True,
                "jobTemplate": {"spec": {"template": {"spec": {"containers": CONTAINERS, "restartPolicy": "Never"}}}},
            }
        },
        {
            "Schedule": "0 0 1 1 *",
            "Timezone": "<none>",
            "Suspend": "True",
            "Active": 0,
            "Last Schedule": "<none>",
            "Selector": "<none>",
            **WORK,
        },
    ),
    ("autoscaling/v2", "horizontalpodautoscalers"): (
        "HorizontalPodAutoscaler",
        {
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"},
                "minReplicas": 2,
                "maxReplicas": 5,
                "metrics": [METRIC],
            }
        },
        {
            "Reference": "Deployment/none",
            "Targets": "memory: <unknown>/5Mi",
            "MinPods": "2",
            "MaxPods": 5,
            "Replicas": 0,
        },
    ),
    ("networking.k8s.io/v1", "ingresses"): (
        "Ingress",
        {
            "spec": {
                "ingressClassName": "c",
                "tls": [{"hosts": ["h1"]}],
                "rules": [{"host": f"h{number}"} for number in range(5)],
            }
        },
        {"Class": "c", "Hosts": "h0,h1,h2 + 2 more...", "Address": "", "Ports": "80, 443"},
    ),
    ("networking.k8s.io/v1", "networkpolicies"): (
        "NetworkPolicy",
        {"spec": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}]}}},
        {"Pod-Selector": "a in (x,y)"},
    ),
    ("policy/v1", "poddisruptionbudgets"): (
        "PodDisruptionBudget",
        {"spec": {"selector": SELECTOR, "minAvailable": "50%"}},
        {"Min Available": "50%", "Max Unavailable": "N/A", "Allowed Disruptions": 0},
    ),
    ("rbac.authorization.k8s.io/v1", "roles"): ("Role", {"rules": []}, {}),
    ("rbac.authorization.k8s.io/v1", "rolebindings"): (
        "RoleBinding",
        {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [
                {"kind": "ServiceAccount", "name": "sa", "namespace": "default"},
                {"kind": "User", "name": "me", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "User", "name": "you", "apiGroup": "rbac.authorization.k8s.io"},
            ],
        },
        {"Role": "ClusterRole/view", "Users": "me, you", "Groups": "", "ServiceAccounts": "default/sa"},
    ),
    ("coordination.k8s.io/v1", "leases"): ("Lease", {"spec": {"holderIdentity": "me"}}, {"Holder": "me"}),
    ("discovery.k8s.io/v1", "endpointslices"): (
        "EndpointSlice",
        {
            "addressType": "IPv4",
            "endpoints": [{"addresses": [f"10.0.0.{number}"]} for number in range(1, 6)],
            "ports": [{"port": 80}],
        },
        {"AddressType": "IPv4", "Ports": "80", "Endpoints": "10.0.0.1,10.0.0.2,10.0.0.3 + 2 more..."},
    ),
}


@pytest.mark.parametrize(("version", "plural"), SHOWN, ids=[f"{version}/{plural}" for version, plural in SHOWN])
async def test_built_in_kinds_are_shown_by_their_own_columns(target: Target, version: str, plural: str) -> None:
    kind, content, expected = SHOWN[version, plural]
    root = "/api" if version == "v1" else "/apis"
    path = f"{root}/{version}/namespaces/{target.namespace}/{plural}"
    if kind == "Event":  # it has to be where its object is
        content = {**content, "involvedObject": {**content["involvedObject"], "namespace": target.namespace}}
    obj = {"apiVersion": version, "kind": kind, "metadata": {"name": "shown"}, **content}
    made = await target.request("POST", path, obj)
    assert made.code == 201, made.message
    answer = await target.get(f"{path}/shown", accept=TABLE)
    columns = [column["name"] for column in answer.content["columnDefinitions"]]
    shown = dict(zip(columns, answer.content["rows"][0]["cells"], strict=True))
    assert shown["Name"] == "shown"
    assert {name: shown[name] for name in expected} == expected
    assert set(columns) - set(expected) <= {"Name", "Age", "Created At", "First Seen", "Status", "Duration", "Selector"}


async def test_columns_have_types_and_priorities(target: Target) -> None:
    answer = await target.get("/apis/batch/v1/cronjobs", accept=TABLE)
    found = [(c["name"], c["type"], c["format"], c["priority"]) for c in answer.content["columnDefinitions"]]
    assert found == [
        ("Name", "string", "name", 0),
        ("Schedule", "string", "", 0),
        ("Timezone", "string", "", 0),
        ("Suspend", "boolean", "", 0),
        ("Active", "integer", "", 0),
        ("Last Schedule", "string", "", 0),
        ("Age", "string", "", 0),
        ("Containers", "string", "", 1),
        ("Images", "string", "", 1),
        ("Selector", "string", "", 1),
    ]


POD_STATES: list[tuple[dict[str, Any], str]] = [
    (
        {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
        "CrashLoopBackOff",
    ),
    ({"phase": "Running", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}, "ExitCode:3"),
    (
        {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]},
        "Error",
    ),
    ({"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]}, "Init:0/1"),
    (
        {"phase": "Pending", "initContainerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]},
        "Init:ErrImagePull",
    ),
    ({"phase": "Pending", "initContainerStatuses": [{"state": {"terminated": {"exitCode": 2}}}]}, "Init:ExitCode:2"),
    ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
    ({"phase": "Succeeded"}, "Succeeded"),
]


@pytest.mark.parametrize(("status", "shown"), POD_STATES)
async def test_the_status_of_a_pod_tells_what_its_containers_do(
    target: Target, status: dict[str, Any], shown: str
) -> None:
    containers = [{"name": "c", "image": "i"}]
    await target.create("pods", "p", spec={"containers": containers, "initContainers": [{"name": "i", "image": "i"}]})
    for key in ("containerStatuses", "initContainerStatuses"):
        for item in status.get(key, ()):
            item |= {"name": key[0], "image": "i", "imageID": "", "restartCount": 0, "ready": False}
    answer = await target.merge(target.path("pods", "p", "status"), {"status": status})
    assert answer.code == 200, answer.message
    answer = await target.get(target.path("pods", "p"), accept=TABLE)
    assert answer.content["rows"][0]["cells"][2] == shown
