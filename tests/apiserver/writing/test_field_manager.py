"""Conformance: field managers after all writes but apply."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.apiserver.conftest import GROUP, JSON, STRATEGIC, Answer, Target
from tests.apiserver.managed_fields import data, entries, managers
from trioperator.apiserver.bodies.decoding import WriteOptions
from trioperator.apiserver.writing.field_manager import as_stored, decoded, settle_entries

VERSION = f"{GROUP}/v1"
ENTRY = {
    "manager": "x",
    "operation": "Update",
    "apiVersion": "v1",
    "time": "2020-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:data": {"f:a": {}}},
}


async def create(target: Target, **content: Any) -> Answer:
    """Create a ConfigMap as the manager "one"."""
    obj = {"metadata": {"name": "a"}, **content}
    return await target.request("POST", target.path("configmaps"), obj, fieldManager="one")


class TestCreating:
    async def test_the_creator_manages_all_fields(self, target: Target) -> None:
        spec = {"tags": ["p"], "inner": {"key": "1"}, "free": {"a": {"b": [1]}, "e": {}}, "extra": {"k": 1}}
        meta = {"name": "a", "labels": {"x": "y"}, "annotations": {"p/q": "r"}}
        obj = {"apiVersion": VERSION, "kind": "Shape", "metadata": meta, "spec": spec, "status": {"x": 1}}
        answer = await target.request("POST", target.path("shapes"), obj, fieldManager="me")
        fields = {
            "f:metadata": {"f:annotations": {".": {}, "f:p/q": {}}, "f:labels": {".": {}, "f:x": {}}},
            "f:spec": {
                ".": {},
                "f:extra": {".": {}, "f:k": {}},
                "f:free": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:e": {}},
                "f:inner": {".": {}, "f:key": {}, "f:mode": {}},
                "f:size": {},
                "f:tags": {".": {}, 'v:"p"': {}},
            },
        }
        assert entries(answer) == [
            {"manager": "me", "operation": "Update", "apiVersion": VERSION, "fieldsV1": fields},
        ]
        time = answer.content["metadata"]["managedFields"][0]["time"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time)
        assert entries(await target.get(target.path("shapes", "a"))) == entries(answer)

    async def test_lists_of_builtin_kinds_are_sets_and_maps_by_their_schemas(self, target: Target) -> None:
        container = {
            "name": "one",
            "image": "a:1",
            "command": ["x"],
            "ports": [{"containerPort": 80}],
            "env": [{"name": "A", "value": "1"}],
            "resources": {"limits": {"cpu": "1"}},
        }
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
        obj = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template},
        }
        answer = await target.request("POST", target.path("deployments"), obj, fieldManager="me")
        spec = managers(answer)["me"]["f:spec"]
        assert spec["f:selector"] == {}
        assert spec["f:strategy"] == {
            "f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}},
            "f:type": {},
        }
        assert spec["f:template"]["f:metadata"] == {"f:labels": {".": {}, "f:a": {}}}
        item: dict[str, Any] = {
            ".": {},
            "f:command": {},
            "f:env": {".": {}, 'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
            "f:image": {},
            "f:imagePullPolicy": {},
            "f:name": {},
            "f:ports": {
                ".": {},
                'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}, "f:protocol": {}},
            },
            "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {}}},
            "f:terminationMessagePath": {},
            "f:terminationMessagePolicy": {},
        }
        assert spec["f:template"]["f:spec"]["f:containers"] == {'k:{"name":"one"}': item}

    async def test_without_a_schema_maps_are_granular_and_lists_are_atomic(self, target: Target) -> None:
        obj = {"apiVersion": VERSION, "kind": "Free", "metadata": {"name": "a"}, "spec": {"a": {"b": 1}, "c": [{}]}}
        answer = await target.request("POST", target.path("frees"), obj, fieldManager="me")
        assert managers(answer) == {"me": {"f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:c": {}}}}

    @pytest.mark.parametrize(
        ("user_agent", "manager"),
        [("kopf/1.2 (linux)", "kopf"), ("plain", "plain"), ("/x", "unknown"), ("x" * 200, "x" * 128)],
    )
    async def test_the_user_agent_names_the_manager(self, target: Target, user_agent: str, manager: str) -> None:
        target.client.headers["User-Agent"] = user_agent
        answer = await target.create("configmaps", "a", data={"a": "1"})
        assert [entry["manager"] for entry in entries(answer)] == [manager]

    async def test_string_data_of_a_secret_is_managed_as_data(self, target: Target) -> None:
        obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
        answer = await target.request("POST", target.path("secrets"), obj, fieldManager="me")
        assert managers(answer) == {"me": {**data("a", whole=True), "f:type": {}}}

    async def test_entries_that_come_with_a_new_object_are_kept(self, target: Target) -> None:
        meta = {"name": "a", "managedFields": [ENTRY]}
        obj = {"metadata": meta, "data": {"a": "1", "b": "2"}}
        answer = await target.request("POST", target.path("configmaps"), obj, fieldManager="me")
        assert managers(answer) == {"me": data("a", "b", whole=True)}


class TestUpdating:
    async def test_changed_fields_pass_to_the_manager_of_the_change(self, target: Target) -> None:
        await target.request(
            "POST",
            target.path("configmaps"),
            {"metadata": {"name": "a"}, "data": {"a": "1", "b": "2"}},
            fieldManager="one",
        )
        answer = await target.merge(target.path("configmaps", "a"), {"data": {"b": "3", "c": "4"}}, fieldManager="two")
        assert managers(answer) == {"one": data("a", whole=True), "two": data("b", "c")}

    async def test_removed_fields_have_no_manager(self, target: Target) -> None:
        await target.request(
            "POST",
            target.path("configmaps"),
            {"metadata": {"name": "a"}, "data": {"a": "1", "b": "2"}},
            fieldManager="one",
        )
        answer = await target.merge(target.path("configmaps", "a"), {"data": {"b": None}}, fieldManager="two")
        assert managers(answer) == {"one": data("a", whole=True)}
        answer = await target.merge(target.path("configmaps", "a"), {"data": None}, fieldManager="two")
        assert managers(answer) == {}

    async def test_the_changes_of_one_manager_add_up(self, target: Target) -> None:
        await create(target, data={"a": "1"})
        for name in ("b", "c"):
            answer = await target.merge(target.path("configmaps", "a"), {"data": {name: "1"}}, fieldManager="two")
        assert managers(answer)["two"] == data("b", "c")

    async def test_a_patch_that_changes_nothing_changes_no_manager(self, target: Target) -> None:
        before = await target.create("configmaps", "a", data={"a": "1"})
        answer = await target.merge(target.path("configmaps", "a"), {"data": {"a": "1"}}, fieldManager="two")
        assert entries(answer) == entries(before)
        assert answer.version == before.version

    async def test_json_and_strategic_patches_are_updates_too(self, target: Target) -> None:
        await target.create("configmaps", "a", data={"a": "1"})
        path = target.path("configmaps", "a")
        answer = await target.edit(path, [{"op": "add", "path": "/data/b", "value": "2"}], fieldManager="json")
        assert managers(answer)["json"] == data("b")
        answer = await target.request("PATCH", path, {"data": {"c": "3"}}, STRATEGIC, fieldManager="strategic")
        assert managers(answer)["strategic"] == data("c")

    async def test_a_replacement_takes_over_changed_fields(self, target: Target) -> None:
        await target.request(
            "POST",
            target.path("configmaps"),
            {"metadata": {"name": "a"}, "data": {"a": "1", "b": "2"}},
            fieldManager="one",
        )
        obj = {"metadata": {"name": "a"}, "data": {"a": "1", "c": "3"}}
        answer = await target.request("PUT", target.path("configmaps", "a"), obj, fieldManager="two")
        assert managers(answer) == {"one": data("a", whole=True), "two": data("c")}

    async def test_items_of_sets_are_fields(self, target: Target) -> None:
        await target.create("configmaps", "a", meta={"finalizers": ["a.b/c"]})
        path = target.path("configmaps", "a")
        patch = [{"op": "add", "path": "/metadata/finalizers/-", "value": "a.b/d"}]
        answer = await target.edit(path, patch, fieldManager="two")
        assert managers(answer)["two"] == {"f:metadata": {"f:finalizers": {'v:"a.b/d"': {}}}}
        await target.merge(path, {"metadata": {"finalizers": None}})

    async def test_an_atomic_list_has_one_manager(self, target: Target) -> None:
        await target.create("frees", "a", spec={"list": [1, 2]})
        answer = await target.merge(target.path("frees", "a"), {"spec": {"list": [1, 2, 3]}}, fieldManager="two")
        assert managers(answer)["two"] == {"f:spec": {"f:list": {}}}
        assert len(managers(answer)) == 2

    async def test_a_map_that_becomes_a_scalar_loses_its_fields(self, target: Target) -> None:
        obj = {"apiVersion": VERSION, "kind": "Free", "metadata": {"name": "a"}, "spec": {"a": {"b": {"c": 1}}}}
        await target.request("POST", target.path("frees"), obj, fieldManager="one")
        answer = await target.merge(target.path("frees", "a"), {"spec": {"a": 5}}, fieldManager="two")
        assert managers(answer) == {"one": {"f:spec": {}}, "two": {"f:spec": {"f:a": {}}}}

    async def test_more_than_ten_updaters_are_merged(self, target: Target) -> None:
        await target.request("POST", target.path("configmaps"), {"metadata": {"name": "a"}, "data": {"k00": ""}})
        for at in range(1, 13):
            patch = {"data": {f"k{at:02}": ""}}
            answer = await target.merge(target.path("configmaps", "a"), patch, fieldManager=f"m{at:02}")
        found = managers(answer)
        assert len(found) == 10
        assert {"f:k01", "f:k02"} <= found["ancient-changes"]["f:data"].keys()
        assert found["m12"] == data("k12")

    async def test_entries_are_in_the_order_of_operation_time_and_name(self, target: Target) -> None:
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        path = target.path("configmaps", "a")
        for manager in ("z", "y"):
            wanted = {**obj, "data": {manager: "1"}}
            await target.request("PATCH", path, wanted, "application/apply-patch+yaml", fieldManager=manager)
        answer = await target.merge(path, {"data": {"a": "1"}}, fieldManager="a")
        found = answer.content["metadata"]["managedFields"]
        assert [entry["operation"] for entry in found] == ["Apply", "Apply", "Update"]
        assert found == sorted(found, key=lambda entry: (entry["operation"], entry["time"], entry["manager"]))

    async def test_watches_and_lists_show_the_managers(self, target: Target) -> None:
        created = await target.create("configmaps", "a", data={"a": "1"})
        items = (await target.get(target.path("configmaps"))).content["items"]
        shown = next(item for item in items if item["metadata"]["name"] == "a")
        assert shown["metadata"]["managedFields"] == created.content["metadata"]["managedFields"]
        version = str(created.version)
        await target.merge(target.path("configmaps", "a"), {"data": {"a": "2"}}, fieldManager="two")
        only = {"resourceVersion": version, "fieldSelector": "metadata.name=a"}  # a real namespace has others
        [event] = await target.lines(target.path("configmaps"), 1, **only)
        assert [entry["manager"] for entry in event["object"]["metadata"]["managedFields"]][-1] in {
            "two",
            "python-httpx",
        }


class TestSubresources:
    async def test_the_status_has_its_own_managers(self, target: Target) -> None:
        await target.create("shapes", "a", spec={"size": 1})
        path = target.path("shapes", "a", "status")
        answer = await target.merge(path, {"status": {"a": {"b": 1}}, "spec": {"size": 9}}, fieldManager="me")
        [entry] = [entry for entry in entries(answer) if entry["manager"] == "me"]
        assert entry == {
            "manager": "me",
            "operation": "Update",
            "apiVersion": VERSION,
            "subresource": "status",
            "fieldsV1": {"f:status": {".": {}, "f:a": {".": {}, "f:b": {}}}},
        }
        answer = await target.merge(path, {"status": {"a": {"b": 2}}}, fieldManager="other")
        assert managers(answer)["other/status"] == {"f:status": {"f:a": {"f:b": {}}}}

    async def test_one_manager_has_an_entry_for_each_subresource(self, target: Target) -> None:
        obj = {"apiVersion": VERSION, "kind": "Shape", "metadata": {"name": "a"}, "spec": {"size": 1}}
        await target.request("POST", target.path("shapes"), obj, fieldManager="me")
        answer = await target.merge(target.path("shapes", "a", "status"), {"status": {"x": 1}}, fieldManager="me")
        assert managers(answer).keys() == {"me", "me/status"}

    async def test_fields_that_the_main_resource_ignores_are_not_managed(self, target: Target) -> None:
        before = await target.create("shapes", "a")
        answer = await target.merge(target.path("shapes", "a"), {"status": {"x": 1}}, fieldManager="me")
        assert entries(answer) == entries(before)

    async def test_conditions_of_builtin_kinds_are_managed_one_by_one(self, target: Target) -> None:
        service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
        assert (await target.request("POST", target.path("services"), service)).code == 201
        path = target.path("services", "s", "status")
        condition = {"type": "A", "status": "True", "reason": "R", "message": "m"}
        condition["lastTransitionTime"] = "2020-01-01T00:00:00Z"
        answer = await target.merge(path, {"status": {"conditions": [condition]}}, fieldManager="me")
        names = ("lastTransitionTime", "message", "reason", "status", "type")
        item: dict[str, Any] = {".": {}, **{f"f:{name}": {} for name in names}}
        assert managers(answer)["me/status"] == {"f:status": {"f:conditions": {".": {}, 'k:{"type":"A"}': item}}}


class TestEntriesOfClients:
    async def test_an_empty_entry_resets_the_managers(self, target: Target) -> None:
        before = await target.create("configmaps", "a", data={"a": "1"})
        path = target.path("configmaps", "a")
        answer = await target.merge(path, {"metadata": {"managedFields": [{}]}})
        assert "managedFields" not in answer.content["metadata"]
        assert answer.version > before.version
        answer = await target.merge(path, {"data": {"b": "1"}}, fieldManager="two")
        assert "managedFields" not in answer.content["metadata"]

    async def test_an_empty_list_resets_the_managers_of_builtin_kinds_only(self, target: Target) -> None:
        await target.create("configmaps", "a", data={"a": "1"})
        patch: dict[str, Any] = {"metadata": {"managedFields": []}}
        assert managers(await target.merge(target.path("configmaps", "a"), patch)) == {}
        await target.create("frees", "a", spec={"a": 1})
        assert len(managers(await target.merge(target.path("frees", "a"), patch))) == 1

    async def test_entries_can_be_set(self, target: Target) -> None:
        await target.create("configmaps", "a", data={"a": "1"})
        answer = await target.merge(target.path("configmaps", "a"), {"metadata": {"managedFields": [ENTRY]}})
        assert answer.content["metadata"]["managedFields"] == [ENTRY]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"operation": "Other"},
            {"apiVersion": ""},
            {"fieldsType": "Other"},
            {"fieldsType": ""},
            {"fieldsV1": {"nonsense": {}}},
        ],
    )
    async def test_malformed_managed_fields_are_ignored(self, target: Target, wrong: dict[str, Any]) -> None:
        before = await target.create("configmaps", "a", data={"a": "1"})
        patch = {"metadata": {"managedFields": [{**ENTRY, **wrong}]}}
        assert entries(await target.merge(target.path("configmaps", "a"), patch)) == entries(before)

    async def test_invalid_entries_are_rejected(self, target: Target) -> None:
        await target.create("configmaps", "a", data={"a": "1"})
        answer = await target.merge(target.path("configmaps", "a"), {"metadata": {"managedFields": [5]}})
        assert (answer.code, answer.reason) == (422, "Invalid")

    async def test_subresources_cannot_set_entries(self, target: Target) -> None:
        before = await target.create("shapes", "a", spec={"size": 1})
        patch: dict[str, Any] = {"metadata": {"managedFields": [{}]}}
        assert entries(await target.merge(target.path("shapes", "a", "status"), patch)) == entries(before)

    @pytest.mark.parametrize("manager", ["x" * 129, "a\tb"])
    async def test_invalid_manager_names_are_rejected(self, target: Target, manager: str) -> None:
        obj = {"metadata": {"name": "a"}}
        answer = await target.request("POST", target.path("configmaps"), obj, fieldManager=manager)
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert answer.content["details"]["causes"][0]["field"] == "fieldManager"

    async def test_force_is_for_apply_alone(self, target: Target) -> None:
        await target.create("configmaps", "a")
        answer = await target.request("PATCH", target.path("configmaps", "a"), [], JSON, force="true")
        assert answer.code == 422
        expected = "force: Forbidden: may not be specified for non-apply patch"
        assert answer.message == f'PatchOptions.meta.k8s.io "" is invalid: {expected}'


@pytest.mark.parametrize(
    ("sent", "shown", "warning"),
    [
        ([{**ENTRY, "manager": "hook"}], ["hook"], ""),
        ([{**ENTRY, "operation": "Other"}], ["one"], ".metadata.managedFields was in an invalid state after admission"),
        ([5], ["one"], ".metadata.managedFields was in an invalid state after admission"),
    ],
)
def test_invalid_entries_from_admission_are_restored(sent: list[Any], shown: list[str], warning: str) -> None:
    before = as_stored([{**ENTRY, "manager": "one"}])
    obj: dict[str, Any] = {"metadata": {"name": "a", "managedFields": sent}}
    options = WriteOptions()
    settle_entries(obj, before, options)
    assert [entry["manager"] for entry in decoded(obj["metadata"]["managedFields"])] == shown
    assert "".join(options.warnings).startswith(warning)
    assert bool(options.warnings) == bool(warning)
