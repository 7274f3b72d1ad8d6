"""Conformance: server-side apply."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.apiserver.conftest import GROUP, Guarded, Target, definition, ensure_definition, rule
from tests.apiserver.managed_fields import data, entries, managers
from tests.apiserver.ownership.applying import APPLY, VERSION, apply, wanted
from trioperator.apiserver import Cluster

ITEM = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "proto": {"type": "string", "default": "tcp"},
        "value": {"type": "integer"},
        "more": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
KEYED = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "items": {
                    "type": "array",
                    "items": ITEM,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "proto"],
                },
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "additionalProperties": {"type": "string"},
                },
                "list": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
    },
}


@pytest.fixture
async def keyeds(target: Target) -> Target:
    """Return a target with a kind that has lists and maps of all types."""
    await ensure_definition(target, definition("keyeds", "Keyed", schema={"openAPIV3Schema": KEYED}))
    return target


# A Deployment with a quantity that is none.
TOO_WORDY = {
    "selector": {"matchLabels": {"app": "a"}},
    "template": {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "one core"}}}]},
    },
}


class TestCreating:
    async def test_a_missing_object_is_created(self, target: Target) -> None:
        answer = await apply(target, "configmaps", "me", data={"a": "1"})
        assert answer.code == 201
        assert entries(answer) == [
            {"manager": "me", "operation": "Apply", "apiVersion": "v1", "fieldsV1": data("a")},
        ]
        assert answer.content["data"] == {"a": "1"}

    async def test_defaults_are_set_without_a_manager(self, target: Target) -> None:
        answer = await apply(target, "shapes", "me", spec={"inner": {"key": "x"}})
        assert answer.content["spec"] == {"inner": {"key": "x", "mode": "fast"}, "size": 3}
        assert managers(answer) == {"me": {"f:spec": {"f:inner": {"f:key": {}}}}}

    async def test_a_dry_run_stores_nothing(self, target: Target) -> None:
        obj = wanted("configmaps", data={"a": "1"})
        path = target.path("configmaps", "a")
        answer = await target.request("PATCH", path, obj, APPLY, fieldManager="me", dryRun="All")
        assert (answer.code, answer.content["data"]) == (201, {"a": "1"})
        assert (await target.get(path)).code == 404

    async def test_yaml_is_taken(self, target: Target) -> None:
        body = yaml.safe_dump(wanted("configmaps", data={"when": "2001-01-01", "yes": "no"})).encode()
        answer = await target.request("PATCH", target.path("configmaps", "a"), body, APPLY, fieldManager="me")
        assert (answer.code, answer.content["data"]) == (201, {"when": "2001-01-01", "yes": "no"})

    async def test_the_name_is_required_in_the_body(self, target: Target) -> None:
        obj = {"apiVersion": VERSION, "kind": "Shape"}
        answer = await target.request("PATCH", target.path("shapes", "a"), obj, APPLY, fieldManager="me")
        assert (answer.code, answer.reason) == (400, "BadRequest")
        text = "the name of the object (a based on URL) was undeterminable: name must be provided"
        assert answer.message == text

    async def test_a_uid_requires_an_existing_object(self, target: Target) -> None:
        answer = await apply(target, "shapes", "me", meta={"uid": "1"})
        assert (answer.code, answer.reason) == (409, "Conflict")
        assert "uid mismatch: the provided object specified uid 1, and no existing object was found" in answer.message

    async def test_a_subresource_does_not_create(self, target: Target) -> None:
        path = target.path("shapes", "a", "status")
        answer = await target.request("PATCH", path, wanted("shapes"), APPLY, fieldManager="me")
        assert answer.code == 404

    async def test_the_namespace_must_exist(self, target: Target) -> None:
        path = target.path("configmaps", "a").replace(target.namespace, "nowhere")
        answer = await target.request("PATCH", path, wanted("configmaps"), APPLY, fieldManager="me")
        assert (answer.code, answer.message) == (404, 'namespaces "nowhere" not found')


class TestMerging:
    async def test_fields_of_other_managers_stay(self, target: Target) -> None:
        await target.create("configmaps", "a", data={"a": "1"})
        answer = await apply(target, "configmaps", "me", data={"b": "2"})
        assert (answer.code, answer.content["data"]) == (200, {"a": "1", "b": "2"})

    async def test_fields_that_are_no_longer_applied_are_removed(self, target: Target) -> None:
        await apply(target, "configmaps", "me", data={"a": "1", "b": "2"}, meta={"labels": {"x": "y"}})
        answer = await apply(target, "configmaps", "me", data={"b": "2"})
        assert answer.content["data"] == {"b": "2"}
        assert "labels" not in answer.content["metadata"]
        assert managers(answer) == {"me": data("b")}

    async def test_shared_fields_stay(self, target: Target) -> None:
        await apply(target, "configmaps", "one", data={"a": "1"})
        await apply(target, "configmaps", "two", data={"a": "1"})
        answer = await apply(target, "configmaps", "one")
        assert answer.content["data"] == {"a": "1"}
        assert managers(answer) == {"two": data("a")}
        answer = await apply(target, "configmaps", "two")
        assert "data" not in answer.content
        assert managers(answer) == {}

    async def test_fields_that_an_update_has_changed_stay(self, target: Target) -> None:
        await apply(target, "configmaps", "me", data={"a": "1", "b": "1"})
        await target.merge(target.path("configmaps", "a"), {"data": {"a": "2"}}, fieldManager="other")
        answer = await apply(target, "configmaps", "me", data={"b": "1"})
        assert answer.content["data"] == {"a": "2", "b": "1"}

    async def test_applying_the_same_again_changes_nothing(self, target: Target) -> None:
        first = await apply(target, "shapes", "me", spec={"tags": ["a"], "inner": {"key": "x"}})
        second = await apply(target, "shapes", "me", spec={"tags": ["a"], "inner": {"key": "x"}})
        assert second.content == first.content

    async def test_a_second_manager_of_the_same_values_gets_no_time(self, target: Target) -> None:
        await apply(target, "configmaps", "one", data={"a": "1"})
        answer = await apply(target, "configmaps", "two", data={"a": "1"})
        times = {entry["manager"]: entry.get("time") for entry in answer.content["metadata"]["managedFields"]}
        assert times["one"]
        assert times["two"] is None

    async def test_items_of_sets_are_added(self, target: Target) -> None:
        await apply(target, "shapes", "one", spec={"tags": ["b"]})
        answer = await apply(target, "shapes", "two", spec={"tags": ["a"]})
        assert answer.content["spec"]["tags"] == ["b", "a"]
        answer = await apply(target, "shapes", "one", spec={"size": 1})
        assert answer.content["spec"]["tags"] == ["a"]

    async def test_items_of_maps_are_merged_by_their_keys(self, keyeds: Target) -> None:
        one = [{"name": "a", "value": 1}, {"name": "b", "value": 1}, {"name": "a", "proto": "udp"}]
        await apply(keyeds, "keyeds", "one", spec={"items": one})
        two = [{"name": "b", "more": {"x": "y"}}, {"name": "c", "proto": "tcp"}]
        answer = await apply(keyeds, "keyeds", "two", spec={"items": two})
        assert answer.content["spec"]["items"] == [
            {"name": "a", "value": 1, "proto": "tcp"},
            {"name": "b", "value": 1, "more": {"x": "y"}, "proto": "tcp"},
            {"name": "a", "proto": "udp"},
            {"name": "c", "proto": "tcp"},
        ]
        assert managers(answer)["two"] == {
            "f:spec": {
                "f:items": {
                    'k:{"name":"b","proto":"tcp"}': {".": {}, "f:more": {"f:x": {}}, "f:name": {}},
                    'k:{"name":"c","proto":"tcp"}': {".": {}, "f:name": {}, "f:proto": {}},
                }
            }
        }

    async def test_an_item_is_removed_with_its_last_manager(self, keyeds: Target) -> None:
        await apply(keyeds, "keyeds", "one", spec={"items": [{"name": "a", "value": 1}, {"name": "b"}]})
        await apply(keyeds, "keyeds", "two", spec={"items": [{"name": "a", "more": {"x": "y"}}]})
        answer = await apply(keyeds, "keyeds", "one", spec={"items": [{"name": "b"}]})
        names = [(item["name"], item.get("value")) for item in answer.content["spec"]["items"]]
        assert names == [("a", None), ("b", None)]
        answer = await apply(keyeds, "keyeds", "two")
        assert [item["name"] for item in answer.content["spec"]["items"]] == ["b"]

    async def test_the_applied_order_of_items_wins(self, keyeds: Target) -> None:
        await apply(keyeds, "keyeds", "one", spec={"items": [{"name": name} for name in "abcd"]})
        await apply(keyeds, "keyeds", "two", spec={"items": [{"name": "x"}]})
        answer = await apply(keyeds, "keyeds", "one", spec={"items": [{"name": name} for name in "dbca"]})
        assert "".join(item["name"] for item in answer.content["spec"]["items"]) == "dxbca"

    async def test_atomic_maps_and_lists_are_replaced(self, keyeds: Target) -> None:
        spec: dict[str, Any] = {"whole": {"a": "1"}, "list": [{"a": 1}], "free": {"l": [1]}}
        await apply(keyeds, "keyeds", "one", spec=spec)
        spec = {"whole": {"b": "1"}, "list": [{"b": 1}], "free": {"l": [2]}}
        answer = await apply(keyeds, "keyeds", "two", spec=spec, force=True)
        assert answer.content["spec"] == spec
        assert managers(answer) == {"two": {"f:spec": {"f:free": {"f:l": {}}, "f:list": {}, "f:whole": {}}}}

    async def test_maps_without_a_schema_are_granular(self, target: Target) -> None:
        await apply(target, "frees", "one", spec={"a": {"b": {"c": 1}}})
        answer = await apply(target, "frees", "two", spec={"a": {"b": {"d": 2}}})
        assert answer.content["spec"] == {"a": {"b": {"c": 1, "d": 2}}}
        assert managers(answer)["two"] == {"f:spec": {".": {}, "f:a": {".": {}, "f:b": {".": {}, "f:d": {}}}}}

    async def test_containers_and_ports_are_merged_by_name_and_number(self, target: Target) -> None:
        def spec(*containers: dict[str, Any]) -> dict[str, Any]:
            labels = {"a": "b"}
            template = {"metadata": {"labels": labels}, "spec": {"containers": list(containers)}}
            return {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}

        first = {"name": "one", "image": "a", "ports": [{"containerPort": 80}]}
        await apply(target, "deployments", "one", spec=spec(first))
        second = {"name": "one", "ports": [{"containerPort": 81}], "env": [{"name": "A", "value": "1"}]}
        containers = [second, {"name": "x", "image": "b"}]
        answer = await apply(target, "deployments", "two", spec={"template": {"spec": {"containers": containers}}})
        containers = answer.content["spec"]["template"]["spec"]["containers"]
        assert [(item["name"], item["image"]) for item in containers] == [("one", "a"), ("x", "b")]
        assert [port["containerPort"] for port in containers[0]["ports"]] == [80, 81]
        assert containers[0]["env"] == [{"name": "A", "value": "1"}]


class TestConflicts:
    async def test_a_different_value_conflicts_with_its_manager(self, target: Target) -> None:
        await apply(target, "configmaps", "one", data={"a": "1"})
        answer = await apply(target, "configmaps", "two", data={"a": "2"})
        assert (answer.code, answer.reason) == (409, "Conflict")
        assert answer.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'
        cause = {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
        assert answer.content["details"] == {"causes": [cause]}

    async def test_an_updater_is_named_with_its_version(self, target: Target) -> None:
        obj = wanted("configmaps", data={"a": "1"})
        await target.request("POST", target.path("configmaps"), obj, fieldManager="one")
        answer = await apply(target, "configmaps", "one", data={"a": "2"})
        assert answer.message == 'Apply failed with 1 conflict: conflict with "one" using v1: .data.a'

    async def test_a_subresource_is_named_too(self, target: Target) -> None:
        await target.create("shapes", "a", spec={"size": 1})
        path = target.path("shapes", "a", "status")
        await target.merge(path, {"status": {"x": 1}}, fieldManager="one")
        obj = wanted("shapes", status={"x": 2})
        answer = await target.request("PATCH", path, obj, APPLY, fieldManager="two")
        expected = f'conflict with "one" with subresource "status" using {VERSION}: .status.x'
        assert answer.message == f"Apply failed with 1 conflict: {expected}"

    async def test_several_conflicts_are_listed_by_manager(self, keyeds: Target) -> None:
        await apply(keyeds, "keyeds", "one", spec={"items": [{"name": "a", "value": 1}], "whole": {"a": "1"}})
        await apply(keyeds, "keyeds", "two", spec={"whole": {"a": "1"}})
        answer = await apply(keyeds, "keyeds", "me", spec={"items": [{"name": "a", "value": 2}], "whole": {"a": "2"}})
        item = '.spec.items[name="a",proto="tcp"].value'
        assert answer.code == 409
        assert answer.message.split("\n") == [
            'Apply failed with 3 conflicts: conflicts with "one":',
            "- .spec.whole",
            f"- {item}",
            'conflicts with "two":',
            "- .spec.whole",
        ]
        causes = {(cause["message"], cause["field"]) for cause in answer.content["details"]["causes"]}
        assert causes == {
            ('conflict with "one"', ".spec.whole"),
            ('conflict with "one"', item),
            ('conflict with "two"', ".spec.whole"),
        }

    async def test_force_takes_over_the_fields(self, target: Target) -> None:
        await apply(target, "configmaps", "one", data={"a": "1", "b": "1"})
        answer = await apply(target, "configmaps", "two", data={"a": "2"}, force=True)
        assert answer.content["data"] == {"a": "2", "b": "1"}
        assert managers(answer) == {"one": data("b"), "two": data("a")}

    async def test_a_manager_that_lost_a_field_gets_a_conflict(self, target: Target) -> None:
        await apply(target, "configmaps", "one", data={"a": "1"})
        await apply(target, "configmaps", "two", data={"a": "2"}, force=True)
        answer = await apply(target, "configmaps", "one", data={"a": "1"})
        assert answer.message == 'Apply failed with 1 conflict: conflict with "two": .data.a'

    async def test_fields_without_a_manager_belong_to_before_first_apply(self, target: Target) -> None:
        await target.create("configmaps", "a", data={"a": "1"})
        await target.merge(target.path("configmaps", "a"), {"metadata": {"managedFields": [{}]}})
        answer = await apply(target, "configmaps", "me", data={"a": "2"})
        assert answer.message == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a'
        answer = await apply(target, "configmaps", "me", data={"b": "2"})
        assert managers(answer) == {"before-first-apply": data("a", whole=True), "me": data("b")}

    async def test_the_status_has_its_own_conflicts(self, target: Target) -> None:
        await apply(target, "shapes", "one", spec={"size": 1})
        path = target.path("shapes", "a", "status")
        obj = wanted("shapes", spec={"size": 2}, status={"x": 1})
        answer = await target.request("PATCH", path, obj, APPLY, fieldManager="two")
        assert (answer.content["spec"]["size"], answer.content["status"]) == (1, {"x": 1})
        assert managers(answer)["two/status"] == {"f:status": {"f:x": {}}}


class TestFromClientSide:
    NOTE = "kubectl.kubernetes.io/last-applied-configuration"

    async def create(self, target: Target) -> None:
        applied = '{"apiVersion":"v1","data":{"a":"1","b":"2"},"kind":"ConfigMap","metadata":{"name":"a"}}\n'
        obj = wanted("configmaps", meta={"annotations": {self.NOTE: applied}}, data={"a": "1", "b": "2"})
        await target.request("POST", target.path("configmaps"), obj, fieldManager="kubectl-client-side-apply")

    async def test_kubectl_has_no_conflicts_with_its_own_client_side_apply(self, target: Target) -> None:
        await self.create(target)
        assert (await apply(target, "configmaps", "other", data={"a": "5"})).code == 409
        answer = await apply(target, "configmaps", "kubectl", data={"a": "5"})
        assert (answer.code, answer.content["data"]) == (200, {"a": "5", "b": "2"})

    async def test_kubectl_s_annotation_is_kept_up_to_date(self, target: Target) -> None:
        await self.create(target)
        answer = await apply(target, "configmaps", "kubectl", data={"a": "5"})
        expected = '{"apiVersion":"v1","data":{"a":"5"},"kind":"ConfigMap","metadata":{"name":"a"}}\n'
        assert answer.content["metadata"]["annotations"] == {self.NOTE: expected}

    async def test_changes_of_others_since_client_side_apply_conflict(self, target: Target) -> None:
        await self.create(target)
        await target.merge(target.path("configmaps", "a"), {"data": {"b": "x"}}, fieldManager="third")
        answer = await apply(target, "configmaps", "kubectl", data={"a": "5", "b": "y"})
        assert answer.message == 'Apply failed with 1 conflict: conflict with "third" using v1: .data.b'


class TestRefusals:
    async def test_the_field_manager_is_required(self, target: Target) -> None:
        answer = await target.request("PATCH", target.path("configmaps", "a"), wanted("configmaps"), APPLY)
        assert (answer.code, answer.reason) == (422, "Invalid")
        expected = "fieldManager: Required value: is required for apply patch"
        assert answer.message == f'PatchOptions.meta.k8s.io "" is invalid: {expected}'

    @pytest.mark.parametrize(
        ("obj", "code", "text"),
        [
            ({}, 400, "invalid object type: /, Kind="),
            (
                {"apiVersion": VERSION, "kind": "Other", "metadata": {"name": "a"}},
                400,
                f"invalid object type: {VERSION}, Kind=Other",
            ),
            (
                {"apiVersion": f"{GROUP}/v2", "kind": "Shape", "metadata": {"name": "a"}},
                400,
                f"invalid object type: {GROUP}/v2, Kind=Shape",
            ),
            (wanted("shapes", meta={"managedFields": []}), 400, "metadata.managedFields must be nil"),
            (wanted("shapes", "b"), 400, "the name of the object (b) does not match the name on the URL (a)"),
            (
                wanted("shapes", meta={"namespace": "other"}),
                400,
                "the namespace of the provided object does not match the namespace sent on the request",
            ),
        ],
    )
    async def test_mismatched_configurations_are_rejected(
        self, target: Target, obj: dict[str, Any], code: int, text: str
    ) -> None:
        await target.create("shapes", "a", spec={"size": 1})
        answer = await target.request("PATCH", target.path("shapes", "a"), obj, APPLY, fieldManager="me")
        assert (answer.code, answer.message) == (code, text)

    @pytest.mark.parametrize(
        ("spec", "text"),
        [
            ({"nope": 1}, ".spec.nope: field not declared in schema"),
            ({"size": "big"}, ".spec.size: expected numeric (int or float), got string"),
            ({"name": 5}, ".spec.name: expected string, got &value.valueUnstructured{Value:5}"),
            ({"inner": [1]}, ".spec.inner: expected map, got &{[1]}"),
            ({"tags": "x"}, ".spec.tags: expected list, got &{x}"),
            ({"tags": ["x", "x"]}, '.spec.tags: duplicate entries for key [="x"]'),
        ],
    )
    async def test_values_that_violate_the_schema_cannot_be_merged(
        self, target: Target, spec: dict[str, Any], text: str
    ) -> None:
        answer = await apply(target, "shapes", "me", spec=spec)
        title = f"failed to create typed patch object (/a; {VERSION}, Kind=Shape)"
        assert (answer.code, answer.message) == (500, f"{title}: {text}")

    async def test_unknown_fields_of_builtin_kinds_are_rejected_too(self, target: Target) -> None:
        answer = await apply(target, "configmaps", "me", nope=1)
        title = "failed to create typed patch object (/a; /v1, Kind=ConfigMap)"
        assert (answer.code, answer.message) == (500, f"{title}: .nope: field not declared in schema")

    @pytest.mark.parametrize(
        ("plural", "title", "more", "text"),
        [
            ("secrets", "/v1, Kind=Secret", {"data": {"a": "!!"}}, "error decoding from json: illegal base64 data at"),
            ("deployments", "apps/v1, Kind=Deployment", {"spec": TOO_WORDY}, "quantities must match the regular"),
            (
                "events",
                "/v1, Kind=Event",
                {"lastTimestamp": "now"},
                'parsing time "now" as "2006-01-02T15:04:05Z07:00"',
            ),
        ],
        ids=["base64", "quantity", "time"],
    )
    async def test_values_that_cannot_be_converted_are_a_server_error(
        self, target: Target, plural: str, title: str, more: dict[str, Any], text: str
    ) -> None:
        answer = await apply(target, plural, "me", **more)
        converted = f"to proper version: unable to convert unstructured object to {title}: {text}"
        assert answer.code == 500
        assert answer.message.startswith(f"failed to convert new object (/a; {title}) {converted}")

    async def test_emptied_containers_are_null_and_rejected_where_null_is_invalid(self, target: Target) -> None:
        await apply(target, "shapes", "me", spec={"extra": {"k": 1}})
        answer = await apply(target, "shapes", "me", spec={"extra": {}})
        expected = 'spec.extra: Invalid value: "null": spec.extra in body must be of type object: "null"'
        assert (answer.code, answer.message) == (422, f'Shape.{GROUP} "a" is invalid: {expected}')
        await target.create("configmaps", "a")
        await apply(target, "configmaps", "me", data={"a": "1"})
        answer = await apply(target, "configmaps", "me", data={})
        assert (answer.code, answer.content.get("data")) == (200, None)

    async def test_the_merged_object_must_be_valid(self, target: Target) -> None:
        answer = await apply(target, "shapes", "me", spec={"size": 1000})
        assert (answer.code, answer.reason) == (422, "Invalid")

    @pytest.mark.parametrize(
        ("body", "text"),
        [
            (b"{x", "error converting YAML to JSON: yaml: line 1: did not find expected ',' or '}'"),
            (b"a: 1\nb: [", "error converting YAML to JSON: yaml: line 2: did not find expected node content"),
            (
                b"[1]",
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type "
                "map[string]interface {}",
            ),
        ],
    )
    async def test_invalid_yaml_is_a_bad_request(self, target: Target, body: bytes, text: str) -> None:
        await target.create("shapes", "a")
        answer = await target.request("PATCH", target.path("shapes", "a"), body, APPLY, fieldManager="me")
        assert (answer.code, answer.message) == (400, f"error decoding YAML: {text}")

    async def test_duplicate_keys_are_warned_of_or_rejected(self, target: Target) -> None:
        text = f"apiVersion: {VERSION}\nkind: Shape\nmetadata: {{name: a}}\nspec:\n  size: 3\n  size: 4\n".encode()
        path = target.path("shapes", "a")
        answer = await target.request("PATCH", path, text, APPLY, fieldManager="me")
        assert (answer.code, answer.content["spec"]["size"]) == (201, 4)
        assert answer.headers["Warning"] == '299 - "line 6: key \\"size\\" already set in map"'
        answer = await target.request("PATCH", path, text, APPLY, fieldManager="me", fieldValidation="Strict")
        problem = 'error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key "size" already set in map'
        assert (answer.code, answer.message) == (400, f"error strict decoding YAML: {problem}")
        answer = await target.request("PATCH", path, text, APPLY, fieldManager="me", fieldValidation="Ignore")
        assert "Warning" not in answer.headers

    async def test_an_old_version_conflicts(self, target: Target) -> None:
        created = await target.create("shapes", "a", spec={"size": 1})
        await target.merge(target.path("shapes", "a"), {"spec": {"size": 2}})
        old = created.content["metadata"]["resourceVersion"]
        answer = await apply(target, "shapes", "me", meta={"resourceVersion": old}, spec={"replicas": 1})
        assert (answer.code, answer.reason) == (409, "Conflict")
        assert "the object has been modified" in answer.message

    async def test_another_uid_is_invalid(self, target: Target) -> None:
        await target.create("shapes", "a", spec={"size": 1})
        answer = await apply(target, "shapes", "me", meta={"uid": "1"})
        assert answer.code == 422
        assert 'metadata.uid: Invalid value: "1": field is immutable' in answer.message


class TestRights:
    async def test_creating_by_apply_requires_the_create_permission(self, guarded: Guarded) -> None:
        user = await guarded.give("anna", rule("patch", "configmaps"))
        answer = await apply(user, "configmaps", "me", data={"a": "1"})
        assert (answer.code, answer.reason) == (403, "Forbidden")
        assert 'cannot create resource "configmaps" in API group "" in the namespace' in answer.message
        assert (await apply(guarded, "configmaps", "me", data={"a": "1"})).code == 201
        assert (await apply(user, "configmaps", "other", data={"b": "1"})).code == 200


async def test_objects_can_be_tracked_from_the_first_apply_on() -> None:
    cluster = Cluster(managed_fields=False)
    async with cluster.client() as client:
        target = Target(client, "default", is_real=False)
        assert managers(await target.create("configmaps", "a", data={"a": "1"})) == {}
        path = target.path("configmaps", "a")
        assert managers(await target.merge(path, {"data": {"b": "1"}})) == {}
        answer = await apply(target, "configmaps", "me", data={"c": "1"})
        assert managers(answer) == {"before-first-apply": data("a", "b", whole=True), "me": data("c")}
        answer = await target.merge(path, {"data": {"b": "2"}}, fieldManager="other")
        assert managers(answer)["other"] == data("b")
