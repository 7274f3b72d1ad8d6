"""Exception hierarchy of the framework.

::

    TrioperatorError
    ├─ ConfigError                  options, kubeconfig, settings, registration: before anything runs
    ├─ LoginError                   no credentials, or none that the API server accepts
    ├─ ActivityError                a startup, cleanup or probe handler has failed permanently
    ├─ ReviewError                  an admission review that cannot be answered
    ├─ UserCodeError                a filter, a storage, or another function of the user's has failed
    ├─ PausedError                  a write that is not allowed, as the operator or the object is paused
    ├─ ForeignChildError            somebody else's object has the name of a child
    ├─ DecodeError                  objects cannot be decoded into the requested class
    ├─ DataFileError                the data file of an embedded cluster cannot be written
    ├─ ConnectionLostError          no response from the API server, or an incomplete one
    ├─ ApiError                     the API server returned an error response
    │  ├─ UnauthorizedError         401
    │  ├─ ForbiddenError            403
    │  ├─ NotFoundError             404
    │  ├─ ConflictError             409
    │  ├─ ExpiredError              410
    │  ├─ InvalidError              422
    │  ├─ TooManyRequestsError      429
    │  └─ ServerError               500 and above
    └─ HandlerError                 raised by handlers, or for them
       ├─ TemporaryError            retry the handler after a delay
       │  └─ UnfinishedSubhandlersError   some of its sub-handlers are unfinished
       └─ PermanentError            do not retry the handler
          ├─ AdmissionError         deny the write that is reviewed
          ├─ HandlerTimeoutError    the handler's ``timeout=`` has passed
          └─ HandlerRetriesError    the handler's ``retries=`` are used up
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "ActivityError",
    "AdmissionError",
    "ApiError",
    "ConfigError",
    "ConflictError",
    "ConnectionLostError",
    "DataFileError",
    "DecodeError",
    "ExpiredError",
    "ForbiddenError",
    "ForeignChildError",
    "HandlerError",
    "HandlerRetriesError",
    "HandlerTimeoutError",
    "InvalidError",
    "LoginError",
    "NotFoundError",
    "PausedError",
    "PermanentError",
    "ReviewError",
    "ServerError",
    "TemporaryError",
    "TooManyRequestsError",
    "TrioperatorError",
    "UnauthorizedError",
    "UnfinishedSubhandlersError",
    "UserCodeError",
]


class TrioperatorError(Exception):
    """Base class of the framework's exceptions."""


class ConfigError(TrioperatorError):
    """Raised when options, settings, handlers or the kubeconfig are invalid. Handlers that raise it are not retried."""


class LoginError(TrioperatorError):
    """Raised when there are no credentials, or the API server accepts none of them."""


class ActivityError(TrioperatorError):
    """Raised when startup, cleanup or probe handlers have failed permanently.

    ``failures`` maps the ids of the handlers to their exceptions.
    """

    def __init__(self, *args: object, failures: Mapping[str, BaseException] | None = None) -> None:
        super().__init__(*args)
        self.failures: Mapping[str, BaseException] = failures or {}


class ReviewError(TrioperatorError):
    """Raised to webhook servers when an admission review cannot be answered; ``status`` is the HTTP status code."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class ConnectionLostError(TrioperatorError):
    """Raised when the API server sent no response, or an incomplete one."""


class PausedError(TrioperatorError):
    """Raised when a write is not allowed. The request was not sent.

    The operator is paused by a peer, or has lost its leadership or the object's shard; or the object itself is paused.
    """


class ForeignChildError(TrioperatorError):
    """Raised when an object with the name of a child exists, and has another owner or none.

    It is not changed. Otherwise users who may create owners could change objects of others by using their names.
    """


class DataFileError(TrioperatorError):
    """Raised when the data file of an embedded cluster cannot be written, so that data may be lost."""


class DecodeError(TrioperatorError):
    """Raised when objects cannot be decoded into the requested class.

    ``objects`` are the invalid ones, as dicts. The request itself has succeeded, even if it was a write.
    """

    def __init__(self, message: str, *, objects: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(message)
        self.objects = tuple(objects)


class ApiError(TrioperatorError):
    """Raised when the API server returned an error response.

    ``status`` is the HTTP status code. ``message``, ``reason`` and ``details`` come from the Kubernetes ``Status``
    object, if there is one. ``retry_after`` is in seconds, None if the server did not send it. ``repeated`` is whether
    the request was a retry, so that the server may have processed an earlier attempt whose response was lost.
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
        """Return an error of the class for the status code."""
        cls = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
        return cls(message, status=status, reason=reason, details=details, retry_after=retry_after)


