"""Functions that run beside an object for as long as it is there."""

import trio

import trioperator


@trioperator.daemon("kopfexamples", labels={"somelabel": trioperator.PRESENT}, cancellation_timeout=3)
async def watch(spec: trioperator.Spec, logger: trioperator.Logger) -> None:
    """Follow the object; it is cancelled when the object goes."""
    try:
        field = None
        while True:
            if spec.get("field") != field:  # the arguments always show the newest state
                field = spec.get("field")
                logger.info("The field is %s now.", field)
            await trio.sleep(0.1)
    finally:
        logger.info("The watch is over.")


@trioperator.daemon("kopfexamples")
def wait(
    stopped: trioperator.SyncDaemonStopperChecker, patch: trioperator.Patch, retry: int, logger: trioperator.Logger
) -> str:
    """Run in a thread, fail, and begin anew, until told to stop."""
    if retry < 2:
        patch.status["attempts"] = retry + 1
        raise trioperator.TemporaryError("Not yet.", delay=0.1)
    logger.info("Waiting in a thread.")
    while not stopped.wait(60):
        logger.info("Another minute is over.")
    logger.info("Told to stop by %s.", stopped.reason)
    return "stopped"
