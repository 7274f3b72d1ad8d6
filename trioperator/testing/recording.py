"""Recording of an operator: its calls of handlers, its log, and its write requests."""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import httpx
import msgspec
import trio

from trioperator._handling.calls.invoke import Attempt, Invoker
from trioperator._handling.guard import trim
from trioperator._handling.handlers.handler import Handler
from trioperator._handling.handlers.outcome import Outcome
from trioperator._handling.reviews.admission import AdmissionHandler
from trioperator._logs import Logger
from trioperator._telemetry.instruments import CallCounter, Instruments
from trioperator.testing.records import Call, LogLine, RecordLog, Write
from trioperator.testing.rights import UsedRight, handler_at_work

#: Sends a write with the given function, or does something else.
OnWrite: TypeAlias = Callable[[Callable[[], Awaitable[httpx.Response]]], Awaitable[httpx.Response]]

#: The loggers of operators, and of those for Kopf.
LOGGERS: Final = ("trioperator", "kopf")

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Resources that are written repeatedly, whatever an operator does for its objects.
_ROUTINE: Final = re.compile(r"/(events|leases|clusterkopfpeerings|kopfpeerings)(/|$)")


class Journal:
    """Recording of an operator, over all of its starts."""

    def __init__(self) -> None:
        self.calls: RecordLog[Call] = RecordLog()
        self.failures: list[Call] = []  # and denials, which tests may expect
        self.logs: RecordLog[LogLine] = RecordLog()
        self.writes: RecordLog[Write] = RecordLog()
        self.rights: dict[UsedRight, None] = {}  # of the requests of handlers, in order


def _shorten(handler: str | None) -> str | None:
    """Return the id of a handler without the functions in which it is declared."""
    return None if handler is None else handler.rpartition(".<locals>.")[2]


class RecordingInstruments(Instruments):
    """Instruments that also record all calls of handlers. Once *is_dead* is set, they call none."""

    def __init__(self, journal: Journal, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.journal = journal
        self.is_dead = False

    def make_invoker(self, **options: Any) -> Invoker:
        """Return an invoker that records its calls."""
        return _RecordingInvoker(self, **options)


class _RecordingInvoker(Invoker):
    """An invoker that records its calls."""

    def __init__(self, instruments: RecordingInstruments, **options: Any) -> None:
        super().__init__(observer=CallCounter(instruments), **options)
        self._recording = instruments
        self._ignored: dict[Attempt, BaseException] = {}

    async def invoke(self, handler: Handler, kwargs: Mapping[str, Any], *, attempt: Attempt, logger: Logger) -> Outcome:
        """See :meth:`Invoker.invoke`."""
        journal = self._recording.journal
        if self._recording.is_dead:  # a crash leaves no time for cleanup handlers
            await trio.lowlevel.checkpoint()
            return Outcome(final=True)
        ref: Any = logger.object_ref or {}
        call = Call(
            handler=_shorten(handler.id) or "",
            kind=ref.get("kind"),
            namespace=ref.get("namespace"),
            name=ref.get("name"),
            kwargs=kwargs,
            retry=attempt.retry,
            started=trio.current_time(),
            is_review=isinstance(handler, AdmissionHandler),
        )
        journal.calls.append(call)
        token = handler_at_work.set(handler_at_work.get() or handler.id)
        try:
            outcome = await super().invoke(handler, kwargs, attempt=attempt, logger=logger)
        finally:
            handler_at_work.reset(token)
            call.ended = trio.current_time()
            ignored = self._ignored.pop(attempt, None)
        if not (outcome.awaits_subhandlers or self._recording.is_dead):  # what fails in a crash, nobody sees
            call.result, call.error, call.final = outcome.result, outcome.error or ignored, outcome.final
            call.stack = _extract_stack(call.error)
            if call.failed or call.denied:
                journal.failures.append(call)
        return outcome

    def _classify(
        self, handler: Handler, raised: BaseException, attempt: Attempt, *, since: float, logger: Logger
    ) -> Outcome | None:
        outcome = super()._classify(handler, raised, attempt, since=since, logger=logger)
        if outcome is not None and outcome.succeeded and handler.errors is None:  # ignored only by default
            self._ignored[attempt] = raised
        return outcome


def _extract_stack(error: BaseException | None) -> traceback.StackSummary | None:
    """Return where an error was raised, without the frames, and without the framework's at its beginning."""
    if error is None:
        return None
    return traceback.StackSummary.extract(traceback.walk_tb(trim(error.__traceback__)), lookup_lines=False)


class _LogHandler(logging.Handler):
    def __init__(self, logs: RecordLog[LogLine]) -> None:
        super().__init__()
        self._logs = logs
        self._last: logging.LogRecord | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record, once, though one of these loggers may be the parent of the other. It may come from a thread."""
        if record is not self._last:
            self._last = record
            self._logs.append(LogLine.of(record))


@contextlib.contextmanager
def record_logs(logs: RecordLog[LogLine]) -> Iterator[None]:
    """Record what operators and their handlers log in the context, at INFO or above, or at the level that is set."""
    handler, levels = _LogHandler(logs), dict[logging.Logger, int]()
    for name in LOGGERS:
        logger = logging.getLogger(name)
        levels[logger] = logger.level
        logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.removeHandler(handler)
            logger.setLevel(level)


class RecordingTransport(httpx.AsyncBaseTransport):
    """Transport that records what is written, and can be cut off, so that nothing reaches the server.

    *on_write* is called in place of sending each write, with the function that sends it. *revision* returns the newest
    resource version of the cluster.
    """

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        writes: RecordLog[Write],
        *,
        revision: Callable[[], int],
        on_write: OnWrite | None = None,
    ) -> None:
        self._inner = inner
        self._writes = writes
        self._revision = revision
        self._on_write = on_write
        self.is_cut = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return the response."""
        if self.is_cut:
            await trio.lowlevel.checkpoint()
            raise httpx.ConnectError("The operator has crashed.", request=request)
        if request.method in _READS or _ROUTINE.search(request.url.path):
            return await self._inner.handle_async_request(request)
        body = await request.aread()
        write = Write(
            method=request.method,
            path=request.url.path,
            body=body,
            time=trio.current_time(),
            handler=_shorten(handler_at_work.get()),
        )
        self._writes.append(write)

        async def send() -> httpx.Response:
            before = self._revision()
            response = await self._inner.handle_async_request(request)
            write.changed = not ("dryRun" in request.url.params or _is_unchanged(response, before))
            return response

        return await (send() if self._on_write is None else self._on_write(send))

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


def _is_unchanged(response: httpx.Response, revision: int) -> bool:
    """Return whether a successful response shows an object that is not newer than the revision."""
    if not (response.is_success and isinstance(response.stream, httpx.ByteStream)):
        return False
    try:
        found = msgspec.json.decode(b"".join(response.stream), type=_Versioned)
    except msgspec.DecodeError:
        return False
    version = found.metadata.resourceVersion
    return version.isdigit() and int(version) <= revision


class _Metadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 -- the name in JSON


class _Versioned(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
