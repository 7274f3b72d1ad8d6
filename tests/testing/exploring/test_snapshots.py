"""Tests for :mod:`trioperator.testing.exploring.snapshots`: what is compared, and what is not."""

from __future__ import annotations

from typing import Any

from tests.testing.exploring.operators import CRD
from tests.testing.exploring.written import DEPLOYMENT, write
from trioperator.apiserver import Cluster
from trioperator.testing.exploring.snapshots import ABSENT, EDIT_LABEL, compare, list_written, take_snapshot

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}


async def test_only_what_the_operator_has_written_is_in_a_snapshot(cluster: Cluster) -> None:
    await cluster.create({**CONFIG_MAP, "metadata": {"name": "others"}})
    await write(cluster, "/api/v1/namespaces/default/configmaps", CONFIG_MAP)
    assert [obj["metadata"]["name"] for obj in list_written(cluster)] == ["a"]
    assert list(take_snapshot(cluster)) == ["ConfigMap default/a"]
    assert list(take_snapshot(cluster, subject="ConfigMap")) == ["ConfigMap default/a", "ConfigMap default/others"]


async def test_what_is_never_the_same_is_not_in_a_snapshot(cluster: Cluster) -> None:
    data = {"time": "at 2024-01-01T00:00:00Z", "json": '{"uid": "7", "a": 1}'}
    await write(cluster, "/api/v1/namespaces/default/configmaps", {**CONFIG_MAP, "data": data})
    (found,) = take_snapshot(cluster).values()
    assert found["data"] == {"time": "at <time>", "json": {"a": 1}}
    assert found["metadata"] == {"name": "a", "namespace": "default"}


async def test_empty_maps_that_patches_leave_in_a_status_are_not_in_a_snapshot(cluster: Cluster) -> None:
    await cluster.create(CRD)
    path = "/apis/example.com/v1/namespaces/default/webapps"
    await write(cluster, path, {"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {"name": "a"}})
    before = take_snapshot(cluster, subject="WebApp")
    line = 'WebApp default/a: status is {"progress":{"handler":{"retries":1}}}, and should be absent'
    for progress, differences in [({"retries": 1}, [line]), (None, [])]:
        status = {"progress": {"handler": progress}}
        await cluster.patch("webapps", "a", {"status": status}, subresource="status")
        after = take_snapshot(cluster, subject="WebApp")
        assert [str(each) for each in compare(after, before)] == differences


async def test_children_may_have_the_label_that_their_object_had_when_it_adopted_them(cluster: Cluster) -> None:
    labels = {EDIT_LABEL: "x"}
    config_map = {**CONFIG_MAP, "metadata": {"name": "a", "labels": labels}}
    await write(cluster, "/api/v1/namespaces/default/configmaps", config_map)
    path = "/apis/apps/v1/namespaces/default/deployments"
    await write(cluster, path, {**DEPLOYMENT, "metadata": {"name": "d", "labels": {"app": "d", **labels}}}, apply=True)
    found = take_snapshot(cluster)
    assert "labels" not in found["ConfigMap default/a"]["metadata"]
    assert found["Deployment default/d"]["metadata"]["labels"] == {"app": "d"}
    own = take_snapshot(cluster, subject="ConfigMap")["ConfigMap default/a"]
    assert own["metadata"]["labels"] == labels, "the object must lose it"


async def test_labels_that_a_job_gets_as_it_has_none_are_not_in_a_snapshot(cluster: Cluster) -> None:
    snapshots = []
    for labels in ({}, {EDIT_LABEL: "x"}):
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "labels": labels}}
        await write(cluster, "/apis/batch/v1/namespaces/default/jobs", {**job, "spec": {"template": template}})
        snapshots.append(take_snapshot(cluster))
        await cluster.delete("jobs", "a", "default")
    assert len(snapshots[0]) == 1
    assert compare(*snapshots) == []


async def test_objects_with_generated_names_are_numbered(cluster: Cluster) -> None:
    for _ in range(2):
        await write(
            cluster, "/api/v1/namespaces/default/configmaps", {**CONFIG_MAP, "metadata": {"generateName": "a-"}}
        )
    await write(cluster, "/api/v1/namespaces/default/configmaps", CONFIG_MAP)
    assert list(take_snapshot(cluster)) == ["ConfigMap #1", "ConfigMap #2", "ConfigMap default/a"]
    assert list(take_snapshot(cluster, anonymous={"ConfigMap"})) == [f"ConfigMap #{number}" for number in (1, 2, 3)]


