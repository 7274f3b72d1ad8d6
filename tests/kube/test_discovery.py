"""Discovery: aggregated, plain, and of clusters with unavailable groups."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.kube.conftest import Memory, ok, status
from tests.levels import TOO_MANY
from trioperator._kube.api_client import open_client
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.discovery import discover
from trioperator._model.resource import Resource
from trioperator.errors import ConnectionLostError, ForbiddenError
from trioperator.settings import OperatorSettings

INFO = ConnectionInfo(server="http://cluster")
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def resource(plural: str, kind: str, *, subresources: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """Return a resource as in aggregated discovery."""
    return {
        "resource": plural,
        "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": "Namespaced",
        "verbs": VERBS,
        "subresources": [{"subresource": name, "verbs": ["get"]} for name in subresources],
    } | fields


def group(name: str, /, **versions: Any) -> dict[str, Any]:
    """Return a group as in aggregated discovery; lists are resources, dicts are versions."""
    return {
        "metadata": {"name": name} if name else {"creationTimestamp": None},
        "versions": [
            {"version": version, **(value if isinstance(value, dict) else {"resources": value})}
            for version, value in versions.items()
        ],
    }


def aggregated(*groups: Any) -> httpx.Response:
    return ok({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": list(groups)})


CORE = group(
    "", v1=[resource("pods", "Pod", subresources=("status", "log"), singularResource="pod", shortNames=["po"])]
)
KOPF = group(
    "kopf.dev",
    v2=[resource("kexes", "KopfExample", categories=["all"], subresources=("status",))],
    v1=[resource("kexes", "KopfExample", scope="Cluster", singularResource="kex")],
)


def plain(name: str, kind: str, **fields: Any) -> dict[str, Any]:
    """Return a resource as in plain discovery."""
    return {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": VERBS} | fields


def answers(responses: dict[str, httpx.Response | Exception]) -> Memory:
    def respond(request: httpx.Request) -> httpx.Response | Exception:
        return responses.get(request.url.path) or status(404, "not here")

    return Memory(respond)


async def find(memory: Memory, groups: frozenset[str] | None = None) -> dict[str, Resource]:
    async with open_client(lambda: INFO, settings=OperatorSettings(), transport=memory) as client:
        found = (await discover(client, groups)).resources
    return {f"{each.plural}.{each.version}.{each.group}": each for each in found}


def paths(memory: Memory) -> list[str]:
    return sorted(request.url.path for request in memory.requests)


async def test_aggregated_discovery_takes_two_requests() -> None:
    memory = answers({"/api": aggregated(CORE), "/apis": aggregated(KOPF)})
    found = await find(memory)
    assert paths(memory) == ["/api", "/apis"]
    assert set(found) == {"pods.v1.", "kexes.v1.kopf.dev", "kexes.v2.kopf.dev"}
    pods = found["pods.v1."]
    assert (pods.group, pods.version, pods.plural, pods.kind, pods.singular) == ("", "v1", "pods", "Pod", "pod")
    assert pods.shortcuts == {"po"}
    assert pods.subresources == {"status", "log"}
    assert pods.verbs == set(VERBS)
    assert pods.namespaced
    assert pods.preferred
    newer, older = found["kexes.v2.kopf.dev"], found["kexes.v1.kopf.dev"]
    assert (newer.preferred, older.preferred) == (True, False)
    assert (newer.namespaced, older.namespaced) == (True, False)
    assert newer.categories == {"all"}
    assert newer.singular == "kopfexample"  # it has none of its own
    assert older.singular == "kex"


async def test_aggregated_discovery_is_requested_in_both_versions() -> None:
    memory = answers({"/api": aggregated(), "/apis": aggregated()})
    assert await find(memory) == {}
    for request in memory.requests:
        first, second, last = request.headers["accept"].split(",")
        assert first == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        assert second == "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
        assert last == "application/json"


PLAIN: dict[str, Any] = {
    "/api": ok({"kind": "APIVersions", "versions": ["v1"]}),
    "/apis": ok(
        {
            "kind": "APIGroupList",
            "groups": [
                {
                    "name": "kopf.dev",
                    "versions": [{"groupVersion": "kopf.dev/v1", "version": "v1"}, {"version": "v2"}],
                    "preferredVersion": {"version": "v2"},
                },
                {"name": "apps", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}},
            ],
        }
    ),
    "/api/v1": ok(
        {
            "resources": [
                plain("pods", "Pod", singularName="pod", shortNames=["po"]),
                plain("pods/status", "Pod"),
                plain("pods/eviction", "Eviction", group="policy", version="v1"),
                plain("nodes", "Node", namespaced=False, categories=["all"]),
            ]
        }
    ),
    "/apis/kopf.dev/v1": ok({"resources": [plain("kexes", "KopfExample")]}),
    "/apis/kopf.dev/v2": ok({"resources": [plain("kexes", "KopfExample")]}),
    "/apis/apps/v1": ok({"resources": [plain("deployments", "Deployment")]}),
}


async def test_plain_discovery_requests_each_group_version() -> None:
    memory = answers(PLAIN)
    found = await find(memory)
    assert paths(memory) == sorted(PLAIN)
    assert set(found) == {
        "pods.v1.",
        "nodes.v1.",
        "kexes.v1.kopf.dev",
        "kexes.v2.kopf.dev",
        "deployments.v1.apps",
    }
    pods, nodes = found["pods.v1."], found["nodes.v1."]
    assert (pods.singular, pods.shortcuts, pods.subresources) == (
        "pod",
        frozenset({"po"}),
        frozenset({"status", "eviction"}),
    )
    assert (nodes.singular, nodes.namespaced, nodes.categories, nodes.subresources) == (
        "node",
        False,
        frozenset({"all"}),
        frozenset(),
    )
    assert pods.preferred
    assert found["kexes.v2.kopf.dev"].preferred
    assert not found["kexes.v1.kopf.dev"].preferred


async def test_a_kind_that_the_preferred_version_of_its_group_does_not_have_is_preferred_in_the_next_one() -> None:
    kinds = group("kopf.dev", v2=[resource("kexes", "Kex")], v1=[resource("kexes", "Kex"), resource("exes", "Ex")])
    kinds["versions"].append({"version": "v1beta1", "resources": [resource("exes", "Ex")]})
    found = await find(answers({"/api": aggregated(), "/apis": aggregated(kinds)}))
    assert {name for name, each in found.items() if each.preferred} == {"kexes.v2.kopf.dev", "exes.v1.kopf.dev"}


async def test_plain_discovery_prefers_what_the_preferred_version_does_not_have() -> None:
    found = await find(answers(PLAIN | {"/apis/kopf.dev/v2": ok({"resources": [plain("others", "Other")]})}))
    assert found["kexes.v1.kopf.dev"].preferred


async def test_no_other_version_is_preferred_while_one_of_the_group_is_not_available(
    autojump_clock: MockClock,
) -> None:
    found = await find(answers(PLAIN | {"/apis/kopf.dev/v2": status(503)}))
    assert not found["kexes.v1.kopf.dev"].preferred


@pytest.mark.parametrize(
    ("groups", "asked"),
    [
        ({""}, ["/api", "/api/v1"]),
        ({"apps"}, ["/apis", "/apis/apps/v1"]),
        ({"", "kopf.dev"}, ["/api", "/api/v1", "/apis", "/apis/kopf.dev/v1", "/apis/kopf.dev/v2"]),
        ({"elsewhere.dev"}, ["/apis"]),
        (set(), []),
    ],
)
async def test_only_needed_groups_are_requested(groups: set[str], asked: list[str]) -> None:
    memory = answers(PLAIN)
    found = await find(memory, frozenset(groups))
    assert paths(memory) == asked
    assert {each.group for each in found.values()} == groups - {"elsewhere.dev"}


async def test_aggregated_discovery_returns_only_needed_groups() -> None:
    memory = answers({"/api": aggregated(CORE), "/apis": aggregated(KOPF, group("apps", v1=[resource("d", "D")]))})
    assert set(await find(memory, frozenset({"apps"}))) == {"d.v1.apps"}
    assert paths(memory) == ["/apis"]


@pytest.mark.parametrize("trouble", [status(503), status(500), status(403), httpx.ReadError("x"), ok([])])
async def test_one_unavailable_group_costs_little_time_and_no_other_group(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, trouble: Any
) -> None:
    found = await find(answers(PLAIN | {"/apis/kopf.dev/v2": trouble}))
    assert set(found) == {"pods.v1.", "nodes.v1.", "kexes.v1.kopf.dev", "deployments.v1.apps"}
    assert "/apis/kopf.dev/v2 is not available" in caplog.text
    assert trio.current_time() <= 1


async def test_a_silent_group_does_not_delay_the_others_for_long(autojump_clock: MockClock) -> None:
    async def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/apis/kopf.dev/v2":
            await trio.sleep_forever()
        answer = PLAIN[request.url.path]
        assert isinstance(answer, httpx.Response)
        return answer

    assert len(await find(Memory(respond))) == 4
    assert trio.current_time() <= 25


async def test_a_group_version_that_is_not_found_is_empty_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    found = await find(answers(PLAIN | {"/apis/kopf.dev/v2": status(404)}))
    assert "kexes.v2.kopf.dev" not in found
    assert caplog.text == ""


async def test_a_stale_version_is_requested_separately() -> None:
    stale = group("metrics.k8s.io", v1beta1={"freshness": "Stale", "resources": [resource("old", "Old")]})
    memory = answers(
        {
            "/api": aggregated(CORE),
            "/apis": aggregated(stale, KOPF),
            "/apis/metrics.k8s.io/v1beta1": ok({"resources": [plain("pods", "PodMetrics")]}),
        }
    )
    found = await find(memory)
    assert paths(memory) == ["/api", "/apis", "/apis/metrics.k8s.io/v1beta1"]
    assert "pods.v1beta1.metrics.k8s.io" in found
    assert "old.v1beta1.metrics.k8s.io" not in found
    assert found["pods.v1beta1.metrics.k8s.io"].preferred


@pytest.mark.parametrize("served", [[], [resource("old", "Old")], None])
async def test_a_stale_version_that_is_unavailable_has_the_remembered_resources(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, served: Any
) -> None:
    stale = group("metrics.k8s.io", v1beta1={"freshness": "Stale", "resources": served})
    memory = answers(
        {"/api": aggregated(CORE), "/apis": aggregated(stale, KOPF), "/apis/metrics.k8s.io/v1beta1": status(503)}
    )
    found = await find(memory)
    assert len(found) == 3 + len(served or ())
    assert "/apis/metrics.k8s.io/v1beta1 is not available" in caplog.text


@pytest.mark.parametrize("broken", [{"metadata": None}, [], {"metadata": {"name": "bad.dev"}, "versions": 7}])
async def test_an_invalid_group_is_skipped(caplog: pytest.LogCaptureFixture, broken: Any) -> None:
    found = await find(answers({"/api": aggregated(CORE), "/apis": aggregated(broken, KOPF)}))
    assert len(found) == 3
    assert "skipping an invalid API group" in caplog.text


async def test_an_invalid_resource_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    odd = [{"resource": 1}, None, resource("x", "X", verbs="all")]
    apis = aggregated(
        group("odd.dev", v1=[*odd, resource("fine", "Fine", verbs=None, shortNames=None, categories=None)])
    )
    found = await find(answers({"/api": aggregated(), "/apis": apis}))
    assert set(found) == {"fine.v1.odd.dev"}
    assert found["fine.v1.odd.dev"].verbs == frozenset()
    assert caplog.text.count("skipping an invalid resource of /apis/odd.dev/v1") == 3
    caplog.clear()
    core = ok({"resources": [{"name": 1}, plain("pods", "Pod"), {"name": "kindless"}]})
    found = await find(answers({"/api": PLAIN["/api"], "/api/v1": core}))
    assert set(found) == {"pods.v1."}
    assert caplog.text.count("skipping an invalid resource of /api/v1") == 2


async def test_an_entry_with_subresources_only_is_not_a_resource() -> None:
    apis = aggregated(group("odd.dev", v1=[resource("x", "X", responseKind=None)]))
    assert await find(answers({"/api": aggregated(), "/apis": apis})) == {}


async def test_a_server_without_groups_has_none() -> None:
    assert set(await find(answers({"/api": aggregated(CORE)}))) == {"pods.v1."}


async def test_errors_of_the_lists_of_groups_are_raised(autojump_clock: MockClock) -> None:
    with pytest.raises(ForbiddenError, match="no way"):
        await find(answers({"/api": status(403, "no way")}))
    with pytest.raises(ConnectionLostError, match="GET /api: the response is not a list of API groups"):
        await find(answers({"/api": httpx.Response(200, content=b"<html>")}))
    with pytest.raises(ConnectionLostError):
        await find(answers({"/api": httpx.ConnectError("refused")}))
    assert trio.current_time() == 54  # lost connections to the server itself are tried again as all are


DEEP = b'{"a":[' * TOO_MANY + b"]}" * TOO_MANY  # more levels than any decoder has


@pytest.mark.parametrize("body", [b'{"resources": %b}', b'{"resources": [%b]}', b'{"resources": [], "x": %b}'])
async def test_a_group_whose_server_sends_deep_json_does_not_keep_others_from_being_found(
    caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    memory = answers(PLAIN | {"/apis/apps/v1": httpx.Response(200, content=body % DEEP)})
    found = await find(memory)
    assert "pods.v1." in found
    assert "deployments.v1.apps" not in found
    assert "/apis/apps/v1 is not available, continuing without it" in caplog.text


async def test_a_list_of_groups_that_is_nested_too_deeply_is_a_clear_error() -> None:
    memory = answers(PLAIN | {"/apis": httpx.Response(200, content=DEEP)})
    with pytest.raises(ConnectionLostError, match="GET /apis: the response is not a list of API groups"):
        await find(memory)
