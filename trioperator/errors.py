"""The exception tree of the project: everything that it raises on purpose.

::

    TrioperatorError
    ├─ ConfigError                  options, kubeconfig, settings, registration: before anything runs
    ├─ LoginError                   no credentials that the API server accepts
    ├─ ActivityError                a startup or cleanup handler has failed for good
    ├─ UserCodeError                a filter, a storage, or another function of the user's has failed
    ├─ DataFileError                the data file of an embedded cluster cannot be written
    ├─ ConnectionLostError          no answer from the API server, or the answer stopped midway
    ├─ ApiError                     the API server said no
    │  ├─ UnauthorizedError         401
    │  ├─ ForbiddenError            403
    │  ├─ NotFoundError             404
    │  ├─ ConflictError             409
    │  ├─ ExpiredError              410
    │  ├─ InvalidError              422
    │  ├─ TooManyRequestsError      429
    │  └─ ServerError               500 and above
    └─ HandlerError                 how a handler ends other than well
       ├─ TemporaryError            try again after a delay
       │  └─ UnfinishedSubhandlersError   some of its sub-handlers are not done yet
       └─ PermanentError            never try again
          ├─ HandlerTimeoutError    the handler's ``timeout=`` has passed
          └─ HandlerRetriesError    the handler's ``retries=`` are used up
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = [
    "ActivityError",
    "ApiError",
    "ConfigError",
    "ConflictError",
    "ConnectionLostError",
    "DataFileError",
    "ExpiredError",
    "ForbiddenError",
    "HandlerError",
    "HandlerRetriesError",
    "HandlerTimeoutError",
    "InvalidError",
    "LoginError",
    "NotFoundError",
    "PermanentError",
    "ServerError",
    "TemporaryError",
    "TooManyRequestsError",
    "TrioperatorError",
    "UnauthorizedError",
    "UnfinishedSubhandlersError",
    "UserCodeError",
]


class TrioperatorError(Exception):
    """Be the root of all errors that the framework raises on purpose."""


class ConfigError(TrioperatorError):
    """Say that something was configured wrongly: what, where, and what to do."""


class LoginError(TrioperatorError):
    """Say that there are no credentials which the API server accepts."""


class ActivityError(TrioperatorError):
    """Say which startup or cleanup handlers have failed for good."""


class ConnectionLostError(TrioperatorError):
    """Say that the API server gave no answer, or that its answer stopped midway."""


class DataFileError(TrioperatorError):
    """Say that the data file of an embedded cluster cannot be written any more, so that nothing can be promised."""


class ApiError(TrioperatorError):
    """Carry the API server's refusal.

    ``status`` is the HTTP status code; ``reason`` and ``details`` are those of the Kubernetes ``Status`` object,
    where the server sent one; ``retry_after`` is in seconds, where the server asked for it. ``repeated`` says that
    there were attempts of the same request before, which the server may have carried out without being heard.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after
        self.repeated = False

    def __str__(self) -> str:
        return f"HTTP {self.status}{f' {self.reason}' if self.reason else ''}: {self.message}"

    @staticmethod
    def of(
        message: str,
        *,
        status: int,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> ApiError:
        """Make the error whose class belongs to the status code."""
        cls = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
        return cls(message, status=status, reason=reason, details=details, retry_after=retry_after)


class UnauthorizedError(ApiError):
    """Say that the credentials were not accepted (HTTP 401)."""


class ForbiddenError(ApiError):
    """Say that the credentials do not allow the request (HTTP 403)."""


class NotFoundError(ApiError):
    """Say that the object or the resource kind does not exist (HTTP 404)."""


class ConflictError(ApiError):
    """Say that the object exists already or has changed meanwhile (HTTP 409)."""


class ExpiredError(ApiError):
    """Say that the resource version or the page token is too old (HTTP 410)."""


class InvalidError(ApiError):
    """Say that the object or the patch is not valid, or that its test has failed (HTTP 422)."""


class TooManyRequestsError(ApiError):
    """Say that the server wants fewer requests (HTTP 429)."""


class ServerError(ApiError):
    """Say that the server has failed (HTTP 500 and above)."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    422: InvalidError,
    429: TooManyRequestsError,
}


class UserCodeError(TrioperatorError):
    """Raised when a function of the user's that is not a handler has failed: a filter, a storage, a lifecycle…

    ``what`` names it; the error that it has raised is ``__cause__``.
    """

    def __init__(self, what: str, error: BaseException) -> None:
        super().__init__(f"{what} has failed: {error!r}")
        self.what = what


class HandlerError(TrioperatorError):
    """Be the root of the errors by which handlers steer what comes next."""


class TemporaryError(HandlerError):
    """Ask for another attempt of the handler after *delay* seconds.

    With ``delay=None``, ``0`` or less the next attempt comes at once. The default of 60 seconds is Kopf's.

    Raises TypeError where the delay is no number.
    """

    delay: float | None = 60  # also of a class of the user's that does not call __init__() of this one

    def __init__(self, message: object = "", delay: float | None = 60) -> None:
        if delay is not None and (not isinstance(delay, int | float) or math.isnan(delay)):
            raise TypeError(f"{type(self).__name__} has delay={delay!r}: it has to be a number of seconds.")
        super().__init__(message)
        self.delay = delay


class UnfinishedSubhandlersError(TemporaryError):
    """Say that sub-handlers have to be tried again, the first of them in *delay* seconds.

    This is how ``execute()`` ends a handler until then; it counts as no attempt and no error of the handler.
    """

    def __init__(self, handler_id: str, *, delay: float) -> None:
        super().__init__(f"There are unfinished sub-handlers of {handler_id!r}.", delay=delay)


class PermanentError(HandlerError):
    """End the handler for good: it is not tried again for this cause."""


class HandlerTimeoutError(PermanentError):
    """Say that the handler has not succeeded within its ``timeout=`` seconds since its first attempt."""


class HandlerRetriesError(PermanentError):
    """Say that the handler has not succeeded within its ``retries=`` attempts."""
