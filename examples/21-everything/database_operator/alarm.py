"""A daemon for each database that is not ready: it raises an alarm when that lasts for too long."""

import trio
from prometheus_client import Gauge

import trioperator
from database_operator.kinds import Database

PATIENCE = 300  # seconds
ALARMS = Gauge("database_alarms", "Databases that have not been ready for too long.")


def is_unready(status: trioperator.Status) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "False" for each in status.get("conditions", []))


@trioperator.daemon(Database, when=is_unready, cancellation_timeout=5)
async def raise_alarm(body: trioperator.Body) -> None:
    await trio.sleep(PATIENCE)
    trioperator.warn(body, reason="NotReady", message=f"The database has not been ready for {PATIENCE} seconds.")
    with ALARMS.track_inprogress():
        await trio.sleep_forever()  # until it is ready, or deleted