class UnauthorizedError(ApiError):
    """Raised when the API server does not accept the credentials (HTTP 401)."""


class ForbiddenError(ApiError):
    """Raised when the request is not allowed, for example by RBAC (HTTP 403)."""


class NotFoundError(ApiError):
    """Raised when the object or the resource kind does not exist (HTTP 404)."""


class ConflictError(ApiError):
    """Raised when the object exists, its resource version has changed, or others manage an applied field (HTTP 409)."""


class ExpiredError(ApiError):
    """Raised when the resource version or the continue token has expired (HTTP 410)."""


class InvalidError(ApiError):
    """Raised when the object or the patch is invalid, or a test of a JSON patch failed (HTTP 422)."""


class TooManyRequestsError(ApiError):
    """Raised when there are too many requests, or a disruption budget does not allow an eviction (HTTP 429)."""


class ServerError(ApiError):
    """Raised when the API server has failed (HTTP 500 and above)."""


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
    """Raised when a user's function that is not a handler has failed: a filter, a storage, a lifecycle…

    ``what`` names the function; ``__cause__`` is its exception.
    """

    def __init__(self, what: str, error: BaseException) -> None:
        try:
            shown = repr(error)
        except Exception:  # noqa: BLE001 -- of the user's, too
            shown = type(error).__name__
        super().__init__(f"{what} has failed: {shown}")
        self.what = what


class HandlerError(TrioperatorError):
    """Base class of errors that handlers raise to control retries."""


class TemporaryError(HandlerError):
    """Raised by handlers to be retried after *delay* seconds (default: 60, as in Kopf).

    With a delay of None, 0 or less, the handler is retried at once. Its ``retries=`` and ``timeout=`` still apply.

    Raises TypeError if the delay is neither None nor a number.
    """

    delay: float | None = 60  # also for subclasses that do not call this __init__()

    def __init__(self, message: object = "", delay: float | None = 60) -> None:
        if delay is not None and (not isinstance(delay, int | float) or math.isnan(delay)):
            raise TypeError(f"{type(self).__name__} has delay={delay!r}: it must be a number of seconds.")
        super().__init__(message)
        self.delay = delay


class UnfinishedSubhandlersError(TemporaryError):
    """Raised by ``execute()`` when sub-handlers have to be retried, the first of them in *delay* seconds.

    Let it propagate: the handler is called again after that. It counts neither as a retry nor as an error.
    """

    def __init__(self, handler_id: str, *, delay: float) -> None:
        super().__init__(f"There are unfinished sub-handlers of {handler_id!r}.", delay=delay)


class PermanentError(HandlerError):
    """Raised by handlers to fail without further retries for this cause."""


class AdmissionError(PermanentError):
    """Raised by admission handlers to deny a write: the client gets *message* and *code*.

    *code* is an HTTP status code from 400 to 599; default: 500, as in Kopf. Raises TypeError if it is not an int,
    ValueError if it is outside of that range.
    """

    code: int = 500  # also for subclasses that do not call this __init__()

    def __init__(self, message: object = "", code: int = 500) -> None:
        if isinstance(code, bool) or not isinstance(code, int):
            raise TypeError(f"AdmissionError has code={code!r}: it must be an HTTP status code.")
        if not 400 <= code < 600:
            raise ValueError(f"AdmissionError has code={code!r}: it must be from 400 to 599.")
        super().__init__(message)
        self.code = code


class HandlerTimeoutError(PermanentError):
    """Raised when a handler has not succeeded within ``timeout=`` seconds since its first attempt."""


class HandlerRetriesError(PermanentError):
    """Raised when a handler has not succeeded within ``retries=`` attempts."""
