"""Conformance: workload controllers without a kubelet, so that tests set the status of Pods."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.apiserver.conftest import MERGE, Target
from tests.apiserver.controllers.objects import Object, conditions, pod, template, workload

GROUPS = {"jobs": "batch", "pods": "", "persistentvolumeclaims": "", "configmaps": ""}
TIMES = {"lastTransitionTime", "lastUpdateTime", "lastProbeTime", "startTime", "completionTime", "creationTimestamp"}
UNLIKE = {"uid", "resourceVersion", "managedFields", "controller-uid", "batch.kubernetes.io/controller-uid"}


def path(target: Target, plural: str, name: str = "", sub: str = "") -> str:
    group = GROUPS.get(plural, "apps")
    base = f"/apis/{group}/v1" if group else "/api/v1"
    return "/".join(filter(None, (f"{base}/namespaces/{target.namespace}/{plural}", name, sub)))


async def create(target: Target, plural: str, manifest: Object) -> None:
    answer = await target.request("POST", path(target, plural), manifest)
    assert answer.code == 201, answer.content


async def change(target: Target, plural: str, patch: Any, name: str = "w", sub: str = "") -> None:
    answer = await target.request("PATCH", path(target, plural, name, sub), patch, MERGE)
    assert answer.code == 200, answer.content


async def all_of(target: Target, plural: str) -> list[Object]:
    found: list[Object] = (await target.get(path(target, plural))).content["items"]
    return found


async def settled(target: Target, plural: str, fits: Callable[[Object], bool], name: str = "w") -> Object:
    """Read the object until it meets the condition."""
    answer = await target.eventually(
        lambda: target.get(path(target, plural, name)), lambda answer: answer.code == 200 and fits(answer.content)
    )
    obj: Object = answer.content
    return obj


def plain(value: Any) -> Any:
    """Return the object without random values: uids, times, hashes."""
    if isinstance(value, dict):
        return {
            key: "TIME" if key in TIMES else plain(item)
            for key, item in value.items()
            if key not in UNLIKE and not key.startswith("kubectl")
        }
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, str):
        value = re.sub(r"\bw-[a-z0-9]{8,10}(-[a-z0-9]{5})?\b", "w-HASH", value)
        return re.sub(r"^[bcdf-hj-np-tv-z0-9]{8,10}$", "HASH", value)
    return value


def picked(obj: Object, *fields: str) -> Object:
    return {field: plain(obj.get(field)) for field in fields}


def meta_of(obj: Object) -> Object:
    """Return the metadata that controllers set."""
    wanted = ("name", "generateName", "labels", "annotations", "ownerReferences", "finalizers")
    return {field: plain(obj["metadata"][field]) for field in wanted if field in obj["metadata"]}


def owner(kind: str, name: str = "w", group: str = "apps/v1") -> list[Object]:
    return [{"apiVersion": group, "kind": kind, "name": name, "controller": True, "blockOwnerDeletion": True}]


async def become(target: Target, phase: str = "Running", *, ready: bool = True, only: str = "") -> None:
    """Set the phase and the readiness of all Pods, as a kubelet would."""
    for obj in await all_of(target, "pods"):
        name = obj["metadata"]["name"]
        if name.startswith(only) and obj["status"]["phase"] != phase:
            told = [
                {"type": kind, "status": str(ready), "lastTransitionTime": "2024-01-01T00:00:00Z"}
                for kind in ("Ready", "ContainersReady")
            ]
            await change(target, "pods", {"status": {"phase": phase, "conditions": told}}, name, "status")


async def test_a_deployment_creates_a_replica_set(plane: Target) -> None:
    await create(plane, "deployments", workload("Deployment", replicas=2))
    obj = await settled(plane, "deployments", lambda obj: obj["status"].get("replicas") == 2)
    (item,) = await all_of(plane, "replicasets")
    pods = await all_of(plane, "pods")
    mark = {"app": "w", "pod-template-hash": "HASH"}
    assert plain(obj["metadata"]["annotations"]) == {"deployment.kubernetes.io/revision": "1"}
    assert obj["metadata"]["generation"] == 1
    assert meta_of(item) == {
        "name": "w-HASH",
        "labels": mark,
        "annotations": {
            "deployment.kubernetes.io/desired-replicas": "2",
            "deployment.kubernetes.io/max-replicas": "3",
            "deployment.kubernetes.io/revision": "1",
        },
        "ownerReferences": owner("Deployment"),
    }
    assert plain(item["spec"]["selector"]) == {"matchLabels": mark}
    for found in pods:
        assert {**meta_of(found), "generateName": None} == {
            "name": "w-HASH",
            "generateName": None,
            "labels": mark,
            "ownerReferences": owner("ReplicaSet", "w-HASH"),
        }
    assert len(pods) == 2
    item = await settled(plane, "replicasets", lambda obj: "fullyLabeledReplicas" in obj["status"], _name(item))
    assert item["status"] == {
        "replicas": 2,
        "fullyLabeledReplicas": 2,
        "observedGeneration": 1,
        "terminatingReplicas": 0,
    }


async def test_the_status_of_a_deployment_that_is_not_available(plane: Target) -> None:
    await create(plane, "deployments", workload("Deployment", replicas=2))
    obj = await settled(
        plane, "deployments", lambda obj: obj["status"].get("replicas") == 2 and len(obj["status"]["conditions"]) == 2
    )
    assert sorted(_by_type(plain(obj["status"].pop("conditions"))).items()) == [
        (
            "Available",
            {
                "status": "False",
                "reason": "MinimumReplicasUnavailable",
                "message": "Deployment does not have minimum availability.",
            },
        ),
        (
            "Progressing",
            {"status": "True", "reason": "ReplicaSetUpdated", "message": 'ReplicaSet "w-HASH" is progressing.'},
        ),
    ]
    assert obj["status"] == {
        "observedGeneration": 1,
        "replicas": 2,
        "terminatingReplicas": 0,
        "unavailableReplicas": 2,
        "updatedReplicas": 2,
    }


async def test_the_status_of_a_deployment_that_is_available(plane: Target) -> None:
    await create(plane, "deployments", workload("Deployment", replicas=2))
    await settled(plane, "deployments", lambda obj: obj["status"].get("replicas") == 2)
    await become(plane)
    obj = await settled(plane, "deployments", _is_rolled_out)
    assert _by_type(plain(obj["status"].pop("conditions"))) == {
        "Available": {
            "status": "True",
            "reason": "MinimumReplicasAvailable",
            "message": "Deployment has minimum availability.",
        },
        "Progressing": {
            "status": "True",
            "reason": "NewReplicaSetAvailable",
            "message": 'ReplicaSet "w-HASH" has successfully progressed.',
        },
    }
    assert obj["status"] == {
        "availableReplicas": 2,
        "observedGeneration": 1,
        "readyReplicas": 2,
        "replicas": 2,
        "terminatingReplicas": 0,
        "updatedReplicas": 2,
    }


async def test_a_new_template_is_rolled_out_in_steps(plane: Target) -> None:
    await create(plane, "deployments", workload("Deployment", replicas=4))
    await settled(plane, "deployments", lambda obj: obj["status"].get("replicas") == 4)
    await become(plane)
    await settled(plane, "deployments", _is_rolled_out)
    await change(plane, "deployments", {"spec": {"template": template({"app": "w"}, image="new")}})
    # One more, one less: a quarter each; the new ones are not ready.
    obj = await settled(plane, "deployments", lambda obj: obj["status"].get("updatedReplicas") == 2)
    assert _sizes(await all_of(plane, "replicasets")) == {"1": 3, "2": 2}
    assert (obj["metadata"]["generation"], conditions(obj)["Available"]) == (2, "True")
    for _ in range(3):
        await become(plane)
        await plane.eventually(lambda: plane.get(path(plane, "pods")), lambda answer: _all_ready_or_new(answer.content))
    await become(plane)
    obj = await settled(plane, "deployments", _is_rolled_out)
    assert _sizes(await all_of(plane, "replicasets")) == {"1": 0, "2": 4}
    assert obj["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"


async def test_a_rollback_has_a_new_revision(plane: Target) -> None:
    await create(plane, "deployments", workload("Deployment", replicas=0))
    await settled(plane, "deployments", _has_revision("1"))
    await change(plane, "deployments", {"spec": {"template": template({"app": "w"}, image="new")}})
    await settled(plane, "deployments", _has_revision("2"))
    await change(plane, "deployments", {"spec": {"template": template({"app": "w"}, image="i")}})
    await settled(plane, "deployments", _has_revision("3"))
    sets = await all_of(plane, "replicasets")
    assert sorted(_sizes(sets)) == ["2", "3"]
    histories = [item["metadata"]["annotations"].get("deployment.kubernetes.io/revision-history") for item in sets]
    assert sorted(histories, key=str) == ["1", None]


async def test_a_deployment_without_replicas_is_available(plane: Target) -> None:
    await create(plane, "deployments", workload("Deployment", replicas=0))
    obj = await settled(plane, "deployments", lambda obj: len(obj["status"].get("conditions", ())) == 2)
    assert conditions(obj) == {"Available": "True", "Progressing": "True"}


async def test_a_paused_deployment_creates_no_replica_set(plane: Target) -> None:
    await create(plane, "deployments", workload("Deployment", replicas=1, paused=True))
    obj = await settled(plane, "deployments", lambda obj: obj["status"].get("observedGeneration") == 1)
    assert await all_of(plane, "replicasets") == []
    assert "replicas" not in obj["status"]


async def test_a_replica_set_adopts_and_deletes_pods(plane: Target) -> None:
    for name in ("a", "b", "c"):
        await create(plane, "pods", pod(name, meta={"labels": {"app": "w"}}))
    await create(plane, "replicasets", workload("ReplicaSet", replicas=2))
    await settled(plane, "replicasets", lambda obj: obj["status"].get("replicas") == 2)
    pods = [obj for obj in await all_of(plane, "pods") if "deletionTimestamp" not in obj["metadata"]]
    assert [plain(obj["metadata"]["ownerReferences"]) for obj in pods] == [owner("ReplicaSet")] * 2


async def test_a_stateful_set_waits_for_its_first_pod(plane: Target) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    manifest = workload("StatefulSet", replicas=2, serviceName="s", volumeClaimTemplates=[claim])
    await create(plane, "statefulsets", manifest)
    obj = await settled(plane, "statefulsets", lambda obj: obj["status"].get("replicas") == 1)
    (found,) = await all_of(plane, "pods")
    (volume,) = await all_of(plane, "persistentvolumeclaims")
    revision = obj["status"]["updateRevision"]
    assert plain(obj["status"]) == {
        "availableReplicas": 0,
        "collisionCount": 0,
        "currentReplicas": 1,
        "currentRevision": "w-HASH",
        "observedGeneration": 1,
        "replicas": 1,
        "updateRevision": "w-HASH",
        "updatedReplicas": 1,
    }
    assert meta_of(found) == {
        "name": "w-0",
        "generateName": "w-",
        "labels": {
            "app": "w",
            "apps.kubernetes.io/pod-index": "0",
            "controller-revision-hash": plain(revision),
            "statefulset.kubernetes.io/pod-name": "w-0",
        },
        "ownerReferences": owner("StatefulSet"),
    }
    assert picked(found["spec"], "hostname", "subdomain", "volumes") == {
        "hostname": "w-0",
        "subdomain": "s",
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-w-0"}}],
    }
    assert (volume["metadata"]["name"], volume["metadata"]["labels"]) == ("data-w-0", {"app": "w"})


async def test_a_stateful_set_scales_up_and_rolls_out(plane: Target) -> None:
    await create(plane, "statefulsets", workload("StatefulSet", replicas=2))
    for number in range(2):
        await settled(plane, "pods", lambda obj: True, f"w-{number}")
        await become(plane)
    obj = await settled(plane, "statefulsets", lambda obj: obj["status"].get("readyReplicas") == 2)
    before = obj["status"]["updateRevision"]
    await change(plane, "statefulsets", {"spec": {"template": template({"app": "w"}, image="new")}})
    found = await settled(plane, "pods", lambda obj: obj["spec"]["containers"][0]["image"] == "new", "w-1")
    assert found["metadata"]["labels"]["controller-revision-hash"] != before
    obj = await settled(plane, "statefulsets", lambda obj: obj["status"].get("updatedReplicas") == 1)
    assert obj["status"]["currentRevision"] == before
    assert (await plane.get(path(plane, "pods", "w-0"))).content["spec"]["containers"][0]["image"] == "i"
    await become(plane)
    await settled(plane, "pods", lambda obj: obj["spec"]["containers"][0]["image"] == "new", "w-0")
    await become(plane)
    obj = await settled(plane, "statefulsets", lambda obj: obj["status"]["currentRevision"] != before)
    assert obj["status"]["currentReplicas"] == obj["status"]["updatedReplicas"] == 2
    revisions = await all_of(plane, "controllerrevisions")
    assert sorted(item["revision"] for item in revisions) == [1, 2]
    assert [item["data"]["spec"]["template"]["$patch"] for item in revisions] == ["replace", "replace"]


async def test_a_daemon_set_without_nodes_creates_no_pods(plane: Target) -> None:
    await create(plane, "daemonsets", workload("DaemonSet"))
    obj = await settled(plane, "daemonsets", lambda obj: obj["status"].get("observedGeneration") == 1)
    assert obj["status"] == {
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
        "observedGeneration": 1,
    }
    (revision,) = await all_of(plane, "controllerrevisions")
    assert meta_of(revision)["labels"] == {"app": "w", "controller-revision-hash": "HASH"}


async def test_a_job_creates_its_pod(plane: Target) -> None:
    await create(plane, "jobs", workload("Job", group="batch", restartPolicy="Never"))
    obj = await settled(plane, "jobs", lambda obj: obj["status"].get("active") == 1)
    (found,) = await all_of(plane, "pods")
    assert plain(obj["status"]) == {
        "active": 1,
        "ready": 0,
        "startTime": "TIME",
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }
    assert {**meta_of(found), "name": ""} == {
        "name": "",
        "generateName": "w-",
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        "labels": {"app": "w", "batch.kubernetes.io/job-name": "w", "job-name": "w"},
        "ownerReferences": owner("Job", group="batch/v1"),
    }


async def test_a_job_completes(plane: Target) -> None:
    await create(plane, "jobs", workload("Job", group="batch", restartPolicy="Never"))
    await settled(plane, "jobs", lambda obj: obj["status"].get("active") == 1)
    await become(plane, "Succeeded", ready=False)
    obj = await settled(plane, "jobs", lambda obj: conditions(obj).get("Complete") == "True")
    (found,) = await all_of(plane, "pods")
    told = {"status": "True", "reason": "CompletionsReached", "message": "Reached expected number of succeeded pods"}
    assert _by_type(plain(obj["status"].pop("conditions"))) == {"Complete": told, "SuccessCriteriaMet": told}
    assert plain(obj["status"]) == {
        "completionTime": "TIME",
        "ready": 0,
        "startTime": "TIME",
        "succeeded": 1,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }
    assert "finalizers" not in found["metadata"]


async def test_a_job_fails(plane: Target) -> None:
    await create(plane, "jobs", workload("Job", group="batch", restartPolicy="Never", backoffLimit=0))
    await settled(plane, "jobs", lambda obj: obj["status"].get("active") == 1)
    await become(plane, "Failed", ready=False)
    obj = await settled(plane, "jobs", lambda obj: conditions(obj).get("Failed") == "True")
    text = "Job has reached the specified backoff limit"
    told = {"status": "True", "reason": "BackoffLimitExceeded", "message": text}
    assert _by_type(plain(obj["status"].pop("conditions"))) == {"Failed": told, "FailureTarget": told}
    assert plain(obj["status"]) == {
        "failed": 1,
        "ready": 0,
        "startTime": "TIME",
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }


async def test_an_indexed_job_passes_indexes_to_its_pods(plane: Target) -> None:
    manifest = workload("Job", group="batch", restartPolicy="Never", completions=2, completionMode="Indexed")
    await create(plane, "jobs", manifest)
    await settled(plane, "jobs", lambda obj: obj["status"].get("active") == 1)
    (found,) = await all_of(plane, "pods")
    index = {"batch.kubernetes.io/job-completion-index": "0"}
    assert meta_of(found)["labels"].items() >= index.items()
    assert meta_of(found)["annotations"] == index
    assert (found["spec"]["hostname"], found["metadata"]["generateName"]) == ("w-0", "w-0-")
    await become(plane, "Succeeded", ready=False)
    obj = await settled(plane, "jobs", lambda obj: obj["status"].get("succeeded") == 1)
    assert obj["status"]["completedIndexes"] == "0"


async def test_a_suspended_job_creates_no_pods(plane: Target) -> None:
    await create(plane, "jobs", workload("Job", group="batch", restartPolicy="Never", suspend=True))
    obj = await settled(plane, "jobs", lambda obj: "Suspended" in conditions(obj))
    assert plain(obj["status"]["conditions"]) == [
        {
            "type": "Suspended",
            "status": "True",
            "reason": "JobSuspended",
            "message": "Job suspended",
            "lastProbeTime": "TIME",
            "lastTransitionTime": "TIME",
        }
    ]
    assert "startTime" not in obj["status"]
    assert await all_of(plane, "pods") == []
    await change(plane, "jobs", {"spec": {"suspend": False}})
    obj = await settled(plane, "jobs", lambda obj: obj["status"].get("active") == 1)
    assert conditions(obj) == {"Suspended": "False"}
    assert "startTime" in obj["status"]


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _by_type(found: list[Object]) -> dict[str, Object]:
    return {item["type"]: {field: item[field] for field in ("status", "reason", "message")} for item in found}


def _has_revision(number: str) -> Callable[[Object], bool]:
    key = "deployment.kubernetes.io/revision"
    return lambda obj: (obj["metadata"].get("annotations") or {}).get(key) == number


def _sizes(sets: list[Object]) -> dict[str, int]:
    key = "deployment.kubernetes.io/revision"
    return {obj["metadata"]["annotations"][key]: obj["spec"]["replicas"] for obj in sets}


def _is_rolled_out(obj: Object) -> bool:
    status, replicas = obj["status"], obj["spec"]["replicas"]
    return bool(
        status.get("observedGeneration", 0) >= obj["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == status.get("replicas", 0) == replicas
        and status.get("availableReplicas", 0) == replicas
        and any(item["reason"] == "NewReplicaSetAvailable" for item in status["conditions"])
    )


def _all_ready_or_new(content: Object) -> bool:
    """Return whether the kubelet has Pods to start, or all Pods are new."""
    images = [obj["spec"]["containers"][0]["image"] for obj in content["items"]]
    pending = any(obj["status"]["phase"] == "Pending" for obj in content["items"])
    return pending or images == ["new"] * 4