async def test_objects_with_generated_names_are_the_same_in_any_order(cluster: Cluster) -> None:
    path = "/apis/batch/v1/namespaces/default/jobs"  # the API server adds their own names and uids to their content
    snapshots = []
    for images in ["ab", "ba", "ab", "ba"]:
        for image in images:
            pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": image}]}
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "a-"}}
            await write(cluster, path, {**job, "spec": {"template": {"spec": pod}}})
        snapshots.append(take_snapshot(cluster))
        for obj in await cluster.list("jobs", "default"):
            await cluster.delete("jobs", obj["metadata"]["name"])
    assert [list(each) for each in snapshots] == [["Job #1", "Job #2"]] * 4
    assert [compare(each, snapshots[0]) for each in snapshots] == [[], [], [], []]


async def test_of_what_is_applied_only_the_fields_that_are_applied_are_compared(cluster: Cluster) -> None:
    await write(cluster, "/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT, apply=True)
    (found,) = take_snapshot(cluster).values()
    assert found["spec"] == DEPLOYMENT["spec"]  # and no defaults
    assert "status" not in found


async def test_what_is_applied_as_string_data_is_compared(cluster: Cluster) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"x": "1"}}
    await write(cluster, "/api/v1/namespaces/default/secrets", secret, apply=True)
    assert take_snapshot(cluster)["Secret default/a"]["data"] == {"x": "MQ=="}


async def test_a_field_that_somebody_else_owns_in_one_play_is_compared_as_it_is(cluster: Cluster) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    owned: dict[str, Any] = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": 1}}  # type: ignore[dict-item]
    await write(cluster, path, DEPLOYMENT, apply=True)
    others = take_snapshot(cluster)
    await write(cluster, path, owned, apply=True)
    assert compare(take_snapshot(cluster), others) == []
    await write(cluster, path, {**owned, "spec": {**owned["spec"], "replicas": 2}}, apply=True)
    assert [str(each) for each in compare(take_snapshot(cluster), others)] == [
        "Deployment default/d: spec.replicas is 2, and should be absent"
    ]


def test_differences_name_the_field_and_both_values() -> None:
    one = {"A x": {"spec": {"n": 1, "items": [{"m": 1}]}}, "B y": {}}
    other = {"A x": {"spec": {"n": 2, "items": [{"m": 2}], "new": True}}, "C z": {}}
    assert [str(each) for each in compare(one, other)] == [
        "A x: spec.items[0].m is 1, and should be 2",
        "A x: spec.n is 1, and should be 2",
        "A x: spec.new is absent, and should be true",
        "B y should not be there",
        "C z is missing",
    ]
    assert compare(one, one) == []
    assert compare({"A x": {}}, {"A x": {"n": 1}})[0].found == ABSENT


def test_masks_are_for_a_field_of_all_objects_of_a_kind() -> None:
    one, other = {"A x": {"spec": {"n": [1], "m": 1}}}, {"A x": {"spec": {"n": [2], "m": 1}}}
    (difference,) = compare(one, other)
    assert difference.mask == ("A", ("spec", "n", "*"))
    assert compare(one, other, masks={difference.mask}) == []
    assert compare(one, other, masks={("A", ("spec",))}) == []
    assert compare(one, other, masks={("B", ("spec",))}) == [difference]


def test_what_differs_in_the_object_is_not_told_of_its_last_handled_configuration_again() -> None:
    def make(size: int, *, handled: int) -> dict[str, Any]:
        last = {"metadata": {"labels": {"size": handled}}, "spec": {"size": handled}}
        annotations = {"trioperator.dev/last-handled-configuration": last}
        return {"A x": {"metadata": {"labels": {"size": size}, "annotations": annotations}, "spec": {"size": 1}}}

    one, other = make(1, handled=1), make(2, handled=2)
    assert [str(each) for each in compare(one, other)] == [
        "A x: metadata.annotations.trioperator.dev/last-handled-configuration.spec.size is 1, and should be 2",
        "A x: metadata.labels.size is 1, and should be 2",
    ]
    assert [each.path[-1] for each in compare(one, make(1, handled=2))] == ["size", "size"], "nothing else says it"
    without = {"A x": {**make(1, handled=1)["A x"], "metadata": {"annotations": {"l/c": {"metadata": {}}}}}}
    labelled = {"A x": {"metadata": {"labels": {"a": 1}, "annotations": {"l/c": {"metadata": {"labels": {"a": 1}}}}}}}
    assert "metadata.labels" in {".".join(map(str, each.path)) for each in compare(without, labelled)}
    assert not [each for each in compare(without, labelled) if "l/c" in each.path]
