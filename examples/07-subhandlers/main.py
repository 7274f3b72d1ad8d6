"""Sub-handlers: each item of a list is created and retried independently, and created only once."""

import functools

import trio

import trioperator


@trioperator.on.create("kopfexamples")
def create(spec: trioperator.Spec, logger: trioperator.Logger) -> dict[str, int]:
    items = spec.get("items", [])
    logger.info("Creating %d items.", len(items))
    for item in items:

        @trioperator.subhandler(id=item)
        def create_item(retry: int, item: str = item) -> str:
            if item == "item1" and not retry:
                raise trioperator.TemporaryError(f"{item} cannot be created yet.", delay=1)
            logger.info("Created %s.", item)
            return "created"

    return {"items": len(items)}


@trioperator.on.update("kopfexamples", field="spec.items", on_change="cancel")
async def update(old: list[str] | None, new: list[str] | None, logger: trioperator.Logger) -> None:
    added = [item for item in new or () if item not in (old or ())]
    logger.info("Items to add: %s.", ", ".join(added) or "nothing")
    await trioperator.execute(fns={item: functools.partial(add_item, item) for item in added})
    logger.info("All items are added.")


async def add_item(item: str, logger: trioperator.Logger) -> str:
    await trio.sleep(1)
    logger.info("Added %s.", item)
    return "created"
