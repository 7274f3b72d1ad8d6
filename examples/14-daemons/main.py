"""Daemons: functions that run for as long as an object exists."""

import trio

import trioperator


@trioperator.daemon("kopfexamples", labels={"somelabel": trioperator.PRESENT}, cancellation_timeout=3)
async def watch(spec: trioperator.Spec, logger: trioperator.Logger) -> None:
    """Watch the object until the daemon is cancelled."""
    try:
        field = None
        while True:
            if spec.get("field") != field:  # the arguments always show the newest state
                field = spec.get("field")
                logger.info("The field is now %s.", field)
            await trio.sleep(0.1)
    finally:
        logger.info("Stopped watching.")


@trioperator.daemon("kopfexamples")
def wait(
    stopped: trioperator.SyncDaemonStopperChecker, patch: trioperator.Patch, retry: int, logger: trioperator.Logger
) -> str:
    """Fail twice, then wait in a thread until the daemon has to stop."""
    if retry < 2:
        patch.status["attempts"] = retry + 1
        raise trioperator.TemporaryError("Not ready yet.", delay=0.1)
    logger.info("Waiting in a thread.")
    while not stopped.wait(60):
        logger.info("Another minute has passed.")
    logger.info("Stopping because of %s.", stopped.reason)
    return "stopped"
