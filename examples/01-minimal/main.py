"""The least that an operator needs: one function for one resource kind."""

import trioperator


@trioperator.on.create("kopfexamples")
def create_fn(name: str, spec: trioperator.Spec, logger: trioperator.Logger) -> dict[str, str]:
    logger.info("%s has come, with field=%s.", name, spec.get("field"))
    return {"message": f"Hello, {name}!"}
