"""Conformance: admission webhooks."""

from __future__ import annotations

import base64
import functools
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
import trustme

from tests.apiserver.admissions import WebhookCase, open_bench
from tests.apiserver.conftest import GROUP, Target
from tests.apiserver.hooks import BUNDLE, Hooks, Reply, allow, deny, patch, serve_hooks

Object = dict[str, Any]
LABELLED = {"op": "add", "path": "/metadata/labels", "value": {"touched": "yes"}}


@pytest.fixture
async def bench(target: Target, nursery: trio.Nursery) -> AsyncIterator[WebhookCase]:
    """Yield a bench with webhooks on loopback: ``/allow`` allows everything."""
    hooks = Hooks()
    hooks.handlers["/allow"] = allow
    await nursery.start(serve_hooks, hooks)
    async with open_bench(target, hooks) as bench:
        yield bench


def data_of(number: int) -> Callable[[Object], Object]:
    """Return a webhook that appends its name to those of earlier webhooks."""

    def handle(review: Object) -> Object:
        seen = review["request"]["object"].get("data", {}).get("trace", "")
        return patch(review, {"op": "add", "path": "/data", "value": {"trace": f"{seen}{number}"}})

    return handle


# -- what webhooks are asked --------------------------------------------------------------------------------------


async def test_a_creation_is_reviewed(target: Target, bench: WebhookCase) -> None:
    await bench.configure("Mutating", bench.webhook("/allow"))
    await target.request(
        "POST",
        target.path("configmaps"),
        {"metadata": {"name": "a"}, "data": {"x": "y"}},
        fieldManager="me",
        fieldValidation="Strict",
    )
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    assert bench.asked("/allow") == [
        {
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": "a",
            "namespace": target.namespace,
            "operation": "CREATE",
            "object": {
                "kind": "ConfigMap",
                "apiVersion": "v1",
                "metadata": {"name": "a", "namespace": target.namespace},
                "data": {"x": "y"},
            },
            "oldObject": None,
            "dryRun": False,
            "options": {
                "kind": "CreateOptions",
                "apiVersion": "meta.k8s.io/v1",
                "fieldManager": "me",
                "fieldValidation": "Strict",
            },
        }
    ]
    (request,) = bench.hooks.requests("/allow")
    assert "system:masters" in request["userInfo"]["groups"]
    assert request["userInfo"]["username"]
    assert request["uid"]
    assert bench.hooks.asked[0][0] == "/allow?timeout=10s"
    assert bench.hooks.asked[0][1]["apiVersion"] == "admission.k8s.io/v1"


async def test_validating_webhooks_see_the_finished_object(target: Target, bench: WebhookCase) -> None:
    await bench.configure("Validating", bench.webhook("/allow"))
    created = await target.request("POST", target.path("configmaps"), {"metadata": {"generateName": "a-"}})
    (request,) = bench.asked("/allow")
    meta = {key: created.content["metadata"][key] for key in ("name", "namespace", "uid", "creationTimestamp")}
    assert request["object"]["metadata"] == {**meta, "generateName": "a-"}
    assert request["name"] == meta["name"]


async def test_mutating_webhooks_see_what_was_sent(target: Target, bench: WebhookCase) -> None:
    await bench.configure("Mutating", bench.webhook("/allow"))
    await target.request("POST", target.path("configmaps"), {"metadata": {"generateName": "a-"}})
    (request,) = bench.asked("/allow")
    assert request["object"]["metadata"] == {"generateName": "a-", "namespace": target.namespace}
    assert "name" not in request


async def test_an_update_is_reviewed_with_the_old_object(target: Target, bench: WebhookCase) -> None:
    created = await target.create("configmaps", "a", data={"x": "y"})
    await bench.configure("Validating", bench.webhook("/allow"))
    await target.merge(target.path("configmaps", "a"), {"data": {"x": "z"}})
    (request,) = bench.asked("/allow")
    assert request["operation"] == "UPDATE"
    assert (request["object"]["data"], request["oldObject"]["data"]) == ({"x": "z"}, {"x": "y"})
    assert request["oldObject"]["metadata"]["uid"] == created.content["metadata"]["uid"]
    assert request["object"]["metadata"]["resourceVersion"] == created.content["metadata"]["resourceVersion"]
    assert request["options"] == {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}


async def test_a_deletion_is_reviewed_without_a_new_object(target: Target, bench: WebhookCase) -> None:
    await target.create("configmaps", "a")
    await bench.configure("Validating", bench.webhook("/allow"))
    await target.delete(target.path("configmaps", "a"), {"gracePeriodSeconds": 5, "propagationPolicy": "Background"})
    (request,) = bench.asked("/allow")
    assert (request["operation"], request["name"], request["object"]) == ("DELETE", "a", None)
    assert request["oldObject"]["metadata"]["name"] == "a"
    assert request["options"] == {
        "kind": "DeleteOptions",
        "apiVersion": "meta.k8s.io/v1",
        "gracePeriodSeconds": 5,
        "propagationPolicy": "Background",
    }


