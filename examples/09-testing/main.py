"""An operator with tests: see test_main.py."""

import trioperator


@trioperator.on.create("kopfexamples")
async def create_fn(
    name: str, spec: trioperator.Spec, patch: trioperator.Patch, client: trioperator.Client, logger: trioperator.Logger
) -> None:
    data = {"field": spec.get("field", "")}
    try:
        await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
        logger.info("And here we are! Creating.")
    except trioperator.ConflictError:
        logger.info("The ConfigMap exists already.")  # from an attempt that was not completed
    patch.status["phase"] = "Ready"


@trioperator.on.update("kopfexamples", field="spec.field")
async def update_fn(name: str, new: str | None, client: trioperator.Client) -> None:
    if new is None:
        raise trioperator.PermanentError("The field cannot be removed.")
    await client.patch("configmaps", name, merge={"data": {"field": new}})


@trioperator.on.delete("kopfexamples")
async def delete_fn(logger: trioperator.Logger) -> None:
    logger.info("Deleted, really deleted.")
