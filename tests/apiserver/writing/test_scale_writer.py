"""Tests for :mod:`trioperator.apiserver.writing.scale_writer`: a ``Scale`` is written, and its object with it."""

from __future__ import annotations

from tests.apiserver.conftest import GROUP, Target
from tests.apiserver.managed_fields import managers
from tests.apiserver.ownership.applying import APPLY, apply

VERSION = f"{GROUP}/v1"


async def test_the_scale_is_a_view_of_the_object(target: Target) -> None:
    await target.create("shapes", "a", spec={"replicas": 2})
    path = target.path("shapes", "a", "scale")
    scale = (await target.get(path)).content
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 0})
    assert (await target.merge(path, {"spec": {"replicas": 5}})).content["spec"] == {"replicas": 5}
    obj = (await target.get(target.path("shapes", "a"))).content
    assert (obj["spec"]["replicas"], obj["metadata"]["generation"]) == (5, 2)


async def test_an_object_without_replicas_has_no_scale(target: Target) -> None:
    await target.create("shapes", "a")
    path = target.path("shapes", "a", "scale")
    answer = await target.get(path)
    text = 'Internal error occurred: the spec replicas field ".spec.replicas" does not exist'
    assert (answer.code, answer.reason, answer.message) == (500, "InternalError", text)
    assert (await target.merge(path, {"spec": {"replicas": 5}})).code == 200
    assert (await target.get(path)).content["spec"] == {"replicas": 5}


async def test_a_scale_below_zero_is_invalid(target: Target) -> None:
    await target.create("shapes", "a", spec={"replicas": 2})
    answer = await target.merge(target.path("shapes", "a", "scale"), {"spec": {"replicas": -1}})
    assert answer.code == 422


async def test_the_scale_of_another_object_is_a_conflict_but_for_custom_resources(target: Target) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "one", "image": "a"}]}}
    body = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    deployments = f"/apis/apps/v1/namespaces/{target.namespace}/deployments"
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": body}
    await target.request("POST", deployments, deployment)
    patch = {"metadata": {"uid": "other"}, "spec": {"replicas": 2}}
    answer = await target.merge(f"{deployments}/a/scale", patch)
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert answer.message.startswith(
        'Operation cannot be fulfilled on deployments/scale.apps "a": Precondition failed: UID in precondition: other,'
    )
    await target.create("shapes", "a", spec={"replicas": 1})
    assert (await target.merge(target.path("shapes", "a", "scale"), patch)).code == 200


async def test_a_scale_takes_over_the_replicas(target: Target) -> None:
    obj = {"apiVersion": VERSION, "kind": "Shape", "metadata": {"name": "a"}, "spec": {"size": 1, "replicas": 1}}
    await target.request("POST", target.path("shapes"), obj, fieldManager="one")
    answer = await target.merge(target.path("shapes", "a", "scale"), {"spec": {"replicas": 2}}, fieldManager="two")
    assert "managedFields" not in answer.content["metadata"]
    answer = await target.get(target.path("shapes", "a"))
    assert managers(answer) == {
        "one": {"f:spec": {".": {}, "f:size": {}}},
        "two/scale": {"f:spec": {"f:replicas": {}}},
    }


async def test_a_scale_of_unmanaged_replicas_stays_unmanaged(target: Target) -> None:
    await target.create("shapes", "a")
    await target.merge(target.path("shapes", "a", "scale"), {"spec": {"replicas": 2}}, fieldManager="two")
    assert "two/scale" not in managers(await target.get(target.path("shapes", "a")))


async def test_a_scale_can_be_applied(target: Target) -> None:
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "one", "image": "a"}]}}
    spec = {"replicas": 1, "paused": True, "selector": {"matchLabels": labels}, "template": template}
    await apply(target, "deployments", "one", spec=spec)
    path = target.path("deployments", "a", "scale")
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 2}}
    answer = await target.request("PATCH", path, scale, APPLY, fieldManager="two")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "one": .spec.replicas'
    answer = await target.request("PATCH", path, scale, APPLY, fieldManager="two", force="true")
    assert answer.content["spec"] == {"replicas": 2}
    found = managers(await target.get(target.path("deployments", "a")))
    assert found["two/scale"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in found["one"]["f:spec"]


async def test_a_scale_of_a_custom_object_cannot_be_applied(target: Target) -> None:
    await apply(target, "shapes", "one", spec={"replicas": 1})
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 2}}
    path = target.path("shapes", "a", "scale")
    answer = await target.request("PATCH", path, scale, APPLY, fieldManager="two", force="true")
    assert answer.code == 500
    assert "request to convert CR to an invalid group/version: autoscaling/v1" in answer.message


async def test_the_replicas_of_a_scale_are_32_bit_integers(target: Target) -> None:
    await target.create("shapes", "a", spec={"replicas": 1})
    path = target.path("shapes", "a", "scale")
    for value in (2**31, 1.5, "1", [1]):
        answer = await target.merge(path, {"spec": {"replicas": value}})
        assert answer.code == 422, answer.content
    for body in (b"{", b"[]", b"5", b'{"a":' * 20_000):
        answer = await target.merge(path, body)
        assert answer.code == 400, answer.content


async def test_a_scale_is_replaced_and_patched(target: Target) -> None:
    await target.create("shapes", "a", spec={"replicas": 2})
    path = target.path("shapes", "a", "scale")
    scale = (await target.get(path)).content
    stale = {**scale, "metadata": {**scale["metadata"], "resourceVersion": "1"}}
    assert (await target.request("PUT", path, {**scale, "spec": {"replicas": 7}})).content["spec"] == {"replicas": 7}
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 9}]
    assert (await target.edit(path, operations)).content["spec"] == {"replicas": 9}
    assert (await target.get(target.path("shapes", "a"))).content["spec"]["replicas"] == 9
    assert (await target.request("PUT", path, stale)).code == 409
    assert (await target.edit(path, [{"op": "test", "path": "/spec/replicas", "value": 1}])).code == 422