async def test_the_deletion_of_a_collection_is_reviewed_object_by_object(target: Target, bench: WebhookCase) -> None:
    for name in "ab":
        await target.create("configmaps", name, meta={"labels": {"it": "goes"}})
    await bench.configure("Validating", bench.webhook("/allow"))
    await target.delete(target.path("configmaps"), labelSelector="it=goes")
    asked = bench.asked("/allow")
    assert [request["oldObject"]["metadata"]["name"] for request in asked] == ["a", "b"]
    assert not any("name" in request for request in asked)


async def test_a_denied_deletion_ends_that_of_a_collection(target: Target, bench: WebhookCase) -> None:
    for name in "abc":
        await target.create("configmaps", name, meta={"labels": {"it": "goes"}})
    bench.hooks.handlers["/but-b"] = lambda review: (
        deny(review) if review["request"]["oldObject"]["metadata"]["name"] == "b" else allow(review)
    )
    await bench.configure("Validating", bench.webhook("/but-b"))
    answer = await target.delete(target.path("configmaps"), labelSelector="it=goes")
    assert answer.code == 400
    left = await target.get(target.path("configmaps"), labelSelector="it=goes")
    assert [item["metadata"]["name"] for item in left.content["items"]] == ["b", "c"]


async def test_a_review_shows_a_dry_run(target: Target, bench: WebhookCase) -> None:
    await bench.configure("Validating", bench.webhook("/allow", sideEffects="NoneOnDryRun"))
    await target.request("POST", target.path("configmaps"), {"metadata": {"name": "a"}}, dryRun="All")
    (request,) = bench.asked("/allow")
    assert request["dryRun"] is True
    assert request["options"]["dryRun"] == ["All"]


async def test_an_apply_is_reviewed_as_a_creation_or_an_update(target: Target, bench: WebhookCase) -> None:
    await bench.configure("Validating", bench.webhook("/allow"))
    for value in "yz":
        wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": value}}
        path = target.path("configmaps", "a")
        await target.request("PATCH", path, wanted, "application/apply-patch+yaml", fieldManager="me")
    assert bench.operations("/allow") == ["CREATE", "UPDATE"]


async def test_an_update_without_changes_is_reviewed(target: Target, bench: WebhookCase) -> None:
    await target.create("configmaps", "a", data={"x": "y"})
    await bench.configure("Validating", bench.webhook("/allow"))
    await target.merge(target.path("configmaps", "a"), {"data": {"x": "y"}})
    assert bench.operations("/allow") == ["UPDATE"]


async def test_only_mutating_webhooks_review_a_conflicting_update(target: Target, bench: WebhookCase) -> None:
    await target.create("configmaps", "a")
    await bench.configure("Mutating", bench.webhook("/mutating"))
    await bench.configure("Validating", bench.webhook("/validating"))
    bench.hooks.handlers |= {"/mutating": allow, "/validating": allow}
    stale = {"metadata": {"name": "a", "resourceVersion": "1"}}
    answer = await target.request("PUT", target.path("configmaps", "a"), stale)
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert bench.operations("/mutating") == ["UPDATE"]
    assert bench.operations("/validating") == []


async def test_webhooks_are_called_before_a_name_conflict_is_detected(target: Target, bench: WebhookCase) -> None:
    await target.create("configmaps", "a")
    await bench.configure("Validating", bench.webhook("/allow"))
    assert (await target.create("configmaps", "a")).reason == "AlreadyExists"
    assert bench.operations("/allow") == ["CREATE"]


async def test_the_scale_subresource_is_reviewed_as_a_scale(target: Target, bench: WebhookCase) -> None:
    await target.create("shapes", "a", spec={"replicas": 1})
    await bench.configure("Mutating", bench.webhook("/scale", rules=[bench.rule("shapes/scale", group=GROUP)]))
    bench.hooks.handlers["/scale"] = lambda review: patch(
        review, {"op": "replace", "path": "/spec/replicas", "value": 7}
    )
    answer = await target.merge(target.path("shapes", "a", "scale"), {"spec": {"replicas": 3}})
    assert answer.content["spec"] == {"replicas": 7}
    (request,) = bench.asked("/scale")
    assert request["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert request["resource"] == {"group": GROUP, "version": "v1", "resource": "shapes"}
    assert (request["subResource"], request["requestSubResource"]) == ("scale", "scale")
    assert (request["object"]["spec"], request["oldObject"]["spec"]) == ({"replicas": 3}, {"replicas": 1})


async def test_a_namespace_is_selected_by_its_own_labels(target: Target, bench: WebhookCase) -> None:
    selector = {"matchLabels": {"case": bench.unique}}
    hook = bench.webhook("/allow", namespaceSelector=selector, rules=[bench.rule("namespaces")])
    await bench.configure("Validating", hook)
    name = f"{target.namespace}-more"
    await target.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {"case": bench.unique}}})
    await target.merge(f"/api/v1/namespaces/{name}", {"metadata": {"annotations": {"x": "y"}}})
    await target.delete(f"/api/v1/namespaces/{name}")
    asked = [request for request in bench.asked("/allow") if "subResource" not in request]
    assert [request["operation"] for request in asked] == ["CREATE", "UPDATE", "DELETE"]
    assert {(request["name"], request["namespace"]) for request in asked} == {(name, name)}


