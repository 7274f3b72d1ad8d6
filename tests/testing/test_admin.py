"""Tests for :mod:`trioperator.testing.admin`: what a test suite of another language asks for, and what attackers do."""

from __future__ import annotations

import json
import pathlib
import ssl
import stat
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
import trio

from trioperator._concurrency.clock import steady_now
from trioperator.apiserver import Cluster, serve_cluster
from trioperator.apiserver.model.messages import Request
from trioperator.errors import ConfigError
from trioperator.testing.adjustable_clock import AdjustableClock
from trioperator.testing.admin import AdminHandler, read_token

TOKEN = "t" * 20
PATH = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def admin(cluster: Cluster) -> AdminHandler:
    return AdminHandler(cluster, TOKEN)


@pytest.fixture
async def client(cluster: Cluster, admin: AdminHandler) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of the served cluster, with the token of its admin endpoint."""
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(serve_cluster, cluster, handler=admin))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            yield client
        nursery.cancel_scope.cancel()


async def put(cluster: Cluster, *names: str, **content: Any) -> None:
    for name in names:
        await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **content})


async def names(client: httpx.AsyncClient) -> list[str]:
    del client.headers["Authorization"]  # the API does not know the token of the admin endpoint
    try:
        return [item["metadata"]["name"] for item in (await client.get(PATH)).json()["items"]]
    finally:
        client.headers["Authorization"] = f"Bearer {TOKEN}"


async def watch(client: httpx.AsyncClient, version: str, started: trio.Event) -> list[Any]:
    """Watch from the version to the end, and return the events."""
    params = {"watch": "1", "resourceVersion": version}
    async with client.stream("GET", PATH, params=params, headers={"Authorization": ""}) as response:
        started.set()
        return [json.loads(line) async for line in response.aiter_lines()]


class TestSnapshots:
    async def test_a_reset_brings_back_the_start(
        self, cluster: Cluster, admin: AdminHandler, client: httpx.AsyncClient
    ) -> None:
        await put(cluster, "a", data={"x": "1"})
        admin.keep_start()
        before = await cluster.get("cm", "a")
        await put(cluster, "a", data={"x": "2"})
        await put(cluster, "b")
        assert (await client.post("/trioperator/reset")).status_code == 200
        assert await names(client) == ["a"]
        after = await cluster.get("cm", "a")
        assert (after["data"], after["metadata"]["uid"]) == (before["data"], before["metadata"]["uid"])
        assert int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])

    async def test_a_reset_forgets_faults_and_requests(self, client: httpx.AsyncClient) -> None:
        await client.post("/trioperator/faults", json={"fault": "status", "code": 500})
        await names_or_error(client)
        await client.post("/trioperator/reset")
        assert (await client.get("/trioperator/faults")).json() == []
        assert (await client.get("/trioperator/requests")).json() == []

    async def test_one_snapshot_is_the_start_of_several_histories(
        self, cluster: Cluster, client: httpx.AsyncClient
    ) -> None:
        await put(cluster, "a")
        assert (await client.put("/trioperator/snapshots/fork")).status_code == 200
        for name in ("b", "c"):
            await cluster.delete("cm", "a")
            await put(cluster, name)
            assert (await client.post("/trioperator/snapshots/fork/restore")).status_code == 200
            assert await names(client) == ["a"]
        assert (await client.get("/trioperator/snapshots")).json() == ["fork"]
        assert (await client.delete("/trioperator/snapshots/fork")).status_code == 200
        response = await client.post("/trioperator/snapshots/fork/restore")
        assert (response.status_code, response.json()["reason"]) == (404, "NotFound")

    async def test_a_watch_over_a_restore_ends_with_410_and_the_next_list_is_complete(
        self, cluster: Cluster, client: httpx.AsyncClient
    ) -> None:
        await client.put("/trioperator/snapshots/s")
        await put(cluster, "a")
        version = str(cluster.revision)
        codes: list[int] = []

        async def follow(started: trio.Event) -> None:
            [event] = await watch(client, version, started)
            codes.append(event["object"]["code"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, started := trio.Event())
            await started.wait()
            await client.post("/trioperator/snapshots/s/restore")
        await follow(trio.Event())  # one that comes back with what it knew
        assert codes == [410, 410]
        assert await names(client) == []

    @pytest.mark.parametrize("name", ["a%2fb", "a" * 64, ".", ""])
    async def test_odd_names_are_errors(self, client: httpx.AsyncClient, name: str) -> None:
        assert (await client.put(f"/trioperator/snapshots/{name}")).status_code in {400, 404}

    async def test_their_number_is_limited(self, client: httpx.AsyncClient) -> None:
        statuses = [(await client.put(f"/trioperator/snapshots/s{number}")).status_code for number in range(101)]
        assert statuses == [200] * 100 + [400]


async def names_or_error(client: httpx.AsyncClient) -> int:
    return (await client.get(PATH, headers={"Authorization": ""})).status_code


class TestFaults:
    async def test_faults_are_added_counted_and_removed(self, client: httpx.AsyncClient) -> None:
        order = {"fault": "status", "code": 429, "retry_after": 3, "times": 1, "verb": "list", "resource": "configmaps"}
        rule = (await client.post("/trioperator/faults", json=order)).json()
        response = await client.get(PATH, headers={"Authorization": ""})
        assert (response.status_code, response.headers["Retry-After"]) == (429, "3")
        assert await names_or_error(client) == 200
        [found] = (await client.get("/trioperator/faults")).json()
        assert found == {**rule, "hits": 1, "seen": 1}
        assert (await client.delete(f"/trioperator/faults/{rule['id']}")).status_code == 200
        assert (await client.get("/trioperator/faults")).json() == []
        assert (await client.delete(f"/trioperator/faults/{rule['id']}")).status_code == 404

    async def test_all_are_removed_at_once(self, client: httpx.AsyncClient) -> None:
        for _ in range(2):
            await client.post("/trioperator/faults", json={"fault": "status", "code": 500})
        await client.delete("/trioperator/faults")
        assert await names_or_error(client) == 200

    @pytest.mark.parametrize(
        ("order", "message"),
        [
            ({"fault": "call"}, "There is no fault 'call': choose from refuse, "),
            ({"fault": "status"}, "The fault 'status' takes code, message, reason, retry_after: missing "),
            ({"fault": "close", "code": 500}, "The fault 'close' takes lines: got an unexpected "),
            ({"fault": "close", "path": "("}, "Missing ), unterminated subpattern"),
            ({"fault": "close", "verbs": "list"}, "The body cannot be used: "),
            ({"fault": "status", "code": 7}, "The body cannot be used: "),
        ],
    )
    async def test_wrong_orders_are_explained(
        self, client: httpx.AsyncClient, order: dict[str, Any], message: str
    ) -> None:
        response = await client.post("/trioperator/faults", json=order)
        assert response.status_code == 400
        assert message in response.json()["message"]
        assert (await client.get("/trioperator/faults")).json() == []


class TestRequests:
    async def test_the_audit_has_the_requests_to_the_api(self, client: httpx.AsyncClient) -> None:
        await client.get("/trioperator/time")
        await names(client)
        await client.get(f"{PATH}/none", headers={"Authorization": ""})
        found = (await client.get("/trioperator/requests", params={"resource": "configmaps"})).json()
        assert [(each["verb"], each["status"]) for each in found] == [("list", 200), ("get", 404)]
        assert len((await client.get("/trioperator/requests?status=404&verb=get")).json()) == 1
        for status in ("9" * 5000, "\u0664\u0660\u0664", "", "x"):
            assert (await client.get("/trioperator/requests", params={"status": status})).json() == []
        assert (await client.get("/trioperator/requests?status=x")).json() == []
        assert (await client.get("/trioperator/requests?status=%C2%B2")).json() == []
        assert (await client.get("/trioperator/requests?colour=red")).status_code == 400
        await client.delete("/trioperator/requests")
        assert (await client.get("/trioperator/requests")).json() == []


class TestTime:
    async def test_a_clock_that_is_not_its_own_stays_as_it_is(self, client: httpx.AsyncClient) -> None:
        assert (await client.get("/trioperator/time")).json()["rate"] == 1
        assert (await client.post("/trioperator/time", json={"advance": 1})).status_code == 400


class TestAttacks:
    @pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer tttt", TOKEN, f"Basic {TOKEN}", "Bearer \u00e4"])
    @pytest.mark.parametrize("path", ["/trioperator", "/trioperator/reset", "/trioperator/nothing"])
    async def test_without_the_token_nothing_is_done(
        self, cluster: Cluster, client: httpx.AsyncClient, path: str, authorization: str
    ) -> None:
        await put(cluster, "a")
        response = await client.post(path, headers={b"Authorization": authorization.encode("latin-1")})
        assert (response.status_code, response.json()["reason"]) == (401, "Unauthorized")
        assert await names(client) == ["a"]

    @pytest.mark.parametrize("header", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
    @pytest.mark.parametrize("path", ["/trioperator/reset", "/api/v1/namespaces"])
    async def test_web_pages_are_refused_even_with_the_token(
        self, client: httpx.AsyncClient, path: str, header: dict[str, str]
    ) -> None:
        assert (await client.post(path, headers=header)).status_code == 400

    async def test_large_and_deep_bodies_are_errors(self, client: httpx.AsyncClient) -> None:
        large = await client.post("/trioperator/faults", content=b" " * (3 * 1024 * 1024 + 1))
        assert large.status_code == 413
        deep = await client.post("/trioperator/faults", content=b'{"fault":' + b"[" * 1_000_000)
        assert deep.status_code == 400
        assert (await client.get("/trioperator/faults")).json() == []

    @pytest.mark.parametrize(("method", "path"), [("GET", "reset"), ("PATCH", "faults"), ("GET", "..")])
    async def test_other_requests_are_unknown(self, client: httpx.AsyncClient, method: str, path: str) -> None:
        response = await client.request(method, f"/trioperator/{path}?x")
        assert response.status_code in {401, 404}

    def test_the_clock_ends_before_there_are_no_dates(self) -> None:
        order = Request(
            method="POST", path="/trioperator/time", authorization=f"Bearer {TOKEN}", body=b'{"advance": 1e9}'
        )
        statuses: list[int] = []

        async def advance() -> None:
            admin = AdminHandler(Cluster(clock=steady_now), TOKEN)
            statuses.extend([(await admin.handle(order)).status for _ in range(300)])

        trio.run(advance, clock=AdjustableClock())
        assert statuses == sorted(statuses)
        assert set(statuses) == {200, 400}


class TestToken:
    def test_a_missing_file_is_made_for_its_owner_only(self, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "token"
        token = read_token(path)
        assert len(token) >= 40
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert read_token(path) == token
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 30])
    def test_a_token_that_cannot_protect_is_an_error(self, tmp_path: pathlib.Path, content: bytes) -> None:
        path = tmp_path / "token"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="token of the admin endpoint"):
            read_token(path)

    def test_a_folder_that_is_missing_is_an_error(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(ConfigError, match="none"):
            read_token(tmp_path / "none" / "token")


async def test_it_is_served_over_tls_like_the_api(cluster: Cluster, admin: AdminHandler) -> None:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(serve_cluster, cluster, handler=admin, tls=True))
        context = ssl.create_default_context(cadata=cluster.ca.certificate.decode())
        async with httpx.AsyncClient(verify=context, timeout=60) as client:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            assert (await client.get(f"{url}/trioperator/time", headers=headers)).status_code == 200
        nursery.cancel_scope.cancel()
