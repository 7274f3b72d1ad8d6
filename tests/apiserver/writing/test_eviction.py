"""Tests for :mod:`trioperator.apiserver.writing.eviction`, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import Answer, Target

PDBS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


async def make_pod(target: Target, name: str = "p", *, status: dict[str, Any] | None = None, **meta: Any) -> str:
    """Create a pod with a label, set its status, and return its path."""
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    created = await target.create("pods", name, meta={"labels": {"app": "web"}, **meta}, spec=spec)
    assert created.code == 201, created.message
    path = target.path("pods", name)
    if status is not None:
        assert (await target.merge(f"{path}/status", {"status": status})).code == 200
    return path


async def make_budget(target: Target, name: str = "budget", *, needed: int, healthy: int, **spec: Any) -> str:
    """Create a budget for the pods; its status is what the controller of a real cluster makes of them."""
    spec = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": needed, **spec}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
    assert (await target.request("POST", PDBS.format(target.namespace), body)).code == 201
    path = f"{PDBS.format(target.namespace)}/{name}"
    status = {"observedGeneration": 1, "desiredHealthy": needed, "currentHealthy": healthy, "expectedPods": 1}
    status["disruptionsAllowed"] = max(0, healthy - needed)
    if not target.is_real:
        assert (await target.merge(f"{path}/status", {"status": status})).code == 200

    def is_observed(answer: Answer) -> bool:
        found = answer.content.get("status") or {}
        return all(found.get(key) == value for key, value in status.items() if key != "expectedPods")

    await target.eventually(lambda: target.get(path), is_observed)
    return path


async def evict(target: Target, name: str = "p", **more: Any) -> Answer:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **more}
    return await target.request("POST", target.path("pods", name, "eviction"), eviction)


async def test_a_pod_without_a_budget_is_deleted(target: Target) -> None:
    path = await make_pod(target, status=READY)
    answer = await evict(target)
    success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    assert (answer.code, answer.content) == (201, success)
    assert (await target.get(path)).code == 404
    assert (await evict(target)).message == 'pods "p" not found'


async def test_a_budget_prevents_an_eviction(target: Target) -> None:
    path = await make_pod(target, status=READY)
    await make_budget(target, needed=1, healthy=1)
    answer = await evict(target)
    assert (answer.code, answer.reason) == (429, "TooManyRequests")
    assert answer.message == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = answer.content["details"]["causes"]
    text = "The disruption budget budget needs 1 healthy pods and has 1 currently"
    assert cause == {"reason": "DisruptionBudget", "message": text}
    assert (await target.get(path)).code == 200


async def test_a_budget_that_allows_a_disruption_is_charged(target: Target) -> None:
    for name in ("p", "q"):
        await make_pod(target, name, status=READY, finalizers=["example.com/wait"])
    path = await make_budget(target, needed=1, healthy=2)
    assert (await evict(target, deleteOptions={"dryRun": ["All"]})).code == 201
    assert (await target.get(path)).content["status"]["disruptionsAllowed"] == 1
    assert (await evict(target)).code == 201
    pod = (await target.get(target.path("pods", "p"))).content
    (condition,) = [each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert (condition["reason"], condition["message"]) == ("EvictionByEvictionAPI", "Eviction API: evicting")
    assert "deletionTimestamp" in pod["metadata"]
    assert (await evict(target, "q")).code == 429
    for name in ("p", "q"):
        await target.merge(target.path("pods", name), {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("status", [None, {"phase": "Succeeded"}, {"phase": "Failed"}])
async def test_pods_that_do_not_run_count_for_no_budget(target: Target, status: dict[str, Any] | None) -> None:
    path = await make_pod(target, status=status)
    await make_budget(target, needed=1, healthy=0)
    assert (await evict(target)).code == 201
    assert (await target.get(path)).code == 404


async def test_pods_that_are_not_ready_may_go_if_the_policy_says_so(target: Target) -> None:
    await make_pod(target, status={"phase": "Running"})
    await make_budget(target, needed=1, healthy=0, unhealthyPodEvictionPolicy="AlwaysAllow")
    assert (await evict(target)).code == 201


async def test_several_budgets_are_an_error(target: Target) -> None:
    await make_pod(target, status=READY)
    await make_budget(target, "one", needed=0, healthy=1)
    await make_budget(target, "two", needed=0, healthy=1)
    answer = await evict(target)
    assert answer.code == 500
    assert answer.message.startswith("This pod has more than one PodDisruptionBudget")


async def test_what_is_sent_is_checked(target: Target) -> None:
    path = await make_pod(target)
    other = await target.request("POST", f"{path}/eviction", {"metadata": {"name": "other"}})
    assert (other.code, other.message) == (400, "name in URL does not match name in Eviction object")
    stale = await evict(target, deleteOptions={"preconditions": {"resourceVersion": "1"}})
    assert (stale.code, stale.reason) == (409, "Conflict")
    assert (await target.request("GET", f"{path}/eviction")).code == 405
    assert (await evict(target, deleteOptions={"gracePeriodSeconds": "1"})).code == 400
    assert (await target.get(path)).code == 200
