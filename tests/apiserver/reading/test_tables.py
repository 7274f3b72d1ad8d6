"""Conformance: tables of built-in kinds; and computed cells."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.apiserver.conftest import Target
from trioperator.apiserver.reading.column_values import human_duration, since
from trioperator.apiserver.reading.columns import builtin_columns


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
def test_durations_have_two_or_three_digits(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_ages_are_formatted_durations() -> None:
    now = datetime.datetime(2020, 1, 1, 0, 5, tzinfo=datetime.UTC)
    assert since("2020-01-01T00:00:00Z", now) == "5m"
    assert since(None, now) == "<unknown>"


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
CONTAINERS = [{"name": "one", "image": "first"}, {"name": "two", "image": "second"}]
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": CONTAINERS}}
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}
STORAGE = {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}}

# By API version and plural name: the kind, the content of an object, and the expected cells.
SHOWN: dict[tuple[str, str], tuple[str, dict[str, Any], dict[str, Any]]] = {
    ("v1", "configmaps"): ("ConfigMap", {"data": {"a": "b"}, "binaryData": {"c": "YQ=="}}, {}),
    ("v1", "pods"): ("Pod", {"spec": {"containers": CONTAINERS}}, {"Ready": "0/2", "Status": "Pending"}),
    ("v1", "persistentvolumeclaims"): (
        "PersistentVolumeClaim",
        {"spec": {**STORAGE, "storageClassName": "none"}},
        {"Status": "Pending"},
    ),
    ("v1", "replicationcontrollers"): ("ReplicationController", {"spec": {"template": TEMPLATE}}, {"Ready": 0}),
    ("v1", "serviceaccounts"): ("ServiceAccount", {}, {}),
    ("apps/v1", "deployments"): (
        "Deployment",
        {"spec": {"replicas": 0, "selector": SELECTOR, "template": TEMPLATE}},
        {"Ready": "0/0"},
    ),
    ("apps/v1", "replicasets"): (
        "ReplicaSet",
        {"spec": {"replicas": 0, "selector": SELECTOR, "template": TEMPLATE}},
        {"Ready": 0},
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


async def test_columns_have_types_and_priorities(target: Target) -> None:
    answer = await target.get("/apis/apps/v1/replicasets", accept=TABLE)
    found = [(c["name"], c["type"], c["format"], c["priority"]) for c in answer.content["columnDefinitions"]]
    columns = [("Name", "string", "name", 0), ("Ready", "integer", "", 0), ("Age", "string", "", 0)]
    assert [column for column in found if column in columns or not target.is_real] == columns


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
async def test_the_status_of_a_pod_follows_its_container_states(
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
