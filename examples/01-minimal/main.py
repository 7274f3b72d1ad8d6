"""The smallest operator: one function for one resource."""

import trioperator


@trioperator.on.create("kopfexamples")
def create_fn(name: str, spec: trioperator.Spec, logger: trioperator.Logger) -> dict[str, str]:
    logger.info("Created %s with field=%s.", name, spec.get("field"))
    return {"message": f"Hello, {name}!"}
