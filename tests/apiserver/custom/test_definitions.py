"""Conformance: structural schemas (pruning, defaults, validation), and the lifecycle of custom resource definitions."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import trio

from tests.apiserver.conftest import GROUP, TABLE, Answer, Target, definition
from tests.apiserver.dry_runs import objects as schema_of

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class TestShapes:
    async def test_defaults_are_set(self, target: Target) -> None:
        assert (await target.create("shapes", "a", spec={})).content["spec"] == {"size": 3}
        assert (await target.create("shapes", "b", spec={"size": None})).content["spec"] == {"size": 3}
        assert "spec" not in (await target.create("shapes", "c")).content
        answer = await target.create("shapes", "d", spec={"inner": {"key": "x"}})
        assert answer.content["spec"] == {"size": 3, "inner": {"key": "x", "mode": "fast"}}

    async def test_unknown_fields_are_pruned_with_a_warning(self, target: Target) -> None:
        answer = await target.create("shapes", "a", spec={"free": {"x": {"y": 1}}, "lost": 2, "bogus": 1}, top=1)
        assert answer.content["spec"] == {"size": 3, "free": {"x": {"y": 1}}}
        assert "top" not in answer.content
        assert answer.headers.get_list("Warning") == [
            f'299 - "unknown field \\"{field}\\""' for field in ("spec.bogus", "spec.lost", "top")
        ]

    async def test_pruned_fields_do_not_change_an_object(self, target: Target) -> None:
        before = await target.create("shapes", "a", spec={"size": 1})
        after = await target.merge(target.path("shapes", "a"), {"spec": {"bogus": 1}})
        assert after.version == before.version

    async def test_strict_validation_rejects_unknown_fields(self, target: Target) -> None:
        obj = {"apiVersion": f"{GROUP}/v1", "kind": "Shape", "metadata": {"name": "a"}, "spec": {"bogus": 1}}
        answer = await target.request("POST", target.path("shapes"), obj, fieldValidation="Strict")
        assert (answer.code, answer.reason) == (400, "BadRequest")
        expected = 'strict decoding error: unknown field "spec.bogus"'
        assert answer.message == f'Shape in version "v1" cannot be handled as a Shape: {expected}'
        answer = await target.request("POST", target.path("shapes"), obj, fieldValidation="Ignore")
        assert answer.code == 201
        assert "Warning" not in answer.headers

    @pytest.mark.parametrize(
        ("spec", "stored"),
        [
            ({"extra": {"x": None, "y": 1}}, {"extra": {"y": 1}}),
            ({"inner": {"key": "k", "mode": None}}, {"inner": {"key": "k", "mode": "fast"}}),
            ({"free": [{"x": None}], "maybe": None}, None),
        ],
    )
    async def test_nulls_of_values_in_maps_are_pruned(
        self, target: Target, spec: dict[str, Any], stored: dict[str, Any] | None
    ) -> None:
        answer = await target.create("shapes", "a", spec=spec)
        if stored is None:  # a list in the place of an object
            assert answer.code == 422
        else:
            assert answer.content["spec"] == {"size": 3, **stored}

    async def test_a_merge_patch_removes_nulls_within_lists(self, target: Target) -> None:
        await target.create("frees", "a")
        answer = await target.merge(target.path("frees", "a"), {"spec": {"l": [{"x": None, "y": [None]}, None]}})
        assert answer.content["spec"] == {"l": [{"y": [None]}, None]}

    async def test_nulls_of_non_nullable_fields_are_pruned(self, target: Target) -> None:
        answer = await target.create("shapes", "a", spec={"color": None, "maybe": None, "free": {"x": None}})
        assert answer.content["spec"] == {"size": 3, "maybe": None, "free": {"x": None}}

    @pytest.mark.parametrize(
        ("spec", "field", "reason", "message"),
        [
            (
                {"size": "x"},
                "spec.size",
                "FieldValueTypeInvalid",
                'Invalid value: "string": spec.size in body must be of type integer: "string"',
            ),
            (
                {"size": 1.5},
                "spec.size",
                "FieldValueTypeInvalid",
                'Invalid value: "number": spec.size in body must be of type integer: "number"',
            ),
            (
                {"size": True},
                "spec.size",
                "FieldValueTypeInvalid",
                'Invalid value: "boolean": spec.size in body must be of type integer: "boolean"',
            ),
            (
                {"color": "green"},
                "spec.color",
                "FieldValueNotSupported",
                'Unsupported value: "green": supported values: "red", "blue"',
            ),
            (
                {"size": 101},
                "spec.size",
                "FieldValueInvalid",
                "Invalid value: 101: spec.size in body should be less than or equal to 100",
            ),
            (
                {"size": -1},
                "spec.size",
                "FieldValueInvalid",
                "Invalid value: -1: spec.size in body should be greater than or equal to 0",
            ),
            (
                {"name": "ABC"},
                "spec.name",
                "FieldValueInvalid",
                "Invalid value: \"ABC\": spec.name in body should match '^[a-z]*$'",
            ),
            ({"name": "abcdef"}, "spec.name", "FieldValueTooLong", "Too long: may not be more than 5 bytes"),
            (
                {"name": ""},
                "spec.name",
                "FieldValueInvalid",
                'Invalid value: "": spec.name in body should be at least 1 chars long',
            ),
            ({"tags": ["a", "b", "c"]}, "spec.tags", "FieldValueTooMany", "Too many: 3: must have at most 2 items"),
            ({"tags": ["a", "a"]}, "spec.tags[1]", "FieldValueDuplicate", 'Duplicate value: "a"'),
            (
                {"when": "tomorrow"},
                "spec.when",
                "FieldValueTypeInvalid",
                'Invalid value: "tomorrow": spec.when in body must be of type date-time: "tomorrow"',
            ),
            ({"inner": {}}, "spec.inner.key", "FieldValueRequired", "Required value"),
            (
                {"extra": {"x": "y"}},
                "spec.extra.x",
                "FieldValueTypeInvalid",
                'Invalid value: "string": spec.extra.x in body must be of type integer: "string"',
            ),
            (
                {"port": True},
                "spec.port",
                "FieldValueTypeInvalid",
                'Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"',
            ),
        ],
    )
    async def test_invalid_values_are_rejected(
        self, target: Target, spec: dict[str, Any], field: str, reason: str, message: str
    ) -> None:
        answer = await target.create("shapes", "a", spec=spec)
        assert (answer.code, answer.reason) == (422, "Invalid")
        cause = answer.content["details"]["causes"][0]
        assert (cause["field"], cause["reason"], cause["message"]) == (field, reason, message)
        assert f"{field}: {message}" in answer.message

    async def test_patches_are_validated_too(self, target: Target) -> None:
        await target.create("shapes", "a")
        answer = await target.merge(target.path("shapes", "a"), {"spec": {"color": "green"}})
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert answer.content["details"]["kind"] == "Shape"

    @pytest.mark.parametrize("port", [80, "http"])
    async def test_int_or_string_accepts_both(self, target: Target, port: Any) -> None:
        assert (await target.create("shapes", "a", spec={"port": port})).content["spec"]["port"] == port


class TestDefinitions:
    async def test_a_definition_is_established(self, target: Target, unique: str) -> None:
        obj = definition(f"{unique}s", unique.capitalize())
        answer = await target.request("POST", DEFINITIONS, obj)
        assert answer.code == 201
        assert answer.content["spec"]["names"] == {
            "plural": f"{unique}s",
            "singular": unique,
            "kind": unique.capitalize(),
            "listKind": f"{unique.capitalize()}List",
        }
        assert answer.content["spec"]["conversion"] == {"strategy": "None"}
        assert answer.content["status"]["storedVersions"] == ["v1"]
        path = f"{DEFINITIONS}/{unique}s.{GROUP}"
        status = await conditions(target, path)
        found = {item["type"]: (item["status"], item["reason"]) for item in status["conditions"]}
        assert found == {"NamesAccepted": ("True", "NoConflicts"), "Established": ("True", "InitialNamesAccepted")}
        assert status["acceptedNames"]["plural"] == f"{unique}s"
        await target.until(f"/apis/{GROUP}/v1/{unique}s", 200)
        await target.delete(path)

    async def test_deleting_a_definition_deletes_its_objects(self, target: Target, unique: str) -> None:
        path, objects = await self.make(target, unique)
        for name, finalizers in (("plain", []), ("kept", ["a.b/c"])):
            obj = self.obj(unique, name, finalizers=finalizers)
            assert (await target.request("POST", objects, obj)).code == 201
        assert (await target.delete(path)).code == 200
        await target.until(f"{objects}/plain", 404)
        await target.marked(f"{objects}/kept")
        answer = await target.request("POST", objects, self.obj(unique, "late"))
        assert (answer.code, answer.reason) == (403, "Forbidden")
        assert "create not allowed while custom resource definition is terminating" in answer.message
        status = (await target.get(path)).content["status"]
        assert ("Terminating", "True") in [(item["type"], item["status"]) for item in status["conditions"]]
        await target.merge(f"{objects}/kept", {"metadata": {"finalizers": None}})
        await target.until(path, 404)
        gone = "404 page not found\n"
        await target.eventually(lambda: target.get(objects), lambda answer: bool(answer.content == gone))

    async def make(self, target: Target, unique: str, **version: Any) -> tuple[str, str]:
        obj = definition(f"{unique}s", unique.capitalize(), **version)
        return await self.create(target, obj)

    async def create(self, target: Target, obj: dict[str, Any]) -> tuple[str, str]:
        answer = await target.request("POST", DEFINITIONS, obj)
        assert answer.code == 201, answer.content
        path = f"{DEFINITIONS}/{obj['metadata']['name']}"
        await conditions(target, path)
        objects = f"/apis/{GROUP}/v1/namespaces/{target.namespace}/{obj['spec']['names']['plural']}"
        await target.until(objects, 200)
        if target.is_real:
            await trio.sleep(0.5)
        return path, objects

    def obj(self, unique: str, name: str, *, version: str = "v1", **meta: Any) -> dict[str, Any]:
        meta = {key: value for key, value in meta.items() if value}
        return {
            "apiVersion": f"{GROUP}/{version}",
            "kind": unique.capitalize(),
            "metadata": {"name": name, **meta},
        }

    async def test_versions_share_their_objects(self, target: Target, unique: str) -> None:
        obj = definition(f"{unique}s", unique.capitalize())
        second = {**copy.deepcopy(obj["spec"]["versions"][0]), "name": "v1beta1", "storage": False}
        obj["spec"]["versions"].append(second)
        path, objects = await self.create(target, obj)
        await target.request("POST", objects, {**self.obj(unique, "a"), "spec": {"x": 1}})
        other = objects.replace("/v1/", "/v1beta1/")
        answer = await target.get(f"{other}/a")
        assert (answer.content["apiVersion"], answer.content["spec"]) == (f"{GROUP}/v1beta1", {"x": 1})
        assert (await target.get(other)).content["items"][0]["apiVersion"] == f"{GROUP}/v1beta1"
        answer = await target.merge(f"{other}/a", {"spec": {"y": 2}})
        assert answer.content["apiVersion"] == f"{GROUP}/v1beta1"
        assert answer.content["metadata"]["generation"] == 2
        assert (await target.get(f"{objects}/a")).content["apiVersion"] == f"{GROUP}/v1"
        events = await target.lines(other, 1)
        assert events[0]["object"]["apiVersion"] == f"{GROUP}/v1beta1"
        group = (await target.get(f"/apis/{GROUP}")).content
        assert [item["version"] for item in group["versions"]] == ["v1", "v1beta1"]
        await target.delete(path)

    async def test_the_scope_and_the_kind_of_a_definition_are_immutable(self, target: Target, unique: str) -> None:
        path, _ = await self.make(target, unique)
        for spec, field in (({"scope": "Cluster"}, "scope"), ({"names": {"kind": "Other"}}, "names.kind")):
            answer = await target.merge(path, {"spec": spec})
            assert (answer.code, answer.reason) == (422, "Invalid")
            assert f"spec.{field}: Invalid value" in answer.message
            assert "field is immutable" in answer.message
        await target.delete(path)

    async def test_a_stored_version_cannot_be_removed(self, target: Target, unique: str) -> None:
        path, _ = await self.make(target, unique)
        first = (await target.get(path)).content["spec"]["versions"][0]
        second = {**first, "name": "v2"}
        versions = [{**first, "storage": False}, second]
        answer = await target.merge(path, {"spec": {"versions": versions}})
        assert answer.content["status"]["storedVersions"] == ["v1", "v2"]  # at once
        answer = await target.merge(path, {"spec": {"versions": [second]}})
        assert answer.code == 422
        assert 'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions' in answer.message
        assert (await target.merge(f"{path}/status", {"status": {"storedVersions": ["v2"]}})).code == 200
        assert (await target.merge(path, {"spec": {"versions": [second]}})).code == 200
        await target.delete(path)

    async def test_a_changed_definition_changes_the_served_kinds(self, target: Target, unique: str) -> None:
        path, objects = await self.make(target, unique)
        await target.request("POST", objects, self.obj(unique, "a"))
        answer = await target.merge(f"{objects}/a/status", {"status": {"x": 1}})
        assert answer.code == 404
        current = (await target.get(path)).content
        current["spec"]["versions"][0]["subresources"] = {"status": {}}
        current["spec"]["versions"][0]["additionalPrinterColumns"] = [
            {"name": "X", "type": "string", "jsonPath": ".status.x"}
        ]
        assert (await target.request("PUT", path, current)).content["metadata"]["generation"] == 2
        patch = {"status": {"x": 1}}
        await target.eventually(lambda: target.merge(f"{objects}/a/status", patch), lambda answer: answer.code == 200)
        answer = await target.get(objects, accept=TABLE)
        assert answer.content["rows"][0]["cells"] == ["a", "1"]
        await target.delete(path)

    async def test_a_changed_schema_holds_for_reads_of_stored_schema_of(self, target: Target, unique: str) -> None:
        text = {"type": "string"}
        old = schema_of(spec=schema_of(a=text, b=text, n={**text, "nullable": True}))
        path, place = await self.make(target, unique, schema={"openAPIV3Schema": old})
        obj = {**self.obj(unique, "a"), "spec": {"a": "1", "b": "2", "n": None}}
        version = (await target.request("POST", place, obj)).version
        current = (await target.get(path)).content
        new = schema_of(spec=schema_of(a=text, c={**text, "default": "C"}, n=text))
        current["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": new}
        assert (await target.request("PUT", path, current)).code == 200
        expected = {"a": "1", "c": "C"}
        answer = await target.eventually(lambda: target.get(f"{place}/a"), lambda answer: "c" in answer.content["spec"])
        assert (answer.content["spec"], answer.version) == (expected, version)
        assert [item["spec"] for item in (await target.get(place)).content["items"]] == [expected]
        assert (await target.lines(place, 1))[0]["object"]["spec"] == expected
        answer = await target.merge(f"{place}/a", {"metadata": {"labels": {"x": "y"}}})
        assert (answer.content["spec"], answer.content["metadata"]["generation"]) == (expected, 1)
        assert "Warning" not in answer.headers
        await target.delete(path)

    async def test_objects_of_other_versions_get_the_defaults_of_the_storage_version(
        self, target: Target, unique: str
    ) -> None:
        text = {"type": "string"}
        path, place = await self.make(target, unique, schema={"openAPIV3Schema": schema_of(a=text)})
        current = (await target.get(path)).content
        schema = {"openAPIV3Schema": schema_of(a=text, d={**text, "default": "D"})}
        versions = current["spec"]["versions"]
        versions[:] = [{**versions[0], "storage": False}, {**versions[0], "name": "v2", "schema": schema}]
        await target.request("PUT", path, current)
        other = place.replace("/v1/", "/v2/")
        await target.until(other, 200)
        assert (await target.request("POST", place, {**self.obj(unique, "a"), "a": "x"})).code == 201
        answer = await target.get(f"{other}/a")
        assert (answer.content["a"], answer.content["d"]) == ("x", "D")
        assert "d" not in (await target.get(f"{place}/a")).content
        await target.delete(path)

    async def test_deprecated_versions_warn(self, target: Target, unique: str) -> None:
        obj = definition(f"{unique}s", unique.capitalize(), deprecated=True)
        second = {**copy.deepcopy(obj["spec"]["versions"][0]), "name": "v2", "storage": False, "deprecated": False}
        obj["spec"]["versions"].append(second)
        path, place = await self.create(target, obj)
        kind = unique.capitalize()
        warning = f'299 - "{GROUP}/v1 {kind} is deprecated; use {GROUP}/v2 {kind}"'
        for answer in (await target.get(place), await target.get(f"{place}/none"), await target.delete(place)):
            assert answer.headers.get_list("Warning") == [warning]
        async with target.client.stream("GET", place, params={"watch": "1"}) as response:
            assert response.headers.get_list("Warning") == [warning]
        assert "Warning" not in (await target.get(place.replace("/v1/", "/v2/"))).headers
        patch = [{"op": "add", "path": "/spec/versions/0/deprecationWarning", "value": "do not"}]
        assert (await target.edit(path, patch)).code == 200
        answer = await target.eventually(
            lambda: target.get(place), lambda answer: answer.headers.get_list("Warning") != [warning]
        )
        assert answer.headers.get_list("Warning") == ['299 - "do not"']
        await target.delete(path)

    async def test_versions_from_before_a_kind_existed_have_expired(self, target: Target, unique: str) -> None:
        before = (await target.get(f"/api/v1/namespaces/{target.namespace}")).version
        path, place = await self.make(target, unique)
        events = await target.lines(place, 1, resourceVersion=str(before))
        assert (events[0]["type"], events[0]["object"]["code"]) == ("ERROR", 410)
        await target.delete(path)

    async def test_the_response_to_a_deletion_says_that_it_is_pending(self, target: Target, unique: str) -> None:
        path, _ = await self.make(target, unique)
        conditions = (await target.delete(path)).content["status"]["conditions"]
        assert [item["reason"] for item in conditions if item["type"] == "Terminating"] == ["InstanceDeletionPending"]

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"scope": "Bad"}, 'spec.scope: Unsupported value: "Bad": supported values: "Cluster", "Namespaced"'),
            ({"group": "other.dev"}, 'metadata.name: Invalid value: "bads.conformance.dev": must be spec.names.plural'),
            ({"versions": []}, "spec.versions: Invalid value: []: must have exactly one version marked as storage"),
        ],
    )
    async def test_an_invalid_definition_is_rejected(self, target: Target, change: dict[str, Any], text: str) -> None:
        obj = definition("bads", "Bad")
        obj["spec"] |= change
        answer = await target.request("POST", DEFINITIONS, obj)
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert text in answer.message

    async def test_a_schema_is_required(self, target: Target) -> None:
        obj = definition("bads", "Bad")
        del obj["spec"]["versions"][0]["schema"]
        answer = await target.request("POST", DEFINITIONS, obj)
        assert answer.code == 422
        assert "spec.versions[0].schema.openAPIV3Schema: Required value" in answer.message

    async def test_a_schema_must_be_structural(self, target: Target) -> None:
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"description": "no type"}}}}
        answer = await target.request("POST", DEFINITIONS, definition("bads", "Bad", schema=schema))
        assert answer.code == 422
        field = "spec.validation.openAPIV3Schema.properties[spec].type"
        assert f"{field}: Required value: must not be empty for specified object fields" in answer.message

    async def test_names_that_are_taken_are_not_accepted(self, target: Target, unique: str) -> None:
        obj = definition(f"{unique}s", "Free")  # the kind of another definition in the group
        assert (await target.request("POST", DEFINITIONS, obj)).code == 201
        path = f"{DEFINITIONS}/{unique}s.{GROUP}"
        status = await conditions(target, path)
        found = {item["type"]: item["status"] for item in status["conditions"]}
        assert found == {"NamesAccepted": "False", "Established": "False"}
        await target.delete(path)


async def conditions(target: Target, path: str) -> dict[str, Any]:
    """Wait until the definition has both conditions, and is no longer being installed; return its status."""

    def is_settled(answer: Answer) -> bool:
        found = answer.content["status"].get("conditions") or ()
        return len(found) >= 2 and all(item["reason"] != "Installing" for item in found)

    answer = await target.eventually(lambda: target.get(path), is_settled)
    status: dict[str, Any] = answer.content["status"]
    return status
