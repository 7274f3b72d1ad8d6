"""Logging in with credentials from somewhere else, which are valid for a while."""

import dataclasses
import datetime
from typing import Any

import trioperator

LIFETIME = datetime.timedelta(minutes=30)


async def fetch_token(info: trioperator.ConnectionInfo, retry: int) -> str | None:
    """Fetch a token from a vault, which is asleep at first. (In this example, it is the one that there was.)"""
    if not retry:
        raise trioperator.TemporaryError("The vault wakes up.", delay=0.1)
    return info.token


@trioperator.on.login(retries=3)
async def login(retry: int, logger: trioperator.Logger, **kwargs: Any) -> trioperator.ConnectionInfo:
    kwargs["logger"] = logger
    info = trioperator.login_with_service_account(**kwargs) or trioperator.login_with_kubeconfig(**kwargs)
    if info is None:
        raise trioperator.PermanentError("There is neither a service account nor a kubeconfig.")
    token = await fetch_token(info, retry)
    logger.info("Got a token for %s, for %s.", info.server, LIFETIME)

    # The operator calls the handler again before the token expires, or when the API server rejects it.
    return dataclasses.replace(info, token=token, expiration=datetime.datetime.now(datetime.UTC) + LIFETIME)


@trioperator.on.create("kopfexamples")
def create_fn(name: str, logger: trioperator.Logger) -> None:
    logger.info("Logged in, and handling %s.", name)
