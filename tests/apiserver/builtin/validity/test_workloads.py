"""Tests for :mod:`trioperator.apiserver.builtin.validity.workloads`: workloads and their autoscalers are valid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.apiserver.conftest import Answer, Target
from trioperator.apiserver.builtin.validity.workloads import (
    check_autoscaler,
    check_cron_job,
    check_daemon_set,
    check_deployment,
    check_disruption_budget,
    check_job,
    check_replica_set,
    check_stateful_set,
)

LABELS: Final = {"a": "b"}
POD: Final = {"containers": [{"name": "main", "image": "one"}]}
SPEC: Final = {
    "selector": {"matchLabels": LABELS},
    "template": {"metadata": {"labels": LABELS}, "spec": POD},
    "strategy": {"type": "Recreate"},
}
EMPTY: Final[dict[str, Any]] = {"selector": {}}
JOB: Final = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
WORKLOADS: Final = [check_daemon_set, check_deployment, check_replica_set, check_stateful_set]


@pytest.mark.parametrize("check", WORKLOADS)
def test_the_selector_matches_the_template(check: Any) -> None:
    assert list(check({"spec": SPEC})) == []
    (cause,) = check({"spec": {**SPEC, "selector": {"matchLabels": {"a": "c"}}}})
    assert cause.field == "spec.template.metadata.labels"
    assert cause.message == 'Invalid value: {"a":"b"}: `selector` does not match template `labels`'


@pytest.mark.parametrize("check", WORKLOADS)
def test_a_workload_needs_a_selector(check: Any) -> None:
    missing = {field: value for field, value in SPEC.items() if field != "selector"}
    assert "spec.selector" in [cause.field for cause in check({"spec": missing})]
    causes = check({"spec": {**SPEC, "selector": {}}})
    assert any("empty selector is invalid for" in cause.message for cause in causes)


@pytest.mark.parametrize("check", WORKLOADS)
def test_pods_of_a_workload_are_always_restarted(check: Any) -> None:
    template = {"metadata": {"labels": LABELS}, "spec": {**POD, "restartPolicy": "Never", "activeDeadlineSeconds": 1}}
    causes = check({"spec": {**SPEC, "template": template}})
    path = "spec.template.spec"
    assert [cause.field for cause in causes] == [f"{path}.restartPolicy", f"{path}.activeDeadlineSeconds"]


@pytest.mark.parametrize(
    ("strategy", "field"),
    [
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}}, None),
        (
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "0%", "maxSurge": 0}},
            ".rollingUpdate.maxUnavailable",
        ),
        ({"type": "Recreate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}, ".rollingUpdate"),
        ({"type": "Other"}, ""),
    ],
)
def test_a_deployment_can_make_progress(strategy: dict[str, Any], field: str | None) -> None:
    causes = check_deployment({"spec": {**SPEC, "strategy": strategy}})
    assert [cause.field for cause in causes] == ([] if field is None else [f"spec.strategy{field}"])


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"parallelism": -1}, "spec.parallelism"),
        ({"completionMode": "Other"}, "spec.completionMode"),
        ({"template": {"spec": POD}}, "spec.template.spec.restartPolicy"),
    ],
)
def test_a_job_ends(spec: dict[str, Any], field: str) -> None:
    assert list(check_job({"spec": {**JOB, **EMPTY}})) == []
    assert [cause.field for cause in check_job({"spec": {**JOB, **EMPTY, **spec}})] == [field]
    cron_job = {"schedule": "@daily", "jobTemplate": {"spec": {**JOB, **spec}}}
    expected = f"spec.jobTemplate.{field}"
    assert [cause.field for cause in check_cron_job({"spec": cron_job})] == [expected]


@pytest.mark.parametrize(
    "changes",
    [
        {"manualSelector": True, "selector": {"matchLabels": LABELS}},
        {"manualSelector": True, "selector": {}},
        {"manualSelector": False},
        {"selector": {}},
    ],
)
async def test_a_job_has_a_selector_of_its_own_or_a_generated_one(target: Target, changes: dict[str, Any]) -> None:
    template = {**JOB["template"], "metadata": {"labels": LABELS}}
    job = {"metadata": {"name": "a"}, "spec": {"template": template, **changes}}
    answer = await target.request("POST", f"/apis/batch/v1/namespaces/{target.namespace}/jobs", job)
    assert answer.code == 201
    generated = {"matchLabels": {"batch.kubernetes.io/controller-uid": answer.content["metadata"]["uid"]}}
    assert answer.content["spec"]["selector"] == (changes["selector"] if changes.get("manualSelector") else generated)


async def test_a_selector_that_is_added_to_the_generated_one_is_invalid(target: Target) -> None:
    template = {**JOB["template"], "metadata": {"labels": LABELS}}
    spec = {"selector": {"matchLabels": LABELS}, "template": template}
    path = f"/apis/batch/v1/namespaces/{target.namespace}/jobs"
    answer = await target.request("POST", path, {"metadata": {"name": "a"}, "spec": spec})
    assert (answer.code, answer.content["details"]["causes"][0]["field"]) == (422, "spec.selector")
    assert answer.message.endswith("`selector` not auto-generated")


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("*/5 * * * *", None),
        ("@hourly", None),
        ("", "Required value"),
        ("0 3 *", 'Invalid value: "0 3 *": expected exactly 5 fields, found 3: [0 3 *]'),
    ],
)
def test_a_schedule_has_five_fields(schedule: str, message: str | None) -> None:
    causes = check_cron_job({"spec": {"schedule": schedule, "jobTemplate": {"spec": JOB}}})
    assert [cause.message for cause in causes] == ([message] if message else [])


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"minReplicas": 1, "maxReplicas": 1}, []),
        ({"maxReplicas": 0}, ["spec.maxReplicas"]),
        ({"minReplicas": 3, "maxReplicas": 2}, ["spec.maxReplicas"]),
        ({"minReplicas": 0, "maxReplicas": 2}, ["spec.minReplicas"]),
        (
            {"maxReplicas": 1, "scaleTargetRef": {}},
            [f"spec.scaleTargetRef.{x}" for x in ("kind", "name", "apiVersion")],
        ),
    ],
)
def test_an_autoscaler_has_a_target_and_a_range(spec: dict[str, Any], fields: list[str]) -> None:
    target = {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"}
    causes = check_autoscaler({"spec": {"scaleTargetRef": target, **spec}})
    assert [cause.field for cause in causes] == fields


def test_a_disruption_budget_has_one_limit() -> None:
    assert list(check_disruption_budget({"spec": {"minAvailable": 1}})) == []
    (cause,) = check_disruption_budget({"spec": {"minAvailable": 1, "maxUnavailable": "50%"}})
    assert cause.field == "spec"
    assert cause.message.endswith("minAvailable and maxUnavailable cannot be both set")


CLAIM: Final = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def stateful_set(*, mounts: list[str], claims: list[str], volumes: Sequence[Any] = ()) -> dict[str, Any]:
    """Return a StatefulSet whose container mounts these volumes."""
    places = [{"name": name, "mountPath": f"/{at}"} for at, name in enumerate(mounts)]
    pod = {"containers": [{"name": "main", "image": "one", "volumeMounts": places}], "volumes": list(volumes)}
    templates = [{"metadata": {"name": name}, "spec": CLAIM} for name in claims]
    spec = {
        "serviceName": "s",
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
        "volumeClaimTemplates": templates,
    }
    return {"metadata": {"name": "a"}, "spec": spec}


async def sent(target: Target, content: dict[str, Any]) -> Answer:
    path = f"/apis/apps/v1/namespaces/{target.namespace}/statefulsets"
    return await target.request("POST", path, content, dryRun="All")


async def test_a_stateful_set_mounts_the_volumes_of_its_claims(target: Target) -> None:
    answer = await sent(target, stateful_set(mounts=["data", "logs"], claims=["data", "logs"]))
    assert answer.code == 201, answer.message


async def test_a_claim_takes_the_place_of_a_volume_of_the_same_name(target: Target) -> None:
    empty = [{"name": "data", "emptyDir": {}}, {"name": "other", "emptyDir": {}}]
    answer = await sent(target, stateful_set(mounts=["data", "other"], claims=["data"], volumes=empty))
    assert answer.code == 201, answer.message
    assert answer.content["spec"]["template"]["spec"]["volumes"] == empty


async def test_a_mount_needs_a_claim_or_a_volume(target: Target) -> None:
    answer = await sent(target, stateful_set(mounts=["dota"], claims=["data"]))
    text = 'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "dota"'
    assert (answer.code, answer.message) == (422, f'StatefulSet.apps "a" is invalid: {text}')


async def test_errors_of_volumes_count_the_claims_first(target: Target) -> None:
    answer = await sent(target, stateful_set(mounts=["data"], claims=["data"], volumes=[{"emptyDir": {}}]))
    text = "spec.template.spec.volumes[1].name: Required value"
    assert (answer.code, answer.message) == (422, f'StatefulSet.apps "a" is invalid: {text}')


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, None),
        ({"selector": {"a": "c"}}, "spec.template.metadata.labels"),
        ({"replicas": -1}, "spec.replicas"),
        ({"template": {"metadata": {"labels": LABELS}, "spec": {"containers": []}}}, "spec.template.spec.containers"),
    ],
)
async def test_a_replication_controller_selects_its_pods(
    target: Target, changes: dict[str, Any], field: str | None
) -> None:
    spec = {"selector": LABELS, "template": SPEC["template"], "replicas": 0, **changes}
    path = target.path("pods").replace("/pods", "/replicationcontrollers")
    answer = await target.request("POST", path, {"metadata": {"name": "a"}, "spec": spec})
    if field is None:
        assert answer.code == 201
    else:
        assert (answer.code, [cause["field"] for cause in answer.content["details"]["causes"]]) == (422, [field])
