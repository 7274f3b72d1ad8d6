"""A child object: a Pod that is created for its owner, and is garbage-collected with it."""

import pathlib

import yaml

import trioperator
from trioperator.errors import ConflictError
from trioperator.kube.client import open_client
from trioperator.kube.connection import load_connection

POD = pathlib.Path(__file__).with_name("pod.yaml").read_text()


@trioperator.on.create("kopfexamples")
async def create_fn(spec: trioperator.Spec, namespace: str, logger: trioperator.Logger) -> dict[str, str]:
    pod = yaml.safe_load(POD.format(duration=spec.get("duration", "1m")))

    # The Pod gets the namespace, the labels and the exact name of its owner. So a retry cannot create a second Pod.
    trioperator.adopt(pod, strict=True, nested="spec.template")

    async with open_client(load_connection, settings=trioperator.OperatorSettings()) as client:
        try:
            await client.post(f"/api/v1/namespaces/{namespace}/pods", pod)
        except ConflictError:
            logger.info("The child Pod already exists, from an earlier attempt.")

    logger.info("The child Pod is %s.", pod["metadata"]["name"])
    return {"pod": pod["metadata"]["name"]}
