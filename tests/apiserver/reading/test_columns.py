"""Tests for :mod:`trioperator.apiserver.reading.columns`: names and cells of the columns of built-in kinds."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.apiserver.conftest import TABLE, Target
from trioperator.apiserver.reading.columns import builtin_columns

CONTAINERS = [{"name": "one", "image": "first"}, {"name": "two", "image": "second"}]
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": CONTAINERS}}
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}
STORAGE = {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}}

# By API version and plural name: the kind, the content of an object, and the expected cells.
SHOWN: dict[tuple[str, str], tuple[str, dict[str, Any], dict[str, Any]]] = {
    ("v1", "configmaps"): ("ConfigMap", {"data": {"a": "b"}, "binaryData": {"c": "YQ=="}}, {"Data": 2}),
    ("v1", "secrets"): ("Secret", {"stringData": {"a": "b"}}, {"Type": "Opaque", "Data": 1}),
    ("v1", "pods"): (
        "Pod",
        {"spec": {"containers": CONTAINERS}},
        {"Ready": "0/2", "Status": "Pending", "Restarts": "0"},
    ),
    ("v1", "persistentvolumeclaims"): (
        "PersistentVolumeClaim",
        {"spec": {**STORAGE, "storageClassName": "none"}},
        {"Status": "Pending"},
    ),
    ("v1", "replicationcontrollers"): (
        "ReplicationController",
        {"spec": {"replicas": 0, "template": TEMPLATE}},
        {"Desired": 0, "Current": 0, "Ready": 0},
    ),
    ("v1", "serviceaccounts"): ("ServiceAccount", {}, {}),
    ("apps/v1", "deployments"): (
        "Deployment",
        {"spec": {"replicas": 0, "selector": SELECTOR, "template": TEMPLATE}},
        {"Ready": "0/0", "Up-to-date": 0, "Available": 0},
    ),
    ("apps/v1", "replicasets"): (
        "ReplicaSet",
        {"spec": {"replicas": 0, "selector": SELECTOR, "template": TEMPLATE}},
        {"Desired": 0, "Current": 0, "Ready": 0},
    ),
    ("apps/v1", "statefulsets"): (
        "StatefulSet",
        {"spec": {"replicas": 0, "serviceName": "s", "selector": SELECTOR, "template": TEMPLATE}},
        {"Ready": "0/0"},
    ),
    ("apps/v1", "daemonsets"): ("DaemonSet", {"spec": {"selector": SELECTOR, "template": TEMPLATE}}, {"Ready": 0}),
    ("coordination.k8s.io/v1", "leases"): ("Lease", {"spec": {"holderIdentity": "me"}}, {}),
}


@pytest.mark.parametrize(("version", "plural"), SHOWN, ids=[f"{version}/{plural}" for version, plural in SHOWN])
async def test_built_in_kinds_have_their_own_columns(target: Target, version: str, plural: str) -> None:
    kind, content, expected = SHOWN[version, plural]
    root = "/api" if version == "v1" else "/apis"
    path = f"{root}/{version}/namespaces/{target.namespace}/{plural}"
    obj = {"apiVersion": version, "kind": kind, "metadata": {"name": "shown"}, **content}
    made = await target.request("POST", path, obj)
    assert made.code == 201, made.message
    answer = await target.get(f"{path}/shown", accept=TABLE)
    columns = [column["name"] for column in answer.content["columnDefinitions"]]
    shown = dict(zip(columns, answer.content["rows"][0]["cells"], strict=True))
    assert shown["Name"] == "shown"
    assert {name: shown[name] for name in expected} == expected
    assert "Age" in shown
    if not target.is_real:  # that one shows more
        assert columns == ["Name", *expected, "Age"]


EVENT = {"type": "Warning", "reason": "Because"}
REGARDING = {"kind": "Pod", "namespace": "default", "name": "p"}
EVENTS: dict[str, dict[str, Any]] = {
    "v1": {"involvedObject": REGARDING, "message": "It is so. ", "lastTimestamp": "2020-01-01T00:00:00Z"},
    "events.k8s.io/v1": {
        "regarding": REGARDING,
        "note": "It is so.",
        "action": "Test",
        "reportingController": "test",
        "reportingInstance": "test",
        "eventTime": "2020-01-01T00:00:00.000000Z",
    },
}


@pytest.mark.parametrize("version", EVENTS)
async def test_events_show_what_happened_to_which_object(target: Target, version: str) -> None:
    root = "/api" if version == "v1" else "/apis"
    path = f"{root}/{version}/namespaces/{target.namespace}/events"
    regarding = {**REGARDING, "namespace": target.namespace}
    content = {key: regarding if value is REGARDING else value for key, value in EVENTS[version].items()}
    event = {"apiVersion": version, "kind": "Event", "metadata": {"name": "shown"}, **EVENT, **content}
    created = await target.request("POST", path, event)
    assert created.code == 201, created.message
    answer = await target.get(f"{path}/shown", accept=TABLE)
    columns = [column["name"] for column in answer.content["columnDefinitions"] if column["priority"] == 0]
    shown = dict(zip(columns, _narrow(answer.content), strict=True))
    assert shown.pop("Last Seen").endswith(("d", "y"))
    assert shown == {"Type": "Warning", "Reason": "Because", "Object": "pod/p", "Message": "It is so."}


def _narrow(table: dict[str, Any]) -> list[Any]:
    """Return the cells of the first row without those that only ``-o wide`` shows."""
    cells = zip(table["columnDefinitions"], table["rows"][0]["cells"], strict=True)
    return [cell for column, cell in cells if column["priority"] == 0]


READY = {"type": "Ready", "status": "True"}
SUSPENDED = {"type": "Suspended", "status": "True"}
COMPLETE = {"type": "Complete", "status": "True"}
STATES: list[tuple[tuple[str, str], dict[str, Any], str]] = [
    (("", "nodes"), {}, "Unknown"),
    (("", "nodes"), {"status": {"conditions": [{**READY, "status": "False"}]}}, "NotReady"),
    (("", "nodes"), {"status": {"conditions": [READY]}}, "Ready"),
    (
        ("", "nodes"),
        {"spec": {"unschedulable": True}, "status": {"conditions": [READY]}},
        "Ready,SchedulingDisabled",
    ),
    (("", "persistentvolumes"), {"status": {"phase": "Bound"}}, "Bound"),
    (("", "persistentvolumes"), {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}, "Terminating"),
    (("batch", "jobs"), {}, "Running"),
    (("batch", "jobs"), {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}, "Terminating"),
    (("batch", "jobs"), {"status": {"conditions": [SUSPENDED]}}, "Suspended"),
    (("batch", "jobs"), {"status": {"conditions": [SUSPENDED, COMPLETE]}}, "Complete"),
]


@pytest.mark.parametrize(("resource", "content", "shown"), STATES)
def test_the_status_follows_phases_and_conditions(
    resource: tuple[str, str], content: dict[str, Any], shown: str
) -> None:
    now = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    cells = {column.name: cell for column, cell in builtin_columns(resource)}
    assert cells["Status"]({"metadata": {}, **content}, now) == shown


@pytest.mark.parametrize(
    "times",
    [
        {"lastTimestamp": "2020-01-01T00:00:00Z"},
        {"eventTime": "2020-01-01T00:00:00.000000Z"},
        {"series": {"lastObservedTime": "2020-01-01T00:00:00.000000Z"}, "eventTime": "2019-01-01T00:00:00.000000Z"},
    ],
)
def test_events_were_last_seen_at_their_newest_time(times: dict[str, Any]) -> None:
    now = datetime.datetime(2020, 1, 1, 0, 5, tzinfo=datetime.UTC)
    cells = {column.name: cell for column, cell in builtin_columns(("events.k8s.io", "events"))}
    assert cells["Last Seen"](times, now) == "5m"


@pytest.mark.parametrize(
    ("plural", "status", "shown"),
    [
        ("deployments", {}, "0/3"),
        ("statefulsets", {"readyReplicas": 2}, "2/3"),
        ("replicasets", {"readyReplicas": 2}, 2),
        ("daemonsets", {"numberReady": 1}, 1),
        ("daemonsets", {}, 0),
    ],
)
def test_the_readiness_of_a_workload_counts_its_ready_pods(plural: str, status: dict[str, int], shown: Any) -> None:
    now = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    cells = {column.name: cell for column, cell in builtin_columns(("apps", plural))}
    assert cells["Ready"]({"metadata": {}, "spec": {"replicas": 3}, "status": status}, now) == shown
