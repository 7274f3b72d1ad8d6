"""The cluster as tests use it: helpers, request log, time and randomness."""

from __future__ import annotations

import datetime
import pathlib
from typing import Any

import pytest
import trio

from tests.apiserver.conftest import definition
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError, ConflictError, ExpiredError, InvalidError, NotFoundError

FREE: dict[str, Any] = {"apiVersion": "conformance.dev/v1", "kind": "Free", "metadata": {"name": "a"}}


@pytest.fixture
async def frees(cluster: Cluster) -> Cluster:
    await cluster.apply(definition("frees", "Free"))
    return cluster


async def test_the_helpers_create_read_change_and_delete(frees: Cluster) -> None:
    created = await frees.create({**FREE, "spec": {"x": 1}})
    assert created["metadata"]["namespace"] == "default"
    patched = await frees.patch("frees", "a", {"spec": {"y": 2}})
    assert patched["spec"] == {"x": 1, "y": 2}
    patched = await frees.patch("Free", "a", [{"op": "remove", "path": "/spec/x"}])
    assert patched["spec"] == {"y": 2}
    patched["spec"] = {"z": 3}
    assert (await frees.replace(patched))["spec"] == {"z": 3}
    assert (await frees.get("free", "a"))["spec"] == {"z": 3}
    assert [obj["metadata"]["name"] for obj in await frees.list("frees.conformance.dev")] == ["a"]
    assert await frees.list("frees", "kube-system") == []
    assert await frees.list("frees", labels="a=b") == []
    assert await frees.delete("frees", "a") is None
    assert await frees.find("frees", "a") is None


async def test_the_helpers_raise_the_errors_of_the_api(frees: Cluster) -> None:
    with pytest.raises(NotFoundError, match="not found"):
        await frees.get("frees", "a")
    await frees.create(FREE)
    with pytest.raises(ConflictError):
        await frees.create(FREE)
    with pytest.raises(InvalidError):
        await frees.patch("frees", "a", [{"op": "test", "path": "/kind", "value": "x"}])
    with pytest.raises(ConfigError, match="no resource 'nothings'"):
        await frees.get("nothings", "a")
    with pytest.raises(ConfigError, match="no kind 'Nothing'"):
        await frees.create({**FREE, "kind": "Nothing"})


async def test_the_helpers_return_copies(frees: Cluster) -> None:
    given = {**FREE, "spec": {"x": [1]}}
    (await frees.create(given))["spec"]["x"].append(2)
    given["spec"]["x"].append(3)
    assert (await frees.get("frees", "a"))["spec"] == {"x": [1]}


async def test_objects_are_those_of_all_kinds_of_some_or_of_all_others(frees: Cluster) -> None:
    await frees.create(FREE)
    found = frees.objects()
    kinds = {obj["kind"] for obj in found}
    assert {"Free", "Namespace", "CustomResourceDefinition"} <= kinds
    assert frees.objects(["Free", "Namespace"]) == [obj for obj in found if obj["kind"] in ("Free", "Namespace")]
    assert frees.objects(without=kinds - {"Free"}) == [await frees.get("frees", "a")]


@pytest.mark.parametrize(
    "name", ["pods", "pod", "po", "Pod", "pods.v1", "deployments.apps", "deploy", "deployments.v1.apps", "crd"]
)
async def test_kinds_are_found_by_all_their_names(cluster: Cluster, name: str) -> None:
    assert isinstance(await cluster.list(name), list)


