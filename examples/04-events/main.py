"""What an operator can tell about an object: in the logs, and in the status of the object."""

import trioperator


@trioperator.on.create("kopfexamples")
def create_fn(spec: trioperator.Spec, patch: trioperator.Patch, logger: trioperator.Logger) -> dict[str, str]:
    items = spec.get("items", [])

    # Any level. The object is told by the framework: as a prefix, or as a field of JSON lines.
    logger.debug("For those who run the operator with --verbose.")
    logger.info("There are %s items.", len(items))
    logger.warning("The duration of %s is rather short.", spec.get("duration"))

    # Key-values stay what they are in JSON lines, and are appended to the text in others.
    logger.info("The items are counted.", count=len(items), first=items[0])

    try:
        float(spec["duration"])
    except ValueError:
        logger.exception("The duration is no number.")

    # A condition is what `kubectl wait --for=condition=Counted` and people look at.
    patch.status["conditions"] = [{"type": "Counted", "status": "True", "message": f"{len(items)} items"}]

    # What is returned is the handler's own part of the status.
    return {"message": f"{len(items)} items are counted."}
