"""CronJobs: a Job at each time of the schedule."""

from __future__ import annotations

import dataclasses
import datetime
import logging
import re
import zoneinfo
from typing import ClassVar, Final

from cronsim import CronSim, CronSimError

from .client import Object, Resource
from .controller import Controller
from .jobs import JOBS, finish_time
from .templates import condition_of, owner_reference, parse_time

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY: Final = "@every "
_DURATIONS: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """A cron expression: times that come repeatedly, to the minute, in the time zone of the times asked about."""

    expression: str

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Parse a schedule. Raises ValueError if it is invalid, or names a day that never comes."""
        expression = _MACROS.get(text.strip().lower(), text).replace("?", "*")
        if len(expression.split()) != 5:  # six would have seconds
            raise ValueError(f"{text!r} has not five fields")
        try:
            CronSim(expression, datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))
        except CronSimError as error:
            raise ValueError(f"{text!r}: {error}") from None
        return cls(expression)

    def next_after(self, moment: datetime.datetime) -> datetime.datetime | None:
        """Return the first time after that one; None if there is none."""
        times = CronSim(self.expression, moment)  # when clocks are set back, it may begin before the moment
        return next((time for time in times if time.timestamp() > moment.timestamp()), None)

    def last_until(self, moment: datetime.datetime) -> datetime.datetime | None:
        """Return the last time not after that one; None if there is none."""
        end = moment.astimezone(datetime.UTC).replace(microsecond=0) + datetime.timedelta(seconds=1)
        return next(CronSim(self.expression, end.astimezone(moment.tzinfo), reverse=True), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """``@every 1h30m``: times that are equally far apart, from the last one of a CronJob on, or from its creation."""

    seconds: int
    start: datetime.datetime

    @classmethod
    def parse(cls, text: str, start: datetime.datetime) -> Interval:
        """Parse a schedule that is valid. As in robfig/cron, an interval is a whole number of seconds, at least 1."""
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _DURATIONS.findall(text))
        is_negative = text.removeprefix(_EVERY).startswith("-")
        return cls(1 if is_negative else max(1, int(seconds)), start)

    def next_after(self, moment: datetime.datetime) -> datetime.datetime:
        """Return the first time after that one."""
        return self._time(self._count(moment) + 1)

    def last_until(self, moment: datetime.datetime) -> datetime.datetime | None:
        """Return the last time not after that one; None if there is none."""
        count = self._count(moment)
        return self._time(count) if count else None

    def _count(self, moment: datetime.datetime) -> int:
        return max(0, int((moment - self.start).total_seconds() // self.seconds))

    def _time(self, count: int) -> datetime.datetime:
        return self.start + datetime.timedelta(seconds=count * self.seconds)


CRONJOBS: Resource = ("batch", "cronjobs")

_log: Final = logging.getLogger(__name__)


class CronJobController(Controller):
    """Creates Jobs when they are due, and deletes the oldest finished ones."""

    resource: ClassVar[Resource] = CRONJOBS
    owns: ClassVar[tuple[Resource, ...]] = (JOBS,)
    source: ClassVar[str] = "cronjob-controller"
    created: ClassVar[str] = "Created job {name}"
    deleted: ClassVar[str] = "Deleted job {name}"

    async def reconcile(self, obj: Object) -> float | None:
        if "deletionTimestamp" in obj["metadata"]:
            return None
        wait = None if obj["spec"].get("suspend") else await self._start_due(obj)
        await self._clean_up(obj)
        await self._update_status(obj)
        return wait

    def _active(self, obj: Object) -> list[Object]:
        jobs = self.client.owned(obj, JOBS)
        return [job for job in jobs if finish_time(job) is None and "deletionTimestamp" not in job["metadata"]]

    async def _start_due(self, obj: Object) -> float | None:
        """Start the Job that is due; return the seconds until the next one."""
        meta, spec = obj["metadata"], obj["spec"]
        last = parse_time((obj.get("status") or {}).get("lastScheduleTime") or meta["creationTimestamp"])
        try:
            schedule = _parse(spec["schedule"], last)
            zone = zoneinfo.ZoneInfo(spec["timeZone"]) if spec.get("timeZone") else datetime.UTC
        except (ValueError, zoneinfo.ZoneInfoNotFoundError) as error:
            _log.warning("The schedule of %s/%s is not understood: %s", meta["namespace"], meta["name"], error)
            await self.record(obj, "InvalidSchedule", f"invalid schedule: {error}", kind="Warning")
            return None
        now = self.client.now()
        due = schedule.last_until(now.astimezone(zone))
        next_time = schedule.next_after(now.astimezone(zone))
        is_due = due is not None and due > last
        if due is not None and is_due and self._is_in_time(obj, due, now) and await self._may_start(obj):
            await self._start(obj, due.astimezone(datetime.UTC))
        return None if next_time is None else (next_time - now).total_seconds()

    @staticmethod
    def _is_in_time(obj: Object, due: datetime.datetime, now: datetime.datetime) -> bool:
        seconds = obj["spec"].get("startingDeadlineSeconds")
        return seconds is None or (now - due).total_seconds() <= seconds

    async def _may_start(self, obj: Object) -> bool:
        policy, active = obj["spec"].get("concurrencyPolicy", "Allow"), self._active(obj)
        if policy == "Replace":
            for job in active:
                await self.delete_for(obj, JOBS, job)
        return policy != "Forbid" or not active

    async def _start(self, obj: Object, due: datetime.datetime) -> None:
        meta, template = obj["metadata"], obj["spec"]["jobTemplate"]
        own = template.get("metadata") or {}
        name = f"{meta['name']}-{int(due.timestamp()) // 60}"
        moment = due.strftime("%Y-%m-%dT%H:%M:%SZ")
        job_meta: Object = {"name": name, "namespace": meta["namespace"], "ownerReferences": [owner_reference(obj)]}
        notes = {"batch.kubernetes.io/cronjob-scheduled-timestamp": moment}
        job_meta["annotations"] = {**(own.get("annotations") or {}), **notes}
        if own.get("labels"):
            job_meta["labels"] = own["labels"]
        if self.client.get(JOBS, f"{meta['namespace']}/{name}") is None:
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": job_meta, "spec": template["spec"]}
            await self.create_for(obj, JOBS, job)
        status = {**(obj.get("status") or {}), "lastScheduleTime": moment}
        await self.client.set_status(CRONJOBS, obj, status)

    async def _clean_up(self, obj: Object) -> None:
        spec = obj["spec"]
        limits = {
            "Complete": spec.get("successfulJobsHistoryLimit", 3),
            "Failed": spec.get("failedJobsHistoryLimit", 1),
        }
        for name, limit in limits.items():
            jobs = [job for job in self.client.owned(obj, JOBS) if condition_of(job.get("status") or {}, name)]
            jobs.sort(key=lambda job: (str(job["metadata"]["creationTimestamp"]), str(job["metadata"]["name"])))
            for job in jobs[: max(0, len(jobs) - limit)]:
                await self.delete_for(obj, JOBS, job)

    async def _update_status(self, obj: Object) -> None:
        meta = obj["metadata"]
        obj = self.client.get(CRONJOBS, f"{meta['namespace']}/{meta['name']}") or obj
        status = {key: value for key, value in (obj.get("status") or {}).items() if key != "active"}
        active = [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": job["metadata"]["name"],
                "namespace": meta["namespace"],
                "uid": job["metadata"]["uid"],
            }
            for job in self._active(obj)
        ]
        if active:
            status["active"] = active
        ends = [(job.get("status") or {}).get("completionTime") for job in self.client.owned(obj, JOBS)]
        newest = max([end for end in ends if end], default=status.get("lastSuccessfulTime"))
        if newest:
            status["lastSuccessfulTime"] = newest
        await self.client.set_status(CRONJOBS, obj, status)


def _parse(text: str, last: datetime.datetime) -> Schedule | Interval:
    return Interval.parse(text, last) if text.startswith(_EVERY) else Schedule.parse(text)
