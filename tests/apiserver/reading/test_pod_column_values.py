"""Tests for :mod:`trioperator.apiserver.reading.pod_column_values`: cells of Pods follow their containers."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.apiserver.conftest import TABLE, Target
from trioperator.apiserver.reading.pod_column_values import pod_ready, pod_restarts, pod_status

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


NOW = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
RUNNING = {"ready": True, "state": {"running": {}}}
COMPLETED = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}


@pytest.mark.parametrize(
    ("statuses", "shown"),
    [
        (None, "0/2"),
        ([RUNNING], "1/2"),
        ([RUNNING, RUNNING], "2/2"),
        ([RUNNING, {"ready": True, "state": {"waiting": {}}}], "1/2"),
        ([RUNNING, {"ready": False, "state": {"running": {}}}], "1/2"),
    ],
)
def test_a_container_is_ready_only_while_it_runs(statuses: Any, shown: str) -> None:
    pod = {"spec": {"containers": [{}, {}]}, "status": {"containerStatuses": statuses}}
    assert pod_ready(pod, NOW) == shown


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"phase": "Running"}, "Terminating"),
        ({"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "Slow"}}}]}, "Terminating"),
        ({"phase": "Running", "reason": "NodeLost"}, "Unknown"),
        ({"phase": "Succeeded"}, "Succeeded"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
    ],
)
def test_a_pod_that_is_being_deleted_terminates_unless_it_has_ended(status: dict[str, Any], shown: str) -> None:
    assert pod_status({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}, "status": status}, NOW) == shown


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({}, ""),
        ({"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}, "SchedulingGated"),
        ({"containerStatuses": [{"state": {"terminated": {"signal": 9, "exitCode": 137}}}]}, "Signal:9"),
        ({"containerStatuses": [RUNNING, COMPLETED]}, "NotReady"),
        ({"containerStatuses": [RUNNING, COMPLETED], "conditions": [{"type": "Ready", "status": "True"}]}, "Running"),
        ({"containerStatuses": [COMPLETED]}, "Completed"),
        ({"initContainerStatuses": [COMPLETED, {"state": {"waiting": {"reason": "PodInitializing"}}}]}, "Init:1/2"),
        ({"initContainerStatuses": [COMPLETED], "containerStatuses": [COMPLETED]}, "Completed"),
    ],
)
def test_the_status_follows_init_containers_first(status: dict[str, Any], shown: str) -> None:
    phase = {"phase": "Running"} if status.get("containerStatuses") else {}
    pod = {"metadata": {}, "spec": {"initContainers": [{}, {}]}, "status": {**phase, **status}}
    assert pod_status(pod, NOW) == shown


def test_the_restarts_of_all_containers_are_counted() -> None:
    statuses = [{"restartCount": 2}, {"restartCount": 1}, {}]
    assert pod_restarts({"status": {"containerStatuses": statuses}}, NOW) == "3"
