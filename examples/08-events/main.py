"""Handlers for raw watch events: nothing is stored, nothing is retried, nothing is written to the object."""

import trioperator


@trioperator.on.event("kopfexamples")
def watch(type: trioperator.RawEventType, name: str, logger: trioperator.Logger) -> None:
    logger.info("%s: %s", type or "LISTED", name)


@trioperator.on.event("kopfexamples")
def fail(logger: trioperator.Logger) -> None:
    logger.info("This handler fails, but does not affect others.")
    raise RuntimeError("Logged and ignored.")
