"""Conformance: defaults of minimal built-in objects, field by field.

``minimal_objects.json`` holds what is sent, and what a real server stores. Left out is what differs with each object
(uids, times, addresses), and finalizers: nobody would take those of volumes away in the embedded server.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any, Final

import pytest

from tests.apiserver.conftest import MERGE, Answer, Target

CASES: Final = json.loads(pathlib.Path(__file__).with_name("minimal_objects.json").read_text())


def normal(obj: Any, namespace: str) -> Any:
    """Return the object without fields that differ between objects."""
    meta = obj["metadata"]
    text = json.dumps({**obj, "metadata": {key: value for key, value in meta.items() if key not in VOLATILE}})
    text = text.replace(meta["uid"], "<uid>").replace(json.dumps(namespace), '"<namespace>"')
    return json.loads(text, object_hook=_without_addresses)


VOLATILE: Final = {"uid", "creationTimestamp", "resourceVersion", "managedFields", "finalizers"}


def _without_addresses(node: dict[str, Any]) -> dict[str, Any]:
    node.pop("lastPhaseTransitionTime", None)
    if node.get("clusterIP", "None") != "None":
        node |= {"clusterIP": "<ip>", "clusterIPs": ["<ip>" for _ in node["clusterIPs"]]}
    if "nodePort" in node:
        node["nodePort"] = "<port>"
    return node


@pytest.mark.parametrize("name", CASES)
async def test_minimal_objects_get_defaults(target: Target, name: str) -> None:
    case = CASES[name]
    sent = json.loads(json.dumps(case["sent"]).replace('"<namespace>"', json.dumps(target.namespace)))
    answer = await target.request("POST", case["path"].format(target.namespace), sent, dryRun="All")
    assert answer.code == 201, answer.content
    assert normal(answer.content, target.namespace) == case["stored"]


@pytest.mark.parametrize("name", ["pod2", "deployment", "statefulset", "job", "cronjob", "service-nodeport", "hpa2b"])
async def test_an_unmodified_update_changes_nothing(target: Target, name: str) -> None:
    case = CASES[name]
    path = case["path"].format(target.namespace)
    created = await target.request("POST", path, case["sent"])
    assert created.code == 201, created.content
    path = f"{path}/{created.content['metadata']['name']}"
    before: list[Any] = []

    async def send_back() -> Answer:
        before[:] = [(await target.get(path)).content]
        return await target.request("PUT", path, {key: value for key, value in before[0].items() if key != "status"})

    # The server's own controllers change it, too, at first.
    changed = await target.eventually(send_back, lambda answer: answer.code != 409)
    assert (changed.code, changed.content["spec"]) == (200, before[0]["spec"])
    assert changed.content["metadata"].get("generation") == before[0]["metadata"].get("generation")


class TestServices:
    SPEC: Final = {"selector": {"a": "b"}, "ports": [{"port": 80}]}

    async def test_have_their_own_addresses(self, target: Target) -> None:
        addresses, ports = set(), set()
        for name in ("a", "b", "c"):
            obj = {"metadata": {"name": name}, "spec": {**self.SPEC, "type": "NodePort"}}
            answer = await target.request("POST", target.path("services"), obj)
            addresses.add(answer.content["spec"]["clusterIP"])
            ports.add(answer.content["spec"]["ports"][0]["nodePort"])
        assert (len(addresses), len(ports)) == (3, 3)

    async def test_keep_their_addresses_when_they_are_replaced(self, target: Target) -> None:
        obj = {"metadata": {"name": "a"}, "spec": {**self.SPEC, "type": "NodePort"}}
        before = (await target.request("POST", target.path("services"), obj)).content["spec"]
        after = (await target.request("PUT", target.path("services", "a"), obj)).content["spec"]
        assert after == before

    async def test_get_a_port_when_they_become_node_ports(self, target: Target) -> None:
        obj = {"metadata": {"name": "a"}, "spec": self.SPEC}
        assert (await target.request("POST", target.path("services"), obj)).code == 201
        answer = await target.merge(target.path("services", "a"), {"spec": {"type": "NodePort"}})
        assert 30000 <= answer.content["spec"]["ports"][0]["nodePort"] < 32768


class TestPods:
    @pytest.mark.parametrize(
        ("resources", "quality"),
        [
            ({}, "BestEffort"),
            ({"requests": {"cpu": "1"}}, "Burstable"),
            ({"limits": {"cpu": "1"}}, "Burstable"),
            ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
            ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ],
    )
    async def test_have_the_qos_class_of_their_resources(
        self, target: Target, resources: dict[str, Any], quality: str
    ) -> None:
        spec = {"containers": [{"name": "a", "image": "b", "resources": resources}]}
        answer = await target.create("pods", "a", spec=spec)
        assert answer.content["status"]["qosClass"] == quality

    async def test_have_empty_dir_volumes_by_default(self, target: Target) -> None:
        spec = {"containers": [{"name": "a", "image": "b"}], "volumes": [{"name": "v"}]}
        answer = await target.create("pods", "a", spec=spec)
        assert answer.content["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]


async def test_the_template_of_a_daemon_set_has_a_generation(target: Target) -> None:
    path = f"/apis/apps/v1/namespaces/{target.namespace}/daemonsets"
    obj = CASES["daemonset"]["sent"]
    assert (await target.request("POST", path, obj)).code == 201
    labels = {"spec": {"template": {"metadata": {"labels": {"more": "yes"}}}}}
    answer = await target.request("PATCH", f"{path}/min", labels, MERGE)
    assert answer.content["metadata"]["annotations"] == {"deprecated.daemonset.template.generation": "2"}
