"""What becomes of a handler that fails: by its own decision, or by an error that nobody has thought of."""

import trioperator


class Misfortune(Exception):
    """Be an error of which the framework knows nothing."""


@trioperator.on.create("kopfexamples")
def wait_for_third_attempt(retry: int, logger: trioperator.Logger) -> None:
    if retry < 2:
        raise trioperator.TemporaryError("It is not ready yet.", delay=1)
    logger.info("It is ready after %s retries.", retry)


@trioperator.on.create("kopfexamples")
def refuse_for_good() -> None:
    raise trioperator.PermanentError("This will never work.")


@trioperator.on.create("kopfexamples", retries=3, backoff=1)
def give_up_after_three_attempts() -> None:
    raise Misfortune("Tried again after a second, three times in all.")


@trioperator.on.create("kopfexamples", errors=trioperator.ErrorsMode.PERMANENT)
def give_up_at_once() -> None:
    raise Misfortune("An error like this one is not worth another attempt.")


@trioperator.on.create("kopfexamples", errors=trioperator.ErrorsMode.IGNORED)
def shrug_it_off() -> None:
    raise Misfortune("The handler counts as done all the same.")