# -- which webhooks are asked -------------------------------------------------------------------------------------

RESOURCES = {
    "shapes": ("", True, False),
    "shapes/status": ("", False, True),
    "shapes/*": ("", True, True),
    "*": ("", True, False),
    "*/*": ("", True, True),
    "*/status": ("", False, True),
    "frees": ("", False, False),
}


@pytest.mark.parametrize("resource", RESOURCES)
async def test_rules_distinguish_resources_and_subresources(target: Target, bench: WebhookCase, resource: str) -> None:
    await target.create("shapes", "a")
    await bench.configure("Validating", bench.webhook("/allow", rules=[bench.rule(resource, group=GROUP)]))
    await target.merge(target.path("shapes", "a"), {"spec": {"size": 5}})
    of_main = bench.operations("/allow")
    bench.hooks.asked.clear()
    await target.merge(target.path("shapes", "a", "status"), {"status": {"x": 1}})
    _, main, status = RESOURCES[resource]
    assert (bool(of_main), bool(bench.operations("/allow"))) == (main, status)


@pytest.mark.parametrize(
    ("scope", "asked"), [("*", ["Free", "Global"]), ("Namespaced", ["Free"]), ("Cluster", ["Global"])]
)
async def test_rules_distinguish_scopes(target: Target, bench: WebhookCase, scope: str, asked: list[str]) -> None:
    selector = {"matchLabels": {"case": bench.unique}}
    rule = bench.rule("frees", "globals", group=GROUP, scope=scope)
    await bench.configure("Validating", bench.webhook("/allow", rules=[rule], objectSelector=selector))
    for plural in ("frees", "globals"):
        meta = {"labels": {"case": bench.unique}}
        assert (await target.create(plural, bench.unique, meta=meta)).code == 201
    assert [request["kind"]["kind"] for request in bench.asked("/allow")] == asked
    await target.delete(target.path("globals", bench.unique))


async def test_rules_distinguish_operations_groups_and_versions(target: Target, bench: WebhookCase) -> None:
    rules = {
        "/update": bench.rule("configmaps", operations=["UPDATE"]),
        "/other-group": bench.rule("configmaps", group="apps"),
        "/other-version": bench.rule("configmaps", versions=("v2",)),
        "/all": {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["configmaps"], "operations": ["*"]},
    }
    bench.hooks.handlers |= dict.fromkeys(rules, allow)
    await bench.configure("Validating", *(bench.webhook(path, rules=[rule]) for path, rule in rules.items()))
    await target.create("configmaps", "a")
    await target.merge(target.path("configmaps", "a"), {"data": {"x": "y"}})
    asked = {path: bench.operations(path) for path in rules}
    assert asked == {"/update": ["UPDATE"], "/other-group": [], "/other-version": [], "/all": ["CREATE", "UPDATE"]}


async def test_objects_are_selected_by_their_old_or_new_labels(target: Target, bench: WebhookCase) -> None:
    await bench.configure("Validating", bench.webhook("/allow", objectSelector={"matchLabels": {"watch": "me"}}))
    await target.create("configmaps", "a")
    assert bench.operations("/allow") == []
    for labels in ({"watch": "me"}, {"watch": None}):
        await target.merge(target.path("configmaps", "a"), {"metadata": {"labels": labels}})
    await target.delete(target.path("configmaps", "a"))
    assert bench.operations("/allow") == ["UPDATE", "UPDATE"]


async def test_namespaces_are_selected_by_expressions(target: Target, bench: WebhookCase) -> None:
    name = "kubernetes.io/metadata.name"

    def selecting(operator: str) -> Object:
        return {"matchExpressions": [{"key": name, "operator": operator, "values": [target.namespace]}]}

    bench.hooks.handlers |= {"/in": allow, "/not-in": allow}
    hooks = [
        bench.webhook("/in", namespaceSelector=selecting("In")),
        bench.webhook(
            "/not-in",
            namespaceSelector=selecting("NotIn"),
            objectSelector={"matchLabels": {"case": bench.unique}},
        ),
    ]
    await bench.configure("Validating", *hooks)
    await target.create("configmaps", "a", meta={"labels": {"case": bench.unique}})
    assert (bench.operations("/in"), bench.operations("/not-in")) == (["CREATE"], [])


