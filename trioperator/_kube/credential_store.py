"""The credentials of a client: several, by priority; renewed before they expire, and when they are rejected (HTTP 401).

After a rejection one request switches to the next credentials, or logs in again when there are no more, while all
others wait for that, but never for one another's responses. Once any credentials have been accepted, a rejection is
never final: tokens are rotated, and authentication services have outages. Secrets are never logged.
"""

from __future__ import annotations

import collections
import functools
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import outcome
import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._concurrency.pulse import Pulse
from trioperator._concurrency.threads import run_in_thread
from trioperator._concurrency.timeouts import Timeouts
from trioperator._http.transport import BodyTooLargeError, Transport, TransportError
from trioperator._kube.connection_info import ConnectionInfo, ContextChoice
from trioperator._kube.credentials import Credentials, is_expired, prepare_credentials
from trioperator._logs import get_logger
from trioperator.errors import ApiError, ConfigError, LoginError, TooManyRequestsError, UnauthorizedError
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    import httpx

_logger = get_logger("trioperator.kube.credential_store")
_T = TypeVar("_T")

#: Returns all credentials that are available now, in any order. Raises ConfigError or LoginError if there are none.
Login: TypeAlias = Callable[[], Awaitable[Sequence[ConnectionInfo]]]

# Between attempts with rejected credentials, in seconds.
_BACKOFF: Final = Backoff(initial=0.5, maximum=10.0)
# Logins without any credentials that have ever been accepted, before the login has failed.
_LOGIN_ATTEMPTS: Final = 5
# Rejections of one request before it fails although the credentials were accepted earlier: if other requests are
# accepted meanwhile (one broken endpoint), and if none is (about a minute).
_MAX_OWN_REJECTIONS: Final = 3
_MAX_REJECTIONS: Final = 10
# Rejected credentials that are remembered, to be tried after others.
_MAX_REMEMBERED: Final = 10
# Seconds until the next attempt after a failed one, while the current credentials still work.
_RETRY_AGE: Final = 10.0
# Seconds that reading files may take, because a network file system may never answer; and a source with exec plugins.
_READ_TIMEOUT: Final = 10.0
_SOURCE_TIMEOUT: Final = 90.0
# Seconds until a login is reported that has not ended, and between further reports.
_SLOW: Final = 10.0
_REPORT_INTERVAL: Final = 60.0


def login_with(info: ConnectionInfo) -> Login:
    """Return a login by a fixed connection."""

    async def login() -> Sequence[ConnectionInfo]:
        return [info]

    return login


def login_in_thread(source: Callable[[], ConnectionInfo]) -> Login:
    """Return a login that calls *source* in a thread. It raises LoginError if that takes longer than 90 seconds."""
    limiter = trio.CapacityLimiter(1)

    async def login() -> Sequence[ConnectionInfo]:
        with trio.move_on_after(_SOURCE_TIMEOUT):
            return [await run_in_thread(source, limiter=limiter)]
        raise LoginError(f"The credentials were not loaded within {_SOURCE_TIMEOUT:g} s. Are their files on a network?")

    return login


