"""Conformance: order and types of watch events; and the timing of the embedded server's watches."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest
import trio

from tests.apiserver.conftest import Target, definition, summary, watch
from trioperator._model.shard_ranges import hash_text
from trioperator.apiserver import Cluster


class TestEvents:
    async def test_changes_arrive_in_order(self, target: Target) -> None:
        start = (await target.create("frees", "a")).version
        path = target.path("frees", "a")
        await target.merge(path, {"spec": {"x": 1}})
        await target.merge(path, {"spec": {"x": 1}})  # no change, no event
        await target.create("frees", "b")
        await target.delete(path)
        events = await target.lines(target.path("frees"), 3, resourceVersion=start)
        assert summary(events) == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert versions == sorted(set(versions))
        assert versions[0] > start

    async def test_without_a_version_existing_objects_come_first(self, target: Target) -> None:
        await target.create("frees", "b")
        await target.create("frees", "a")
        queries: list[dict[str, Any]] = [{}, {"resourceVersion": "0"}]
        for query in queries:
            events = await target.lines(target.path("frees"), 2, **query)
            assert sorted(summary(events)) == [("ADDED", "a"), ("ADDED", "b")]

    async def test_events_carry_whole_objects(self, target: Target) -> None:
        await target.create("configmaps", "a", data={"x": "y"}, meta={"labels": {"mine": "1"}})
        [event] = await target.lines(target.path("configmaps"), 1, labelSelector="mine")
        assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("ConfigMap", "v1")
        assert event["object"]["data"] == {"x": "y"}

    async def test_removing_the_last_finalizer_sends_the_stored_state_with_a_new_version(self, target: Target) -> None:
        start = (await target.create("frees", "a", meta={"finalizers": ["a.b/c"]})).version
        path = target.path("frees", "a")
        marked = await target.delete(path)
        last = await target.merge(path, {"metadata": {"finalizers": []}, "spec": {"last": 1}})
        assert last.version == marked.version
        assert last.content["spec"] == {"last": 1}
        events = await target.lines(target.path("frees"), 2, resourceVersion=start)
        assert summary(events) == [("MODIFIED", "a"), ("DELETED", "a")]
        gone = events[1]["object"]
        assert gone["metadata"]["finalizers"] == ["a.b/c"]
        assert "spec" not in gone
        assert int(gone["metadata"]["resourceVersion"]) > marked.version

    async def test_objects_enter_and_leave_a_selector(self, target: Target) -> None:
        start = (await target.create("frees", "a", meta={"labels": {"x": "1"}})).version
        path = target.path("frees", "a")
        await target.merge(path, {"metadata": {"labels": {"x": "2"}}})
        left = await target.merge(path, {"spec": {"unseen": 1}})
        await target.merge(path, {"metadata": {"labels": {"x": "1"}}})
        await target.merge(path, {"spec": {"seen": 1}})
        await target.delete(path)
        events = await target.lines(target.path("frees"), 4, resourceVersion=start, labelSelector="x=1")
        assert [event["type"] for event in events] == ["DELETED", "ADDED", "MODIFIED", "DELETED"]
        assert events[0]["object"]["metadata"]["labels"] == {"x": "1"}
        assert start < int(events[0]["object"]["metadata"]["resourceVersion"]) < left.version

    async def test_other_namespaces_are_not_watched(self, target: Target) -> None:
        start = (await target.create("configmaps", "first")).version
        obj = {"metadata": {"generateName": "other-"}}
        await target.request("POST", "/api/v1/namespaces/default/configmaps", obj)
        await target.create("configmaps", "last")
        selector = "metadata.name!=kube-root-ca.crt"
        events = await target.lines(target.path("configmaps"), 1, resourceVersion=start, fieldSelector=selector)
        assert summary(events) == [("ADDED", "last")]

    async def test_one_object_can_be_watched_by_name(self, target: Target) -> None:
        start = (await target.create("frees", "a")).version
        await target.create("frees", "b")
        await target.merge(target.path("frees", "a"), {"spec": {"x": 1}})
        query = {"resourceVersion": start, "fieldSelector": "metadata.name=a"}
        assert summary(await target.lines(target.path("frees"), 1, **query)) == [("MODIFIED", "a")]

    async def test_initial_events_end_with_a_bookmark(self, target: Target) -> None:
        version = (await target.create("frees", "a")).version
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
        events = await target.lines(target.path("frees"), 2, **query)
        assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
        meta = events[1]["object"]["metadata"]
        assert meta["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(meta["resourceVersion"]) >= version
        assert events[1]["object"]["kind"] == "Free"

    @pytest.mark.parametrize("plural", ["configmaps", "frees"])
    async def test_the_bookmark_that_ends_the_initial_events_is_nearly_empty(self, target: Target, plural: str) -> None:
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
        events = await target.lines(target.path(plural), 1, labelSelector="none=none", **query)
        assert events[0]["object"].keys() == {"apiVersion", "kind", "metadata"}
        assert events[0]["object"]["metadata"].keys() - {"creationTimestamp"} == {"annotations", "resourceVersion"}

    async def test_initial_events_of_a_version_in_the_future_are_an_error(self, target: Target) -> None:
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": str(10**12)}
        events = await target.lines(target.path("frees"), 1, allowWatchBookmarks="true", **query)
        assert (events[0]["type"], events[0]["object"]["code"]) == ("ERROR", 504)
        assert events[0]["object"]["message"].startswith("Timeout: Too large resource version: 1000000000000, current:")

    @pytest.mark.parametrize("plural", ["configmaps", "frees"])
    async def test_shards_are_disjoint_and_have_all_objects(self, target: Target, plural: str) -> None:
        halves = [
            f"shardRange(object.metadata.uid, '0x{start}000000000000000', '0x{end}000000000000000')"
            for start, end in (("0", "8"), ("8", "10"))
        ]
        known = await target.get(target.path("configmaps"), shardSelector=halves[0])
        if target.is_real and "shardInfo" not in known.content["metadata"]:
            pytest.skip("the server has no shards: set CONTROLPLANE_APISERVER_ARGS, see CONTRIBUTING.md")
        start = (await target.create(plural, "w0")).version
        for number in range(1, 10):
            await target.create(plural, f"w{number}")
        path, found = target.path(plural), []
        for half in halves:
            query = {"shardSelector": half, "fieldSelector": "metadata.name!=kube-root-ca.crt"}
            page = (await target.get(path, limit="500", **query)).content
            info = {"selector": half} if plural == "configmaps" else None
            assert page["metadata"].get("shardInfo") == info
            assert "remainingItemCount" not in page["metadata"]
            found.append({item["metadata"]["name"] for item in page["items"]})
            created = found[-1] - {"w0"}
            events = await target.lines(path, len(created), resourceVersion=start, **query)
            assert {name for _, name in summary(events)} == created
            small = (await target.get(path, limit="1", **query)).content
            assert [item["metadata"]["name"] for item in small["items"]] == sorted(found[-1])[:1]
        assert not found[0] & found[1]
        assert found[0] | found[1] == {f"w{number}" for number in range(10)}
        for item in (await target.get(path, fieldSelector="metadata.name!=kube-root-ca.crt")).content["items"]:
            assert item["metadata"]["name"] in found[hash_text(item["metadata"]["uid"]) >= 2**63]

    async def test_a_shard_selector_that_is_invalid_fails(self, target: Target) -> None:
        answer = await target.get(target.path("frees"), shardSelector="x")
        if not target.is_real or answer.code != 200:
            assert answer.code == 500
            assert answer.message.startswith("invalid shard selector: ")

    async def test_a_watch_ends_after_its_timeout(self, target: Target) -> None:
        with trio.fail_after(60):
            answer = await target.get(target.path("frees"), watch="1", timeoutSeconds="1")
        assert (answer.code, answer.content) == (200, "")

    async def test_a_version_that_is_not_a_number_fails(self, target: Target) -> None:
        answer = await target.get(target.path("frees"), watch="1", resourceVersion="x")
        assert answer.code == 500
        assert "invalid syntax" in answer.message

    async def test_a_watch_can_send_tables(self, target: Target) -> None:
        await target.create("shapes", "a", spec={"size": 4})
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        request = target.client.build_request(
            "GET", target.path("shapes"), params={"watch": "1", "timeoutSeconds": "1"}, headers={"Accept": accept}
        )
        response = await target.client.send(request)
        event = msgspec.json.decode(response.text.splitlines()[0])
        assert (event["type"], event["object"]["kind"]) == ("ADDED", "Table")
        assert event["object"]["rows"][0]["cells"][:2] == ["a", 4]


# -- the embedded server in virtual time -----------------------------------------------------------------------

FREES = "/apis/conformance.dev/v1/frees"


@pytest.fixture
async def client(cluster: Cluster) -> httpx.AsyncClient:
    await cluster.apply(definition("frees", "Free"))
    return cluster.client()


def free(name: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": "conformance.dev/v1", "kind": "Free", "metadata": {"name": name}, "spec": spec}


async def read_times(client: httpx.AsyncClient, **params: Any) -> list[tuple[float, str]]:
    """Watch to the end; return the times and types of the events."""
    return [(time, event["type"]) for time, event in await watch(client, FREES, **params)]


async def test_bookmarks_come_each_minute_and_at_the_end(
    autojump_clock: trio.testing.MockClock, cluster: Cluster, client: httpx.AsyncClient
) -> None:
    version = str(cluster.revision)
    query = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "200"}
    assert await read_times(client, **query) == [
        (60, "BOOKMARK"),
        (120, "BOOKMARK"),
        (180, "BOOKMARK"),
        (200, "BOOKMARK"),
    ]


async def test_the_default_timeout_is_between_half_an_hour_and_an_hour(
    autojump_clock: trio.testing.MockClock, cluster: Cluster, client: httpx.AsyncClient
) -> None:
    assert await read_times(client, resourceVersion=str(cluster.revision)) == []
    assert 1800 <= trio.current_time() <= 3600


async def test_a_compacted_version_is_expired(cluster: Cluster, client: httpx.AsyncClient) -> None:
    version = str(cluster.revision)
    await cluster.create(free("a"))
    cluster.compact()
    response = await client.get(FREES, params={"watch": "1", "resourceVersion": version})
    event = msgspec.json.decode(response.content)
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"] == f"too old resource version: {version} ({cluster.revision})"


async def test_a_compacted_page_is_expired_and_has_a_token_for_the_rest(
    cluster: Cluster, client: httpx.AsyncClient
) -> None:
    for name in "abc":
        await cluster.create(free(name))
    first = (await client.get(FREES, params={"limit": "1"})).json()
    await cluster.create(free("d"))
    cluster.compact()
    response = await client.get(FREES, params={"limit": "1", "continue": first["metadata"]["continue"]})
    assert response.status_code == 410
    assert response.json()["reason"] == "Expired"
    token = response.json()["metadata"]["continue"]
    rest = (await client.get(FREES, params={"continue": token})).json()
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c", "d"]


async def test_history_is_compacted_by_age(
    autojump_clock: trio.testing.MockClock, cluster: Cluster, client: httpx.AsyncClient
) -> None:
    version = str(cluster.revision)
    await cluster.create(free("a"))
    await trio.sleep(1000)
    await cluster.create(free("b"))
    assert await read_times(client, resourceVersion=version) == [(1000, "ERROR")]


async def test_a_watcher_that_falls_behind_is_dropped_with_410() -> None:
    cluster = Cluster(history=10)
    await cluster.apply(definition("frees", "Free"))
    client = cluster.client()
    params = {"watch": "1", "resourceVersion": str(cluster.revision)}
    async with client.stream("GET", FREES, params=params) as response:
        chunks = response.aiter_lines()
        await cluster.create(free("a"))
        assert '"ADDED"' in await anext(chunks)
        for number in range(50):
            await cluster.create(free(f"n{number}"))
        lines = [line async for line in chunks]
    assert len(lines) == 1
    assert msgspec.json.decode(lines[0])["object"]["code"] == 410


async def test_a_watch_ends_when_its_definition_is_deleted(cluster: Cluster, client: httpx.AsyncClient) -> None:
    await cluster.create(free("a"))
    async with client.stream("GET", FREES, params={"watch": "1"}) as response:
        lines = response.aiter_lines()
        assert '"ADDED"' in await anext(lines)
        await cluster.delete("crds", "frees.conformance.dev")
        assert ['"DELETED"' in line async for line in lines] == [True]


async def test_the_client_s_read_timeout_applies(
    autojump_clock: trio.testing.MockClock, cluster: Cluster, client: httpx.AsyncClient
) -> None:
    client.timeout = httpx.Timeout(None, read=7)
    with pytest.raises(httpx.ReadTimeout):
        await client.get(FREES, params={"watch": "1"})
    assert trio.current_time() == 7


async def test_watches_share_encoded_lines(cluster: Cluster, client: httpx.AsyncClient) -> None:
    start = str(cluster.revision)
    counts = dict.fromkeys(range(20), 0)

    async def count(number: int) -> None:
        counts[number] = len(await watch(client, FREES, 100, resourceVersion=start))

    async with trio.open_nursery() as nursery:
        for number in counts:
            nursery.start_soon(count, number)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(100):
            await cluster.create(free(f"n{number}"))
    assert set(counts.values()) == {100}


@pytest.mark.parametrize(("timeout", "bookmark"), [(10, 10), (100, 60)])
async def test_a_bookmark_never_hides_a_change_at_the_same_time(
    cluster: Cluster, client: httpx.AsyncClient, autojump_clock: trio.testing.MockClock, timeout: int, bookmark: int
) -> None:
    """Neither the one at the end of a watch nor those in between: clients go on from their versions."""
    seen: list[list[tuple[str, int]]] = [[] for _ in range(20)]  # whether the watch or the change is first is random
    await cluster.create({**free("a"), "metadata": {"name": "a", "namespace": "default"}})
    version = str(cluster.revision)
    params = {"watch": "1", "allowWatchBookmarks": "1", "resourceVersion": version, "timeoutSeconds": str(timeout)}

    async def read(events: list[tuple[str, int]]) -> None:
        async with client.stream("GET", FREES, params=params) as response:
            async for line in response.aiter_lines():
                event = msgspec.json.decode(line)
                events.append((event["type"], int(event["object"]["metadata"]["resourceVersion"])))

    async with trio.open_nursery() as nursery:
        for events in seen:
            nursery.start_soon(read, events)
        await trio.sleep(bookmark)
        store = cluster.api.state.store
        table = store.table(("conformance.dev", "frees"))
        store.put(table, "default/a", table.objects["default/a"].obj)  # without a checkpoint
    for events in seen:
        first = next((kind for kind, version in events if version >= store.revision), "MODIFIED")
        assert first == "MODIFIED", events


async def test_a_cluster_can_be_one_that_ignores_shard_selectors() -> None:
    cluster = Cluster(shard_selectors=False)
    selector = "shardRange(object.metadata.uid, '0x0000000000000000', '0x0000000000000001')"
    async with cluster.client() as client:
        for text in (selector, "x"):
            page = (await client.get("/api/v1/namespaces", params={"shardSelector": text})).json()
            assert page["items"]
            assert "shardInfo" not in page["metadata"]
