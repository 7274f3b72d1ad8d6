"""Conformance: the Events in which controllers tell what they have done."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.apiserver.conftest import Answer, Target
from tests.apiserver.controllers.objects import template, workload
from tests.apiserver.controllers.test_conformance import all_of, become, change, create, path, plain, settled

Told = tuple[str, str, str, str, str]


async def told(target: Target, count: int, *, by: str = "") -> list[Told]:
    """Wait for a number of Events, of a component if one is named; return what they say, in the order of their text."""

    def select(answer: Answer) -> list[dict[str, Any]]:
        return [event for event in answer.content["items"] if event["source"]["component"].startswith(by)]

    answer = await target.eventually(
        lambda: target.get(f"/api/v1/namespaces/{target.namespace}/events"),
        lambda answer: len(select(answer)) >= count,
    )
    return sorted(
        (
            event["source"]["component"],
            event["involvedObject"]["kind"],
            event["type"],
            event["reason"],
            re.sub(r"\bw-[a-z0-9]{5,10}(-[a-z0-9]{5})?\b", "w-HASH", event["message"]),
        )
        for event in select(answer)
    )


async def test_deployments_and_replica_sets_tell_what_they_scale(plane: Target) -> None:
    await create(plane, "deployments", workload("Deployment", replicas=2))
    await settled(plane, "deployments", lambda obj: obj["status"].get("replicas") == 2)
    await change(plane, "deployments", {"spec": {"replicas": 1}})
    await settled(plane, "deployments", lambda obj: obj["status"].get("replicas") == 1)
    assert await told(plane, 5) == [
        ("deployment-controller", "Deployment", "Normal", "ScalingReplicaSet", message)
        for message in ("Scaled down replica set w-HASH from 2 to 1", "Scaled up replica set w-HASH from 0 to 2")
    ] + [
        ("replicaset-controller", "ReplicaSet", "Normal", "SuccessfulCreate", "Created pod: w-HASH"),
        ("replicaset-controller", "ReplicaSet", "Normal", "SuccessfulCreate", "Created pod: w-HASH"),
        ("replicaset-controller", "ReplicaSet", "Normal", "SuccessfulDelete", "Deleted pod: w-HASH"),
    ]


async def test_an_event_names_its_object_and_its_controller(plane: Target) -> None:
    await create(plane, "daemonsets", workload("DaemonSet"))
    await create(plane, "statefulsets", workload("StatefulSet"))
    await told(plane, 1)
    (event,) = (await plane.get(f"/api/v1/namespaces/{plane.namespace}/events")).content["items"]
    owner = (await plane.get(path(plane, "statefulsets", "w"))).content["metadata"]
    assert event["involvedObject"].pop("resourceVersion")
    assert event["involvedObject"] == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "w",
        "namespace": plane.namespace,
        "uid": owner["uid"],
    }
    assert event["metadata"]["name"].startswith("w.")
    assert event["firstTimestamp"] == event["lastTimestamp"]
    picked = ("count", "message", "source", "reportingComponent", "reportingInstance", "eventTime")
    assert {field: event.get(field) for field in picked} == {
        "count": 1,
        "message": "Create Pod w-0 in StatefulSet w successful",
        "source": {"component": "statefulset-controller"},
        "reportingComponent": "statefulset-controller",
        "reportingInstance": "",
        "eventTime": None,
    }


async def test_a_stateful_set_tells_of_its_claims(plane: Target) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"metadata": {"name": "data"}, "spec": spec}]
    await create(plane, "statefulsets", workload("StatefulSet", volumeClaimTemplates=claims))
    # On a real server, another controller may say before the second one that nothing provides the volume.
    assert [event[4] for event in await told(plane, 2, by="statefulset-controller")] == [
        "Create Claim data-w-0 Pod w-0 in StatefulSet w success",
        "Create Pod w-0 in StatefulSet w successful",
    ]


@pytest.mark.parametrize(
    ("phase", "kind", "reason", "message"),
    [
        ("Succeeded", "Normal", "Completed", "Job completed"),
        ("Failed", "Warning", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
    ],
)
async def test_a_job_tells_how_it_has_ended(plane: Target, phase: str, kind: str, reason: str, message: str) -> None:
    await create(plane, "jobs", workload("Job", group="batch", restartPolicy="Never", backoffLimit=0))
    await settled(plane, "jobs", lambda obj: obj["status"].get("active") == 1)
    await become(plane, phase, ready=False)
    events = await told(plane, 2)
    assert sorted(events, key=lambda event: event[3] != "SuccessfulCreate") == [
        ("job-controller", "Job", "Normal", "SuccessfulCreate", "Created pod: w-HASH"),
        ("job-controller", "Job", kind, reason, message),
    ]


async def test_a_job_tells_that_it_is_suspended_and_resumed(plane: Target) -> None:
    await create(plane, "jobs", workload("Job", group="batch", restartPolicy="Never", suspend=True))
    await told(plane, 1)
    await change(plane, "jobs", {"spec": {"suspend": False}})
    assert [event[3:] for event in await told(plane, 3)] == [
        ("Resumed", "Job resumed"),
        ("SuccessfulCreate", "Created pod: w-HASH"),
        ("Suspended", "Job suspended"),
    ]


async def test_a_rejected_pod_is_told(plane: Target) -> None:
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {
        "name": "nobody.listens.test",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": plane.namespace}},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    manifest = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    await plane.request("POST", hooks, {**manifest, "metadata": {"name": plane.namespace}, "webhooks": [hook]})
    await create(plane, "replicasets", workload("ReplicaSet"))
    (event, *_) = await told(plane, 1)
    assert event[:4] == ("replicaset-controller", "ReplicaSet", "Warning", "FailedCreate")
    assert event[4].startswith("Error creating: Internal error occurred: failed calling webhook")
    await plane.delete(f"{hooks}/{plane.namespace}")


async def test_a_replication_controller_keeps_its_number_of_pods(plane: Target) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": "w"},
        "spec": {"replicas": 2, "selector": {"app": "w"}, "template": template({"app": "w"})},
    }
    collection = f"/api/v1/namespaces/{plane.namespace}/replicationcontrollers"
    assert (await plane.request("POST", collection, manifest)).code == 201
    answer = await plane.eventually(
        lambda: plane.get(f"{collection}/w"),
        lambda answer: (answer.content.get("status") or {}).get("fullyLabeledReplicas") == 2,
    )
    assert answer.content["status"] == {"replicas": 2, "fullyLabeledReplicas": 2, "observedGeneration": 1}
    references = [plain(obj["metadata"]["ownerReferences"]) for obj in await all_of(plane, "pods")]
    one = {"apiVersion": "v1", "kind": "ReplicationController", "name": "w"}
    assert references == [[{**one, "controller": True, "blockOwnerDeletion": True}]] * 2
    events = await told(plane, 2)
    message = "Created pod: w-HASH"
    assert events == [("replication-controller", "ReplicationController", "Normal", "SuccessfulCreate", message)] * 2
