"""Conformance: deletion, finalizers, owners, namespaces."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.apiserver.conftest import GROUP, Target


class TestDeleting:
    async def test_an_object_is_deleted_immediately(self, target: Target) -> None:
        uid = (await target.create("frees", "a")).content["metadata"]["uid"]
        answer = await target.delete(target.path("frees", "a"))
        assert answer.code == 200
        assert answer.content == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {"name": "a", "group": GROUP, "kind": "frees", "uid": uid},
        }
        assert (await target.delete(target.path("frees", "a"))).code == 404

    async def test_finalizers_keep_an_object(self, target: Target) -> None:
        before = (await target.create("frees", "a", meta={"finalizers": ["a.b/c"]})).content["metadata"]
        answer = await target.delete(target.path("frees", "a"))
        meta = answer.content["metadata"]
        assert (answer.code, answer.content["kind"]) == (200, "Free")
        assert "deletionTimestamp" in meta
        assert meta["deletionGracePeriodSeconds"] == 0
        assert meta["generation"] == before["generation"] + 1
        again = await target.delete(target.path("frees", "a"))
        assert (again.code, again.content["metadata"]) == (200, meta)

    async def test_an_object_is_deleted_with_its_last_finalizer(self, target: Target) -> None:
        await target.create("frees", "a", meta={"finalizers": ["a.b/c", "a.b/d"]})
        path = target.path("frees", "a")
        await target.delete(path)
        operations = [
            {"op": "test", "path": "/metadata/finalizers/0", "value": "a.b/c"},
            {"op": "remove", "path": "/metadata/finalizers/0"},
        ]
        assert (await target.edit(path, operations)).content["metadata"]["finalizers"] == ["a.b/d"]
        assert (await target.get(path)).code == 200
        assert (await target.merge(path, {"metadata": {"finalizers": None}})).code == 200
        assert (await target.get(path)).code == 404
        assert (await target.merge(path, {"spec": {}})).code == 404

    async def test_terminating_objects_can_be_changed(self, target: Target) -> None:
        await target.create("frees", "a", meta={"finalizers": ["a.b/c"]})
        path = target.path("frees", "a")
        await target.delete(path)
        answer = await target.merge(path, {"spec": {"x": 1}})
        assert (answer.code, answer.content["metadata"]["generation"]) == (200, 3)
        answer = await target.merge(path, {"metadata": {"deletionTimestamp": None}})
        assert "deletionTimestamp" in answer.content["metadata"]

    async def test_terminating_objects_get_no_new_finalizers(self, target: Target) -> None:
        await target.create("frees", "a", meta={"finalizers": ["a.b/c"]})
        path = target.path("frees", "a")
        await target.delete(path)
        answer = await target.merge(path, {"metadata": {"finalizers": ["a.b/c", "a.b/d"]}})
        assert (answer.code, answer.reason) == (422, "Invalid")
        text = "no new finalizers can be added if the object is being deleted, found new finalizers []string"
        assert answer.message == f'Free.{GROUP} "a" is invalid: metadata.finalizers: Forbidden: {text}{{"a.b/d"}}'
        assert answer.content["details"]["causes"][0]["reason"] == "FieldValueForbidden"

    @pytest.mark.parametrize(
        ("preconditions", "text"),
        [
            ({"uid": "x"}, "the UID in the precondition (x) does not match the UID in record"),
            ({"resourceVersion": "1"}, "the ResourceVersion in the precondition (1) does not match"),
        ],
    )
    async def test_failed_preconditions_conflict(self, target: Target, preconditions: Any, text: str) -> None:
        await target.create("frees", "a")
        answer = await target.delete(target.path("frees", "a"), {"preconditions": preconditions})
        assert (answer.code, answer.reason, answer.content["details"]["kind"]) == (409, "Conflict", "Free")
        assert answer.message.startswith(f'Operation cannot be fulfilled on Free.{GROUP} "a": {text}')

    @pytest.mark.parametrize(
        ("body", "code", "message"),
        [
            (
                {"preconditions": "x"},
                400,
                "string into Go struct field DeleteOptions.preconditions of type v1.Preconditions",
            ),
            (
                {"preconditions": {"uid": 5}},
                400,
                "number into Go struct field Preconditions.preconditions.uid of type types.UID",
            ),
            ({"orphanDependents": []}, 400, "array into Go struct field DeleteOptions.orphanDependents of type bool"),
            (
                {"gracePeriodSeconds": "5"},
                400,
                "string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
            ),
            (
                {"gracePeriodSeconds": 1.5},
                400,
                "number 1.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
            ),
            ({"dryRun": "All"}, 400, "string into Go struct field DeleteOptions.dryRun of type []string"),
            (
                {"propagationPolicy": 5},
                400,
                "number into Go struct field DeleteOptions.propagationPolicy of type v1.DeletionPropagation",
            ),
            ({"dryRun": ["x"]}, 422, 'dryRun: Unsupported value: ["x"]: supported values: "All"'),
            (
                [],
                400,
                "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of",
            ),
            (
                5,
                400,
                "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go value of",
            ),
        ],
    )
    async def test_malformed_options_are_rejected(self, target: Target, body: Any, code: int, message: str) -> None:
        await target.create("frees", "a")
        answer = await target.delete(target.path("frees", "a"), body)
        assert answer.code == code
        assert message in answer.message
        assert (await target.get(target.path("frees", "a"))).code == 200

    async def test_the_query_is_ignored_if_there_is_a_body(self, target: Target) -> None:
        path = target.path("frees", "a")
        await target.create("frees", "a")
        assert (await target.delete(path, dryRun="All")).code == 200
        assert (await target.get(path)).code == 200
        assert (await target.delete(path, {}, dryRun="All")).code == 200
        assert (await target.get(path)).code == 404

    @pytest.mark.parametrize(
        ("query", "code", "message"),
        [
            ({"dryRun": "x"}, 422, 'dryRun: Unsupported value: ["x"]: supported values: "All"'),
            ({"dryRun": ""}, 422, 'dryRun: Unsupported value: [""]: supported values: "All"'),
            ({"gracePeriodSeconds": "x"}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
            (
                {"propagationPolicy": "x"},
                422,
                'propagationPolicy: Unsupported value: "x": supported values: "Foreground"',
            ),
            (
                {"propagationPolicy": "Orphan", "orphanDependents": "true"},
                422,
                'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both',
            ),
        ],
    )
    async def test_a_malformed_query_is_rejected(
        self, target: Target, query: dict[str, str], code: int, message: str
    ) -> None:
        await target.create("frees", "a")
        answer = await target.delete(target.path("frees", "a"), **query)
        assert answer.code == code
        assert message in answer.message

    async def test_met_preconditions_do_not_matter(self, target: Target) -> None:
        meta = (await target.create("frees", "a")).content["metadata"]
        preconditions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        assert (await target.delete(target.path("frees", "a"), {"preconditions": preconditions})).code == 200

    async def test_a_dry_run_deletes_nothing(self, target: Target) -> None:
        await target.create("frees", "a")
        assert (await target.delete(target.path("frees", "a"), dryRun="All")).code == 200
        assert (await target.get(target.path("frees", "a"))).code == 200

    @pytest.mark.parametrize(
        ("body", "code"), [(b"{x", 400), (b'{"propagationPolicy":"Bad"}', 422), (b"{}", 200), (b"", 200)]
    )
    async def test_invalid_options_are_rejected(self, target: Target, body: bytes, code: int) -> None:
        await target.create("frees", "a")
        assert (await target.delete(target.path("frees", "a"), body)).code == code

    async def test_a_collection_is_deleted_by_selector(self, target: Target) -> None:
        await target.create("frees", "a", meta={"labels": {"x": "1"}})
        await target.create("frees", "b", meta={"labels": {"x": "1"}, "finalizers": ["a.b/c"]})
        await target.create("frees", "c", meta={"labels": {"x": "2"}})
        answer = await target.delete(target.path("frees"), labelSelector="x=1")
        assert (answer.code, answer.content["kind"]) == (200, "FreeList")
        assert [item["metadata"]["name"] for item in answer.content["items"]] == ["a", "b"]
        left = (await target.get(target.path("frees"))).content["items"]
        assert [(item["metadata"]["name"], "deletionTimestamp" in item["metadata"]) for item in left] == [
            ("b", True),
            ("c", False),
        ]

    async def test_an_unscheduled_pod_is_deleted_immediately(self, target: Target) -> None:
        await target.create("pods", "p", spec={"containers": [{"name": "a", "image": "a"}]})
        answer = await target.delete(target.path("pods", "p"))
        assert (answer.code, answer.content["kind"]) == (200, "Pod")
        assert (await target.get(target.path("pods", "p"))).code == 404

    async def test_a_pod_on_a_node_has_its_grace_period(self, target: Target) -> None:
        spec = {"containers": [{"name": "a", "image": "a"}], "nodeName": "n", "terminationGracePeriodSeconds": 7}
        await target.create("pods", "p", spec=spec)
        meta = (await target.delete(target.path("pods", "p"))).content["metadata"]
        assert meta["deletionGracePeriodSeconds"] == 7
        assert (await target.get(target.path("pods", "p"))).code == 200
        await target.delete(target.path("pods", "p"), {"gracePeriodSeconds": 0})
        assert (await target.get(target.path("pods", "p"))).code == 404


class TestOwners:
    async def own(self, target: Target, owner: str, *names: str, **extra: Any) -> str:
        """Create a ConfigMap with dependents; return its uid."""
        uid = str((await target.create("configmaps", owner)).content["metadata"]["uid"])
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, **extra}
        for name in names:
            assert (await target.create("configmaps", name, meta={"ownerReferences": [reference]})).code == 201
        return uid

    async def test_dependents_are_deleted_with_their_owner(self, target: Target) -> None:
        await self.own(target, "owner", "child1", "child2")
        await target.delete(target.path("configmaps", "owner"))
        for name in ("owner", "child1", "child2"):
            await target.until(target.path("configmaps", name), 404)

    async def test_indirect_dependents_are_deleted_too(self, target: Target) -> None:
        await self.own(target, "owner")
        uid = (await target.get(target.path("configmaps", "owner"))).content["metadata"]["uid"]
        for name, parent in (("child", "owner"), ("grandchild", "child")):
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": parent, "uid": uid}
            answer = await target.create("configmaps", name, meta={"ownerReferences": [reference]})
            uid = answer.content["metadata"]["uid"]
        await target.delete(target.path("configmaps", "owner"))
        await target.until(target.path("configmaps", "grandchild"), 404)

    async def test_one_remaining_owner_keeps_a_dependent(self, target: Target) -> None:
        references = []
        for name in ("one", "two"):
            uid = (await target.create("configmaps", name)).content["metadata"]["uid"]
            references.append({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
        await target.create("configmaps", "child", meta={"ownerReferences": references})
        await target.delete(target.path("configmaps", "one"))
        path = target.path("configmaps", "child")
        left = await target.eventually(
            lambda: target.get(path), lambda answer: len(answer.content["metadata"]["ownerReferences"]) == 1
        )
        assert left.content["metadata"]["ownerReferences"] == references[1:]
        await target.delete(target.path("configmaps", "two"))
        await target.until(path, 404)

    async def test_orphaned_dependents_stay(self, target: Target) -> None:
        await self.own(target, "owner", "child")
        await target.delete(target.path("configmaps", "owner"), {"propagationPolicy": "Orphan"})
        await target.until(target.path("configmaps", "owner"), 404)
        child = (await target.get(target.path("configmaps", "child"))).content
        assert "ownerReferences" not in child["metadata"]

    async def test_in_the_foreground_the_owner_waits_for_blocking_dependents(self, target: Target) -> None:
        uid = await self.own(target, "owner")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": True}
        meta = {"ownerReferences": [reference], "finalizers": ["a.b/c"]}
        await target.create("configmaps", "child", meta=meta)
        answer = await target.delete(target.path("configmaps", "owner"), {"propagationPolicy": "Foreground"})
        assert answer.content["metadata"]["finalizers"] == ["foregroundDeletion"]
        child = target.path("configmaps", "child")
        await target.marked(child)
        assert (await target.get(target.path("configmaps", "owner"))).code == 200
        await target.merge(child, {"metadata": {"finalizers": None}})
        await target.until(target.path("configmaps", "owner"), 404)

    async def test_dependents_of_a_missing_owner_are_deleted(self, target: Target) -> None:
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "never"}
        answer = await target.create("configmaps", "child", meta={"ownerReferences": [reference]})
        assert answer.code == 201
        await target.until(target.path("configmaps", "child"), 404)

    async def test_dependents_of_an_owner_of_an_unknown_kind_stay(self, target: Target) -> None:
        reference = {"apiVersion": "nobody.dev/v1", "kind": "Nothing", "name": "never", "uid": "never"}
        await target.create("configmaps", "child", meta={"ownerReferences": [reference]})
        if target.is_real:
            await trio.sleep(1)
        assert (await target.get(target.path("configmaps", "child"))).code == 200


class TestNamespaces:
    async def make(self, target: Target, name: str) -> str:
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        answer = await target.request("POST", "/api/v1/namespaces", obj)
        assert answer.code == 201
        assert answer.content["status"] == {"phase": "Active"}
        assert answer.content["spec"] == {"finalizers": ["kubernetes"]}
        assert answer.content["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
        return f"/api/v1/namespaces/{name}"

    async def test_an_empty_namespace_is_deleted(self, target: Target, unique: str) -> None:
        path = await self.make(target, unique)
        answer = await target.delete(path)
        assert (answer.code, answer.content["status"]["phase"]) == (200, "Terminating")
        await target.until(path, 404)

    async def test_a_namespace_is_deleted_with_its_objects(self, target: Target, unique: str) -> None:
        path = await self.make(target, unique)
        obj: dict[str, Any] = {"metadata": {"name": "plain"}}
        await target.request("POST", f"{path}/configmaps", obj)
        obj = {"metadata": {"name": "kept", "finalizers": ["a.b/c"]}}
        await target.request("POST", f"{path}/configmaps", obj)
        await target.delete(path)
        await target.until(f"{path}/configmaps/plain", 404)
        kept = f"{path}/configmaps/kept"
        await target.marked(kept)
        assert (await target.get(path)).content["status"]["phase"] == "Terminating"
        answer = await target.request("POST", f"{path}/configmaps", {"metadata": {"name": "late"}})
        assert (answer.code, answer.reason) == (403, "Forbidden")
        text = f"unable to create new content in namespace {unique} because it is being terminated"
        assert answer.message == f'configmaps "late" is forbidden: {text}'
        assert answer.content["details"]["causes"][0]["reason"] == "NamespaceTerminating"
        await target.merge(kept, {"metadata": {"finalizers": None}})
        await target.until(path, 404)

    async def test_the_default_namespace_cannot_be_deleted(self, target: Target) -> None:
        answer = await target.delete("/api/v1/namespaces/default")
        assert (answer.code, answer.reason) == (403, "Forbidden")
        assert answer.message == 'namespaces "default" is forbidden: this namespace may not be deleted'

    async def test_names_of_namespaces_have_no_dots(self, target: Target) -> None:
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a.b"}}
        answer = await target.request("POST", "/api/v1/namespaces", obj)
        assert answer.code == 422
        assert "must not contain dots" in answer.message
