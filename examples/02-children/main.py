"""An object with a child: a Pod that is created with its parent, and is deleted with it by the cluster."""

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

    # The Pod gets its owner's namespace, labels and exact name, so that a second attempt cannot make a second Pod.
    trioperator.adopt(pod, strict=True, nested="spec.template")

    async with open_client(load_connection, settings=trioperator.OperatorSettings()) as client:
        try:
            await client.post(f"/api/v1/namespaces/{namespace}/pods", pod)
        except ConflictError:
            logger.info("The child is there already, from an earlier attempt.")

    logger.info("The child is Pod %s.", pod["metadata"]["name"])
    return {"pod": pod["metadata"]["name"]}
