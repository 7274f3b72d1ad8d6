"""Targets of the conformance cases: the embedded API server, and a real one if its programs are installed.

A case that asks for the fixture ``target`` runs against the embedded server and, marked as ``e2e``, against the
control plane that the tests start where ``KUBEBUILDER_ASSETS`` names its programs. ``TRIOPERATOR_TEST_KUBECONFIG``
names the kubeconfig of one that runs already, which tests may fill and empty as they like. (It is not ``KUBECONFIG``:
nobody's cluster shall be tested upon by accident.)
"""

from __future__ import annotations

import base64
import copy
import dataclasses
import itertools
import os
import pathlib
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

import httpx
import msgspec
import pytest
import trio
import yaml

from trioperator.apiserver import Cluster, User
from trioperator.apiserver.model.user import ANONYMOUS

KUBECONFIG = os.environ.get("TRIOPERATOR_TEST_KUBECONFIG", "")
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

GROUP = "conformance.dev"
_names = itertools.count()
_prepared: set[str] = set()  # kubeconfigs of real servers that have the cases' kinds


def definition(
    plural: str, kind: str, *, scope: str = "Namespaced", group: str = GROUP, **version: Any
) -> dict[str, Any]:
    """Return a definition with one version that accepts everything."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    first = {"name": "v1", "served": True, "storage": True, "schema": schema, **version}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": {"kind": kind, "plural": plural}, "versions": [first]},
    }


SHAPE = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "default": 3, "minimum": 0, "maximum": 100},
                "color": {"type": "string", "enum": ["red", "blue"]},
                "name": {"type": "string", "pattern": "^[a-z]*$", "maxLength": 5, "minLength": 1},
                "port": {"x-kubernetes-int-or-string": True},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "x-kubernetes-list-type": "set"},
                "replicas": {"type": "integer"},
                "when": {"type": "string", "format": "date-time"},
                "extra": {"type": "object", "additionalProperties": {"type": "integer"}},
                "inner": {
                    "type": "object",
                    "required": ["key"],
                    "properties": {"key": {"type": "string"}, "mode": {"type": "string", "default": "fast"}},
                },
                "maybe": {"type": "string", "nullable": True},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
DEFINITIONS = [
    definition("frees", "Free"),
    definition("globals", "Global", scope="Cluster"),
    definition(
        "shapes",
        "Shape",
        schema={"openAPIV3Schema": SHAPE},
        subresources={"status": {}, "scale": SCALE},
        additionalPrinterColumns=COLUMNS,
    ),
]


@dataclasses.dataclass
class Answer:
    """Status code and content of a response."""

    code: int
    content: Any
    headers: httpx.Headers

    @property
    def reason(self) -> str:
        """The reason of an error response."""
        return str(self.content.get("reason", ""))

    @property
    def message(self) -> str:
        """The message of an error response."""
        return str(self.content.get("message", ""))

    @property
    def version(self) -> int:
        """The resource version of the object or the list."""
        return int(self.content["metadata"]["resourceVersion"])


class Target:
    """An API server under test, with a namespace for the case."""

    def __init__(self, client: httpx.AsyncClient, namespace: str, *, is_real: bool) -> None:
        self.client = client
        self.namespace = namespace
        self.is_real = is_real
        self.headers: tuple[tuple[str, str], ...] = ()

    def path(self, plural: str, name: str = "", sub: str = "") -> str:
        """Return the path of the case's objects; those of the core group, of apps/v1, or of the cases' own kinds."""
        base = f"/apis/{GROUP}/v1"
        if plural in {"configmaps", "pods", "secrets", "services", "events"}:
            base = "/api/v1"
        elif plural == "deployments":
            base = "/apis/apps/v1"
        place = "" if plural == "globals" else f"/namespaces/{self.namespace}"
        return "/".join(part for part in (f"{base}{place}/{plural}", name, sub) if part)

    async def request(self, method: str, path: str, body: Any = None, content_type: str = "", **params: Any) -> Answer:
        """Send a request; the body is an object, or bytes that are sent unchanged."""
        headers = [("Accept", params.pop("accept", "application/json")), *self.headers]
        content: bytes | None = None
        if body is not None:
            content = body if isinstance(body, bytes) else msgspec.json.encode(body)
            headers.append(("Content-Type", content_type or "application/json"))
        query = {key.rstrip("_"): value for key, value in params.items()}
        response = await self.client.request(method, path, content=content, headers=headers, params=query)
        try:
            decoded = msgspec.json.decode(response.content)
        except msgspec.DecodeError:
            decoded = response.text
        return Answer(response.status_code, decoded, response.headers)

    def sending(self, *headers: tuple[str, str]) -> Self:
        """Return the same target with additional headers in each request."""
        other = copy.copy(self)
        other.headers = (*self.headers, *headers)
        return other

    async def get(self, path: str, **params: Any) -> Answer:
        """Send a GET request."""
        return await self.request("GET", path, **params)

    async def create(self, plural: str, name: str, *, meta: dict[str, Any] | None = None, **content: Any) -> Answer:
        """Create an object in the case's namespace."""
        kinds = {"configmaps": ("v1", "ConfigMap"), "pods": ("v1", "Pod"), "frees": (f"{GROUP}/v1", "Free")}
        kinds |= {"shapes": (f"{GROUP}/v1", "Shape"), "globals": (f"{GROUP}/v1", "Global")}
        api_version, kind = kinds[plural]
        obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **(meta or {})}, **content}
        return await self.request("POST", self.path(plural), obj)

    async def merge(self, path: str, patch: Any, **params: Any) -> Answer:
        """Send a merge patch."""
        return await self.request("PATCH", path, patch, MERGE, **params)

    async def edit(self, path: str, operations: Any, **params: Any) -> Answer:
        """Send a JSON patch."""
        return await self.request("PATCH", path, operations, JSON, **params)

    async def delete(self, path: str, body: Any = None, **params: Any) -> Answer:
        """Send a DELETE request."""
        return await self.request("DELETE", path, body, **params)

    async def lines(self, path: str, count: int, **params: Any) -> list[dict[str, Any]]:
        """Watch until this many events have arrived."""
        with trio.fail_after(60):
            return [event for _, event in await watch(self.client, path, count, **params)]

    async def until(self, path: str, code: int) -> Answer:
        """Read until the response has the status code, as controllers of a real server take a while."""
        return await self.eventually(lambda: self.get(path), lambda answer: answer.code == code)

    async def eventually(self, ask: Callable[[], Awaitable[Answer]], fits: Callable[[Answer], bool]) -> Answer:
        """Repeat the request until the response meets the condition."""
        with trio.fail_after(90):
            while not fits(answer := await ask()):  # noqa: ASYNC110 - another process is waited for
                await trio.sleep(0.1)
        return answer

    async def marked(self, path: str) -> Answer:
        """Read until the object is being deleted."""
        return await self.eventually(
            lambda: self.get(path), lambda answer: "deletionTimestamp" in answer.content["metadata"]
        )