async def test_webhook_configurations_are_never_reviewed(target: Target, bench: WebhookCase) -> None:
    bench.hooks.handlers["/deny"] = deny
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"], "scope": "Cluster"}
    selector = {"matchExpressions": [{"key": "case", "operator": "In", "values": [bench.unique]}]}
    await bench.configure("Validating", bench.webhook("/deny", rules=[rule], objectSelector=selector))
    rejected = await target.create("globals", bench.unique, meta={"labels": {"case": bench.unique}})
    assert rejected.code == 400
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    content = {"metadata": {"name": bench.unique, "labels": {"case": bench.unique}}}
    assert (await target.request("POST", path, content)).code == 201
    assert (await target.delete(f"{path}/{bench.unique}")).code == 200
    assert len(bench.asked("/deny")) == 1


async def test_match_conditions_decide_whether_a_webhook_is_called(target: Target, bench: WebhookCase) -> None:
    pytest.importorskip("cel_expr_python")
    condition = {"name": "named", "expression": "object.metadata.name.startsWith('a') && request.operation == 'CREATE'"}
    await bench.configure("Validating", bench.webhook("/allow", matchConditions=[condition]))
    for name in ("ab", "ba"):
        await target.create("configmaps", name)
    assert [request["name"] for request in bench.asked("/allow")] == ["ab"]


@pytest.mark.parametrize(("policy", "code"), [("Fail", 403), ("Ignore", 201)])
async def test_failing_match_conditions_follow_the_failure_policy(
    target: Target, bench: WebhookCase, policy: str, code: int
) -> None:
    pytest.importorskip("cel_expr_python")
    condition = {"name": "broken", "expression": "object.data.missing == 'x'"}
    hook = bench.webhook("/deny", matchConditions=[condition], failurePolicy=policy)
    await bench.configure("Validating", hook)
    answer = await target.create("configmaps", "a", data={"x": "y"})
    assert answer.code == code
    if code == 403:
        assert answer.message.startswith('configmaps "a" is forbidden: expression')


# -- what webhooks may do -----------------------------------------------------------------------------------------


async def test_a_mutating_webhook_changes_the_stored_object(target: Target, bench: WebhookCase) -> None:
    bench.hooks.handlers["/label"] = lambda review: patch(review, LABELLED)
    await bench.configure("Mutating", bench.webhook("/label"))
    created = await target.create("configmaps", "a")
    assert created.content["metadata"]["labels"] == {"touched": "yes"}
    assert (await target.get(target.path("configmaps", "a"))).content["metadata"]["labels"] == {"touched": "yes"}


async def test_mutating_webhooks_are_called_in_the_order_of_their_names(target: Target, bench: WebhookCase) -> None:
    bench.hooks.handlers |= {f"/{number}": data_of(number) for number in (1, 2, 3)}
    await bench.configure("Mutating", bench.webhook("/3"), name="b")
    await bench.configure("Mutating", bench.webhook("/2"), bench.webhook("/1"), name="a")
    assert (await target.create("configmaps", "a")).content["data"] == {"trace": "213"}


async def test_a_webhook_is_reinvoked_if_needed(target: Target, bench: WebhookCase) -> None:
    bench.hooks.handlers |= {f"/{number}": data_of(number) for number in (1, 2, 3)}
    webhooks = [
        bench.webhook("/1", reinvocationPolicy="IfNeeded"),
        bench.webhook("/2"),
        bench.webhook("/3", reinvocationPolicy="IfNeeded"),
    ]
    await bench.configure("Mutating", *webhooks)
    assert (await target.create("configmaps", "a")).content["data"] == {"trace": "12313"}


async def test_a_webhook_is_not_reinvoked_without_changes(target: Target, bench: WebhookCase) -> None:
    bench.hooks.handlers["/1"] = data_of(1)
    await bench.configure("Mutating", bench.webhook("/1", reinvocationPolicy="IfNeeded"), bench.webhook("/allow"))
    assert (await target.create("configmaps", "a")).content["data"] == {"trace": "1"}


