"""All features in one operator."""

import trioperator as kopf


@kopf.on.startup()
async def start(memo: kopf.Memo) -> None:
    memo.greeting = "Hello"


@kopf.index("pods")
def pods(namespace: str, name: str) -> dict[str, str]:
    return {namespace: name}


@kopf.on.create("kopfexamples", backoff=1)
def create_1(name: str, memo: kopf.Memo, retry: int) -> dict[str, str]:
    if not retry:
        raise Exception("Whoops!")  # retried, even if the operator restarts in between
    return {"message": f"{memo.greeting}, {name}!"}


@kopf.on.resume("kopfexamples")
@kopf.on.create("kopfexamples")
def create_2(spec: kopf.Spec, logger: kopf.Logger) -> None:
    for item in spec.get("items", []):
        kopf.register(lambda item=item: logger.info("Part %s is done.", item), id=item)


@kopf.on.update("kopfexamples", id="change", on_change="cancel")
@kopf.on.field("kopfexamples", field="spec.field", id="field")
async def change(diff: kopf.Diff, logger: kopf.Logger) -> None:
    logger.info("Diff: %s.", ", ".join(f"{item.operation} {item.old} -> {item.new}" for item in diff))


@kopf.on.event("pods", labels={"application": "all-at-once"})
async def see(type: str | None, name: str, logger: kopf.Logger) -> None:
    logger.info("Watch event for %s: %s.", name, type)


@kopf.daemon("kopfexamples")
async def accompany(stopped: kopf.DaemonStopped, logger: kopf.Logger) -> None:
    await stopped.wait()
    logger.info("The daemon stops.")


@kopf.timer("kopfexamples", interval=1)
async def count(patch: kopf.Patch, namespace: str, pods: kopf.Index[str, str]) -> None:
    patch.status["pods"] = len(pods.get(namespace, ()))


@kopf.on.delete("kopfexamples")
async def delete(name: str, logger: kopf.Logger) -> None:
    logger.info("Goodbye, %s!", name)


@kopf.on.probe()
@kopf.on.cleanup()
async def check(activity: str) -> str:
    return activity
