"""Handlers for each stage in the life of an object."""

from typing import Any

import trioperator


@trioperator.on.resume("kopfexamples")
@trioperator.on.create("kopfexamples")
def see(reason: trioperator.Reason, logger: trioperator.Logger) -> None:
    logger.info("First seen since the operator started: %s.", reason)


@trioperator.on.create("kopfexamples")
async def create(spec: trioperator.Spec, logger: trioperator.Logger) -> dict[str, str]:
    logger.info("Created with field=%s.", spec.get("field"))
    return {"message": "Created."}


@trioperator.on.create("kopfexamples")
async def create_too(status: trioperator.Status, logger: trioperator.Logger) -> None:
    logger.info("The previous handler has stored in the status: %s", status.get("create"))


@trioperator.on.update("kopfexamples")
def update(diff: trioperator.Diff, logger: trioperator.Logger) -> None:
    for operation, field, old, new in diff:
        logger.info("Diff: %s %s from %s to %s.", operation, ".".join(field), old, new)


@trioperator.on.field("kopfexamples", field="spec.field")
def field(old: Any, new: Any, logger: trioperator.Logger) -> None:
    logger.info("The field has changed from %s to %s.", old, new)


@trioperator.on.delete("kopfexamples")
async def delete(logger: trioperator.Logger) -> None:
    logger.info("Being deleted: the deletion is blocked until this handler has finished.")


@trioperator.on.delete("kopfexamples", optional=True)
async def delete_too(logger: trioperator.Logger) -> None:
    logger.info("Being deleted: an optional handler does not block the deletion.")
