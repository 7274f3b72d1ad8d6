"""Indices of Pods: by the object that they are for, and by phase."""

import trioperator

FOR = "for"


@trioperator.index("pods", labels={FOR: trioperator.PRESENT})
async def pods_by_purpose(
    namespace: str, name: str, labels: trioperator.Labels, status: trioperator.Status
) -> dict[tuple[str, str], tuple[str, str]]:
    return {(namespace, labels[FOR]): (name, status.get("phase", "Pending"))}


@trioperator.index("pods")
async def pod_phases(status: trioperator.Status) -> dict[str, None]:
    return {status.get("phase", "Pending"): None}


@trioperator.timer("kopfexamples", interval=2)
async def log_pods(
    namespace: str,
    name: str,
    pods_by_purpose: trioperator.Index[tuple[str, str], tuple[str, str]],
    logger: trioperator.Logger,
) -> None:
    pods = sorted(pods_by_purpose.get((namespace, name), []))
    logger.info("My Pods: %s.", ", ".join(f"{pod} is {phase}" for pod, phase in pods) or "none")


@trioperator.on.probe()
async def count_pods(pod_phases: trioperator.Index[str, None], **_: object) -> dict[str, int]:
    return {phase: len(pods) for phase, pods in pod_phases.items()}
