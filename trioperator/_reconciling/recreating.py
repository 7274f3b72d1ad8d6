"""Recreation of children that cannot be changed: they are deleted, if the server would accept the new ones.

A dry run of a creation, under another name, decides. It must not fail for what only the old object is in the way of:
for ports and addresses that the old one holds, and for a quota of objects that it is counted for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trioperator._handling.arguments.reconciling import ReconcileCause
from trioperator._kube.api_client import ApiClient
from trioperator._reconciling.manifests import Manifest
from trioperator._reconciling.pruning import delete_child
from trioperator._reconciling.related import RelatedRecord
from trioperator.errors import ForbiddenError

# Length of the prefix of a name that leaves room for a unique suffix: the shortest limit of names is 52 (CronJobs).
_MAX_PREFIX: Final = 40
_QUOTA: Final = re.compile(r"exceeded quota: .*?, requested: (?P<requested>.*?), used: ")


async def make_room(client: ApiClient, manifest: Manifest, record: RelatedRecord, cause: ReconcileCause) -> None:
    """Delete a child that cannot be changed, so that it is created again. Raises ApiError if that would fail, too."""
    body = msgspec.json.decode(manifest.body)
    body["metadata"]["generateName"] = f"{body['metadata'].pop('name')[:_MAX_PREFIX]}-"
    if (manifest.key.resource.group, manifest.key.resource.plural) == ("", "services"):
        _release(body.get("spec") or {}, await _read(client, manifest, record))
    path = manifest.key.resource.get_path(manifest.key.namespace or None)
    try:
        await client.post(path, body, params={"dryRun": "All"})
    except ForbiddenError as error:
        if not _is_counted(error.message):
            raise
    why = "its fields cannot be changed, and it is created again"
    await delete_child(client, manifest.kind, record, logger=cause.logger, why=why)


async def _read(client: ApiClient, manifest: Manifest, record: RelatedRecord) -> Mapping[str, Any]:
    """Return a child as it is. It is listed, which needs no rights beyond the right to watch it."""
    if record.whole is not None:
        return record.decode()
    path = manifest.key.resource.get_path(manifest.key.namespace or None)
    params = {"fieldSelector": f"metadata.name={record.name}"}
    found = msgspec.json.decode(await client.request("GET", path, params=params))
    return next(iter(found.get("items") or ()), {})


def _release(spec: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Leave out of a Service what the old one holds, so that nobody else has it."""
    before = old.get("spec") or {}
    ports = {port.get("nodePort") for port in before.get("ports") or ()} | {before.get("healthCheckNodePort")}
    ports.discard(None)
    for port in spec.get("ports") or ():
        if port.get("nodePort") in ports:
            del port["nodePort"]
    if spec.get("healthCheckNodePort") in ports:
        del spec["healthCheckNodePort"]
    addresses = {before.get("clusterIP"), *(before.get("clusterIPs") or ())} - {None, "None", ""}
    if addresses & {spec.get("clusterIP"), *(spec.get("clusterIPs") or ())}:
        for field in ("clusterIP", "clusterIPs"):
            spec.pop(field, None)


def _is_counted(message: str) -> bool:
    """Check whether nothing but a quota is exceeded, by one object of each kind: the old one, which is deleted."""
    found = _QUOTA.search(message)
    return found is not None and all(part.endswith("=1") for part in found["requested"].split(","))
