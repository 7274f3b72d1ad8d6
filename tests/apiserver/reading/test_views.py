"""Tests for :mod:`trioperator.apiserver.reading.views`: clients get the representation that they accept."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.apiserver.conftest import GROUP, MERGE, Target
from trioperator.apiserver.model.kinds import Catalog, Kind
from trioperator.apiserver.reading.views import View, negotiate
from trioperator.apiserver.store.storage import Stored
from trioperator.errors import ApiError

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
META = {"name": "a", "uid": "u", "resourceVersion": "3"}
LIST = {"resourceVersion": "7"}
AIM = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
EVENT = {
    "eventTime": "2020-01-01T00:00:00.000000Z",
    "reportingController": "a.b/c",
    "reportingInstance": "c",
    "action": "Start",
    "reason": "Started",
    "type": "Normal",
}
catalog = Catalog()


def now() -> datetime.datetime:
    return datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def kind(name: str) -> Kind:
    found = catalog.find(name)
    assert found is not None
    return found


def stored(**content: Any) -> Stored:
    return Stored("ns/a", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": META, **content}, 3)


@pytest.mark.parametrize(
    ("accept", "form", "is_yaml"),
    [
        ("", "object", False),
        ("*/*", "object", False),
        ("application/yaml", "object", True),
        (TABLE, "table", False),
        (f"{TABLE},application/json", "table", False),
        (f"application/json;as=Table;v=v1beta1;g=meta.k8s.io,{TABLE}", "table", False),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", "object", False),
        (METADATA, "metadata", False),
        (METADATA.replace("Metadata", "MetadataList"), "metadata", False),
        ("application/vnd.kubernetes.protobuf, application/json", "object", False),
    ],
)
def test_the_first_representation_that_is_known_is_served(accept: str, form: str, is_yaml: bool) -> None:
    view, as_yaml = negotiate(accept, include="", now=now)
    assert (view.form, as_yaml, view.is_plain) == (form, is_yaml, form == "object")


@pytest.mark.parametrize("accept", ["text/html", "application/vnd.kubernetes.protobuf", "application/json;as=Table"])
def test_an_unknown_representation_is_not_acceptable(accept: str) -> None:
    with pytest.raises(ApiError) as info:
        negotiate(accept, include="", now=now)
    assert (info.value.status, info.value.reason) == (406, "NotAcceptable")


def test_whole_objects_are_served_as_they_are_stored() -> None:
    found = stored(data={"a": "b"})
    assert View().render(kind("configmaps"), found) is found.raw


def test_items_of_builtin_lists_have_neither_version_nor_kind() -> None:
    content = msgspec.json.decode(View().render_list(kind("configmaps"), [stored(data={"a": "b"})], LIST))
    assert (content["kind"], content["apiVersion"], content["metadata"]) == ("ConfigMapList", "v1", LIST)
    assert content["items"] == [{"metadata": META, "data": {"a": "b"}}]
    assert msgspec.json.decode(View().render_list(kind("configmaps"), [], LIST))["items"] == []


def test_metadata_only_shows_nothing_else() -> None:
    expected = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": META}
    view = View("metadata")
    assert msgspec.json.decode(view.render(kind("configmaps"), stored(data={"a": "b"}))) == expected
    content = msgspec.json.decode(view.render_list(kind("configmaps"), [stored()], LIST))
    assert (content["kind"], content["items"]) == ("PartialObjectMetadataList", [expected])


@pytest.mark.parametrize(("include", "shown"), [("None", None), ("Metadata", {"metadata"}), ("Object", {"data"})])
def test_rows_of_tables_contain_what_was_requested(include: str, shown: set[str] | None) -> None:
    view, _ = negotiate(TABLE, include=include, now=now)
    content = msgspec.json.decode(view.render(kind("configmaps"), stored(data={"a": "b"})))
    assert (content["kind"], content["metadata"]) == ("Table", {"resourceVersion": "3"})
    (row,) = content["rows"]
    assert row["cells"][0] == "a"
    assert ("object" in row) is (shown is not None)
    assert (shown or set()) <= row.get("object", {}).keys()
    assert ("data" in row.get("object", {})) is (include == "Object")


def test_only_the_first_table_of_a_watch_has_column_definitions() -> None:
    view, _ = negotiate(TABLE, include="", now=now)
    first, second = (
        msgspec.json.decode(view.render(kind("configmaps"), stored(), head=head)) for head in (True, False)
    )
    assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert second["columnDefinitions"] == []
    assert second["rows"] == first["rows"]


class TestTheFirstFields:
    """Some clients look only at the first bytes of an object, and others show the column of an error."""

    @staticmethod
    async def _after_each_write(target: Target, plural: str, obj: dict[str, Any]) -> AsyncIterator[list[str]]:
        path = target.path(plural, "a")
        yield list((await target.request("POST", target.path(plural), obj)).content)
        await target.merge(path, {"metadata": {"labels": {"a": "b"}}, "data": {"c": "d"}})
        for sent, content_type in ((obj, ""), (obj, "application/apply-patch+yaml"), ({"data": {"a": "b"}}, MERGE)):
            query = {"fieldManager": "me", "force": "true"} if "apply" in content_type else {}
            if not content_type:
                version = (await target.get(path)).content["metadata"]["resourceVersion"]
                sent = {**sent, "metadata": {"name": "a", "resourceVersion": version}}
            answer = await target.request("PATCH" if content_type else "PUT", path, sent, content_type, **query)
            assert answer.code == 200, answer.content
            yield list(answer.content)
            yield list((await target.get(path)).content)
        for event in await target.lines(target.path(plural), 1, fieldSelector="metadata.name=a"):
            yield list(event["object"])

    async def test_built_in_objects_begin_with_their_kind(self, target: Target) -> None:
        obj = {"apiVersion": "v1", "metadata": {"name": "a"}, "data": {"a": "1"}, "kind": "ConfigMap"}
        async for fields in self._after_each_write(target, "configmaps", obj):
            assert fields[:3] == ["kind", "apiVersion", "metadata"]
        items = (await target.get(target.path("configmaps"))).content["items"]
        assert [next(iter(item)) for item in items if item["metadata"]["name"] == "a"] == ["metadata"]

    async def test_custom_objects_begin_with_their_version(self, target: Target) -> None:
        obj = {"kind": "Free", "spec": {"a": "1"}, "metadata": {"name": "a"}, "apiVersion": f"{GROUP}/v1"}
        async for fields in self._after_each_write(target, "frees", obj):
            assert fields[0] == "apiVersion"
        assert next(iter((await target.get(target.path("frees"))).content["items"][0])) == "apiVersion"

    @pytest.mark.parametrize(
        ("path", "start"),
        [
            ("/api/v1/namespaces/default", b'{"kind":"Namespace","apiVersion":"v1",'),
            ("/api/v1/namespaces", b'{"kind":"NamespaceList","apiVersion":"v1",'),
        ],
    )
    async def test_a_new_server_has_objects(self, target: Target, path: str, start: bytes) -> None:
        response = await target.client.get(path, headers={"Accept": "application/json"})
        assert response.content.startswith(start)

    @pytest.mark.parametrize(
        ("version", "kind", "content"),
        [
            ("autoscaling/v1", "HorizontalPodAutoscaler", {"spec": {"maxReplicas": 2, "scaleTargetRef": AIM}}),
            ("events.k8s.io/v1", "Event", EVENT),
        ],
    )
    async def test_other_versions_than_the_stored_one(
        self, target: Target, version: str, kind: str, content: dict[str, Any]
    ) -> None:
        path = f"/apis/{version}/namespaces/{target.namespace}/{kind.lower()}s"
        meta = {"name": "a", "namespace": target.namespace}
        if kind == "Event":
            content = {**content, "regarding": {"kind": "Pod", "name": "a", "namespace": target.namespace}}
        answer = await target.request("POST", path, {"apiVersion": version, "kind": kind, "metadata": meta, **content})
        assert answer.code == 201, answer.content
        assert list(answer.content)[:2] == ["kind", "apiVersion"]
        assert list((await target.get(f"{path}/a")).content)[:2] == ["kind", "apiVersion"]
