"""The operator of the image: put yours in its place."""

import trioperator


@trioperator.on.create("kopf.dev", "v1", "kopfexamples")
async def create_fn(name: str, spec: trioperator.Spec, logger: trioperator.Logger) -> dict[str, str]:
    logger.info("Created %s with field=%s.", name, spec.get("field"))
    return {"message": f"Hello, {name}!"}


@trioperator.on.update("kopf.dev", "v1", "kopfexamples")
async def update_fn(name: str, spec: trioperator.Spec, logger: trioperator.Logger) -> None:
    logger.info("Updated %s: field=%s.", name, spec.get("field"))


@trioperator.on.delete("kopf.dev", "v1", "kopfexamples")
async def delete_fn(name: str, logger: trioperator.Logger) -> None:
    logger.info("Deleted %s.", name)
