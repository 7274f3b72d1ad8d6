"""Reporting on an object: in the logs, in Kubernetes Events, and in its status."""

import trioperator


@trioperator.on.startup()
def configure(settings: trioperator.OperatorSettings) -> None:
    # By default, each log message of a handler is posted as an event, too. Here, only explicit ones are.
    settings.posting.loggers = False


@trioperator.on.create("kopfexamples")
@trioperator.on.update("kopfexamples", field="spec.items")
def create_fn(
    body: trioperator.Body, spec: trioperator.Spec, patch: trioperator.Patch, logger: trioperator.Logger
) -> dict[str, str]:
    items = spec.get("items", [])

    # Log at any level. The framework adds the object: as a prefix, or as a field of JSON lines.
    logger.debug("Only shown with --verbose.")
    logger.info("There are %s items.", len(items))
    logger.warning("The duration of %s is rather short.", spec.get("duration"))

    # Key-value pairs become fields of JSON lines, and are appended to the text in other formats.
    logger.info("Counted the items.", count=len(items), first=items[0] if items else None)

    # Kubernetes Events, which `kubectl describe` shows.
    trioperator.event(body, type="SomeType", reason="SomeReason", message="Some message")
    trioperator.info(body, reason="SomeReason", message="Some message")
    trioperator.warn(body, reason="SomeReason", message="Some message")

    try:
        float(spec.get("duration", ""))
    except ValueError:
        logger.exception("The duration is not a number.")
        trioperator.exception(body, reason="BadDuration", message="The duration is not a number:")

    # A condition, for people and for `kubectl wait --for=condition=Counted`.
    patch.status["conditions"] = [{"type": "Counted", "status": "True", "message": f"{len(items)} items"}]

    # The return value is stored in the status under the handler's id.
    return {"message": f"Counted {len(items)} items."}
