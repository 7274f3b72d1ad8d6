"""Stopping a daemon, in stages: the stopped-flag, the cancellation after a backoff, and giving up after a timeout."""

from __future__ import annotations

import contextlib
import warnings

from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._handling.handlers.handler import DaemonHandler
from trioperator._runtime.daemons.daemon import Daemon


def has_timeout(daemon: Daemon) -> bool:
    """Check whether the daemon is cancelled and abandoned in the end; if not, it is waited for."""
    handler = daemon.handler
    return isinstance(handler, DaemonHandler) and handler.cancellation_timeout is not None


async def stop_in_stages(daemon: Daemon, *, polling: float) -> bool:
    """Follow a daemon whose flag is set to its end, and return whether it has ended: if not, it is to be abandoned.

    Without a timeout it is waited for, with a reminder in the log each *polling* seconds.
    """
    handler, logger = daemon.handler, daemon.logger
    timings = handler if isinstance(handler, DaemonHandler) else None
    if daemon.ended.is_set():
        return True
    logger.debug("%s is signalled to exit gracefully.", handler)
    backoff = None if timings is None else timings.cancellation_backoff
    if backoff is not None:
        daemon.stop(DaemonStoppingReason.DAEMON_SIGNALLED)
    if await daemon.ends_within(backoff or 0.0):
        return True
    if timings is None or timings.cancellation_timeout is None:
        own = None if timings is None else timings.cancellation_polling
        polling = polling if own is None else own
        while not await daemon.ends_within(polling):
            logger.debug("%s is still exiting. The next check is in %g seconds.", handler, polling)
        return True
    logger.debug("%s is signalled to exit by force.", handler)
    daemon.cancel("the cancellation backoff is over")
    return await daemon.ends_within(timings.cancellation_timeout)


def warn_of_abandoned(daemon: Daemon) -> None:
    """Report a daemon that did not end in time, in the log and as a ResourceWarning."""
    daemon.logger.warning("%s did not exit in time. Leaving it orphaned.", daemon.handler)
    with contextlib.suppress(ResourceWarning):  # where warnings are errors, this one must not end the operator
        warnings.warn(f"{daemon.handler} did not exit in time.", ResourceWarning, stacklevel=1)
