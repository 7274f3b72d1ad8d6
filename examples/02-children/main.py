"""A child object: a Pod that is created for its owner, and is garbage-collected with it."""

import pathlib

import yaml

import trioperator

POD = pathlib.Path(__file__).with_name("pod.yaml").read_text()


@trioperator.on.create("kopfexamples")
async def create_fn(
    spec: trioperator.Spec, name: str, client: trioperator.Client, logger: trioperator.Logger
) -> dict[str, str]:
    pod = yaml.safe_load(POD.format(duration=spec.get("duration", "1m")))
    pod["metadata"] = {"name": name}  # so a retry cannot create a second Pod

    try:
        pod = await client.create(pod)  # in the namespace of its owner
    except trioperator.ConflictError:
        logger.info("The child Pod already exists, from an earlier attempt.")

    logger.info("The child Pod is %s.", name)
    return {"pod": pod["metadata"]["name"]}


@trioperator.on.update("kopfexamples", field="spec.duration")
def update_fn() -> None:
    raise trioperator.PermanentError("The duration cannot be changed: neither can the command of the Pod.")
