"""Conformance: decoding of built-in kinds; unknown fields are dropped, invalid values are rejected."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from tests.apiserver.conftest import JSON, MERGE, STRATEGIC, Answer, Target

APPS, CORE = "/apis/apps/v1/namespaces/{}/", "/api/v1/namespaces/{}/"
META = {"name": "a"}


async def send(target: Target, path: str, body: Any, **params: str) -> Answer:
    return await target.request("POST", path.format(target.namespace), body, **params)


def deployment(*, meta: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "one", **container}]}
    template = {"metadata": {"labels": {"a": "b"}, **(meta or {})}, "spec": spec}
    return {"metadata": META, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}


def warnings(answer: Answer) -> list[str]:
    return sorted(
        text.split('"', 1)[1].removesuffix('"').replace("\\", "") for text in answer.headers.get_list("Warning")
    )


class TestWrongTypes:
    @pytest.mark.parametrize(
        ("plural", "content", "problem"),
        [
            ("deployments", {"spec": "x"}, "string into Go struct field Deployment.spec of type v1.DeploymentSpec"),
            ("deployments", {"spec": []}, "array into Go struct field Deployment.spec of type v1.DeploymentSpec"),
            (
                "deployments",
                {"spec": {"replicas": "x"}},
                "string into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                "deployments",
                {"spec": {"replicas": 1.5}},
                "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                "deployments",
                {"spec": {"replicas": 3000000000}},
                "number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                "deployments",
                {"spec": {"paused": "yes"}},
                "string into Go struct field DeploymentSpec.spec.paused of type bool",
            ),
            (
                "deployments",
                {"spec": {"selector": {"matchLabels": ["a"]}}},
                "array into Go struct field LabelSelector.spec.selector.matchLabels of type map[string]string",
            ),
            (
                "deployments",
                {"spec": {"template": {"spec": {"containers": {"name": "a"}}}}},
                "object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
            ),
            (
                "deployments",
                {"spec": {"template": {"spec": {"containers": ["a"]}}}},
                "string into Go struct field PodSpec.spec.template.spec.containers of type v1.Container",
            ),
            (
                "deployments",
                {"spec": {"strategy": {"rollingUpdate": {"maxSurge": True}}}},
                "bool into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32",
            ),
            (
                "services",
                {"spec": {"ports": [{"port": "80"}]}},
                "string into Go struct field ServicePort.spec.ports.port of type int32",
            ),
            ("configmaps", {"data": {"a": 1}}, "number into Go struct field ConfigMap.data of type string"),
            ("configmaps", {"data": []}, "array into Go struct field ConfigMap.data of type map[string]string"),
            ("secrets", {"data": {"a": 1}}, "number into Go struct field Secret.data of type []uint8"),
            (
                "configmaps",
                {"metadata": {"name": "a", "labels": {"a": 1}}},
                "number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                "configmaps",
                {"metadata": {"name": "a", "ownerReferences": [{"controller": "yes"}]}},
                "string into Go struct field OwnerReference.metadata.ownerReferences.controller of type bool",
            ),
        ],
    )
    async def test_are_rejected(self, target: Target, plural: str, content: dict[str, Any], problem: str) -> None:
        answer = await target.request("POST", target.path(plural), {"metadata": META, **content})
        kind = {"deployments": "Deployment", "services": "Service", "secrets": "Secret"}.get(plural, "ConfigMap")
        expected = f'{kind} in version "v1" cannot be handled as a {kind}: json: cannot unmarshal {problem}'
        assert (answer.code, answer.reason, answer.message) == (400, "BadRequest", expected)

    @pytest.mark.parametrize(
        ("plural", "content", "problem"),
        [
            (
                "deployments",
                deployment(resources={"limits": {"cpu": "much"}}),
                r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            (
                "deployments",
                deployment(resources={"limits": {"cpu": "5KK"}}),
                "unable to parse quantity's suffix",
            ),
            (
                "configmaps",
                {"metadata": {"name": "a", "creationTimestamp": "now"}},
                'parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006"',
            ),
            (
                "configmaps",
                {"metadata": {"name": "a", "creationTimestamp": "2020-01-01 10:00:00Z"}},
                'parsing time "2020-01-01 10:00:00Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 10:00:00Z" as "T"',
            ),
            (
                "configmaps",
                {"metadata": {"name": "a", "creationTimestamp": "2020-13-01T10:00:00Z"}},
                'parsing time "2020-13-01T10:00:00Z": month out of range',
            ),
            ("secrets", {"metadata": META, "data": {"a": "x y"}}, "illegal base64 data at input byte 1"),
            ("secrets", {"metadata": META, "data": {"a": "abcde"}}, "illegal base64 data at input byte 4"),
        ],
    )
    async def test_invalid_strings_are_rejected(
        self, target: Target, plural: str, content: dict[str, Any], problem: str
    ) -> None:
        answer = await target.request("POST", target.path(plural), content)
        kind = {"deployments": "Deployment", "secrets": "Secret"}.get(plural, "ConfigMap")
        expected = f'{kind} in version "v1" cannot be handled as a {kind}: {problem}'
        assert (answer.code, answer.reason, answer.message) == (400, "BadRequest", expected)

    async def test_are_rejected_deep_below(self, target: Target) -> None:
        container = {"name": "main", "image": "one", "ports": [{"containerPort": "80"}]}
        job = {"template": {"spec": {"containers": [container]}}}
        path = "/apis/batch/v1/namespaces/{}/cronjobs"
        answer = await send(target, path, {"metadata": META, "spec": {"jobTemplate": {"spec": job}}})
        field = "ContainerPort.spec.jobTemplate.spec.template.spec.containers.ports.containerPort"
        assert answer.code == 400
        assert answer.message.endswith(f"cannot unmarshal string into Go struct field {field} of type int32")

    async def test_micro_times_are_normalized(self, target: Target) -> None:
        path = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
        answer = await send(target, path, {"metadata": META, "spec": {"renewTime": "2020-01-01T10:00:00Z"}})
        layout = "2006-01-02T15:04:05.000000Z07:00"
        expected = f'parsing time "2020-01-01T10:00:00Z" as "{layout}": cannot parse "Z" as ".000000"'
        assert (answer.code, answer.message.endswith(expected)) == (400, True)
        spec = {"renewTime": "2020-01-01T10:00:00.000001+02:00"}
        answer = await send(target, path, {"metadata": META, "spec": spec})
        assert answer.content["spec"] == {"renewTime": "2020-01-01T08:00:00.000001Z"}


class TestValues:
    @pytest.mark.parametrize(
        ("sent", "stored"),
        [
            ("1", "1"),
            (1, "1"),
            (0.5, "500m"),
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("2000m", "2"),
            ("1024", "1024"),
            ("100000", "100k"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("0", "0"),
        ],
    )
    async def test_quantities_are_normalized(self, target: Target, sent: Any, stored: str) -> None:
        obj = deployment(resources={"limits": {"memory": sent}})
        answer = await target.request("POST", target.path("deployments"), obj, dryRun="All")
        assert answer.code == 201, answer.content
        [container] = answer.content["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == {"memory": stored}

    async def test_nulls_and_empty_lists_and_maps_count_as_absent(self, target: Target) -> None:
        obj = deployment(env=[], args=None, command=[], resources={"limits": {}}, meta={"annotations": {}})
        obj["spec"]["paused"] = None
        obj["spec"]["template"]["spec"]["nodeSelector"] = {}
        answer = await target.request("POST", target.path("deployments"), obj)
        spec = answer.content["spec"]
        [container] = spec["template"]["spec"]["containers"]
        assert (answer.code, "paused" in spec, "nodeSelector" in spec["template"]["spec"]) == (201, False, False)
        assert container["resources"] == {}
        assert not {"env", "args", "command"} & set(container)
        assert set(spec["template"]["metadata"]) - {"creationTimestamp"} == {"labels"}

    async def test_zeros_of_non_pointer_fields_count_as_absent(self, target: Target) -> None:
        obj = deployment(stdin=False, workingDir="", env=[{"name": "A", "value": ""}], securityContext={"runAsUser": 0})
        obj["spec"] |= {"replicas": 0, "paused": False, "minReadySeconds": 0}
        obj["spec"]["template"]["spec"] |= {"hostNetwork": False, "nodeName": "", "shareProcessNamespace": False}
        answer = await target.request("POST", target.path("deployments"), obj, dryRun="All")
        spec = answer.content["spec"]
        pod = spec["template"]["spec"]
        [container] = pod["containers"]
        assert (spec["replicas"], pod["shareProcessNamespace"]) == (0, False)
        assert not {"paused", "minReadySeconds"} & set(spec)
        assert not {"hostNetwork", "nodeName"} & set(pod)
        assert not {"stdin", "workingDir"} & set(container)
        assert container["env"] == [{"name": "A"}]
        assert container["securityContext"] == {"runAsUser": 0}

    async def test_a_patch_to_zero_removes_a_field(self, target: Target) -> None:
        obj = deployment(tty=True)
        assert (await target.request("POST", target.path("deployments"), obj)).code == 201
        patch = {"spec": {"paused": True, "template": {"spec": {"containers": [{"name": "main", "tty": False}]}}}}
        answer = await target.request("PATCH", target.path("deployments", "a"), patch, STRATEGIC)
        [container] = answer.content["spec"]["template"]["spec"]["containers"]
        assert (answer.content["spec"]["paused"], "tty" in container) == (True, False)
        answer = await target.merge(target.path("deployments", "a"), {"spec": {"paused": False}})
        assert "paused" not in answer.content["spec"]

    async def test_nulls_in_lists_and_maps_become_zero(self, target: Target) -> None:
        answer = await target.create("configmaps", "a", data={"a": None, "b": "c"})
        assert answer.content["data"] == {"a": "", "b": "c"}


class TestUnknownFields:
    CONTENT: ClassVar[dict[str, Any]] = {
        **deployment(images="x", env=[{"name": "A", "valeu": "1"}], meta={"label": {"a": 1}}),
        "Spec": {},
        "more": 1,
    }
    UNKNOWN = (
        "Spec",
        "more",
        "spec.template.metadata.label",
        "spec.template.spec.containers[0].env[0].valeu",
        "spec.template.spec.containers[0].images",
    )

    async def test_are_dropped_with_warnings(self, target: Target) -> None:
        answer = await target.request("POST", target.path("deployments"), self.CONTENT)
        [container] = answer.content["spec"]["template"]["spec"]["containers"]
        assert (answer.code, container["env"], "images" in container) == (201, [{"name": "A"}], False)
        assert not {"Spec", "more"} & set(answer.content)
        assert warnings(answer) == [f'unknown field "{field}"' for field in sorted(self.UNKNOWN)]

    async def test_are_dropped_silently_when_ignored(self, target: Target) -> None:
        answer = await target.request("POST", target.path("deployments"), self.CONTENT, fieldValidation="Ignore")
        assert (answer.code, warnings(answer), "more" in answer.content) == (201, [], False)

    async def test_are_rejected_when_strict(self, target: Target) -> None:
        answer = await target.request("POST", target.path("deployments"), self.CONTENT, fieldValidation="Strict")
        assert (answer.code, answer.reason, warnings(answer)) == (400, "BadRequest", [])
        texts = answer.message.split("strict decoding error: ")[1].split(", ")
        assert sorted(texts) == [f'unknown field "{field}"' for field in sorted(self.UNKNOWN)]

    async def test_are_dropped_from_metadata(self, target: Target) -> None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "b"}
        answer = await target.create("configmaps", "a", meta={"more": 1, "ownerReferences": [{**owner, "more": 1}]})
        assert answer.content["metadata"]["ownerReferences"] == [owner]
        assert warnings(answer) == [
            'unknown field "metadata.more"',
            'unknown field "metadata.ownerReferences[0].more"',
        ]


class TestPatches:
    @pytest.fixture
    async def path(self, target: Target) -> str:
        assert (await target.request("POST", target.path("deployments"), deployment())).code == 201
        return target.path("deployments", "a")

    PATCHES = pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, JSON])

    @staticmethod
    def patch(content_type: str, field: str, value: Any) -> Any:
        if content_type == JSON:
            return [{"op": "add", "path": f"/spec/{field}", "value": value}]
        return {"spec": {field: value}}

    @PATCHES
    async def test_unknown_fields_are_dropped_with_warnings(self, target: Target, path: str, content_type: str) -> None:
        answer = await target.request("PATCH", path, self.patch(content_type, "more", "x"), content_type)
        assert (answer.code, "more" in answer.content["spec"]) == (200, False)
        assert warnings(answer) == ['unknown field "spec.more"']

    @PATCHES
    async def test_unknown_fields_are_rejected_when_strict(self, target: Target, path: str, content_type: str) -> None:
        patch = self.patch(content_type, "more", "x")
        answer = await target.request("PATCH", path, patch, content_type, fieldValidation="Strict")
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert answer.message.endswith('strict decoding error: unknown field "spec.more"')
        assert answer.content["details"]["causes"][0]["field"] == "patch"

    @pytest.mark.parametrize("content_type", [MERGE, JSON])
    async def test_wrong_types_are_rejected(self, target: Target, path: str, content_type: str) -> None:
        answer = await target.request("PATCH", path, self.patch(content_type, "replicas", "x"), content_type)
        field = "DeploymentSpec.spec.replicas"
        assert (answer.code, answer.reason) == (422, "Invalid")
        expected = f"json: cannot unmarshal string into Go struct field {field} of type int32"
        assert answer.message.endswith(expected)
        assert answer.content["details"]["causes"][0]["field"] == "patch"

    @pytest.mark.parametrize(
        ("patch", "problem"),
        [
            ({"spec": {"replicas": "x"}}, '"map[spec:map[replicas:x]]": unrecognized type: int32'),
            ({"spec": {"paused": "x"}}, '"map[spec:map[paused:x]]": unrecognized type: bool'),
            ({"spec": "x"}, '"map[spec:x]": cannot restore struct from: string'),
            ({"spec": ["x"]}, '"map[spec:[x]]": cannot restore struct from: slice'),
            (
                {"spec": {"template": {"spec": {"containers": "x"}}}},
                '"map[spec:map[template:map[spec:map[containers:x]]]]": cannot restore slice from string',
            ),
            (
                {"metadata": {"labels": {"a": 1}}},
                '"map[metadata:map[labels:map[a:1]]]": cannot convert int64 to string',
            ),
        ],
    )
    async def test_values_that_cannot_be_merged_are_rejected(
        self, target: Target, path: str, patch: dict[str, Any], problem: str
    ) -> None:
        answer = await target.request("PATCH", path, patch, STRATEGIC)
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert answer.message == f' "" is invalid: patch: Invalid value: {problem}'

    async def test_items_are_found_by_their_keys_at_any_depth(self, target: Target, path: str) -> None:
        more = {"name": "main", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}]}
        patch = {"spec": {"template": {"spec": {"containers": [more], "volumes": [{"name": "v", "emptyDir": {}}]}}}}
        assert (await target.request("PATCH", path, patch, STRATEGIC)).code == 200
        more = {"name": "main", "env": [{"name": "B", "value": "2"}], "ports": [{"containerPort": 80, "name": "http"}]}
        patch = {"spec": {"template": {"spec": {"containers": [more], "tolerations": [{"key": "a"}]}}}}
        answer = await target.request("PATCH", path, patch, STRATEGIC)
        spec = answer.content["spec"]["template"]["spec"]
        [container] = spec["containers"]
        assert [each["name"] for each in container["env"]] in (["A", "B"], ["B", "A"])
        assert container["ports"] == [{"containerPort": 80, "name": "http", "protocol": "TCP"}]
        assert spec["volumes"] == [{"name": "v", "emptyDir": {}}]

    async def test_the_status_is_decoded_by_its_types(self, target: Target, path: str) -> None:
        answer = await target.merge(f"{path}/status", {"status": {"more": {"a": 1}, "observedGeneration": 1}})
        assert (answer.code, warnings(answer)) == (200, ['unknown field "status.more"'])
        assert "more" not in answer.content["status"]
        answer = await target.merge(f"{path}/status", {"status": {"conditions": {}}})
        assert answer.code == 422
        field = "DeploymentStatus.status.conditions of type []v1.DeploymentCondition"
        assert answer.message.endswith(f"json: cannot unmarshal object into Go struct field {field}")


async def test_a_definition_is_decoded_by_its_types(target: Target) -> None:
    schema = {"type": "object", "bogus": 1, "properties": {"a": {"type": "string", "bogus": 1, "default": {"any": 1}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "types.example.com", "scope": "Namespaced", "names": {"kind": "A", "plural": "as"}}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    obj = {"metadata": {"name": "as.types.example.com"}, "spec": {**spec, "versions": [version]}}
    answer = await target.request("POST", path, obj, dryRun="All", fieldValidation="Strict")
    where = "spec.versions[0].schema.openAPIV3Schema"
    expected = [f'unknown field "{where}.bogus"', f'unknown field "{where}.properties.a.bogus"']
    assert sorted(answer.message.split("strict decoding error: ")[1].split(", ")) == expected
    version["name"] = 1
    answer = await target.request("POST", path, json.loads(json.dumps(obj)))
    field = "CustomResourceDefinitionVersion.spec.versions.name"
    assert answer.message.endswith(f"json: cannot unmarshal number into Go struct field {field} of type string")
