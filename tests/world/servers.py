"""The clusters that operators are played on: embedded ones, and real control planes that offer what plays need."""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import pathlib
import ssl
import time
import types
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import httpx
import trio
import yaml

from tests.controlplane import ControlPlane
from trioperator import Client, open_client
from trioperator.apiserver import Cluster, serve_cluster, write_kubeconfig
from trioperator.apiserver.manifests import Manifest, load_objects
from trioperator.errors import NotFoundError

Object = dict[str, Any]
_DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# What the control plane writes on its own, all the time or for each definition and Service.
_OWN: Final = ("apiservices", "componentstatuses", "events", "ipaddresses", "leases", "servicecidrs")
_SECONDS: Final = 30


class Plane:
    """A real control plane with the methods of a :class:`Cluster` that plays call."""

    def __init__(self, plane: ControlPlane, client: Client, reader: httpx.Client) -> None:
        self._plane, self._client, self._reader = plane, client, reader
        #: Those of the operator: the audit log has no others.
        self.requests = types.SimpleNamespace(count=lambda **wanted: len(plane.requests(**wanted)))

    @property
    def revision(self) -> int:
        """A number that changes whenever an object does."""
        meta = [obj["metadata"] for obj in self.objects()]
        return hash(frozenset((each["uid"], each["resourceVersion"]) for each in meta))

    def objects(self) -> list[Object]:
        """Return all objects of all kinds, but those that the control plane writes on its own."""
        return [obj for path in self._paths() for obj in self._list(path)]

    def _paths(self) -> Iterator[str]:
        """Yield the paths of all kinds, each in the version that the server prefers."""
        for root in ("/api", "/apis"):
            for group in self._read(root, accept=_DISCOVERY)["items"]:
                seen = {*_OWN}
                prefix = f"/apis/{group['metadata']['name']}" if group["metadata"].get("name") else "/api"
                for version in group["versions"]:
                    for each in version.get("resources", ()):
                        if each["resource"] not in seen and "list" in each["verbs"]:
                            seen.add(each["resource"])
                            yield f"{prefix}/{version['version']}/{each['resource']}"

    def _list(self, path: str) -> list[Object]:
        found = self._read(path) or {"items": []}  # the kind has gone meanwhile
        common = {key: found.get(key, "").removesuffix("List") for key in ("apiVersion", "kind")}
        return [{**common, **item} for item in found["items"]]

    def _read(self, path: str, *, accept: str = "application/json") -> Any:
        deadline = time.monotonic() + _SECONDS
        while True:
            response = self._reader.get(path, headers={"Accept": accept})
            if response.status_code != httpx.codes.TOO_MANY_REQUESTS or time.monotonic() >= deadline:
                break
            time.sleep(float(response.headers.get("Retry-After", 1)))  # as the storage of a new kind is made
        return response.raise_for_status().json() if response.status_code != httpx.codes.NOT_FOUND else None

    def kubeconfig(self, url: str, *, certificate: bool = False) -> Object:
        """Return a kubeconfig of the user ``operator``, with a token or with a certificate."""
        config: Object = yaml.safe_load((self._plane.folder / "operator.kubeconfig").read_text())
        if certificate:
            made = self._plane.clients.issue_cert(
                "operator", common_name="operator", organization_name="system:masters"
            )
            pair = {"client-certificate-data": made.cert_chain_pems[0], "client-key-data": made.private_key_pem}
            config["users"][0]["user"] = {key: base64.b64encode(pem.bytes()).decode() for key, pem in pair.items()}
        return config

    @contextlib.asynccontextmanager
    async def open_controllers(self) -> AsyncIterator[None]:
        """Do nothing: they run."""
        yield

    async def get(self, kind: str, name: str, namespace: str | None = None) -> Object:
        return await self._client.get(kind, name, namespace=namespace)

    async def create(self, manifest: Mapping[str, Any], namespace: str | None = None) -> Object:
        created = await self._client.create(dict(manifest), owner=None, namespace=namespace)
        if created["kind"] == "CustomResourceDefinition":
            spec = created["spec"]
            for version in [version["name"] for version in spec["versions"] if version["served"]]:
                await self._wait_served(f"{spec['group']}/{version}", spec["names"]["kind"])
        return created

    async def _wait_served(self, api_version: str, kind: str) -> None:
        """Wait until a kind is served: later than the API server says that its definition is established."""
        with trio.fail_after(_SECONDS):
            while True:
                try:
                    await self._client.list(api_version, kind)
                    return
                except NotFoundError:
                    await trio.sleep(0.2)  # no event tells when

    async def apply(self, manifest: Manifest, namespace: str | None = None) -> list[Object]:
        """Create the objects, or merge them into existing ones, and return them."""
        results: list[Object] = []
        for each in load_objects(manifest):
            kind = (each["apiVersion"], each["kind"])
            name, place = each["metadata"]["name"], namespace or each["metadata"].get("namespace")
            try:
                await self._client.get(*kind, name, namespace=place)
            except NotFoundError:
                await self._wait_served(*kind)  # its definition may be one that the operator has just made
                results.append(await self.create(each, place))
            else:
                results.append(await self._client.patch(*kind, name, namespace=place, merge=each))
        return results

    async def patch(
        self,
        kind: str,
        name: str,
        patch: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        namespace: str | None = None,
        *,
        subresource: str = "",
    ) -> Object:
        content = {"merge": patch} if isinstance(patch, Mapping) else {"json": list(patch)}
        return await self._client.patch(kind, name, namespace=namespace, subresource=subresource or None, **content)

    async def delete(self, kind: str, name: str, namespace: str | None = None) -> None:
        await self._client.delete(kind, name, namespace=namespace)

    async def wait_for(
        self,
        kind: str,
        name: str,
        condition: Callable[[Any], bool],
        namespace: str | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Wait until the object exists and meets the condition. Raises TimeoutError after that many seconds."""
        await self._client.wait_for(kind, name, condition=condition, namespace=namespace, timeout=timeout)


@contextlib.asynccontextmanager
async def open_embedded(home: pathlib.Path) -> AsyncIterator[Cluster]:
    """Serve a cluster with its controllers in the block, whose kubeconfig is in the folder."""
    cluster = Cluster(seed=0)
    async with trio.open_nursery() as nursery:
        url = str(await nursery.start(serve_cluster, cluster))
        write_kubeconfig(str(home / "kubeconfig"), cluster.kubeconfig(url))
        async with cluster.open_controllers():
            await trio.sleep(0.2)  # for what the controllers create at first
            yield cluster
        nursery.cancel_scope.cancel(reason="the scenario has ended")


@contextlib.asynccontextmanager
async def open_plane(home: pathlib.Path) -> AsyncIterator[Plane]:
    """Run a control plane of the programs in ``$KUBEBUILDER_ASSETS`` in the block."""
    folder = home / "plane"
    folder.mkdir()
    control = ControlPlane(folder, pathlib.Path(os.environ["KUBEBUILDER_ASSETS"]))
    try:
        await trio.to_thread.run_sync(control.start)
        cluster = control.read_kubeconfig()
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        make_reader = functools.partial(httpx.Client, base_url=cluster["server"], timeout=_SECONDS)
        token = {"Authorization": "Bearer admin-token"}
        with make_reader(verify=ssl.create_default_context(cadata=authority), headers=token) as reader:
            async with open_client(kubeconfig=control.kubeconfig) as client:
                plane = Plane(control, client, reader)
                write_kubeconfig(str(home / "kubeconfig"), plane.kubeconfig(cluster["server"]))
                yield plane
    finally:
        await trio.to_thread.run_sync(control.stop)
