"""Handlers for a built-in kind: Pods that are deleted some seconds after they have been created."""

import datetime

import trio

import trioperator

LIFETIME = "example.com/lifetime"


def is_mine(namespace: str, **_: object) -> bool:
    return not namespace.startswith("kube-")


# Without a finalizer, the Pods are not changed, and never blocked from being deleted.
@trioperator.daemon(
    "pods", annotations={LIFETIME: trioperator.PRESENT}, when=is_mine, finalizer=False, cancellation_timeout=1
)
async def expire(
    name: str, uid: str, meta: trioperator.Meta, client: trioperator.Client, logger: trioperator.Logger
) -> None:
    seconds = float(meta.annotations[LIFETIME])
    created = datetime.datetime.fromisoformat(meta["creationTimestamp"])
    age = (datetime.datetime.now(datetime.UTC) - created).total_seconds()
    logger.info("The Pod is deleted %g seconds after its creation.", seconds)
    try:
        await trio.sleep(max(0.0, seconds - age))
    except trio.Cancelled:
        logger.info("Somebody else was faster, or has removed the annotation.")
        raise

    try:
        # With the uid, only this very Pod is deleted, and no other one of the same name.
        await client.delete("pods", name, uid=uid)
    except (trioperator.NotFoundError, trioperator.ConflictError):
        return
    logger.info("The Pod was deleted.")