class _Loader:
    """What logs in and reads files: it returns credentials that are ready for use, and keeps those to be tried next.

    Connections that were refused are tried after all others.
    """

    def __init__(
        self, login: Login, *, settings: OperatorSettings, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._login = login
        self._context = ContextChoice.find()
        self._settings = settings
        self._transport = transport
        self.timeouts = Timeouts()
        self.spares: list[ConnectionInfo] = []
        self._refused: collections.deque[ConnectionInfo] = collections.deque(maxlen=_MAX_REMEMBERED)
        self._thread = trio.CapacityLimiter(1)

    async def log_in(self, previous: Credentials | None) -> Credentials:
        """Return the first usable credentials of a login; the others are spares. Those once rejected are the last."""
        with self._context.applying():
            found = await _reporting_delay(self._login)
        self.spares = sorted(found, key=lambda info: (info in self._refused, -info.priority, random.random()))
        while self.spares:
            credentials = await self.prepare_spare(previous)
            if credentials is not None:
                return credentials
        raise LoginError("There are no credentials.")

    async def prepare_spare(self, previous: Credentials | None) -> Credentials | None:
        """Return the next credentials, None if they cannot be used and there are others."""
        info = self.spares.pop(0)
        if self.spares and is_expired(info):
            return None
        try:
            return await self.prepare(info, previous)
        except ConfigError as exc:
            if not self.spares:
                raise
            _logger.warning("Cannot use the credentials for %s; trying the next ones: %s", info.server, exc)
            return None

    async def prepare(self, info: ConnectionInfo, previous: Credentials | None) -> Credentials:
        """Read the files of a connection in a thread, unless there is nothing to read. Raises ConfigError."""
        settings = self._settings
        prepare = functools.partial(
            prepare_credentials, info, previous, transport=self._transport, settings=settings, timeouts=self.timeouts
        )
        has_files = bool(info.paths) or info.trust_env or settings.networking.trust_env
        if not has_files and (self._transport is not None or not info.server.startswith("https:")):
            return prepare()
        with trio.move_on_after(_READ_TIMEOUT):
            return await run_in_thread(prepare, limiter=self._thread)
        raise ConfigError(
            f"The files of the credentials were not read within {_READ_TIMEOUT:g} s. Are they on a network?"
        )

    def refuse(self, info: ConnectionInfo) -> None:
        """Note that the API server has rejected the credentials of a connection."""
        if not info.paths:  # else the next time they are others
            self._refused.append(info)


async def _reporting_delay(login: Login) -> Sequence[ConnectionInfo]:
    """Await a login, and warn if it takes long: nothing else says why requests wait. Raises what it raises."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_report_delay, name="report a slow login")
        result = await outcome.acapture(login)
        nursery.cancel_scope.cancel(reason="the login has ended")
    return result.unwrap()


async def _report_delay() -> None:
    begun = trio.current_time()
    await trio.sleep(_SLOW)
    while True:
        _logger.warning(
            "The login has taken %.0f s so far: an exec plugin, a login handler or a file system may hang. All requests"
            " wait for it that have no valid credentials.",
            trio.current_time() - begun,
        )
        await trio.sleep(_REPORT_INTERVAL)


class _Verdicts:
    """What the API server says of the credentials: how often they were ``accepted``, or whether they are rejected.

    ``failures`` are logins since they were accepted, ``series`` counts those of rejections during which nothing was
    accepted, and ``renew_at`` is when rejected credentials are to be replaced.
    """

    def __init__(self) -> None:
        self.accepted = 0
        self.is_rejected = False
        self.failures = 0
        self.series = 0
        self.renew_at = 0.0
        self._is_in_series = False

    def accept(self, series: int) -> None:
        """Record that the API server has accepted a request, which was sent after this *series* of rejections began.

        Responses to earlier requests do not count: the credentials may have expired since those were authenticated.
        """
        if series != self.series:
            return
        self._is_in_series = False
        if self.failures:
            _logger.info("The API server accepts the credentials again.")
            self.failures = 0
        self.is_rejected = False
        self.accepted += 1

    def reject(self, *, has_others: bool) -> None:
        """Record a 401. Where there are no others to try, credentials are renewed after a backoff."""
        self.is_rejected = True
        self.series += not self._is_in_series
        self._is_in_series = True
        self.renew_at = trio.current_time() + (0.0 if has_others else _BACKOFF.delay(self.failures))

    def end_rejection(self) -> None:
        """Note that rejected credentials were replaced, or could not be."""
        self.is_rejected = False

    def add_failure(self) -> None:
        """Note that a login is needed, as all credentials were rejected."""
        self.failures += 1


class CredentialStore:
    """The current credentials of a client, and those to be tried next. One task at a time renews them.

    With an httpx *transport* all requests go through it, whatever the connection says about certificates and proxies;
    it is not closed at the end.
    """

    def __init__(
        self, login: Login, *, settings: OperatorSettings, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._loader = _Loader(login, settings=settings, transport=transport)
        self.timeouts = self._loader.timeouts
        self._retired: list[Transport] = []
        self._renewal = trio.Lock()
        self._verdicts = _Verdicts()
        self._changed, self.renewed = Pulse(), Pulse()  # one for the task here, one for a task of others
        self._is_served = False
        self._waiting = trio.lowlevel.ParkingLot()  # requests, until that task has renewed the credentials
        self.current: Credentials  # which requests use now

    @property
    def default_namespace(self) -> str:
        """The namespace of the current connection: the pod's, or that in the kubeconfig's context, else "default"."""
        return self.current.info.default_namespace or "default"

    async def open(self) -> None:
        """Log in. Raises ConfigError if the connection is invalid, LoginError if there are no credentials."""
        self.current = await self._loader.log_in(None)
        self.current.start_ageing()
        info = self.current.info
        if info.insecure:
            _logger.warning("The certificate of the API server %s is not verified: it may be anybody's.", info.place)

    async def serve(self) -> None:
        """Renew credentials before they expire, and when they are rejected, until cancelled.

        So hardly any request has to wait for that, and a login goes on when the request that needs it is cancelled.
        """
        self._is_served = True
        try:
            while True:
                with trio.move_on_at(self.current.renew_at):
                    await self._changed.wait()
                async with self._renewal:
                    await self._update()
                self._waiting.unpark_all()
        finally:
            self._is_served = False
            self._waiting.unpark_all()

    async def call(self, attempt: Callable[[Credentials], Awaitable[_T]]) -> _T:
        """Await *attempt* with the current credentials, and again with others while they are rejected.

        Raises LoginError if no credentials have ever been accepted, UnauthorizedError if they are rejected for about
        a minute, or sooner if only the credentials of this request are.
        """
        verdicts, rejections = self._verdicts, 0
        accepted = verdicts.accepted
        while True:
            if verdicts.is_rejected or trio.current_time() >= self.current.reload_at:
                await self._renew()
            credentials, series = self.current, verdicts.series
            try:
                result = await attempt(credentials)
            except UnauthorizedError as exc:
                rejections += not self._loader.spares
                self._check_login(exc)
                if rejections >= (_MAX_REJECTIONS if verdicts.accepted == accepted else _MAX_OWN_REJECTIONS):
                    raise
                self._note_rejected(credentials)
            except ApiError as exc:
                if exc.status < 500 and not isinstance(exc, TooManyRequestsError):
                    verdicts.accept(series)
                raise
            except TransportError as exc:
                self._note_lost(credentials, exc)
                raise
            else:
                verdicts.accept(series)
                return result

    async def reload(self) -> None:
        """Log in again; keep the current credentials if that fails."""
        try:
            await self._replace(await self._loader.log_in(self.current))
        except (ConfigError, LoginError) as exc:
            self._keep_current(exc)

    async def aclose(self) -> None:
        """Close all connections."""
        for transport in (*self._retired, self.current.transport):
            await transport.aclose()

    async def _renew(self) -> None:
        """Renew the credentials if they are still rejected or old; one task at a time, after a backoff.

        While another task does, those that are still valid are used.
        """
        if not self._verdicts.is_rejected and self._renewal.locked() and trio.current_time() < self.current.expires_at:
            return
        if self._is_served:
            self._changed.set()
            await self._waiting.park()
            return
        async with self._renewal:
            await self._update()

    async def _update(self) -> None:
        if self._verdicts.is_rejected:
            await trio.sleep_until(self._verdicts.renew_at)
        if self._verdicts.is_rejected:
            await self._replace_rejected()
            self._verdicts.end_rejection()
        elif trio.current_time() >= min(self.current.expires_at, self.current.renew_at):
            await self.reload()
        elif trio.current_time() >= self.current.reload_at:
            await self._read_files()

    async def _replace_rejected(self) -> None:
        """Use the next credentials, or log in again if there are no more."""
        try:
            while self._loader.spares:
                spare = await self._loader.prepare_spare(self.current)
                if spare is not None:
                    await self._replace(spare)
                    return
        except ConfigError as exc:
            _logger.warning("Cannot use the next credentials: %s", exc)
        self._verdicts.add_failure()
        await self.reload()

    async def _read_files(self) -> None:
        """Read the files of the current credentials again."""
        current = self.current
        try:
            fresh = await self._loader.prepare(current.info, current)
        except ConfigError as exc:
            # A file that is being replaced may be incomplete for a moment.
            self._keep_current(exc)
        else:
            await self._replace(fresh)
            fresh.keep_age(current)

    def _keep_current(self, problem: Exception) -> None:
        _logger.warning("Cannot reload the credentials; keeping the current ones: %s", problem)
        self.current.put_off(trio.current_time() + _RETRY_AGE)

    def _note_rejected(self, used: Credentials) -> None:
        """Record a 401, unless the rejected credentials have been replaced in the meantime."""
        if used is not self.current or self._verdicts.is_rejected:
            return
        self._verdicts.reject(has_others=bool(self._loader.spares))
        self._loader.refuse(used.info)
        if not self._verdicts.failures:
            action = "trying the next ones" if self._loader.spares else "reloading them"
            text = "The API server rejected the credentials (HTTP 401): they are wrong or have expired; %s."
            _logger.warning(text, action)

    def _note_lost(self, used: Credentials, error: TransportError) -> None:
        """Log in again if the server's certificate cannot be verified: a login may know the CA that it has now."""
        if used is self.current and error.final and not isinstance(error, BodyTooLargeError):
            used.doubt()
            self._changed.set()

    def _check_login(self, error: UnauthorizedError) -> None:
        """Raise LoginError after several logins if no credentials have ever been accepted."""
        if not self._verdicts.accepted and self._verdicts.failures >= _LOGIN_ATTEMPTS and not self._loader.spares:
            raise LoginError(
                f"The API server {self.current.info.place} rejected the credentials: {error.message}. They are wrong"
                " or have expired: log in again."
            ) from error

    async def _replace(self, fresh: Credentials) -> None:
        """Use fresh credentials from now on, and close connections that are no longer used."""
        previous, self.current = self.current, fresh
        fresh.start_ageing()
        self._verdicts.end_rejection()
        self._changed.set()
        self.renewed.set()
        if fresh.transport is not previous.transport:
            self._retired.append(previous.transport)
            for transport in tuple(self._retired):
                if await transport.retire():
                    self._retired.remove(transport)
