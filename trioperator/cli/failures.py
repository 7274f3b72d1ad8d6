"""How failures are told to the user: a message, a traceback only where it helps, and an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trioperator.errors import ConfigError, TrioperatorError
from trioperator.logs import Logger

__all__ = ["FAILURE", "INTERRUPTED", "SUCCESS", "WRONG_USE", "report_failure"]

SUCCESS: Final = 0
#: It could not start, or had to end.
FAILURE: Final = 1
#: What the user has given is wrong: options, files, manifests, the kubeconfig.
WRONG_USE: Final = 2
#: It was interrupted before it could stop in order.
INTERRUPTED: Final = 130


def report_failure(error: BaseException, logger: Logger) -> int:
    """Log what has happened, and give the exit code for it.

    The framework's own errors are a line each, with a traceback only of the user's code that they come from. Whatever
    else there is gets its traceback as a whole: it should not have come here.
    """
    leaves = list(_iterate_leaves(error))
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
        logger.error("Interrupted before it could stop in order.")
        return INTERRUPTED
    exits = [leaf for leaf in leaves if isinstance(leaf, SystemExit)]
    if exits and len(exits) == len(leaves):  # that is how handlers end the process
        raise exits[0] from None
    if not all(isinstance(leaf, TrioperatorError) for leaf in leaves):
        logger.critical("It has failed, and did not expect that: %r", error, exc_info=error)
        return FAILURE
    for leaf in leaves:
        _report(leaf, logger)
    return WRONG_USE if all(isinstance(leaf, ConfigError) for leaf in leaves) else FAILURE


def _iterate_leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _iterate_leaves(part)
    else:
        yield error


def _report(error: BaseException, logger: Logger) -> None:
    from trioperator.cli.loading import LoadingError

    text = str(error) or type(error).__name__
    if isinstance(error, LoadingError):
        logger.error("%s", text, exc_info=error.__cause__)
    else:
        logger.error("%s", text)
