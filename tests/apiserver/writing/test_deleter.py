"""Conformance: deletion, finalizers, preconditions, grace periods."""

from __future__ import annotations

from typing import Any

import pytest

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
            (
                {"propagationPolicy": ""},
                422,
                'Unsupported value: "": supported values: "Foreground", "Background", "Orphan", "nil"',
            ),
            (
                {"apiVersion": "v1", "kind": "X"},
                400,
                'no kind "X" is registered for version "v1" in scheme',
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

    async def test_a_negative_grace_period_is_one_second(self, target: Target) -> None:
        spec = {"containers": [{"name": "a", "image": "a"}], "nodeName": "n"}
        await target.create("pods", "p", spec=spec)
        path = target.path("pods", "p")
        meta = (await target.delete(path, {"gracePeriodSeconds": -1})).content["metadata"]
        assert meta["deletionGracePeriodSeconds"] == 1
        meta = (await target.delete(path, {"gracePeriodSeconds": 30})).content["metadata"]
        assert meta["deletionGracePeriodSeconds"] == 1
        await target.delete(path, {"gracePeriodSeconds": 0})
        assert (await target.get(path)).code == 404

    async def test_a_pod_on_a_node_has_its_grace_period(self, target: Target) -> None:
        spec = {"containers": [{"name": "a", "image": "a"}], "nodeName": "n", "terminationGracePeriodSeconds": 7}
        await target.create("pods", "p", spec=spec)
        meta = (await target.delete(target.path("pods", "p"))).content["metadata"]
        assert meta["deletionGracePeriodSeconds"] == 7
        assert (await target.get(target.path("pods", "p"))).code == 200
        await target.delete(target.path("pods", "p"), {"gracePeriodSeconds": 0})
        assert (await target.get(target.path("pods", "p"))).code == 404


class TestNamespaces:
    async def test_the_default_namespace_cannot_be_deleted(self, target: Target) -> None:
        answer = await target.delete("/api/v1/namespaces/default")
        assert (answer.code, answer.reason) == (403, "Forbidden")
        assert answer.message == 'namespaces "default" is forbidden: this namespace may not be deleted'

    async def test_names_of_namespaces_have_no_dots(self, target: Target) -> None:
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a.b"}}
        answer = await target.request("POST", "/api/v1/namespaces", obj)
        assert answer.code == 422
        assert "must not contain dots" in answer.message
