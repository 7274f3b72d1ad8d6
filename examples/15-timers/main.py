"""Functions that are called again and again for an object."""

import trioperator


@trioperator.timer("kopfexamples", interval=0.5, sharp=True)
async def beat(patch: trioperator.Patch, status: trioperator.Status, logger: trioperator.Logger) -> None:
    """Be called twice a second."""
    count = status.get("beats", 0) + 1
    patch.status["beats"] = count
    logger.info("Beat %d.", count)


@trioperator.timer("kopfexamples", idle=1)
def settle(spec: trioperator.Spec, logger: trioperator.Logger) -> None:
    """Be called when nobody has changed the object for a second."""
    logger.info("The field has settled at %s.", spec.get("field"))


@trioperator.timer("kopfexamples", interval=3600, initial_delay=0.5, backoff=0.2)
def check(retry: int, logger: trioperator.Logger) -> None:
    """Fail, be called again sooner than the interval says, and succeed."""
    if retry < 2:
        raise ConnectionError("nobody answers")
    logger.info("The check is passed.")


@trioperator.timer("kopfexamples", cron="* * * * * *", timezone="Europe/Berlin")
async def tick(logger: trioperator.Logger) -> None:
    """Be called by the clock; a sixth field, in front, is that of the seconds."""
    logger.info("A second of the clock.")