async def watch(
    client: httpx.AsyncClient, path: str, count: int | None = None, **params: Any
) -> list[tuple[float, dict[str, Any]]]:
    """Watch until this many events have arrived, or to the end; return them with their times."""
    events: list[tuple[float, dict[str, Any]]] = []
    with trio.CancelScope() as scope:
        async with client.stream("GET", path, params={"watch": "1", **params}) as response:
            assert response.status_code == 200, await response.aread()
            async for line in response.aiter_lines():
                events.append((trio.current_time(), msgspec.json.decode(line)))
                if len(events) == count:
                    scope.cancel()  # httpx's generators end in order only from within
    return events


def summary(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the types and names of watch events."""
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


class Persistent(httpx.AsyncHTTPTransport):
    """Transport that retries idempotent requests: a real server may close connections while a definition changes."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request, and retry it if the connection was closed before the response."""
        for _ in range(5 if request.method != "POST" else 0):
            try:
                return await super().handle_async_request(request)
            except (httpx.RemoteProtocolError, httpx.ReadError):
                await trio.sleep(0.1)
        return await super().handle_async_request(request)


def real_client(kubeconfig: str) -> httpx.AsyncClient:
    """Yield a client for the API server of the kubeconfig."""
    config = yaml.safe_load(pathlib.Path(kubeconfig).read_text(encoding="utf-8"))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    context.check_hostname = False
    headers = {"Authorization": f"Bearer {user['token']}"}
    return httpx.AsyncClient(
        base_url=cluster["server"], transport=Persistent(verify=context), headers=headers, timeout=30
    )


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.e2e)])
def kubeconfig(request: pytest.FixtureRequest) -> str:
    """Return the path of a real server's kubeconfig, or an empty string for the embedded server."""
    if request.param == "embedded":
        return ""
    return KUBECONFIG or str(request.getfixturevalue("controlplane").kubeconfig)


@pytest.fixture
async def target(kubeconfig: str) -> AsyncIterator[Target]:
    """Yield a target with the cases' kinds and an empty namespace."""
    is_real = bool(kubeconfig)
    client = real_client(kubeconfig) if is_real else Cluster(seed=0).client()
    async with client:
        target = Target(client, f"case-{uuid.uuid4().hex[:10]}", is_real=is_real)
        if kubeconfig not in _prepared:
            for obj in DEFINITIONS:
                await ensure_definition(target, obj)
            _prepared.update([kubeconfig] if is_real else [])
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": target.namespace}}
        assert (await target.request("POST", "/api/v1/namespaces", namespace)).code == 201
        yield target
        if is_real:
            await target.delete(target.path("globals"))
            await leave(target)


async def leave(target: Target, *paths: str) -> None:
    """Delete what a case leaves on somebody's server. On that of the tests, it would cost more than the cases do."""
    if KUBECONFIG:
        for path in (*paths, f"/api/v1/namespaces/{target.namespace}"):
            await target.delete(path)


