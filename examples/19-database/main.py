"""A database: a StatefulSet and a Service, Secrets with passwords, users, backups, and a status with conditions."""

import secrets
from typing import Any

import trioperator

KIND, IMAGE = "kopfexamples", "postgres:18"


@trioperator.on.reconcile(KIND, owns=[trioperator.Owned("statefulsets.apps", bodies=True), "services"])
async def run(name: str, spec: trioperator.Spec, children: Any, conditions: trioperator.Conditions) -> list[Any]:
    wanted = spec.get("replicas", 1)
    ready = children["statefulsets"].get(name, {}).get("status", {}).get("readyReplicas", 0)
    reason = "AllReplicasReady" if ready == wanted else "Progressing"
    conditions.set("Ready", ready == wanted, reason=reason, message=f"{ready} of {wanted} replicas are ready.")

    labels = {"app": name}
    service = {"clusterIP": "None", "selector": labels, "ports": [{"port": 5432}]}
    parts = {"replicas": wanted, "serviceName": name, "selector": {"matchLabels": labels}}
    template = {"metadata": {"labels": labels}, "spec": make_pod(name, "database")}
    return [
        {"apiVersion": "v1", "kind": "Service", "spec": service},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {**parts, "template": template}},
    ]


def make_pod(name: str, container: str, *command: str) -> dict[str, Any]:
    password = {"secretKeyRef": {"name": f"{name}-postgres", "key": "password"}}
    env = [{"name": "POSTGRES_PASSWORD", "valueFrom": password}, {"name": "PGPASSWORD", "valueFrom": password}]
    return {"containers": [{"name": container, "image": IMAGE, "env": env, "command": list(command)}]}


@trioperator.on.create(KIND)
@trioperator.on.update(KIND, field="spec.users")
async def set_users(
    name: str, body: trioperator.Body, spec: trioperator.Spec, client: trioperator.Client, patch: trioperator.Patch
) -> None:
    """Give each user a Secret, by a handler of its own: one that fails is tried again without the others."""
    users = ["postgres", *spec.get("users", [])]
    known = [secret["metadata"]["labels"]["user"] for secret in await client.list("secrets", labels={"database": name})]
    for user in users:
        trioperator.register(create_user, id=f"create-{user}", param=user)
    for user in set(known) - set(users):
        trioperator.register(drop_user, id=f"drop-{user}", param=user)
    patch.status["users"] = users


async def create_user(name: str, param: str, client: trioperator.Client, logger: trioperator.Logger) -> None:
    metadata = {"name": f"{name}-{param}", "labels": {"database": name, "user": param}}
    password = {"password": secrets.token_urlsafe(24)}
    try:
        await client.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": password})
        logger.info("The user %s has a password.", param)
    except trioperator.ConflictError:
        logger.info("The user %s keeps its password.", param)  # by an attempt that was not completed, or before


async def drop_user(name: str, param: str, client: trioperator.Client, logger: trioperator.Logger) -> None:
    await client.delete("secrets", f"{name}-{param}", missing_ok=True)
    logger.info("The user %s is dropped.", param)


@trioperator.timer(KIND, interval=3600, initial_delay=3600)
async def back_up(
    name: str, body: trioperator.Body, client: trioperator.Client, patch: trioperator.Patch, logger: trioperator.Logger
) -> None:
    """Run a backup. It is numbered, so that one that was interrupted is not started twice."""
    number = body.status.get("backups", 0) + 1
    pod = {**make_pod(name, "backup", "pg_dumpall", f"--host={name}", "--username=postgres"), "restartPolicy": "Never"}
    metadata = {"name": f"{name}-backup-{number}"}
    job = {"backoffLimit": 0, "template": {"spec": pod}, "ttlSecondsAfterFinished": 7 * 86400}
    await client.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job})
    done = await client.wait_for("jobs", metadata["name"], condition=is_over, timeout=7200)
    outcome = "Failed" if done["status"].get("failed") else "Completed"
    patch.status["backups"] = number
    trioperator.Conditions(body, patch).set("BackedUp", outcome == "Completed", reason=outcome)
    logger.info("Backup %d: %s.", number, outcome)


def is_over(job: dict[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions", [])
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)
