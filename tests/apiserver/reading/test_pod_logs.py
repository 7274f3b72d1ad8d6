"""Tests for :mod:`trioperator.apiserver.reading.pod_logs`."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import trioperator
from tests.apiserver.conftest import Target
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster

RFC3339 = "2006-01-02T15:04:05Z07:00"  # the layout, as Go writes it
CONNECTION = trioperator.ConnectionInfo(server="http://cluster")


def pod(*containers: str, **spec: Any) -> dict[str, Any]:
    listed = [{"name": name, "image": "busybox"} for name in containers or ["main"]]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": listed, **spec}}


def open_client(cluster: Cluster) -> Any:
    return trioperator.open_client(connection=CONNECTION, transport=cluster.transport())


async def test_the_log_is_what_was_written(cluster: Cluster) -> None:
    await cluster.create(pod())
    async with open_client(cluster) as client:
        assert await client.logs("p") == ""
        cluster.write_log("p", "one\ntwo")
        cluster.write_log("p", "three\n")
        assert await client.logs("p") == "one\ntwo\nthree\n"
        assert await client.logs("p", tail_lines=1) == "three\n"
        assert await client.logs("p", tail_lines=0) == ""


async def test_lines_have_times(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.create(pod())
    cluster.write_log("p", "old")
    await trio.sleep(60)
    cluster.write_log("p", "new")
    async with open_client(cluster) as client:
        assert await client.logs("p", since_seconds=30) == "new\n"
        time, _, line = (await client.logs("p", since_seconds=30, timestamps=True)).partition(" ")
    assert line == "new\n"
    assert datetime.timedelta(0) <= wall_now() - datetime.datetime.fromisoformat(time) < datetime.timedelta(seconds=30)


async def test_a_log_is_read_from_a_time_on(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.create(pod())
    cluster.write_log("p", "old")
    await trio.sleep(60)
    time = wall_now() - datetime.timedelta(seconds=30)
    cluster.write_log("p", "new")
    path = "/api/v1/namespaces/default/pods/p/log"
    async with open_client(cluster) as client:
        assert await client.request("GET", path, params={"sinceTime": time.isoformat()}) == b"new\n"
        for text in ("null", "2020-01-01T00:00:00Z"):
            assert await client.request("GET", path, params={"sinceTime": text}) == b"old\nnew\n"


async def test_containers_have_logs_of_their_own(cluster: Cluster) -> None:
    await cluster.create(pod("web", "sidecar"))
    cluster.write_log("p", "hello", container="sidecar")
    async with open_client(cluster) as client:
        assert await client.logs("p", container="sidecar") == "hello\n"
        assert await client.logs("p", container="web") == ""
    with pytest.raises(trioperator.ApiError, match="container other is not valid for pod p"):
        cluster.write_log("p", "x", container="other")
    with pytest.raises(trioperator.NotFoundError):
        cluster.write_log("q", "x")


@pytest.mark.parametrize("end", ["deleted", "succeeded"])
async def test_a_log_is_followed_until_the_container_ends(cluster: Cluster, end: str) -> None:
    seen: list[str] = []

    async def follow() -> None:
        async with client.follow_logs("p", tail_lines=1) as lines:
            async for line in lines:
                seen.append(line)  # noqa: PERF401 -- one by one, as they come

    await cluster.create(pod())
    cluster.write_log("p", "one\ntwo")
    async with open_client(cluster) as client, trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await wait_all_tasks_blocked(0.01)
        assert seen == ["two"]
        cluster.write_log("p", "three")
        await wait_all_tasks_blocked(0.01)
        assert seen == ["two", "three"]
        if end == "deleted":
            await cluster.delete("pods", "p")
        else:
            await cluster.patch("pods", "p", {"status": {"phase": "Succeeded"}}, subresource="status")
    if end == "succeeded":
        await follow_at_the_end(cluster)


async def follow_at_the_end(cluster: Cluster) -> None:
    async with open_client(cluster) as client, client.follow_logs("p") as lines:
        assert [line async for line in lines] == ["one", "two", "three"]


async def test_a_new_pod_of_the_name_has_no_log(cluster: Cluster) -> None:
    await cluster.create(pod())
    cluster.write_log("p", "one")
    await cluster.delete("pods", "p")
    await cluster.create(pod())
    async with open_client(cluster) as client:
        assert await client.logs("p") == ""


async def test_a_container_must_be_chosen(target: Target) -> None:
    spec = pod("a", "b", initContainers=[{"name": "i", "image": "busybox"}])["spec"]
    await target.create("pods", "p", spec=spec)
    answer = await target.get(target.path("pods", "p", "log"))
    text = "a container name must be specified for pod p, choose one of: [i a b]"
    assert (answer.code, answer.message) == (400, text)
    answer = await target.get(target.path("pods", "p", "log"), container="x")
    assert (answer.code, answer.message) == (400, "container x is not valid for pod p")
    assert (await target.get(target.path("pods", "q", "log"))).code == 404
    assert (await target.request("POST", target.path("pods", "p", "log"), {})).code == 405


async def test_a_pod_without_a_node_has_an_empty_log(target: Target) -> None:
    await target.create("pods", "p", spec=pod()["spec"])
    answer = await target.client.get(target.path("pods", "p", "log"), headers={"Accept": "*/*"})
    assert (answer.status_code, answer.text) == (204, "")


@pytest.mark.parametrize(
    ("params", "code", "problem"),
    [
        ({"tailLines": "x"}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ({"limitBytes": str(2**63)}, 400, f'strconv.ParseInt: parsing "{2**63}": value out of range'),
        ({"sinceSeconds": "0"}, 422, "sinceSeconds: Invalid value: 0: must be greater than 0"),
        ({"sinceTime": "2026-01-01"}, 400, f'parsing time "2026-01-01" as "{RFC3339}": cannot parse "" as "T"'),
        ({"sinceTime": "2026-13-01T00:00:00Z"}, 400, 'parsing time "2026-13-01T00:00:00Z": month out of range'),
        (
            {"limitBytes": "0", "sinceSeconds": "1", "sinceTime": "2026-01-01T00:00:00Z"},
            422,
            "[limitBytes: Invalid value: 0: must be greater than 0, "
            "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified]",
        ),
        (
            {"tailLines": "-1", "limitBytes": "0"},
            422,
            "[tailLines: Invalid value: -1: must be greater than or equal to 0, "
            "limitBytes: Invalid value: 0: must be greater than 0]",
        ),
    ],
)
async def test_numbers_of_a_request_are_checked_before_the_pod_is_looked_for(
    target: Target, params: dict[str, str], code: int, problem: str
) -> None:
    answer = await target.get(target.path("pods", "none", "log"), **params)
    text = problem if code == 400 else f'PodLogOptions "none" is invalid: {problem}'
    assert (answer.code, answer.message) == (code, text)
