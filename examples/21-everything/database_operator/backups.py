"""Backups: a Job at each time of the schedule in the spec, of which the newest are kept."""

from typing import Any

from prometheus_client import Counter

import trioperator
from database_operator.kinds import Database, DatabaseSpec
from database_operator.manifests import make_backup

BACKUPS = Counter("database_backups", "Backups that are over.", ["outcome"])


def find_schedule(spec: trioperator.Spec) -> str | None:
    return (spec.get("backups") or {}).get("schedule")


@trioperator.timer(Database, cron=find_schedule, rights=["get,list,watch,create,patch,delete:jobs.batch"])
async def back_up(
    name: str,
    body: trioperator.Body,
    spec: DatabaseSpec,
    client: trioperator.Client,
    patch: trioperator.Patch,
    logger: trioperator.Logger,
) -> None:
    job = f"{name}-{trioperator.wall_now():%Y%m%d%H%M}"
    await client.apply(make_backup(name, job, spec))  # an attempt that was not completed may have created it
    done = await client.wait_for("jobs.batch", job, condition=is_over, timeout=3600)
    outcome = "Failed" if done["status"].get("failed") else "Completed"
    BACKUPS.labels(outcome).inc()
    logger.info("The backup %s has %s.", job, outcome.lower())
    trioperator.Conditions(body, patch).set("BackedUp", outcome == "Completed", reason=outcome)
    patch.status["lastBackup"] = job
    await drop_old_backups(name, spec, client)


def is_over(job: dict[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions", [])
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


async def drop_old_backups(name: str, spec: DatabaseSpec, client: trioperator.Client) -> None:
    jobs = await client.list("jobs.batch", labels={"backup-of": name})
    names = sorted(each["metadata"]["name"] for each in jobs if is_over(each))
    for each in names[: -spec.backups.keep] if spec.backups else ():
        await client.delete("jobs.batch", each, propagation="Background", missing_ok=True)
