"""Failures of a command: a message, a traceback only where it helps, and an exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import typer

from trioperator._logs import Logger, get_logger
from trioperator._model.exception_groups import iterate_leaves
from trioperator._model.resource import InvalidNameError
from trioperator._supervisor.signals import INTERRUPTED
from trioperator.errors import ConfigError, TrioperatorError

SUCCESS: Final = 0
#: The command could not start, or failed later.
FAILURE: Final = 1
#: The user's input is wrong: options, files, manifests, the kubeconfig.
USAGE_ERROR: Final = 2


@contextlib.contextmanager
def reporting_failures() -> Iterator[None]:
    """Log errors of the block, and exit with their code. Exits and usage errors pass through."""
    try:
        yield
    except (typer.Exit, typer.BadParameter):
        raise
    except (Exception, BaseExceptionGroup, KeyboardInterrupt) as error:  # noqa: BLE001 -- all of them are reported
        raise typer.Exit(report_failure(error, get_logger("trioperator.cli"))) from None


def report_failure(error: BaseException, logger: Logger) -> int:
    """Log the error, and return the exit code for it.

    Each of the framework's own errors, and each name that cannot be one, is one line, with a traceback only if the
    user's code has failed to load. Any other error is a bug, and is logged with its whole traceback.
    """
    leaves = list(iterate_leaves(error))
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
        logger.error("Interrupted before the shutdown was complete.")
        return INTERRUPTED
    exits = [leaf for leaf in leaves if isinstance(leaf, SystemExit)]
    if exits and len(exits) == len(leaves):  # handlers end the process this way
        raise exits[0] from None
    if not all(isinstance(leaf, (TrioperatorError, InvalidNameError)) for leaf in leaves):
        logger.critical("Unexpected error: %r", error, exc_info=error)
        return FAILURE
    for leaf in leaves:
        _report(leaf, logger)
    return USAGE_ERROR if all(isinstance(leaf, (ConfigError, InvalidNameError)) for leaf in leaves) else FAILURE


def _report(error: BaseException, logger: Logger) -> None:
    from trioperator.cli.loading import LoadingError

    text = str(error) or type(error).__name__
    if isinstance(error, LoadingError):
        logger.error("%s", text, exc_info=error.__cause__)
    else:
        logger.error("%s", text)