@pytest.mark.parametrize(("plural", "asked"), [("configmaps", 2), ("frees", 1)])
async def test_a_patch_that_changes_nothing_is_a_change_of_built_in_kinds_only(
    target: Target, bench: WebhookCase, plural: str, asked: int
) -> None:
    same = {"op": "replace", "path": "/data/x", "value": "y"}
    bench.hooks.handlers["/same"] = lambda review: patch(review, same)
    rules = [bench.rule(plural, group=GROUP if plural == "frees" else "")]
    hooks = [bench.webhook("/allow", rules=rules, reinvocationPolicy="IfNeeded"), bench.webhook("/same", rules=rules)]
    await bench.configure("Mutating", *hooks)
    await target.create(plural, "a", data={"x": "y"})
    assert bench.operations("/allow") == ["CREATE"] * asked


async def test_mutated_objects_are_defaulted_pruned_and_validated(target: Target, bench: WebhookCase) -> None:
    operations: list[Object] = []
    bench.hooks.handlers["/spec"] = lambda review: patch(review, *operations)
    await bench.configure("Mutating", bench.webhook("/spec", rules=[bench.rule("shapes", group=GROUP)]))
    operations[:] = [{"op": "add", "path": "/spec", "value": {"inner": {"key": "k"}, "nobody": "knows it"}}]
    created = await target.create("shapes", "a")
    assert created.content["spec"] == {"size": 3, "inner": {"key": "k", "mode": "fast"}}
    operations[:] = [{"op": "add", "path": "/spec", "value": {"size": 500}}]
    rejected = await target.create("shapes", "b")
    assert (rejected.code, rejected.reason) == (422, "Invalid")
    assert "spec.size" in rejected.message


async def test_a_webhook_cannot_change_an_identity(target: Target, bench: WebhookCase) -> None:
    bench.hooks.handlers["/namespace"] = lambda review: patch(
        review, {"op": "replace", "path": "/metadata/namespace", "value": "other"}
    )
    await bench.configure("Mutating", bench.webhook("/namespace"))
    answer = await target.create("configmaps", "a")
    assert answer.code == 400
    text = "the namespace of the provided object does not match the namespace sent on the request"
    assert answer.message == text


PATCHES: list[Object] = [
    {"op": "replace", "path": "/spec/x", "value": 1},
    {"op": "add", "path": "/spec/x/y", "value": 1},
    {"op": "remove", "path": "/data/z"},
    {"op": "test", "path": "/data/a", "value": "other"},
    {"op": "frob", "path": "/data/a"},
]


@pytest.mark.parametrize("operation", PATCHES)
async def test_a_patch_that_cannot_be_applied_is_an_internal_error(
    target: Target, bench: WebhookCase, operation: Object
) -> None:
    bench.hooks.handlers["/patch"] = lambda review: patch(review, operation)
    await bench.configure("Mutating", bench.webhook("/patch", failurePolicy="Ignore"))
    answer = await target.create("configmaps", "a", data={"a": "b"})
    assert (answer.code, answer.reason) == (500, "InternalError")
    assert answer.message.startswith("Internal error occurred: ")


async def test_a_patch_may_replace_a_missing_field(target: Target, bench: WebhookCase) -> None:
    bench.hooks.handlers["/patch"] = lambda review: patch(review, {"op": "replace", "path": "/data/z", "value": "1"})
    await bench.configure("Mutating", bench.webhook("/patch"))
    assert (await target.create("configmaps", "a", data={"a": "b"})).content["data"] == {"a": "b", "z": "1"}


async def test_a_patch_of_a_deletion_is_rejected(target: Target, bench: WebhookCase) -> None:
    bench.hooks.handlers["/patch"] = lambda review: patch(review, LABELLED)
    await target.create("configmaps", "a")
    hook = bench.webhook("/patch", rules=[bench.rule("configmaps", operations=["DELETE"])])
    await bench.configure("Mutating", hook)
    answer = await target.delete(target.path("configmaps", "a"))
    assert answer.code == 500
    assert answer.message == (
        'Internal error occurred: admission webhook "patch.conformance.dev" attempted to modify the object, '
        "which is not supported for this operation"
    )


REFUSALS: dict[str, tuple[Object | None, int, str, str]] = {
    "nothing": (None, 400, "", " without explanation"),
    "message": ({"message": "no"}, 400, "", ": no"),
    "reason": ({"reason": "Why"}, 400, "Why", ": Why"),
    "success": ({"status": "Success", "code": 200, "message": "no"}, 400, "", ": no"),
    "code": ({"code": 418, "reason": "Teapot", "message": "short and stout"}, 418, "Teapot", ": short and stout"),
}


@pytest.mark.parametrize("phase", ["Mutating", "Validating"])
@pytest.mark.parametrize("status", REFUSALS)
async def test_a_webhook_can_deny_a_request(target: Target, bench: WebhookCase, phase: str, status: str) -> None:
    told, code, reason, text = REFUSALS[status]
    bench.hooks.handlers["/deny"] = lambda review: deny(review, **({"status": told} if told else {}))
    await bench.configure(phase, bench.webhook("/deny", failurePolicy="Ignore"))
    answer = await target.create("configmaps", "a")
    assert (answer.code, answer.reason) == (code, reason)
    assert answer.message == f'admission webhook "deny.conformance.dev" denied the request{text}'
    assert (await target.get(target.path("configmaps", "a"))).code == 404


