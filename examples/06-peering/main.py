"""One of several operators for the same objects: only the one with the highest priority handles them."""

import trioperator


@trioperator.on.startup()
def configure(settings: trioperator.OperatorSettings) -> None:
    settings.peering.name = "example"
    settings.peering.mandatory = True  # pause until the peering object exists, or while it does not


@trioperator.on.create("kopfexamples")
@trioperator.on.resume("kopfexamples")
def greet(name: str, logger: trioperator.Logger) -> None:
    logger.info("%s is handled by this operator.", name)


@trioperator.daemon("kopfexamples")
async def accompany(stopped: trioperator.DaemonStopped, logger: trioperator.Logger) -> None:
    await stopped.wait()
    logger.info("The daemon stops.")
