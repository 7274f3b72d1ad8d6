"""Hooks of the operator itself: what is done when it starts and stops, and what its health probes show."""

import trio

import trioperator


@trioperator.on.startup()
async def connect(memo: trioperator.Memo, logger: trioperator.Logger) -> None:
    # Created here, as limiters and events belong to the event loop. Handlers get the same memo.
    memo.limiter = trio.CapacityLimiter(2)
    memo.handled = 0
    logger.info("Initialized.")


@trioperator.on.startup()
async def wait_for_others(retry: int, logger: trioperator.Logger) -> None:
    if retry < 2:
        raise trioperator.TemporaryError(f"The database is not there yet, after {retry + 1} attempts.", delay=0.1)
    logger.info("The database is there.")


@trioperator.on.create("kopfexamples")
async def create_fn(name: str, memo: trioperator.Memo, logger: trioperator.Logger) -> None:
    async with memo.limiter:
        logger.info("Two of these at a time: %s.", name)
        memo.handled += 1


@trioperator.on.probe()
def limit(memo: trioperator.Memo) -> float:
    return float(memo.limiter.total_tokens)


@trioperator.on.cleanup()
async def disconnect(logger: trioperator.Logger) -> None:
    logger.info("Cleaned up.")
