"""Three versions of a kind, and the migration of what is stored, as in docs/conversion.md, on both servers."""

from __future__ import annotations

from typing import Any, Final

import pytest
import trio

import trioperator
from tests.both.conftest import Server
from tests.both.kinds import CRDS, OPEN
from trioperator._model.resource import Resource
from trioperator._supervisor.storage_migration import migrate_stored
from trioperator.client import open_client
from trioperator.errors import ApiError, InvalidError

FIELDS: Final = {"v1": "size", "v2": "width", "v3": "length"}


class Boxes:
    """A kind with up to three versions, in a group of its own: each has another name for the same field."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.group = f"c{server.mark}.kopf.dev"
        self.name = f"boxes.{self.group}"

    def of(self, version: str) -> Resource:
        return Resource(self.group, version, "boxes", kind="Box", namespaced=True)

    def make(self, version: str, name: str, value: int) -> dict[str, Any]:
        metadata = {"name": name, "namespace": self._server.namespace}
        api_version = f"{self.group}/{version}"
        return {"apiVersion": api_version, "kind": "Box", "metadata": metadata, "spec": {FIELDS[version]: value}}

    def define(self, *versions: str, storage: str) -> dict[str, Any]:
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": OPEN}}}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {
                "group": self.group,
                "scope": "Namespaced",
                "names": {"kind": "Box", "plural": "boxes", "singular": "box"},
                "versions": [
                    {"name": name, "served": True, "storage": name == storage, "schema": schema} for name in versions
                ],
            },
        }

    async def redefine(self, *versions: str, storage: str) -> None:
        definition = self.define(*versions, storage=storage)
        await self._server.patch(CRDS, self.name, {"spec": {"versions": definition["spec"]["versions"]}})

    async def see(self, version: str, name: str, value: int) -> None:
        """Wait until an object is converted to a version: API servers notice changes of CRDs with a delay."""
        with trio.fail_after(60):
            while True:
                try:
                    box = await self._server.get(self.of(version), name)
                except ApiError:
                    box = {}
                if box.get("spec") == {FIELDS[version]: value}:
                    return
                await trio.sleep(0.1)


def declare(boxes: Boxes, registry: trioperator.OperatorRegistry) -> None:
    for from_, to in (("v1", "v2"), ("v2", "v1"), ("v2", "v3"), ("v3", "v2")):

        @trioperator.on.convert(boxes.group, "boxes", from_=from_, to=to, id=f"{from_}-{to}", registry=registry)
        def convert(spec: Any, patch: trioperator.Patch, from_: str, to: str) -> None:
            patch.spec[FIELDS[to]] = spec[FIELDS[from_]]
            patch.spec[FIELDS[from_]] = None


async def test_stored_objects_are_migrated_to_another_version_and_the_old_one_is_dropped(server: Server) -> None:
    boxes = Boxes(server)
    await server.define(boxes.define("v1", storage="v1"))
    for number in range(3):
        await server.create_soon(boxes.of("v1"), boxes.make("v1", f"box-{number}", number))
    declare(boxes, server.registry)
    server.connection = server.admin.credentials.current.info  # rights are not the point
    server.settings.admission.server = trioperator.WebhookServer(addr="127.0.0.1")
    server.settings.admission.managed_conversions = True
    async with server.operating():
        await boxes.redefine("v1", "v2", "v3", storage="v3")
        for version in FIELDS:
            for number in range(3):
                await boxes.see(version, f"box-{number}", number)
        with pytest.raises(InvalidError, match=r"missing from spec\.versions; v1 was"):
            await boxes.redefine("v2", "v3", storage="v3")
        async with open_client(connection=server.connection) as client:
            assert await migrate_stored(client, boxes.name, rate=100, report=print)
        assert (await server.get(CRDS, boxes.name))["status"]["storedVersions"] == ["v3"]
        await boxes.redefine("v2", "v3", storage="v3")
        await boxes.see("v2", "box-1", 1)
    await server.patch(CRDS, boxes.name, {"spec": {"conversion": None}})
    for number in range(3):
        await boxes.see("v3", f"box-{number}", number)  # as it is stored: nothing is converted any more
