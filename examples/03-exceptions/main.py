"""Failing handlers: with errors that control the retries, and with arbitrary exceptions."""

import trioperator


class UnexpectedError(Exception):
    """Raised when something unexpected happens; the framework does not know this exception."""


@trioperator.on.create("kopfexamples")
def wait_for_third_attempt(retry: int, logger: trioperator.Logger) -> None:
    if retry < 2:
        raise trioperator.TemporaryError("Not ready yet.", delay=1)
    logger.info("Ready after %s retries.", retry)


@trioperator.on.create("kopfexamples")
def fail_permanently() -> None:
    raise trioperator.PermanentError("This will never work.")


@trioperator.on.create("kopfexamples", retries=3, backoff=1)
def give_up_after_three_attempts() -> None:
    raise UnexpectedError("Retried after one second, three attempts in total.")


@trioperator.on.create("kopfexamples", errors=trioperator.ErrorsMode.PERMANENT)
def give_up_immediately() -> None:
    raise UnexpectedError("This kind of error is never retried.")


@trioperator.on.create("kopfexamples", errors=trioperator.ErrorsMode.IGNORED)
def ignore_errors() -> None:
    raise UnexpectedError("The handler counts as successful anyway.")
