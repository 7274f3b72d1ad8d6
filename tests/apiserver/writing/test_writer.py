"""Conformance: creating, updating and patching objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import GROUP, STRATEGIC, Answer, Target

VERSION = f"{GROUP}/v1"


class TestCreating:
    async def test_a_new_object_gets_its_system_fields(self, target: Target) -> None:
        answer = await target.create("frees", "a", spec={"x": 1})
        assert answer.code == 201
        meta = answer.content["metadata"]
        assert meta["name"] == "a"
        assert meta["namespace"] == target.namespace
        assert meta["generation"] == 1
        assert {"uid", "resourceVersion", "creationTimestamp"} <= meta.keys()
        assert answer.content["spec"] == {"x": 1}

    async def test_client_values_of_server_set_fields_are_ignored(self, target: Target) -> None:
        wrong = {"uid": "mine", "generation": 7, "creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "x"}
        meta = (await target.create("frees", "a", meta=wrong)).content["metadata"]
        assert meta["uid"] != "mine"
        assert meta["generation"] == 1
        assert not meta["creationTimestamp"].startswith("2001")
        assert "selfLink" not in meta

    async def test_a_second_object_with_the_same_name_is_rejected(self, target: Target) -> None:
        await target.create("frees", "a")
        answer = await target.create("frees", "a")
        assert (answer.code, answer.reason) == (409, "AlreadyExists")
        assert answer.message == f'frees.{GROUP} "a" already exists'
        assert answer.content["details"] == {"name": "a", "group": GROUP, "kind": "frees"}

    async def test_the_name_of_an_object_that_is_being_deleted_is_taken(self, target: Target) -> None:
        await target.create("frees", "a", meta={"finalizers": ["a.b/c"]})
        await target.delete(target.path("frees", "a"))
        answer = await target.create("frees", "a")
        assert answer.message == f'object is being deleted: frees.{GROUP} "a" already exists'
        await target.merge(target.path("frees", "a"), {"metadata": {"finalizers": None}})

    async def test_an_object_that_etcd_would_not_store_is_rejected(self, target: Target) -> None:
        assert (await target.create("frees", "a", spec={"x": "x" * 1_572_400})).code == 201
        for answer in (
            await target.create("frees", "b", spec={"x": "x" * 1_573_000}),
            await target.merge(target.path("frees", "a"), {"spec": {"y": "y" * 600}}),
        ):
            assert (answer.code, answer.reason) == (500, "")
            assert answer.message == "etcdserver: request is too large"
        answer = await target.create("frees", "b", spec={"x": "x" * 2_500_000})
        assert answer.code == 500
        assert answer.message.startswith(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2500"
        )
        assert answer.message.endswith(" vs. 2097152)")
        assert "y" not in (await target.get(target.path("frees", "a"))).content["spec"]
        assert (await target.get(target.path("frees", "b"))).code == 404

    async def test_a_name_is_generated(self, target: Target) -> None:
        obj = {"apiVersion": VERSION, "kind": "Free", "metadata": {"generateName": "a-"}}
        answer = await target.request("POST", target.path("frees"), obj)
        assert answer.code == 201
        assert len(answer.content["metadata"]["name"]) == 7
        assert answer.content["metadata"]["generateName"] == "a-"

    async def test_a_name_is_required(self, target: Target) -> None:
        obj = {"apiVersion": VERSION, "kind": "Free", "metadata": {}}
        answer = await target.request("POST", target.path("frees"), obj)
        assert (answer.code, answer.reason) == (422, "Invalid")
        expected = "metadata.name: Required value: name or generateName is required"
        assert answer.message == f'Free.{GROUP} "" is invalid: {expected}'
        assert answer.content["details"]["causes"][0]["reason"] == "FieldValueRequired"

    @pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "dot.", "x" * 254])
    async def test_an_invalid_name_is_rejected(self, target: Target, name: str) -> None:
        answer = await target.create("frees", name)
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert answer.content["details"]["causes"][0]["field"] == "metadata.name"

    async def test_a_namespace_that_does_not_exist_is_not_found(self, target: Target) -> None:
        path = target.path("frees").replace(target.namespace, "nowhere")
        answer = await target.request("POST", path, {"apiVersion": VERSION, "kind": "Free", "metadata": {"name": "a"}})
        assert (answer.code, answer.message) == (404, 'namespaces "nowhere" not found')
        assert answer.content["details"] == {"name": "nowhere", "kind": "namespaces"}

    async def test_a_namespace_that_differs_from_the_path_is_rejected(self, target: Target) -> None:
        answer = await target.create("frees", "a", meta={"namespace": "default"})
        assert (answer.code, answer.reason) == (400, "BadRequest")
        text = "the namespace of the provided object does not match the namespace sent on the request"
        assert answer.message == text

    async def test_a_resource_version_is_rejected(self, target: Target) -> None:
        answer = await target.create("frees", "a", meta={"resourceVersion": "1"})
        assert answer.code == 500
        assert answer.message == "resourceVersion should not be set on objects to be created"

    async def test_what_is_no_resource_version_is_ignored(self, target: Target) -> None:
        assert (await target.create("frees", "a", meta={"resourceVersion": "v1"})).code == 201

    async def test_a_resource_version_matters_only_when_the_object_is_stored(self, target: Target) -> None:
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "1"}}
        answer = await target.request("POST", target.path("configmaps"), obj, dryRun="All")
        assert (answer.code, answer.content["metadata"].get("resourceVersion")) == (201, "1")
        answer = await target.create("configmaps", "a", meta={"resourceVersion": "1"}, data={"a b": ""})
        assert (answer.code, answer.reason) == (422, "Invalid")

    async def test_what_is_applied_is_created_whatever_its_resource_version(self, target: Target) -> None:
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "1"}}
        path = target.path("configmaps", "a")
        answer = await target.request("PATCH", path, obj, "application/apply-patch+yaml", fieldManager="m")
        assert answer.code == 201

    async def test_status_is_dropped_where_it_is_a_subresource(self, target: Target) -> None:
        assert "status" not in (await target.create("shapes", "a", status={"x": 1})).content
        assert (await target.create("frees", "a", status={"x": 1})).content["status"] == {"x": 1}

    @pytest.mark.parametrize(
        ("body", "text"),
        [
            (b"{x", "json parse error"),
            (b"", "json parse error"),
            (b"[1]", "json parse error"),
            (b"null", "Object 'Kind' is missing in 'null'"),
            (b'{"kind":"Free","metadata":{"name":"x"}}', "the API version in the data ()"),
            (b'{"apiVersion":"%b/v2","kind":"Free"}' % GROUP.encode(), "does not match the expected API version"),
        ],
    )
    async def test_a_malformed_body_is_a_bad_request(self, target: Target, body: bytes, text: str) -> None:
        answer = await target.request("POST", target.path("frees"), body)
        assert (answer.code, answer.reason) == (400, "BadRequest")
        assert text in answer.message

    async def test_another_kind_is_rejected(self, target: Target) -> None:
        obj = {"apiVersion": VERSION, "kind": "Other", "metadata": {"name": "a"}}
        answer = await target.request("POST", target.path("frees"), obj)
        assert answer.code == 422
        assert answer.message == f'Other.{GROUP} "a" is invalid: kind: Invalid value: "Other": must be Free'

    async def test_a_builtin_kind_may_be_omitted(self, target: Target) -> None:
        answer = await target.request("POST", target.path("configmaps"), {"metadata": {"name": "a"}})
        assert answer.code == 201
        assert (answer.content["apiVersion"], answer.content["kind"]) == ("v1", "ConfigMap")

    async def test_another_builtin_kind_is_a_bad_request(self, target: Target) -> None:
        obj = {"apiVersion": "v1", "kind": "Bogus", "metadata": {"name": "a"}}
        answer = await target.request("POST", target.path("configmaps"), obj)
        assert (answer.code, answer.reason) == (400, "BadRequest")
        assert 'Bogus in version "v1" cannot be handled as a ConfigMap' in answer.message

    async def test_an_unknown_media_type_is_rejected(self, target: Target) -> None:
        answer = await target.request("POST", target.path("frees"), b"x", "text/plain")
        assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")

    async def test_yaml_is_taken(self, target: Target) -> None:
        body = f"apiVersion: {VERSION}\nkind: Free\nmetadata: {{name: a}}\nspec: {{x: 1}}\n".encode()
        answer = await target.request("POST", target.path("frees"), body, "application/yaml")
        assert (answer.code, answer.content["spec"]) == (201, {"x": 1})

    async def test_a_body_beyond_three_mebibytes_is_too_large(self, target: Target) -> None:
        answer = await target.request("POST", target.path("frees"), b"x" * (3 * 1024 * 1024 + 1))
        assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")
        assert answer.message == "Request entity too large: limit is 3145728"

    async def test_a_dry_run_stores_nothing(self, target: Target) -> None:
        obj = {"apiVersion": VERSION, "kind": "Free", "metadata": {"name": "a"}}
        assert (await target.request("POST", target.path("frees"), obj, dryRun="All")).code == 201
        assert (await target.get(target.path("frees", "a"))).code == 404
        assert (await target.request("POST", target.path("frees"), obj, dryRun="Some")).code == 422

    async def test_whole_numbers_are_integers(self, target: Target) -> None:
        body = f'{{"apiVersion":"{VERSION}","kind":"Free","metadata":{{"name":"a"}},"spec":{{"a":1.0,"b":1.5}}}}'
        answer = await target.request("POST", target.path("frees"), body.encode())
        assert repr(answer.content["spec"]) == "{'a': 1, 'b': 1.5}"

    async def test_a_cluster_wide_object_has_no_namespace(self, target: Target, unique: str) -> None:
        answer = await target.create("globals", unique)
        assert answer.code == 201
        assert "namespace" not in answer.content["metadata"]


class TestMetadata:
    @pytest.mark.parametrize(
        ("meta", "field"),
        [
            ({"labels": {"a b": "x"}}, "metadata.labels"),
            ({"labels": {"a": "b c"}}, "metadata.labels"),
            ({"labels": {"a": "x" * 64}}, "metadata.labels"),
            ({"annotations": {"a b": "x"}}, "metadata.annotations"),
            ({"annotations": {"a/b/c": "x"}}, "metadata.annotations"),
            ({"finalizers": ["a.b/bad name"]}, "metadata.finalizers"),
            ({"ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x"}]}, "metadata.ownerReferences.uid"),
        ],
    )
    async def test_bad_metadata_is_invalid(self, target: Target, meta: dict[str, Any], field: str) -> None:
        answer = await target.create("frees", "a", meta=meta)
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert answer.content["details"]["causes"][0]["field"] == field

    async def test_only_one_owner_is_the_controller(self, target: Target) -> None:
        owner = {"apiVersion": "v1", "kind": "X", "controller": True}
        meta = {"ownerReferences": [{**owner, "name": "a", "uid": "a"}, {**owner, "name": "b", "uid": "b"}]}
        answer = await target.create("frees", "a", meta=meta)
        assert answer.code == 422
        assert 'Found "true" in references for X/a and X/b' in answer.message

    async def test_annotations_have_a_limit_in_total(self, target: Target) -> None:
        # 262,144 bytes of keys and values fit; one more does not.
        assert (await target.create("frees", "fits", meta={"annotations": {"k": "x" * 262143}})).code == 201
        answer = await target.create("frees", "a", meta={"annotations": {"k": "x" * 262143, "l": ""}})
        assert answer.code == 422
        text = "metadata.annotations: Too long: may not be more than 262144 bytes"
        assert answer.message == f'Free.{GROUP} "a" is invalid: {text}'
        assert answer.content["details"]["causes"][0]["reason"] == "FieldValueTooLong"

    async def test_unknown_fields_of_metadata_are_dropped_with_a_warning(self, target: Target) -> None:
        answer = await target.create("frees", "a", meta={"bogus": 1})
        assert "bogus" not in answer.content["metadata"]
        assert answer.headers["Warning"] == '299 - "unknown field \\"metadata.bogus\\""'

    async def test_values_of_a_wrong_type_are_rejected(self, target: Target) -> None:
        await target.create("frees", "a")
        answer = await target.merge(target.path("frees", "a"), {"metadata": {"annotations": {"k": 1}}})
        assert answer.code == 422
        assert (
            "json: cannot unmarshal number into Go struct field ObjectMeta.annotations of type string" in answer.message
        )


class TestPatching:
    async def test_a_merge_patch_merges(self, target: Target) -> None:
        await target.create("frees", "a", spec={"keep": 1, "drop": 2, "list": [1, 2]})
        answer = await target.merge(
            target.path("frees", "a"), {"spec": {"drop": None, "list": [3], "new": {"x": None}}}
        )
        assert answer.code == 200
        assert answer.content["spec"] == {"keep": 1, "list": [3], "new": {}}

    async def test_a_patch_without_changes_changes_nothing(self, target: Target) -> None:
        before = await target.create("frees", "a", spec={"x": 1})
        after = await target.merge(target.path("frees", "a"), {"spec": {"x": 1}, "metadata": {"labels": None}})
        assert after.version == before.version
        after = await target.edit(target.path("frees", "a"), [{"op": "replace", "path": "/spec/x", "value": 1}])
        assert after.version == before.version

    async def test_true_is_not_one(self, target: Target) -> None:
        before = await target.create("frees", "a", spec={"x": 1})
        after = await target.merge(target.path("frees", "a"), {"spec": {"x": True}})
        assert after.version > before.version
        assert after.content["spec"]["x"] is True

    async def test_the_generation_counts_changes_of_the_spec(self, target: Target) -> None:
        await target.create("shapes", "a", spec={"size": 1})
        path = target.path("shapes", "a")
        assert (await target.merge(path, {"spec": {"size": 2}})).content["metadata"]["generation"] == 2
        assert (await target.merge(path, {"metadata": {"labels": {"a": "b"}}})).content["metadata"]["generation"] == 2
        assert (await target.merge(f"{path}/status", {"status": {"x": 1}})).content["metadata"]["generation"] == 2

    async def test_without_a_status_subresource_status_counts_as_spec(self, target: Target) -> None:
        await target.create("frees", "a")
        answer = await target.merge(target.path("frees", "a"), {"status": {"x": 1}})
        assert answer.content["metadata"]["generation"] == 2
        assert answer.content["status"] == {"x": 1}

    async def test_system_fields_cannot_be_patched_away(self, target: Target) -> None:
        before = (await target.create("frees", "a")).content["metadata"]
        gone = {"uid": None, "creationTimestamp": None, "generation": None, "selfLink": "x"}
        after = (await target.merge(target.path("frees", "a"), {"metadata": gone})).content["metadata"]
        for field in ("uid", "creationTimestamp", "generation"):
            assert after[field] == before[field]
        changed = {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 77}
        after = (await target.merge(target.path("frees", "a"), {"metadata": changed})).content["metadata"]
        assert (after["creationTimestamp"], after["generation"]) == (before["creationTimestamp"], 1)

    @pytest.mark.parametrize("field", ["uid", "deletionTimestamp"])
    async def test_immutable_fields_are_rejected(self, target: Target, field: str) -> None:
        await target.create("frees", "a")
        value = "2001-01-01T00:00:00Z"
        answer = await target.merge(target.path("frees", "a"), {"metadata": {field: value}})
        assert answer.code == 422
        assert f'metadata.{field}: Invalid value: "{value}": field is immutable' in answer.message

    @pytest.mark.parametrize(
        ("patch", "text"),
        [
            ({"metadata": {"name": "b"}}, "the name of the object (b) does not match the name on the URL (a)"),
            (
                {"metadata": {"namespace": "b"}},
                "the namespace of the provided object does not match the namespace sent on the request",
            ),
            (
                {"metadata": None},
                "the name of the object (a based on URL) was undeterminable: name must be provided",
            ),
        ],
    )
    async def test_an_object_cannot_be_renamed(self, target: Target, patch: Any, text: str) -> None:
        await target.create("frees", "a")
        answer = await target.merge(target.path("frees", "a"), patch)
        assert (answer.code, answer.reason, answer.message) == (400, "BadRequest", text)

    async def test_a_patch_with_an_old_version_conflicts(self, target: Target) -> None:
        old = (await target.create("frees", "a")).content["metadata"]["resourceVersion"]
        path = target.path("frees", "a")
        await target.merge(path, {"spec": {"x": 1}})
        answer = await target.merge(path, {"metadata": {"resourceVersion": old}, "spec": {"x": 2}})
        assert (answer.code, answer.reason) == (409, "Conflict")
        text = "the object has been modified; please apply your changes to the latest version and try again"
        assert answer.message == f'Operation cannot be fulfilled on frees.{GROUP} "a": {text}'

    async def test_a_json_patch_is_applied_in_order(self, target: Target) -> None:
        await target.create("frees", "a", spec={"list": [1, 2]})
        operations = [
            {"op": "add", "path": "/spec/list/-", "value": 3},
            {"op": "remove", "path": "/spec/list/0"},
            {"op": "add", "path": "/metadata/labels", "value": {}},
            {"op": "add", "path": "/metadata/labels/a~1b", "value": "c"},
            {"op": "test", "path": "/spec/list/1", "value": 3},
            {"op": "copy", "from": "/spec/list", "path": "/spec/copy"},
            {"op": "move", "from": "/spec/list", "path": "/spec/moved"},
        ]
        answer = await target.edit(target.path("frees", "a"), operations)
        assert answer.code == 200, answer.content
        assert answer.content["spec"] == {"copy": [2, 3], "moved": [2, 3]}
        assert answer.content["metadata"]["labels"] == {"a/b": "c"}

    @pytest.mark.parametrize(
        ("operation", "spec"),
        [
            ({"op": "add", "path": "/spec/b"}, {"a": 1, "b": None}),
            ({"op": "replace", "path": "/spec/a"}, {"a": None}),
            ({"op": "copy", "from": "/spec/x", "path": "/spec/b"}, {"a": 1, "b": None}),
            ({"op": "test", "path": "/spec/x"}, {"a": 1}),
        ],
    )
    async def test_a_missing_value_of_a_json_patch_is_null(self, target: Target, operation: Any, spec: Any) -> None:
        await target.create("frees", "a", spec={"a": 1})
        answer = await target.edit(target.path("frees", "a"), [operation])
        assert (answer.code, answer.content["spec"]) == (200, spec)

    @pytest.mark.parametrize(
        "operation",
        [
            {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
            {"op": "test", "path": "/spec/nothing", "value": 1},
            {"op": "remove", "path": "/spec/nothing"},
            {"op": "replace", "path": "/nowhere/nothing", "value": 1},
            {"op": "add", "path": "/nowhere/nothing", "value": 1},
            {"op": "bogus", "path": "/spec"},
        ],
    )
    async def test_a_json_patch_that_cannot_be_applied_is_invalid(self, target: Target, operation: Any) -> None:
        before = await target.create("frees", "a", spec={})
        answer = await target.edit(target.path("frees", "a"), [{"op": "add", "path": "/spec/x", "value": 1}, operation])
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert answer.message == "the server rejected our request due to an error in our request"
        assert (await target.get(target.path("frees", "a"))).version == before.version

    async def test_replacing_a_missing_field_adds_it(self, target: Target) -> None:
        await target.create("frees", "a", spec={})
        answer = await target.edit(target.path("frees", "a"), [{"op": "replace", "path": "/spec/x", "value": 1}])
        assert (answer.code, answer.content["spec"]) == (200, {"x": 1})

    @pytest.mark.parametrize(
        ("content_type", "body"),
        [
            ("application/merge-patch+json", b'{"x"'),
            ("application/merge-patch+json", b"[1]"),
            ("application/merge-patch+json", b"7"),
            ("application/json-patch+json", b'{"op":"add"}'),
            ("application/json-patch+json", b"[1"),
        ],
    )
    async def test_a_malformed_patch_is_a_bad_request(self, target: Target, content_type: str, body: bytes) -> None:
        await target.create("frees", "a")
        answer = await target.request("PATCH", target.path("frees", "a"), body, content_type)
        assert (answer.code, answer.reason) == (400, "BadRequest")
        assert answer.message.startswith("error decoding patch: ")

    @pytest.mark.parametrize("content_type", ["application/json", STRATEGIC])
    async def test_custom_kinds_do_not_support_strategic_patches(self, target: Target, content_type: str) -> None:
        await target.create("frees", "a")
        answer = await target.request("PATCH", target.path("frees", "a"), {"spec": {}}, content_type)
        assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")

    async def test_missing_objects_cannot_be_patched(self, target: Target) -> None:
        answer = await target.merge(target.path("frees", "a"), {})
        assert (answer.code, answer.reason) == (404, "NotFound")
        assert answer.message == f'frees.{GROUP} "a" not found'

    async def test_a_dry_run_changes_nothing(self, target: Target) -> None:
        before = await target.create("frees", "a", spec={"x": 1})
        answer = await target.merge(target.path("frees", "a"), {"spec": {"x": 2}}, dryRun="All")
        assert answer.content["spec"] == {"x": 2}
        assert (await target.get(target.path("frees", "a"))).version == before.version

    async def test_kind_and_version_cannot_be_patched(self, target: Target) -> None:
        await target.create("frees", "a")
        answer = await target.merge(target.path("frees", "a"), {"kind": "X"})
        assert answer.message == f'X.{GROUP} "a" is invalid: kind: Invalid value: "X": must be Free'
        answer = await target.merge(target.path("frees", "a"), {"apiVersion": f"{GROUP}/v2"})
        expected = f'apiVersion: Invalid value: "{GROUP}/v2": must be {VERSION}'
        assert (answer.code, answer.message) == (422, f'Free.{GROUP} "a" is invalid: {expected}')


POD = {"containers": [{"name": "a", "image": "one"}, {"name": "b", "image": "two"}]}
EVENT: dict[str, Any] = {
    "involvedObject": {"kind": "Pod", "name": "p"},
    "reason": "R",
    "message": "M",
    "type": "Normal",
}


class TestStrategicPatching:
    async def test_items_of_lists_are_merged_by_their_key(self, target: Target) -> None:
        await target.create("pods", "p", spec=POD)
        patch = {"spec": {"containers": [{"name": "b", "image": "three"}]}, "metadata": {"labels": {"x": "y"}}}
        answer = await target.request("PATCH", target.path("pods", "p"), patch, STRATEGIC)
        assert answer.code == 200, answer.content
        assert [item["image"] for item in answer.content["spec"]["containers"]] == ["one", "three"]
        assert answer.content["metadata"]["labels"] == {"x": "y"}

    async def test_directives_replace_and_delete(self, target: Target) -> None:
        await target.create("configmaps", "c", meta={"finalizers": ["a.b/c", "a.b/d"]}, data={"x": "1", "y": "2"})
        patch: Any = {"data": {"$patch": "replace", "z": "3"}}
        path = target.path("configmaps", "c")
        assert (await target.request("PATCH", path, patch, STRATEGIC)).content["data"] == {"z": "3"}
        patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c"]}}
        answer = await target.request("PATCH", path, patch, STRATEGIC)
        assert answer.content["metadata"]["finalizers"] == ["a.b/d"]
        patch = {"metadata": {"finalizers": ["a.b/e"]}}
        answer = await target.request("PATCH", path, patch, STRATEGIC)
        assert answer.content["metadata"]["finalizers"] == ["a.b/e", "a.b/d"]

    async def test_new_items_come_before_unnamed_ones(self, target: Target) -> None:
        two: Any = [{"name": "n", "image": "n"}, {"name": "b", "image": "bb"}]
        for patch, order in (
            ({"containers": two[:1]}, "nab"),
            ({"containers": two}, "nab"),
            ({"containers": two[::-1]}, "abn"),
            ({"containers": [{"name": "a", "$patch": "delete"}, two[0]]}, "nb"),
            ({"containers": [{**two[1], "$patch": "replace"}, two[0]]}, "n"),
            ({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}, "ba"),
            ({"$setElementOrder/containers": [{"name": "b"}, {"name": "n"}], "containers": two[:1]}, "abn"),
        ):
            answer = await self.patch_template(target, {"spec": patch})
            assert answer.code == 200, answer.content
            containers = answer.content["spec"]["template"]["spec"]["containers"]
            assert "".join(item["name"] for item in containers) == order

    @pytest.mark.parametrize(
        ("patch", "code", "text"),
        [
            (
                {"containers": [{"name": "n", "image": "n"}], "$setElementOrder/containers": [{"name": "a"}]},
                500,
                "The order in patch list:\n[map[image:n name:n]]\n doesn't match $setElementOrder list:\n[map[name:a]]",
            ),
            (
                {"containers": [{"name": "a", "$patch": "other"}]},
                500,
                "unknown patch type: other in map: map[$patch:other name:a]",
            ),
            ({"securityContext": {"$patch": ["a"]}}, 500, "unknown patch type: [a] in map: map[$patch:[a]]"),
            (
                {"securityContext": {"$retainKeys": ["runAsUser"], "runAsGroup": 1}},
                400,
                "invalid patch format of retainKeys",
            ),
        ],
    )
    async def test_wrong_directives_are_rejected(
        self, target: Target, patch: dict[str, Any], code: int, text: str
    ) -> None:
        answer = await self.patch_template(target, {"spec": patch})
        assert (answer.code, answer.message.rstrip()) == (code, text)

    async def patch_template(self, target: Target, patch: dict[str, Any]) -> Answer:
        """Patch the template of a Deployment in a dry run."""
        template = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
        spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        await target.request("POST", target.path("deployments"), {"metadata": {"name": "d"}, "spec": spec})
        path = target.path("deployments", "d")
        return await target.request("PATCH", path, {"spec": {"template": patch}}, STRATEGIC, dryRun="All")


class TestReplacing:
    async def test_the_content_is_replaced(self, target: Target) -> None:
        obj = (await target.create("frees", "a", spec={"x": 1}, other=2)).content
        del obj["other"]
        obj["spec"] = {"y": 1}
        answer = await target.request("PUT", target.path("frees", "a"), obj)
        assert answer.code == 200
        assert answer.content["spec"] == {"y": 1}
        assert "other" not in answer.content

    async def test_an_old_version_conflicts(self, target: Target) -> None:
        obj = (await target.create("frees", "a")).content
        obj["spec"] = {"y": 1}
        assert (await target.request("PUT", target.path("frees", "a"), obj)).code == 200
        answer = await target.request("PUT", target.path("frees", "a"), obj)
        assert (answer.code, answer.reason) == (409, "Conflict")

    async def test_custom_kinds_need_the_version(self, target: Target) -> None:
        await target.create("frees", "a")
        obj = {"apiVersion": VERSION, "kind": "Free", "metadata": {"name": "a"}}
        answer = await target.request("PUT", target.path("frees", "a"), obj)
        assert answer.code == 422
        text = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        assert answer.message == f'frees.{GROUP} "a" is invalid: {text}'

    async def test_config_maps_do_not_need_the_version(self, target: Target) -> None:
        await target.create("configmaps", "a")
        obj = {"metadata": {"name": "a"}, "data": {"x": "y"}}
        assert (await target.request("PUT", target.path("configmaps", "a"), obj)).content["data"] == {"x": "y"}

    async def test_another_uid_conflicts(self, target: Target) -> None:
        obj = (await target.create("frees", "a")).content
        obj["metadata"]["uid"] = "x"
        answer = await target.request("PUT", target.path("frees", "a"), obj)
        assert (answer.code, answer.reason) == (409, "Conflict")
        assert "Precondition failed: UID in precondition: x" in answer.message

    async def test_a_replacement_does_not_create(self, target: Target) -> None:
        obj = {"apiVersion": VERSION, "kind": "Free", "metadata": {"name": "a"}}
        assert (await target.request("PUT", target.path("frees", "a"), obj)).code == 404


class TestSubresources:
    async def test_the_main_resource_does_not_change_the_status(self, target: Target) -> None:
        await target.create("shapes", "a")
        path = target.path("shapes", "a")
        await target.merge(f"{path}/status", {"status": {"x": 1}})
        answer = await target.merge(path, {"status": {"x": 2}, "spec": {"size": 5}})
        assert (answer.content["status"], answer.content["spec"]["size"]) == ({"x": 1}, 5)

    async def test_the_status_subresource_changes_only_the_status(self, target: Target) -> None:
        before = await target.create("shapes", "a", spec={"size": 1})
        patch = {
            "status": {"x": 1},
            "spec": {"size": 2},
            "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a.b/c"]},
        }
        answer = await target.merge(target.path("shapes", "a", "status"), patch)
        assert answer.code == 200
        assert (answer.content["status"], answer.content["spec"]) == ({"x": 1}, {"size": 1})
        assert not {"labels", "annotations", "finalizers"} & answer.content["metadata"].keys()
        assert answer.version > before.version

    async def test_a_status_patch_without_status_changes_nothing(self, target: Target) -> None:
        before = await target.create("shapes", "a")
        answer = await target.merge(target.path("shapes", "a", "status"), {"spec": {"size": 9}})
        assert answer.version == before.version

    async def test_the_status_subresource_of_builtin_kinds_accepts_metadata_too(self, target: Target) -> None:
        await target.create("pods", "p", spec=POD)
        patch = {"status": {"phase": "Running"}, "metadata": {"labels": {"a": "b"}}}
        answer = await target.merge(target.path("pods", "p", "status"), patch)
        assert answer.content["status"]["phase"] == "Running"
        assert answer.content["metadata"]["labels"] == {"a": "b"}
        answer = await target.merge(target.path("pods", "p"), {"status": {"phase": "Failed"}})
        assert answer.content["status"]["phase"] == "Running"

    async def test_without_a_status_subresource_there_is_no_path(self, target: Target) -> None:
        await target.create("frees", "a")
        answer = await target.merge(target.path("frees", "a", "status"), {"status": {"x": 1}})
        assert (answer.code, answer.message) == (404, f'frees.{GROUP} "a" not found')
        await target.create("configmaps", "a")
        answer = await target.merge(target.path("configmaps", "a", "status"), {"data": {"x": "1"}})
        assert (answer.code, answer.message) == (404, "the server could not find the requested resource")

    async def test_status_is_read_as_the_object(self, target: Target) -> None:
        await target.create("shapes", "a")
        answer = await target.get(target.path("shapes", "a", "status"))
        assert answer.content["kind"] == "Shape"

    @pytest.mark.parametrize("method", ["POST", "DELETE"])
    async def test_status_cannot_be_created_or_deleted(self, target: Target, method: str) -> None:
        await target.create("shapes", "a")
        obj = {"apiVersion": VERSION, "kind": "Shape", "metadata": {"name": "a"}}
        answer = await target.request(method, target.path("shapes", "a", "status"), obj)
        assert (answer.code, answer.reason) == (405, "MethodNotAllowed")


class TestEvents:
    async def test_events_of_both_groups_are_the_same_objects(self, target: Target) -> None:
        involved = {**EVENT["involvedObject"], "namespace": target.namespace}
        obj = {"metadata": {"name": "e", "namespace": target.namespace}, **EVENT, "involvedObject": involved}
        answer = await target.request("POST", target.path("events"), obj)
        assert answer.code == 201
        other = f"/apis/events.k8s.io/v1/namespaces/{target.namespace}/events"
        event = (await target.get(f"{other}/e")).content
        assert (event["apiVersion"], event["note"], event["regarding"]["name"]) == ("events.k8s.io/v1", "M", "p")
        assert [item["note"] for item in (await target.get(other)).content["items"]] == ["M"]
        answer = await target.merge(target.path("events", "e"), {"count": 2, "message": "N"})
        assert (answer.content["apiVersion"], answer.content["count"]) == ("v1", 2)
        event = (await target.get(f"{other}/e")).content
        assert (event["deprecatedCount"], event["note"]) == (2, "N")
        assert "apiVersion" not in (await target.get(other)).content["items"][0]

    async def test_events_are_in_the_namespace_of_their_object(self, target: Target) -> None:
        answer = await target.request("POST", target.path("events"), {"metadata": {"name": "e"}, **EVENT})
        text = 'involvedObject.namespace: Invalid value: "": does not match event.namespace'
        assert (answer.code, answer.message) == (422, f'Event "e" is invalid: {text}')


@pytest.mark.parametrize("plural", ["events", "leases", "services", "configmaps"])
async def test_an_update_creates_objects_of_a_few_kinds(target: Target, plural: str) -> None:
    group = "/apis/coordination.k8s.io/v1" if plural == "leases" else "/api/v1"
    path = f"{group}/namespaces/{target.namespace}/{plural}/a"
    body: dict[str, Any] = {"metadata": {"name": "a", "resourceVersion": "5"}}
    if plural == "events":
        body["involvedObject"] = {"namespace": target.namespace}
    if plural == "services":
        body["spec"] = {"ports": [{"port": 80}]}
    answer = await target.request("PUT", path, {**body, "metadata": {"name": "a", "uid": "x"}})
    assert answer.code == (404 if plural == "configmaps" else 409), answer.content
    answer = await target.request("PUT", path, body)
    assert answer.code == (404 if plural == "configmaps" else 201), answer.content
    if answer.code == 201:
        assert answer.content["metadata"]["uid"]
        other = {**body, "metadata": {"name": "b"}}
        assert (await target.request("PUT", path, other)).code == 400
