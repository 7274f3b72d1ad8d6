"""The same operators on both API servers: the embedded one over TCP, and a real kube-apiserver."""

from __future__ import annotations

import contextlib
import json
import math
import pathlib
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
import pytest
import trio

import trioperator
from tests.both.kinds import CRDS, DEFINITIONS, NAMESPACES
from tests.controlplane import ControlPlane
from trioperator._kube.api_client import ApiClient, open_client
from trioperator._kube.connection import load_connection
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.watch import open_watch
from trioperator._model.resource import Resource
from trioperator.apiserver import Cluster, serve_cluster
from trioperator.errors import ApiError, ConflictError, NotFoundError
from trioperator.settings import OperatorSettings

LAST = "trioperator.dev/last-handled-configuration"
Body = dict[str, Any]


class Notes:
    """Notes of handlers, which tests can wait for."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._changed = trio.Event()

    def add(self, *note: Any) -> None:
        self.all.append(note[0] if len(note) == 1 else note)
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def until(self, wanted: int | Callable[[list[Any]], bool]) -> list[Any]:
        """Wait for a number of notes, or until they satisfy a condition."""
        while not (len(self.all) >= wanted if isinstance(wanted, int) else wanted(self.all)):
            await self._changed.wait()
        return self.all


class Server:
    """API server with methods to act on it as a user, and to run operators.

    Names of objects are in ``namespace``, which is the test's own, unless another one is given.
    """

    def __init__(self, connection: ConnectionInfo, admin: ApiClient, *, is_real: bool) -> None:
        self.connection = connection
        self.admin = admin
        self.is_real = is_real
        self.mark = uuid.uuid4().hex[:8]
        self.namespace = f"both-{self.mark}"
        self.registry = trioperator.OperatorRegistry()
        self.settings = OperatorSettings()
        self.notes = Notes()

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str | None = None) -> Body:
        return dict(await self.admin.post(self._path(resource, None, namespace), dict(body)))

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Body:
        return dict(await self.admin.get(self._path(resource, name, namespace)))

    async def patch(self, resource: Resource, name: str, patch: Body, *, subresource: str | None = None) -> Body:
        path = self._path(resource, name, None)
        raw = await self.admin.patch(f"{path}/{subresource}" if subresource else path, patch)
        return dict(msgspec.json.decode(raw))

    async def delete(
        self, resource: Resource, name: str, *, namespace: str | None = None, policy: str | None = None
    ) -> None:
        await self.admin.delete(self._path(resource, name, namespace), params={"propagationPolicy": policy})

    async def until(
        self,
        resource: Resource,
        name: str,
        check: Callable[[Body], Any] = bool,
        *,
        namespace: str | None = None,
    ) -> Body:
        """Wait until an object exists and satisfies a condition."""
        found = await self._follow(resource, name, lambda body: body is not None and bool(check(body)), namespace)
        assert found is not None
        return found

    async def until_gone(self, resource: Resource, name: str, *, namespace: str | None = None) -> None:
        """Wait until the object does not exist."""
        await self._follow(resource, name, lambda body: body is None, namespace)

    async def until_handled(self, resource: Resource, name: str, *, namespace: str | None = None, **spec: Any) -> Body:
        """Wait until the last-handled configuration is stored and has these fields in its spec."""

        def is_handled(body: Body) -> bool:
            last = json.loads(body["metadata"].get("annotations", {}).get(LAST, "null"))
            return last is not None and all(last.get("spec", {}).get(key) == value for key, value in spec.items())

        return await self.until(resource, name, is_handled, namespace=namespace)

    async def define(self, definition: Mapping[str, Any]) -> None:
        """Create a kind if it does not exist, and wait until its objects can be listed."""
        with contextlib.suppress(ConflictError):
            await self.create(CRDS, definition)
        await self.until(CRDS, definition["metadata"]["name"], _is_established)
        spec = definition["spec"]
        for version in spec["versions"]:
            while True:
                try:
                    await self.admin.get(f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}")
                    break
                except NotFoundError:  # it is established a moment before it is served
                    await trio.sleep(0.05)

    async def create_soon(self, resource: Resource, body: Mapping[str, Any]) -> Body:
        """Create an object of a kind that is just being established."""
        while True:
            try:
                return await self.create(resource, body)
            except ApiError as error:
                if error.status not in (404, 405):
                    raise
                await trio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def operating(
        self,
        *,
        registry: trioperator.OperatorRegistry | None = None,
        settings: OperatorSettings | None = None,
        namespaces: tuple[str, ...] | None = None,
        seconds: float = 60,
        **options: Any,
    ) -> AsyncIterator[None]:
        """Run an operator during the block, for at most so many seconds, and stop it in order at the end.

        Other *options* are those of ``trioperator.operator()``.
        """
        stop = trio.Event()

        async def operate(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            await trioperator.operator(
                registry=registry or self.registry,
                settings=settings or self.settings,
                namespaces=(self.namespace,) if namespaces is None else namespaces,
                connection=self.connection,
                stop_flag=stop,
                task_status=task_status,
                **options,
            )

        with trio.fail_after(seconds):
            async with trio.open_nursery() as nursery:
                await nursery.start(operate)
                yield
                stop.set()

    def _path(self, resource: Resource, name: str | None, namespace: str | None) -> str:
        return resource.get_path(namespace=namespace or self.namespace, name=name)

    async def _follow(
        self, resource: Resource, name: str, check: Callable[[Body | None], bool], namespace: str | None
    ) -> Body | None:
        path = self._path(resource, None, namespace)
        page = await self.admin.list_page(path)
        body = next((obj.decode() for obj in page.items if obj.name == name), None)
        if check(body):
            return body
        with trio.fail_after(90):
            async with open_watch(self.admin, path, resource_version=page.resource_version) as watch:
                async for line in watch:
                    if line.type != "BOOKMARK" and line.object.name == name:
                        body = None if line.type == "DELETED" else line.object.decode()
                        if check(body):
                            return body
        raise AssertionError(f"The watch of {path} has ended.")


def _is_established(body: Body) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.e2e)])
def plane(request: pytest.FixtureRequest) -> ControlPlane | None:
    """Return the real control plane if it is requested, None for the embedded server."""
    if request.param == "embedded":
        return None
    started: ControlPlane = request.getfixturevalue("controlplane")
    return started


@pytest.fixture
async def server(plane: ControlPlane | None, tmp_path: pathlib.Path) -> AsyncIterator[Server]:
    """Yield one of both API servers, with the kinds of these tests and a namespace of its own."""
    async with trio.open_nursery() as nursery:
        if plane is None:
            cluster = Cluster()
            url = await nursery.start(serve_cluster, cluster)
            operators = admins = tmp_path / "kubeconfig"
            operators.write_bytes(msgspec.json.encode(cluster.kubeconfig(str(url))))
        else:
            operators, admins = plane.folder / "operator.kubeconfig", plane.kubeconfig
        settings = OperatorSettings()
        settings.watching.inactivity_timeout = math.inf
        async with open_client(lambda: load_connection([admins]), settings=settings) as admin:
            server = Server(load_connection([operators]), admin, is_real=plane is not None)
            async with trio.open_nursery() as definers:
                for definition in DEFINITIONS:
                    definers.start_soon(server.define, definition)
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": server.namespace}}
            await server.create(NAMESPACES, namespace)
            yield server
        nursery.cancel_scope.cancel()
