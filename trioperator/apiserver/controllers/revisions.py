"""ControllerRevisions: the history of templates of a StatefulSet or a DaemonSet."""

from __future__ import annotations

from collections.abc import Mapping

from .client import Client, Object, Resource
from .templates import owner_reference, template_hash

REVISIONS: Resource = ("apps", "controllerrevisions")


async def ensure_revision(client: Client, owner: Object, *, label: str) -> str:
    """Store the owner's template as its newest revision; return its hash, which is the value of the label *label*."""
    meta, template = owner["metadata"], owner["spec"]["template"]
    mark = template_hash({"kind": owner["kind"], **template})  # another kind's owner may have the same name
    name = f"{meta['name']}-{mark}"
    known = client.owned(owner, REVISIONS)
    newest = max((item["revision"] for item in known), default=0)
    found = next((item for item in known if item["metadata"]["name"] == name), None)
    if found is None:
        labels = (template.get("metadata") or {}).get("labels") or {}
        own: Object = {"name": name, "namespace": meta["namespace"], "labels": {**labels, label: mark}}
        own["ownerReferences"] = [owner_reference(owner)]
        if meta.get("annotations"):
            own["annotations"] = meta["annotations"]
        data = {"spec": {"template": {"$patch": "replace", **template}}}
        head = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": own}
        await client.create(REVISIONS, {**head, "data": data, "revision": newest + 1})
    elif found["revision"] < newest:
        await client.merge(REVISIONS, found, {"revision": newest + 1})
    return mark


async def clean_revisions(client: Client, owner: Object, *, used: Mapping[str, object]) -> None:
    """Delete the oldest revisions that are not in use (by name), beyond the ``revisionHistoryLimit``."""
    idle = [item for item in client.owned(owner, REVISIONS) if item["metadata"]["name"] not in used]
    idle.sort(key=lambda item: int(item["revision"]))
    for item in idle[: max(0, len(idle) - owner["spec"].get("revisionHistoryLimit", 10))]:
        await client.delete(REVISIONS, item)