async def test_the_details_of_a_denial_reach_the_client(target: Target, bench: WebhookCase) -> None:
    details = {"name": "q", "causes": [{"reason": "R", "message": "m", "field": "f"}]}
    bench.hooks.handlers["/deny"] = lambda review: deny(review, status={"message": "no", "details": details})
    await bench.configure("Validating", bench.webhook("/deny"))
    assert (await target.create("configmaps", "a")).content["details"] == details


async def test_warnings_of_webhooks_reach_the_client(target: Target, bench: WebhookCase) -> None:
    bench.hooks.handlers |= {
        "/first": lambda review: allow(review, warnings=['say "it"', "twice"]),
        "/second": lambda review: deny(review, warnings=["twice", "more"]),
    }
    await bench.configure("Mutating", bench.webhook("/first"))
    await bench.configure("Validating", bench.webhook("/second"))
    answer = await target.create("configmaps", "a")
    assert answer.code == 400
    assert answer.headers.get_list("warning") == ['299 - "say \\"it\\""', '299 - "twice"', '299 - "more"']


async def test_validating_webhooks_are_called_concurrently(target: Target, bench: WebhookCase) -> None:
    both = [trio.Event(), trio.Event()]

    def meeting(mine: int) -> Callable[[Object], Any]:
        async def handle(review: Object) -> Object:
            both[mine].set()
            await both[1 - mine].wait()
            return allow(review)

        return handle

    bench.hooks.handlers |= {"/0": meeting(0), "/1": meeting(1)}
    await bench.configure("Validating", bench.webhook("/0"), bench.webhook("/1"))
    assert (await target.create("configmaps", "a")).code == 201


# -- what can go wrong --------------------------------------------------------------------------------------------

REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
ANSWERS: dict[str, tuple[Callable[[Object], Any], str]] = {
    "wrong uid": (
        lambda review: {**REVIEW, "response": {"uid": "x", "allowed": True}},
        "received invalid webhook response: expected response.uid=",
    ),
    "no response": (lambda review: REVIEW, "received invalid webhook response: webhook response was absent"),
    "no kind": (
        lambda review: {"response": allow(review)["response"]},
        "received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, "
        "got /, Kind=",
    ),
    "wrong kind": (
        lambda review: {**allow(review), "kind": "Other"},
        'failed to call webhook: no kind "Other" is registered for version "admission.k8s.io/v1"',
    ),
    "wrong version": (
        lambda review: {**allow(review), "apiVersion": "admission.k8s.io/v1beta1"},
        "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
    ),
    "no JSON": (
        lambda review: Reply(b"{hello"),
        "failed to call webhook: couldn't get version/kind; json parse error: ",
    ),
    "nothing": (
        lambda review: Reply(b""),
        "failed to call webhook: 0-length response with status code: 200 and content type: application/json",
    ),
    "null": (lambda review: Reply(b"null"), "received invalid webhook response: webhook response was absent"),
    "wrong type": (lambda review: allow(review, allowed="true"), "failed to call webhook: json: "),
    "no base64": (
        lambda review: allow(review, patch="%%%", patchType="JSONPatch"),
        "failed to call webhook: illegal base64 data",
    ),
    "404": (
        lambda review: Reply(b"nope", 404, "text/plain"),
        "failed to call webhook: the server could not find the requested resource",
    ),
    "500": (
        lambda review: Reply(b"boom\n", 500, "text/plain"),
        'failed to call webhook: an error on the server ("boom") has prevented the request from succeeding',
    ),
    "500 with a status": (
        lambda review: Reply({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "oops"}, 500),
        "failed to call webhook: oops",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
async def test_an_invalid_response_is_a_failure(target: Target, bench: WebhookCase, case: str) -> None:
    handler, text = ANSWERS[case]
    bench.hooks.handlers["/hook"] = handler
    await bench.configure("Validating", bench.webhook("/hook"))
    answer = await target.create("configmaps", "a")
    assert (answer.code, answer.reason) == (500, "InternalError")
    failed = 'Internal error occurred: failed calling webhook "hook.conformance.dev": '
    assert answer.message.startswith(failed + text), answer.message
    assert answer.content["details"]["causes"][0]["message"] == answer.message.removeprefix("Internal error occurred: ")


PATCH_ANSWERS: dict[str, tuple[str, Object, str]] = {
    "no type": (
        "Mutating",
        {"patch": "W10="},
        "received invalid webhook response: webhook returned response.patch but not response.patchType",
    ),
    "no patch": (
        "Mutating",
        {"patchType": "JSONPatch"},
        "received invalid webhook response: webhook returned response.patchType but not response.patch",
    ),
    "another type": (
        "Mutating",
        {"patch": base64.b64encode(b'[{"op":"remove","path":"/data"}]').decode(), "patchType": "Merge"},
        'unsupported patch type "Merge"',
    ),
    "no JSON": (
        "Mutating",
        {"patch": base64.b64encode(b"hello").decode(), "patchType": "JSONPatch"},
        "received undecodable patch in webhook response: ",
    ),
    "of a validating one": (
        "Validating",
        {"patch": "W10=", "patchType": "JSONPatch"},
        "received invalid webhook response: validating webhook may not return response.patch",
    ),
    "type of a validating one": (
        "Validating",
        {"patchType": "JSONPatch"},
        "received invalid webhook response: validating webhook may not return response.patchType",
    ),
}


@pytest.mark.parametrize("case", PATCH_ANSWERS)
async def test_an_invalid_patch_is_a_failure(target: Target, bench: WebhookCase, case: str) -> None:
    phase, response, text = PATCH_ANSWERS[case]
    bench.hooks.handlers["/hook"] = lambda review: allow(review, **response)
    await bench.configure(phase, bench.webhook("/hook"))
    answer = await target.create("configmaps", "a", data={"a": "b"})
    failed = 'Internal error occurred: failed calling webhook "hook.conformance.dev": '
    assert answer.message.startswith(failed + text), answer.message


@pytest.mark.parametrize("phase", ["Mutating", "Validating"])
async def test_the_failure_policy_may_ignore_failures(target: Target, bench: WebhookCase, phase: str) -> None:
    bench.hooks.handlers["/hook"] = lambda review: Reply(b"boom", 500, "text/plain")
    await bench.configure(phase, bench.webhook("/hook", failurePolicy="Ignore"))
    assert (await target.create("configmaps", "a")).code == 201
    assert bench.operations("/hook") == ["CREATE"]


@pytest.mark.parametrize(("policy", "code"), [("Fail", 500), ("Ignore", 201)])
async def test_a_webhook_that_times_out_has_failed(target: Target, bench: WebhookCase, policy: str, code: int) -> None:
    async def sleep(review: Object) -> Object:
        await trio.sleep(3)
        return allow(review)

    bench.hooks.handlers["/slow"] = sleep
    await bench.configure("Validating", bench.webhook("/slow", timeoutSeconds=1, failurePolicy=policy))
    answer = await target.create("configmaps", "a")
    assert answer.code == code
    if code == 500:
        url = f"{bench.hooks.url}/slow?timeout=1s"
        assert answer.message.endswith(f'failed to call webhook: Post "{url}": context deadline exceeded')


@pytest.mark.parametrize("path", ["//allow", "/allow/", "/x/../allow"])
async def test_the_path_of_a_url_is_cleaned(target: Target, bench: WebhookCase, path: str) -> None:
    config = {"url": bench.hooks.url + path, "caBundle": BUNDLE}
    await bench.configure("Validating", bench.webhook("/allow", clientConfig=config))
    assert (await target.create("configmaps", "a")).code == 201
    assert bench.operations("/allow") == ["CREATE"]


async def test_a_refused_connection_is_a_failure(target: Target, bench: WebhookCase) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{unheard.getsockname()[1]}"
        config = {"url": f"https://{place}/x", "caBundle": BUNDLE}
        await bench.configure("Validating", bench.webhook("/x", clientConfig=config))
        answer = await target.create("configmaps", "a")
    told = f'Post "https://{place}/x?timeout=10s": dial tcp {place}: connect: connection refused'
    assert answer.message.endswith(f"failed to call webhook: {told}")


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_an_untrusted_certificate_is_a_failure(target: Target, bench: WebhookCase, policy: str) -> None:
    other = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    config = {"url": f"{bench.hooks.url}/allow", "caBundle": other}
    await bench.configure("Validating", bench.webhook("/allow", clientConfig=config, failurePolicy=policy))
    answer = await target.create("configmaps", "a")
    assert answer.code == (201 if policy == "Ignore" else 500)
    assert bench.operations("/allow") == []
    if policy == "Fail":
        assert answer.message.endswith(
            "tls: failed to verify certificate: x509: certificate signed by unknown authority"
        )


@pytest.mark.parametrize("anchor", ["root", "intermediate", "certificate"])
async def test_every_certificate_of_the_bundle_is_trusted(
    target: Target, bench: WebhookCase, nursery: trio.Nursery, anchor: str
) -> None:
    root = trustme.CA()
    intermediate = root.create_child_ca()
    certificate = intermediate.issue_cert("127.0.0.1")
    bundles = {
        "root": root.cert_pem,
        "intermediate": intermediate.cert_pem,
        "certificate": certificate.cert_chain_pems[0],
    }
    hooks = Hooks()
    hooks.handlers["/allow"] = allow
    await nursery.start(functools.partial(serve_hooks, hooks, certificate=certificate))
    config = {"url": f"{hooks.url}/allow", "caBundle": base64.b64encode(bundles[anchor].bytes()).decode()}
    await bench.configure("Validating", bench.webhook("/allow", clientConfig=config))
    answer = await target.create("configmaps", "a")
    assert answer.code == 201, answer.message
    assert len(hooks.requests("/allow")) == 1


async def test_an_invalid_ca_bundle_is_a_failure(target: Target, bench: WebhookCase) -> None:
    config = {"url": f"{bench.hooks.url}/allow", "caBundle": base64.b64encode(b"hello").decode()}
    await bench.configure("Validating", bench.webhook("/allow", clientConfig=config))
    answer = await target.create("configmaps", "a")
    assert answer.message.endswith(
        "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"
    )


async def test_a_missing_service_is_a_failure(target: Target, bench: WebhookCase) -> None:
    config = {"service": {"namespace": "default", "name": "nobody", "path": "/x"}, "caBundle": BUNDLE}
    await bench.configure("Validating", bench.webhook("/x", clientConfig=config))
    answer = await target.create("configmaps", "a")
    url = "https://nobody.default.svc:443/x?timeout=10s"
    assert f'failed to call webhook: Post "{url}": service "nobody" not found' in answer.message


async def test_reviews_of_version_v1beta1_are_supported(target: Target, bench: WebhookCase) -> None:
    def handle(review: Object) -> Object:
        assert review["apiVersion"] == "admission.k8s.io/v1beta1"
        encoded = base64.b64encode(b'[{"op":"add","path":"/metadata/labels","value":{"old":"one"}}]').decode()
        return {**REVIEW, "apiVersion": review["apiVersion"], "response": {"allowed": True, "patch": encoded}}

    bench.hooks.handlers["/old"] = handle
    await bench.configure("Mutating", bench.webhook("/old", admissionReviewVersions=["v1beta1"]))
    assert (await target.create("configmaps", "a")).content["metadata"]["labels"] == {"old": "one"}


# -- deletions by the cluster itself ------------------------------------------------------------------------------


async def test_garbage_collection_is_reviewed(target: Target, bench: WebhookCase) -> None:
    owner = await target.create("frees", "owner")
    reference = {"apiVersion": f"{GROUP}/v1", "kind": "Free", "name": "owner", "uid": owner.content["metadata"]["uid"]}
    await target.create("configmaps", "mine", meta={"ownerReferences": [reference]})
    await bench.configure("Validating", bench.webhook("/allow"))
    await target.delete(target.path("frees", "owner"))
    await target.until(target.path("configmaps", "mine"), 404)
    asked = [request for request in bench.asked("/allow") if request["operation"] == "DELETE"]
    assert [request["name"] for request in asked] == ["mine"]
    assert asked[0]["options"]["preconditions"]["uid"] == asked[0]["oldObject"]["metadata"]["uid"]


async def test_a_webhook_can_deny_garbage_collection(target: Target, bench: WebhookCase) -> None:
    owner = await target.create("frees", "owner")
    reference = {"apiVersion": f"{GROUP}/v1", "kind": "Free", "name": "owner", "uid": owner.content["metadata"]["uid"]}
    await target.create("configmaps", "mine", meta={"ownerReferences": [reference]})
    rejected = trio.Event()

    def refuse(review: Object) -> Object:
        rejected.set()
        return deny(review)

    bench.hooks.handlers["/deny"] = refuse
    hook = bench.webhook("/deny", rules=[bench.rule("configmaps", operations=["DELETE"])])
    await bench.configure("Validating", hook)
    await target.delete(target.path("frees", "owner"))
    with trio.fail_after(60):
        await rejected.wait()
    assert (await target.get(target.path("configmaps", "mine"))).code == 200


async def test_the_termination_of_a_namespace_is_reviewed_object_by_object(target: Target, bench: WebhookCase) -> None:
    name = f"{target.namespace}-ends"
    await target.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    await target.request("POST", f"/api/v1/namespaces/{name}/configmaps", {"metadata": {"name": "in"}})
    selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    await bench.configure("Validating", bench.webhook("/allow", namespaceSelector=selector))
    await target.delete(f"/api/v1/namespaces/{name}")
    await target.until(f"/api/v1/namespaces/{name}", 404)
    asked = [request for request in bench.asked("/allow") if request["operation"] == "DELETE"]
    assert "in" in [request["oldObject"]["metadata"]["name"] for request in asked]
    assert {request["namespace"] for request in asked} == {name}
