"""The recorder of an operator: correlates Kubernetes Events when they are recorded, and posts them in the background.

Recording never waits: what is to be posted is queued, one entry for each series of events that are the same or similar,
and the newest state of the series is what is posted. The queue is limited; what does not fit is dropped and counted.
Errors of posting are logged, and concern nobody else. There is one request at a time.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
import trio

from trioperator._concurrency.clock import wall_now
from trioperator._concurrency.pulse import Pulse
from trioperator._handling.arguments.context import current_recorder
from trioperator._kube.api_client import MERGE_PATCH, ApiClient
from trioperator._logs import get_logger, get_message, observing_objects
from trioperator._model.jsontypes import JsonObject
from trioperator._recorder.correlator import LOGGING, Correlator, Key, Occurrence, Series
from trioperator._recorder.manifests import (
    MAX_MESSAGE,
    build_event,
    build_update,
    events_path,
    get_namespace,
    shorten,
)
from trioperator.errors import ApiError, ForbiddenError, NotFoundError, PausedError, TrioperatorError
from trioperator.settings import OperatorSettings
from trioperator.settings.posting import PostingSettings

_logger = get_logger("trioperator.recorder")

_Backoffs: TypeAlias = Iterable[float] | float | None

# At most this many events wait for being posted, and of those log messages.
MAX_QUEUED: Final = 2000
_MAX_QUEUED_LOGS: Final = 1000
# Seconds that one attempt of a request may take.
_TIMEOUT: Final = 30.0
# Seconds until posting is tried again in a namespace where it is forbidden.
_DENIAL: Final = 60.0
# Seconds, and share of what is left of the grace, for what is queued when the operator stops.
_FLUSH: Final = 5.0
_FLUSH_SHARE: Final = 0.5
# Groups that events belong to: there are no events about events.
_EVENT_VERSIONS: Final = frozenset({"v1", "events.k8s.io/v1", "events.k8s.io/v1beta1"})


class _Metadata(msgspec.Struct):
    name: str


class _Created(msgspec.Struct):
    metadata: _Metadata


class _Entry(msgspec.Struct, eq=False):
    """An occurrence on its way, with the delays before retries."""

    occurrence: Occurrence
    backoffs: _Backoffs


class _Poster:
    """What posts events, one at a time. Where that is forbidden, it is tried again after a while."""

    def __init__(self, client: ApiClient, settings: OperatorSettings, identity: str) -> None:
        self.settings = settings
        self._client = client
        self._identity = identity
        self._denied: dict[str, float] = {}  # namespaces where posting is forbidden, and until when it is not tried
        self._not_updated: dict[str, float] = {}  # namespaces where updates are forbidden, and until when none is tried

    async def post(self, series: Series, backoffs: _Backoffs) -> None:
        """Post an event. Errors are logged, but for PausedError."""
        namespace = get_namespace(series.first)
        try:
            if self._denied.get(namespace, 0.0) <= trio.current_time():
                await self._send(series, namespace, backoffs)
                self._denied.pop(namespace, None)
        except PausedError:
            raise
        except TrioperatorError as error:
            self._report_error(series, namespace, error)
        except msgspec.MsgspecError as error:
            _logger.warning("The response about an event cannot be read; it may be posted: %s.", error)
        except Exception:  # events are auxiliary: nothing about them ends the operator
            _logger.exception("Failed to post an event. Ignoring and continuing.")

    async def _send(self, series: Series, namespace: str, backoffs: _Backoffs) -> None:
        """Update the event of a series, or create it."""
        path = events_path(namespace)
        if series.name is not None and self._not_updated.get(namespace, 0.0) <= trio.current_time():
            try:
                update = build_update(series, to_wall=_to_wall)
                await self._request("PATCH", f"{path}/{series.name}", update, backoffs)
            except NotFoundError:
                pass  # it has expired
            except ForbiddenError as error:
                log = _logger.debug if namespace in self._not_updated else _logger.warning
                self._not_updated[namespace] = trio.current_time() + _DENIAL
                log("Repeated events are posted as new ones, as they cannot be updated: %s", error)
            else:
                self._not_updated.pop(namespace, None)
                return
        series.name = None
        event = build_event(series, self.settings.posting, identity=self._identity, to_wall=_to_wall)
        response = await self._request("POST", path, event, backoffs)
        series.name = msgspec.json.decode(response, type=_Created).metadata.name

    async def _request(self, method: str, path: str, body: JsonObject, backoffs: _Backoffs) -> bytes:
        content_type = MERGE_PATCH if method == "PATCH" else None
        data = msgspec.json.encode(body)
        client = self._client.retrying(backoffs, timeout=_TIMEOUT)
        return await client.request(method, path, body=data, content_type=content_type)

    def _report_error(self, series: Series, namespace: str, error: TrioperatorError) -> None:
        if isinstance(error, ApiError) and (error.status == 404 or _is_terminating(error)):
            _logger.debug("An event is not posted, as its namespace %r is gone: %s", namespace, error)
            return
        if isinstance(error, ForbiddenError):
            log = _logger.debug if namespace in self._denied else _logger.warning
            log("No events are posted in the namespace %r; the next try is in %g s. %s", namespace, _DENIAL, error)
            self._denied[namespace] = trio.current_time() + _DENIAL
            return
        text = "Failed to post an event. Ignoring and continuing. %s Event: type=%r, reason=%r, message=%r."
        event = series.last
        _logger.warning(text, error, event.type, event.reason, event.message)


class EventRecorder:
    """Recorder of the Kubernetes Events of one operator."""

    def __init__(self, client: ApiClient, settings: OperatorSettings, *, identity: str) -> None:
        self._poster = _Poster(client, settings, identity)
        self._correlator = Correlator()
        self._inbox: collections.deque[_Entry] = collections.deque()  # from other threads
        self._queue: dict[Key, tuple[Series, _Backoffs]] = {}
        self._posting = False
        self._closed = False
        self._queued, self._drained = Pulse(), Pulse()
        self._clock = trio.lowlevel.current_clock()
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.get_ident()
        self.dropped = 0

    @property
    def posting(self) -> PostingSettings:
        """The settings of events, as they are now."""
        return self._poster.settings.posting

    @property
    def waiting(self) -> int:
        """How many events wait for being posted."""
        return len(self._inbox) + len(self._queue)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Record the events, and the messages of object loggers, of the tasks that are started in the block."""
        token = current_recorder.set(self)
        try:
            with observing_objects(self._record_message):
                yield
        finally:
            self._closed = True
            current_recorder.reset(token)

    def record(
        self, reference: Mapping[str, Any], *, type: str, reason: str, message: str, backoffs: _Backoffs = None
    ) -> None:
        """Record an event of the object with the reference, in any thread. Never waits, never raises.

        *backoffs* are the delays before retries (default: ``posting.default_backoffs``).
        """
        if self._closed or (reference.get("kind") == "Event" and reference.get("apiVersion") in _EVENT_VERSIONS):
            return
        occurrence = Occurrence(
            str(reference.get("apiVersion") or ""),
            str(reference.get("kind") or ""),
            str(reference.get("namespace") or ""),
            str(reference.get("name") or ""),
            str(reference.get("uid") or ""),
            type,
            reason,
            shorten(message, MAX_MESSAGE),
            self._clock.current_time(),
        )
        entry = _Entry(occurrence, self.posting.default_backoffs if backoffs is None else backoffs)
        if threading.get_ident() == self._thread:
            self._accept(entry)
        elif len(self._inbox) < MAX_QUEUED:
            self._inbox.append(entry)
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._accept_all, idempotent=True)
        else:
            self.dropped += 1

    def _record_message(self, record: logging.LogRecord) -> None:
        """Record a message of an object logger as an event, if it is to be posted."""
        posting = self._poster.settings.posting
        if not (posting.loggers and posting.enabled and record.levelno >= posting.level):
            return
        if getattr(record, "k8s_skip", False) or current_recorder.get(None) is not self:
            return
        self.record(
            getattr(record, "k8s_ref", {}),
            type=_get_type(record.levelno),
            reason=LOGGING,
            message=get_message(record),
            backoffs=posting.logging_backoffs,
        )

    def _accept_all(self) -> None:
        while self._inbox:
            self._accept(self._inbox.popleft())

    def _accept(self, entry: _Entry) -> None:
        """Queue an event, unless it is part of one that is queued, there are too many of its object, or in all."""
        occurrence = entry.occurrence
        series = self._correlator.observe(occurrence)
        if series.key in self._queue:
            return
        limit = _MAX_QUEUED_LOGS if occurrence.reason == LOGGING else MAX_QUEUED
        if len(self._queue) >= limit:
            self._drop(series)
        elif self._correlator.admit(occurrence):
            self._queue[series.key] = series, entry.backoffs
            self._queued.set()

    def _drop(self, series: Series) -> None:
        if not self.dropped:
            _logger.warning("Events are dropped until those that are queued are posted: %d.", len(self._queue))
        self.dropped += 1
        self._forget(series)

    def _forget(self, series: Series) -> None:
        """Let the next event of a series be a new one, if this one is not in the cluster."""
        if series.name is None:
            self._correlator.forget(series)

    async def serve(self) -> None:
        """Post what is recorded, until cancelled."""
        while True:
            await self._queued.wait()
            self._posting = True
            while self._queue:
                series, backoffs = self._queue.pop(next(iter(self._queue)))
                await self._post(series, backoffs)
            self._posting = False
            self._report_dropped()
            self._drained.set()

    async def flush(self, remaining: float, *, last: bool = True) -> None:
        """Wait until all is posted, for a share of the *remaining* seconds. The *last* time, the rest is dropped."""
        self._accept_all()
        with trio.move_on_after(min(_FLUSH, remaining * _FLUSH_SHARE)):
            while self._queue or self._posting:
                await self._drained.wait()
        if not last:
            return
        self._closed = True
        self.dropped += len(self._queue) + self._posting
        self._report_dropped()

    def _report_dropped(self) -> None:
        if self.dropped:
            _logger.warning("%d events were dropped, and are not posted.", self.dropped)
            self.dropped = 0

    async def _post(self, series: Series, backoffs: _Backoffs) -> None:
        try:
            await self._poster.post(series, backoffs)
        except PausedError as error:
            _logger.debug("%d events are left to another operator: %s", len(self._queue) + 1, error)
            self._queue.clear()
        self._forget(series)


def _to_wall(time: float) -> datetime.datetime:
    return wall_now() - datetime.timedelta(seconds=trio.current_time() - time)


def _is_terminating(error: ApiError) -> bool:
    causes = error.details.get("causes")
    if not isinstance(causes, list):
        return False
    return any(isinstance(cause, dict) and cause.get("reason") == "NamespaceTerminating" for cause in causes)


def _get_type(level: int) -> str:
    """Return the type of the events of a log level."""
    for limit, name in _TYPES:
        if level <= limit:
            return name
    return logging.getLevelName(level).capitalize()


_TYPES: Final = (
    (logging.DEBUG, "Debug"),
    (logging.INFO, "Normal"),
    (logging.WARNING, "Warning"),
    (logging.ERROR, "Error"),
    (logging.CRITICAL, "Fatal"),
)
