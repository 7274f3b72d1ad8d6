"""Connections of clients: an operator's, which is opened on first use, and a script's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import trio

from trioperator._handling.calls.invoke import Clients
from trioperator._kube.api_client import ApiClient, log_in
from trioperator._kube.connection import load_connection
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.credential_store import Login, login_in_thread, login_with
from trioperator._logs import LocalObjectLogger, Logger, get_logger
from trioperator.client.adoption import find_handled
from trioperator.client.client import Client
from trioperator.client.library_logins import LibraryLogins
from trioperator.client.sync import SyncClient
from trioperator.errors import ConnectionLostError
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    import httpx

_logger = get_logger(__name__)


class Session:
    """The connection of an operator, and the clients of its handlers, which share it.

    The first request logs in, so that startup handlers, which are called before the operator connects, can have a
    client, too. Each write of a handler first calls *fence*, which raises if the operator must not write. *wrap*
    replaces the client that has logged in.
    """

    def __init__(
        self,
        make_login: Callable[[], Login],
        *,
        settings: OperatorSettings,
        transport: httpx.AsyncBaseTransport | None,
        fence: Callable[[], None],
        wrap: Callable[[ApiClient], ApiClient] | None = None,
    ) -> None:
        self._wrap = wrap
        self._make_login = make_login
        self._settings = settings
        self._transport = transport
        self._opening = trio.Lock()
        self._stack = contextlib.AsyncExitStack()
        self._opened: ApiClient | None = None
        self._closed = False
        self.clients = self.make_clients(fence)

    def make_clients(self, fence: Callable[[], None]) -> Clients:
        """Return clients for handlers; each write first calls *fence*."""
        client = self.make_client(fence)
        return Clients(for_async=client, for_sync=SyncClient(client))

    def make_client(self, fence: Callable[[], None]) -> Client:
        """Return a client; each write first calls *fence*."""
        fenced: ApiClient | None = None

        async def connect() -> ApiClient:
            nonlocal fenced
            if self._closed:
                raise ConnectionLostError("the operator has stopped, and its client is closed")
            if fenced is None:
                fenced = (await self.open()).fenced(fence).logging_to(_find_logger)
            return fenced

        return Client(connect, transport=self._transport)

    async def open(self) -> ApiClient:
        """Return the connected client, which is not fenced; log in if that has not been done.

        Raises ConfigError if the connection is invalid, LoginError if there are no credentials.
        """
        async with self._opening:
            if self._opened is None:
                opening = log_in(self._make_login(), settings=self._settings, transport=self._transport)
                client = await self._stack.enter_async_context(opening)
                self._opened = client if self._wrap is None else self._wrap(client)
                if client.credentials.current.info.origin:
                    _logger.info("Using the API server %s.", client.credentials.current.info.place)
            return self._opened

    async def serve_libraries(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Log in the other client libraries that have been imported, until the session is closed."""
        logins = LibraryLogins(await self.open())
        self._stack.callback(logins.log_out)
        await logins.serve(task_status=task_status)

    async def aclose(self) -> None:
        """Close all connections: requests of code that handlers have left running fail from now on."""
        self._closed = True
        await self._stack.aclose()


def _find_logger() -> Logger:
    """Return a logger that is bound to the handled object, if there is one, and posts nothing."""
    handled = find_handled()
    return _logger if handled is None else LocalObjectLogger(body=handled)


@contextlib.asynccontextmanager
async def open_client(
    *,
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str | None = None,
    connection: ConnectionInfo | None = None,
    settings: OperatorSettings | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[Client]:
    """Open a client outside of operators, for scripts and tests.

    ::

        async with trioperator.open_client() as client:
            print(await client.list("nodes"))

    - *kubeconfig*, *context*: the file, and a context in it; default: as for kubectl, or the pod's service account
    - *connection*: API server and credentials, in place of these
    - *settings*: settings, of which ``networking``, ``watching`` and ``persistence.field_manager`` are used
    - *transport*: httpx transport for all requests, such as the embedded API server's; default: the network

    Raises TypeError for *connection* together with *kubeconfig* or *context*, ConfigError if there is no configuration
    or it is invalid, LoginError if there are no credentials. See docs/client.md.
    """
    if connection is not None and (kubeconfig or context):
        raise TypeError("Pass either connection= or kubeconfig= and context=, not both.")
    files = None if kubeconfig is None else [kubeconfig]
    login = login_in_thread(lambda: load_connection(files, context)) if connection is None else login_with(connection)
    async with log_in(login, settings=settings or OperatorSettings(), transport=transport) as kube:

        async def connect() -> ApiClient:
            return kube

        yield Client(connect, transport=transport)
