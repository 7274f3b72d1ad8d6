"""Handlers in parts: each item of a list is made on its own, tried again on its own, and made only once."""

import functools

import trio

import trioperator


@trioperator.on.create("kopfexamples")
def create(spec: trioperator.Spec, logger: trioperator.Logger) -> dict[str, int]:
    items = spec.get("items", [])
    logger.info("There are %d items to be made.", len(items))
    for item in items:

        @trioperator.subhandler(id=item)
        def create_item(retry: int, item: str = item) -> str:
            if item == "item1" and not retry:
                raise trioperator.TemporaryError(f"{item} cannot be made yet.", delay=1)
            logger.info("%s is made.", item)
            return "made"

    return {"items": len(items)}


@trioperator.on.update("kopfexamples", field="spec.items", on_change="cancel")
async def update(old: list[str] | None, new: list[str] | None, logger: trioperator.Logger) -> None:
    added = [item for item in new or () if item not in (old or ())]
    logger.info("To be made in addition: %s.", ", ".join(added) or "nothing")
    await trioperator.execute(fns={item: functools.partial(add_item, item) for item in added})
    logger.info("All are there.")


async def add_item(item: str, logger: trioperator.Logger) -> str:
    await trio.sleep(1)
    logger.info("%s is made in addition.", item)
    return "made"
