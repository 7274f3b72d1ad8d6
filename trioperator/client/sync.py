"""The client of sync functions, which run in threads: the same methods, which block."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Concatenate, Generic, ParamSpec, TypeVar

import trio

from trioperator.client.client import Client
from trioperator.client.connection import SyncConnection

__all__ = ["SyncClient"]

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Client, P], Awaitable[T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(functools.partial(method, self._client, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[Client, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncClient, P], Iterator[T]]:
    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return _SyncIterator(self, method(self._client, *args, **kwargs))

    return call


def _entering(
    method: Callable[Concatenate[Client, P], contextlib.AbstractAsyncContextManager[AsyncIterator[T]]],
) -> Callable[Concatenate[SyncClient, P], contextlib.AbstractContextManager[Iterator[T]]]:
    @functools.wraps(method)
    @contextlib.contextmanager
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[Iterator[T]]:
        opened = contextlib.AsyncExitStack()
        context = method(self._client, *args, **kwargs)
        try:
            yield _SyncIterator(self, self._call(lambda: opened.enter_async_context(context)))
        finally:
            self._call(opened.aclose)

    return call


class SyncClient:
    """A :class:`Client` whose methods block the calling thread, without ``await``.

    ::

        @trioperator.on.create("webapps")
        def create(name, client):
            client.apply(make_deployment(name))
            for pod in client.iterate("pods", labels={"app": name}):
                ...
            with client.watch("pods") as events:
                for event in events:
                    ...

    Methods, arguments and errors are those of :class:`Client`. They may be called in any thread but Trio's. In threads
    that a handler itself starts, no object is being handled: pass ``owner=`` and ``namespace=`` there.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._token = trio.lowlevel.current_trio_token()

    def _call(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Run an async function on Trio, and wait for it."""
        try:
            trio.from_thread.check_cancelled()
        except RuntimeError:  # a thread that the function itself has started
            return trio.from_thread.run(fn, trio_token=self._token)
        return trio.from_thread.run(fn)

    def connection(self) -> SyncConnection:
        """Return the connection of the client, which logs other client libraries in.

        ::

            core = kubernetes.client.CoreV1Api(client.connection().for_kubernetes())
        """
        return SyncConnection(self._call(self._client._connect), self._client._transport)

    get = _blocking(Client.get)
    refresh = _blocking(Client.refresh)
    list = _blocking(Client.list)
    iterate = _iterating(Client.iterate)
    watch = _entering(Client.watch)
    wait_for = _blocking(Client.wait_for)
    wait_deleted = _blocking(Client.wait_deleted)
    logs = _blocking(Client.logs)
    follow_logs = _entering(Client.follow_logs)
    create = _blocking(Client.create)
    replace = _blocking(Client.replace)
    patch = _blocking(Client.patch)
    apply = _blocking(Client.apply)
    delete = _blocking(Client.delete)
    scale = _blocking(Client.scale)
    evict = _blocking(Client.evict)
    request = _blocking(Client.request)


class _SyncIterator(Generic[T]):
    def __init__(self, client: SyncClient, source: AsyncIterator[T]) -> None:
        self._client = client
        self._source = source

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return self._client._call(self._source.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
