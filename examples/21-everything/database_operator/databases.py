"""What belongs to a database, and whether that is ready."""

import hashlib
from collections.abc import Iterable
from typing import Any

import trioperator
from database_operator.kinds import Database, DatabaseSpec, DatabaseStatus
from database_operator.manifests import MANAGED, make_password, make_service, make_stateful_set
from trioperator import crds

SETTINGS = "db.example.com/settings"


@trioperator.on.startup()
async def configure(settings: trioperator.OperatorSettings) -> None:
    settings.persistence.field_manager = "database-operator"
    settings.admission.server = trioperator.WebhookAutoServer()
    settings.admission.managed = "webhooks.db.example.com"
    settings.admission.managed_conversions = True
    settings.crds.migrate = True


@trioperator.index("secrets", labels={SETTINGS: trioperator.PRESENT})
async def settings_digests(namespace: str, name: str, body: trioperator.Body) -> dict[tuple[str, str], str]:
    text = repr(sorted(body.get("data", {}).items()))
    return {(namespace, name): hashlib.sha256(text.encode()).hexdigest()[:16]}


@trioperator.index(Database)
async def users_of_settings(namespace: str, name: str, spec: DatabaseSpec) -> dict[tuple[str, str], str] | None:
    return {(namespace, spec.settings): name} if spec.settings else {}


def find_databases(
    namespace: str, name: str, users_of_settings: trioperator.Index[tuple[str, str], str]
) -> Iterable[str]:
    return list(users_of_settings.get((namespace, name), []))


@trioperator.on.reconcile(
    Database,
    owns=[
        trioperator.Owned("secrets", labels=MANAGED, strategy="on_delete"),
        trioperator.Owned("statefulsets.apps", bodies=True),
        "services",
    ],
    watches={"secrets": find_databases},
    condition="Applied",
    rights=["list,patch:persistentvolumeclaims"],
)
async def provide(
    namespace: str,
    name: str,
    meta: trioperator.Meta,
    spec: DatabaseSpec,
    status: DatabaseStatus,
    children: Any,
    conditions: trioperator.Conditions,
    patch: trioperator.Patch,
    settings_digests: trioperator.Index[tuple[str, str], str],
    client: trioperator.Client,
) -> Any:
    digest = next(iter(settings_digests.get((namespace, spec.settings or ""), [])), None)
    if spec.settings and digest is None:
        conditions.set(
            "Ready", False, reason="NoSettings", message=f"There is no Secret {spec.settings} with settings."
        )
        return trioperator.Requeue(after=300)  # or as soon as there is one
    actual = children["statefulsets"].get(name)
    if actual is not None and is_growing(actual, spec):
        conditions.set("Ready", False, reason="Growing", message=f"The volumes grow to {spec.storage}.")
        await grow(name, spec, actual, client)
        return trioperator.Requeue(after=10)  # or as soon as the StatefulSet is gone

    ready = (actual or {}).get("status", {}).get("readyReplicas", 0)
    patch.status.update({"readyReplicas": ready})
    before = status.find("Ready")
    is_changing = before is None or before.observed_generation != meta["generation"]  # the pods follow after this call
    is_ready = ready == spec.replicas and not is_changing
    reason = "AllReplicasReady" if is_ready else "Progressing"
    conditions.set("Ready", is_ready, reason=reason, message=f"{ready} of {spec.replicas} replicas are ready.")
    parts = [make_password(name), make_service(name), make_stateful_set(name, spec, digest)]
    return [*parts, trioperator.Requeue(after=1)] if is_changing else parts


def is_growing(actual: Any, spec: DatabaseSpec) -> bool:
    [template] = actual["spec"]["volumeClaimTemplates"]
    return crds.Quantity(template["spec"]["resources"]["requests"]["storage"]) != spec.storage


async def grow(name: str, spec: DatabaseSpec, actual: Any, client: trioperator.Client) -> None:
    """Let the volumes grow, and replace the StatefulSet, which cannot be changed; its pods stay."""
    for claim in await client.list("persistentvolumeclaims", labels={"database": name}):
        await client.patch(claim, merge={"spec": {"resources": {"requests": {"storage": str(spec.storage)}}}})
    if "deletionTimestamp" not in actual["metadata"]:
        await client.delete(actual, propagation="Orphan", missing_ok=True)


@trioperator.on.update(Database, field="spec.version")
async def announce(old: str | None, new: str | None, body: trioperator.Body) -> None:
    trioperator.info(body, reason="Upgrading", message=f"The database is upgraded from {old} to {new}.")