async def ensure_definition(target: Target, obj: dict[str, Any]) -> None:
    """Create the definition unless it exists, and wait until its kind is served."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    answer = await target.request("POST", path, obj)
    assert answer.code in {201, 409}, answer.content
    if answer.code == 201:
        plural, group = obj["spec"]["names"]["plural"], obj["spec"]["group"]
        await target.until(f"/apis/{group}/v1/{plural}", 200)
        if target.is_real:
            await trio.sleep(0.5)


@pytest.fixture
def unique() -> str:
    """Return a name that no other case uses."""
    return f"x{uuid.uuid4().hex[:8]}{next(_names)}"


RBAC = "rbac.authorization.k8s.io"
RBAC_PATH = f"/apis/{RBAC}/v1"


def rule(verbs: str, resources: str, group: str = "", **more: Any) -> dict[str, Any]:
    """Return a policy rule from comma-separated values."""
    return {"verbs": verbs.split(","), "apiGroups": [group], "resources": resources.split(","), **more}


class Guarded(Target):
    """An API server with RBAC. Names of users end with the case's namespace."""

    def __init__(self, client: httpx.AsyncClient, namespace: str, *, is_real: bool) -> None:
        super().__init__(client, namespace, is_real=is_real)
        self.everywhere: list[str] = []  # paths of what has to be deleted apart from the namespace

    def named(self, short: str) -> str:
        """Return the name of a user or a cluster-scoped object of the case."""
        return f"{short}.{self.namespace}"

    def acting(self, short: str, *groups: str) -> Self:
        """Return the same target as a user."""
        return self.sending(
            ("Impersonate-User", self.named(short)), *(("Impersonate-Group", group) for group in groups)
        )

    def grants(self, plural: str, name: str = "") -> str:
        """Return the path of roles or bindings."""
        place = "" if plural.startswith("cluster") else f"/namespaces/{self.namespace}"
        return f"{RBAC_PATH}{place}/{plural}/{name}".rstrip("/")

    async def make_role(self, name: str, *rules: dict[str, Any], plural: str = "roles", **more: Any) -> Answer:
        """Create a role."""
        kind = {"roles": "Role", "clusterroles": "ClusterRole"}[plural]
        obj = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name}, "rules": list(rules), **more}
        return await self._make(plural, name, obj)

    async def bind(
        self, role: str, subject: dict[str, str], *, kind: str = "Role", plural: str = "rolebindings", name: str = ""
    ) -> Answer:
        """Create a binding of the role to the subject, by default with the name of the role."""
        binding = {"rolebindings": "RoleBinding", "clusterrolebindings": "ClusterRoleBinding"}[plural]
        obj = {
            "apiVersion": f"{RBAC}/v1",
            "kind": binding,
            "metadata": {"name": name or role},
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
            "subjects": [subject],
        }
        return await self._make(plural, name or role, obj)

    async def _make(self, plural: str, name: str, obj: Any) -> Answer:
        if plural.startswith("cluster"):
            self.everywhere.append(self.grants(plural, name))
        return await self.request("POST", self.grants(plural), obj)

    async def give(self, short: str, *rules: dict[str, Any], everywhere: bool = False) -> Self:
        """Grant the rules to a user, wait until they are effective, and return the target as the user."""
        prefix = "cluster" if everywhere else ""
        role = self.named(f"{short}-role")
        assert (await self.make_role(role, *rules, plural=f"{prefix}roles")).code == 201
        kind = "ClusterRole" if everywhere else "Role"
        subject = {"kind": "User", "name": self.named(short)}
        assert (await self.bind(role, subject, kind=kind, plural=f"{prefix}rolebindings")).code == 201
        user = self.acting(short)
        await user.until_held(*rules)
        return user

    async def until_held(self, *rules: dict[str, Any]) -> None:
        """Wait until the user has the rules."""
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"

        def are_there(answer: Answer) -> bool:
            status = answer.content["status"]
            held = [*status["resourceRules"], *status["nonResourceRules"]]
            return all(item in held for item in rules)

        await self.eventually(lambda: self.request("POST", path, {"spec": {"namespace": self.namespace}}), are_there)


@pytest.fixture
async def guarded(kubeconfig: str) -> AsyncIterator[Guarded]:
    """Yield a target with RBAC and an empty namespace."""
    is_real = bool(kubeconfig)
    if is_real:
        client = real_client(kubeconfig)
    else:
        admin = User(name="admin", uid="admin", groups=("system:masters",))
        cluster = Cluster(seed=0, authorization="rbac", tokens={"admin-token": admin})
        client = cluster.client(user=ANONYMOUS)
        client.headers["Authorization"] = "Bearer admin-token"
    async with client:
        target = Guarded(client, f"case-{uuid.uuid4().hex[:10]}", is_real=is_real)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": target.namespace}}
        assert (await target.request("POST", "/api/v1/namespaces", namespace)).code == 201
        yield target
        if is_real:
            await leave(target, *target.everywhere)
