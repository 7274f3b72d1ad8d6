"""Timers: functions that are called periodically for each object."""

import trioperator


@trioperator.timer("kopfexamples", interval=0.5, sharp=True)
async def beat(patch: trioperator.Patch, status: trioperator.Status, logger: trioperator.Logger) -> None:
    """Count the calls, two each second."""
    count = status.get("beats", 0) + 1
    patch.status["beats"] = count
    logger.info("Beat %d.", count)


@trioperator.timer("kopfexamples", idle=1)
def settle(spec: trioperator.Spec, logger: trioperator.Logger) -> None:
    """Log the field when the object has been unchanged for a second."""
    logger.info("The field has settled at %s.", spec.get("field"))


@trioperator.timer("kopfexamples", interval=3600, initial_delay=0.5, backoff=0.2)
def check(retry: int, logger: trioperator.Logger) -> None:
    """Fail twice, retried after the backoff instead of the interval, and then succeed."""
    if retry < 2:
        raise ConnectionError("no response")
    logger.info("The check passed.")


@trioperator.timer("kopfexamples", cron="* * * * * *", timezone="Europe/Berlin")
async def tick(logger: trioperator.Logger) -> None:
    """Log each second of the clock: the first of six fields is for seconds."""
    logger.info("The clock ticks.")
