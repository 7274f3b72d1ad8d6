"""Handlers of the raw watch events: no state is kept, nothing is retried, nothing is written to the object."""

import trioperator


@trioperator.on.event("kopfexamples")
def watch(type: trioperator.RawEventType, name: str, logger: trioperator.Logger) -> None:
    logger.info("%s: %s", type or "LISTED", name)


@trioperator.on.event("kopfexamples")
def fail(logger: trioperator.Logger) -> None:
    logger.info("This one fails, which harms nobody.")
    raise RuntimeError("Shown in the logs, and forgotten.")
