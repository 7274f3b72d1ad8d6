"""The admin endpoint of a standalone cluster, which is off unless there is a file for its token."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import trio

from trioperator.errors import ConfigError

if TYPE_CHECKING:
    from trioperator.apiserver import Cluster


def _load() -> Any:
    return importlib.import_module("trioperator.testing.admin")  # which is above the others, as it serves tests


def adjustable_clock(token: str | None) -> trio.abc.Clock | None:
    """Return the clock that the endpoint adjusts, for ``trio.run()``; None without a file for the token."""
    clock: trio.abc.Clock | None = _load().AdjustableClock() if token else None
    return clock


def cluster_options(token: str | None) -> dict[str, Any]:
    """Return options of the cluster: with the endpoint, it keeps an audit, and takes its time from Trio's clock."""
    from trioperator._concurrency.clock import steady_now

    return {"log_limit": _load().LOG_LIMIT, "clock": steady_now} if token else {"log_limit": 0}


def make_admin(cluster: Cluster, token: str | None, host: str) -> Any:
    """Return the handler with the endpoint; None without a file for the token. Raises ConfigError."""
    from trioperator.apiserver.server import is_loopback

    if not token:
        return None
    if not is_loopback(host):
        raise ConfigError(f"The admin endpoint is for this machine only: it cannot be served on {host}.")
    admin = _load()
    return admin.AdminHandler(cluster, admin.read_token(token))
