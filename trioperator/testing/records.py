"""Records of an operator: calls of handlers, log lines, and writes."""

from __future__ import annotations

import dataclasses
import logging
import traceback
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from trioperator.errors import AdmissionError, TemporaryError

T = TypeVar("T")

_LIMIT: Final = 100_000  # records; the oldest ones are dropped


class RecordLog(deque[T]):
    """The latest records of one kind, in order."""

    def __init__(self) -> None:
        super().__init__(maxlen=_LIMIT)

    def select(self, **wanted: object) -> list[T]:
        """Return the records whose attributes have these values: ``select(handler="create_fn", name="orders")``.

        Raises AttributeError for unknown attributes.
        """
        records = list(self)  # threads may add others meanwhile
        return [record for record in records if all(getattr(record, name) == value for name, value in wanted.items())]


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """One call of a handler. ``kind``, ``namespace`` and ``name`` are the object's, None if there is none.

    ``handler`` is the id of the handler, without the names of functions in which it is declared. ``kwargs`` are all
    arguments that the handler could have declared. Times are on Trio's clock; ``ended`` is None while the call is in
    progress. ``is_review`` is whether the handler belongs to a webhook. ``stack`` is where the error was raised, as
    stored errors lose their tracebacks.
    """

    handler: str
    kind: str | None
    namespace: str | None
    name: str | None
    kwargs: Mapping[str, Any]
    retry: int
    started: float
    ended: float | None = None
    result: Any = None
    error: BaseException | None = None
    stack: traceback.StackSummary | None = None
    final: bool = False
    is_review: bool = False

    @property
    def reason(self) -> str | None:
        """Why a handler of changes was called, such as ``"create"``; None for others."""
        reason = self.kwargs.get("reason")
        return None if reason is None else str(reason)

    @property
    def failed(self) -> bool:
        """Whether the call has failed. A TemporaryError that the handler raises is not a failure, nor is a denial."""
        if self.error is None or self.denied:
            return False
        return self.final or not isinstance(self.error, TemporaryError)

    @property
    def denied(self) -> bool:
        """Whether the handler of a webhook has denied the write with an AdmissionError."""
        return self.is_review and isinstance(self.error, AdmissionError)

    def __str__(self) -> str:
        where = "" if self.name is None else f" for {self.kind} {self.namespace or ''}{'/' * bool(self.namespace)}"
        return f"{self.handler}{where}{self.name or ''}"


@dataclasses.dataclass(slots=True, kw_only=True, eq=False, frozen=True)
class LogLine:
    """One log message. ``level`` is its name; ``kind``, ``namespace`` and ``name`` are the object's."""

    level: str
    message: str
    kind: str | None
    namespace: str | None
    name: str | None
    record: logging.LogRecord

    @classmethod
    def of(cls, record: logging.LogRecord) -> LogLine:
        """Return a record of the standard library's logging as a log line."""
        ref = getattr(record, "k8s_ref", None) or {}
        kind, namespace, name = (ref.get(key) for key in ("kind", "namespace", "name"))
        message = record.getMessage()
        return cls(level=record.levelname, message=message, kind=kind, namespace=namespace, name=name, record=record)

    def __str__(self) -> str:
        return self.message


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Write:
    """One request of the operator that may change something: not those for Events, leases and peerings.

    ``changed`` is False if the response shows that nothing has changed: the object has kept its resource version.
    ``handler`` is the id of the handler that has sent it, as in calls; None if the operator itself has sent it.
    """

    method: str
    path: str
    body: bytes
    time: float
    changed: bool = True
    handler: str | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"