async def test_manifests_of_all_types_are_applied(frees: Cluster, tmp_path: pathlib.Path) -> None:
    text = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n---\nkind: List\nitems:\n- " + str(FREE)
    assert [obj["kind"] for obj in await frees.apply(text)] == ["ConfigMap", "Free"]
    path = tmp_path / "manifest.yaml"
    path.write_text(text)
    await frees.apply(path)
    again = await frees.apply([{**FREE, "spec": {"x": 1}}, {**FREE, "spec": {"y": 2}}])
    assert again[1]["spec"] == {"x": 1, "y": 2}
    with pytest.raises(ConfigError, match="not YAML"):
        await frees.apply("{")
    with pytest.raises(ConfigError, match="a str where an object is expected"):
        await frees.apply("text")


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({"kind": "Free", "metadata": "a"}, "The manifest of a Free has a str as its metadata"),
        ({"kind": "Free", "metadata": ["a"]}, "The manifest of a Free has a list as its metadata"),
        (
            {"kind": "Free", "metadata": {"name": "a", "namespace": ["x"]}},
            "The manifest of a Free has a list as its namespace",
        ),
        ({"kind": "List", "items": 5}, "The manifest has a int where an object is expected"),
        ([FREE, 5], "The manifest has a int where an object is expected"),
    ],
)
async def test_invalid_manifests_are_rejected(frees: Cluster, manifest: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await frees.apply({"apiVersion": "conformance.dev/v1", **manifest} if isinstance(manifest, dict) else manifest)
    if isinstance(manifest, dict) and manifest["kind"] == "Free":
        for act in (frees.create, frees.replace):
            with pytest.raises(ConfigError, match=message):
                await act({"apiVersion": "conformance.dev/v1", **manifest})


async def test_requests_are_logged_and_counted(frees: Cluster) -> None:
    client = frees.client()
    path = "/apis/conformance.dev/v1/namespaces/default/frees"
    await client.post(path, json=FREE, headers={"User-Agent": "mine"})
    await client.patch(f"{path}/a", json={}, headers={"Content-Type": "application/merge-patch+json"})
    await client.get(path, params={"limit": "5"})
    await client.get("/version")
    await frees.patch("frees", "a", {"spec": {"x": 1}})  # a helper, not a request
    assert [record.verb for record in frees.requests] == ["create", "patch", "list", ""]
    assert frees.requests.count(resource="frees") == 3
    assert frees.requests.count(verb="patch", name="a", resource="frees.conformance.dev") == 1
    assert frees.requests.verbs(resource="frees") == {"create": 1, "patch": 1, "list": 1}
    assert (frees.requests[0].user_agent, frees.requests[0].status) == ("mine", 201)
    assert frees.requests[2].query == {"limit": "5"}
    frees.requests.clear()
    assert len(frees.requests) == 0


async def test_timestamps_follow_virtual_time(autojump_clock: trio.testing.MockClock, frees: Cluster) -> None:
    first = await frees.create(FREE)
    await trio.sleep(3600)
    second = await frees.create({**FREE, "metadata": {"name": "b"}})
    stamps = [datetime.datetime.fromisoformat(obj["metadata"]["creationTimestamp"]) for obj in (first, second)]
    assert stamps[1] - stamps[0] == datetime.timedelta(hours=1)
    assert abs(wall_now() - stamps[1]) < datetime.timedelta(seconds=5)


async def test_the_same_seed_produces_the_same_cluster() -> None:
    found = []
    for _ in range(2):
        cluster = Cluster(seed=7)
        await cluster.apply(definition("frees", "Free"))
        obj = await cluster.create({**FREE, "metadata": {"generateName": "a-"}})
        found.append((obj["metadata"]["name"], obj["metadata"]["uid"]))
    assert found[0] == found[1]


async def test_the_default_namespaces_exist(cluster: Cluster) -> None:
    names = [obj["metadata"]["name"] for obj in await cluster.list("namespaces")]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_an_expired_page_is_an_expired_error(frees: Cluster) -> None:
    for name in "abc":
        await frees.create({**FREE, "metadata": {"name": name}})
    reader = frees.api.reader
    kind = frees.api.state.catalog.find("frees")
    assert kind is not None
    token = (await reader.list(kind, "", {"limit": "1"})).meta["continue"]
    await frees.create({**FREE, "metadata": {"name": "d"}})
    frees.compact()
    with pytest.raises(ExpiredError):
        await reader.list(kind, "", {"continue": token})


async def test_a_list_that_takes_too_long_goes_on_inconsistently(
    autojump_clock: trio.testing.MockClock, frees: Cluster
) -> None:
    for name in "abc":
        await frees.create({**FREE, "metadata": {"name": name}})
    async with frees.client() as client:
        path = f"/apis/{FREE['apiVersion']}/frees"
        first = (await client.get(path, params={"limit": "1"})).json()
        await trio.sleep(299)
        second = (await client.get(path, params={"limit": "1", "continue": first["metadata"]["continue"]})).json()
        await trio.sleep(2)
        late = await client.get(path, params={"limit": "1", "continue": second["metadata"]["continue"]})
        assert (late.status_code, late.json()["reason"]) == (410, "Expired")
        token = late.json()["metadata"]["continue"]
        await frees.create({**FREE, "metadata": {"name": "d"}})
        third = (await client.get(path, params={"limit": "1", "continue": token})).json()
        assert [item["metadata"]["name"] for item in third["items"]] == ["c"]
        await trio.sleep(301)  # since it went on
        assert (await client.get(path, params={"continue": third["metadata"]["continue"]})).status_code == 410


async def test_an_internal_error_is_returned_as_a_status(
    frees: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(frees.api.reader, "list", fail)
    response = await frees.client().get("/api/v1/pods")
    assert (response.status_code, response.json()["reason"]) == (500, "InternalError")
    assert "secret" not in response.text
    assert "secret" in caplog.text


async def test_history_is_bounded() -> None:
    cluster = Cluster(history=100)
    await cluster.apply(definition("frees", "Free"))
    await cluster.create(FREE)
    for number in range(500):
        await cluster.patch("frees", "a", {"spec": {"x": number}})
    table = cluster.api.state.store.table(("conformance.dev", "frees"))
    assert len(table.changes) <= 125


async def test_a_snapshot_brings_back_definitions_owners_and_namespaces(frees: Cluster) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
    await frees.create(namespace)
    owner = await frees.create(FREE, "n")
    reference = {"apiVersion": owner["apiVersion"], "kind": "Free", "name": "a", "uid": owner["metadata"]["uid"]}
    owned = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "ownerReferences": [reference]}}
    await frees.create(owned, "n")
    snapshot = frees.snapshot()
    await frees.delete("crds", "frees.conformance.dev")
    await frees.delete("namespaces", "n")
    await frees.create(namespace)
    assert await frees.find("cm", "c", "n") is None
    await frees.restore(snapshot)
    assert (await frees.get("frees", "a", "n"))["metadata"]["uid"] == owner["metadata"]["uid"]
    assert await frees.find("cm", "c", "n") is not None
    await frees.delete("frees", "a", "n")
    assert await frees.find("cm", "c", "n") is None


async def test_controllers_go_on_from_a_restored_snapshot(cluster: Cluster) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    async with cluster.open_controllers("workloads"):
        await cluster.create({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"}, "spec": spec})
        await cluster.wait_for("rs", "r", lambda obj: obj["status"]["replicas"] == 1)
        snapshot = cluster.snapshot()
        await cluster.delete("rs", "r")
        assert await cluster.list("pods") == []
        await cluster.restore(snapshot)
        await cluster.patch("rs", "r", {"spec": {"replicas": 3}})
        await cluster.wait_for("rs", "r", lambda obj: obj["status"]["replicas"] == 3)
        assert len(await cluster.list("pods")) == 3
