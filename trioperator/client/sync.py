"""The client of sync functions, which run in threads: the same methods, which block."""

# Classes that declare kinds match the overloads for objects, too: the first overload that matches counts.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, Unpack, overload

import trio

from trioperator._concurrency.threads import call_trio
from trioperator._model.conditions import Condition
from trioperator._model.jsontypes import JsonObject
from trioperator.client.client import Client
from trioperator.client.connection import SyncConnection
from trioperator.client.typed import (
    ApplyOptions,
    CreateAnyOptions,
    CreateOptions,
    Foreign,
    GetOptions,
    IterateOptions,
    Kind,
    Lightkube,
    ListOptions,
    PatchOptions,
    ReplaceOptions,
    Status,
    TypedCondition,
    WaitOptions,
    WatchOptions,
)
from trioperator.client.watching import ObjectEvent

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_Watching: TypeAlias = contextlib.AbstractContextManager[Iterator[ObjectEvent[T]]]


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
            self._close(opened)

    return call


def _implemented_by(call: Any) -> Callable[[F], F]:
    """Return a decorator that replaces a function, which only declares overloads, by *call*."""
    return lambda _: call


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

    Methods, arguments and errors are the same as in :class:`Client`. They may be called in any thread but Trio's. In
    threads that a handler itself starts, no object is being handled: pass ``owner=`` and ``namespace=`` there. When a
    handler is cancelled, methods in its thread raise ``trio.Cancelled``, even while they wait: do not catch it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._token = trio.lowlevel.current_trio_token()

    def _call(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Run an async function on Trio, and wait for it. It is cancelled together with the handler's call."""
        return call_trio(fn, token=self._token)

    def _close(self, opened: contextlib.AsyncExitStack) -> None:
        """Close what was opened, even in a thread that is cancelled."""
        trio.from_thread.run(opened.aclose, trio_token=self._token)

    def connection(self) -> SyncConnection:
        """Return the connection of the client, by which other client libraries are logged in.

        ::

            core = kubernetes.client.CoreV1Api(client.connection().for_kubernetes())
        """
        return SyncConnection(self._call(self._client._connect), self._client._transport)

    refresh = _blocking(Client.refresh)
    wait_deleted = _blocking(Client.wait_deleted)
    logs = _blocking(Client.logs)
    follow_logs = _entering(Client.follow_logs)
    delete = _blocking(Client.delete)
    scale = _blocking(Client.scale)
    evict = _blocking(Client.evict)
    request = _blocking(Client.request)

    @overload
    def get(self, target: Foreign, /, *name: str, **options: Unpack[GetOptions[str | None]]) -> JsonObject: ...
    @overload
    def get(self, kind: type[Kind], name: str, /, **options: Unpack[GetOptions[Status]]) -> Kind: ...
    @overload
    def get(self, obj: Kind, /, **options: Unpack[GetOptions[Status]]) -> Kind: ...
    @overload
    def get(self, *target: object, **options: Unpack[GetOptions[str | None]]) -> JsonObject: ...
    @_implemented_by(_blocking(Client.get))
    def get(self, *args: Any, **kwargs: Any) -> Any: ...

    @overload
    def list(self, kind: type[Lightkube], /, **options: Unpack[ListOptions]) -> list[JsonObject]: ...
    @overload
    def list(self, kind: type[Kind], /, **options: Unpack[ListOptions]) -> list[Kind]: ...
    @overload
    def list(self, *kind: object, **options: Unpack[ListOptions]) -> list[JsonObject]: ...
    @_implemented_by(_blocking(Client.list))
    def list(self, *args: Any, **kwargs: Any) -> Any: ...

    @overload
    def iterate(self, kind: type[Lightkube], /, **options: Unpack[IterateOptions]) -> Iterator[JsonObject]: ...
    @overload
    def iterate(self, kind: type[Kind], /, **options: Unpack[IterateOptions]) -> Iterator[Kind]: ...
    @overload
    def iterate(self, *kind: object, **options: Unpack[IterateOptions]) -> Iterator[JsonObject]: ...
    @_implemented_by(_iterating(Client.iterate))
    def iterate(self, *args: Any, **kwargs: Any) -> Any: ...

    @overload
    def watch(self, kind: type[Lightkube], /, **options: Unpack[WatchOptions]) -> _Watching[JsonObject]: ...
    @overload
    def watch(self, kind: type[Kind], /, **options: Unpack[WatchOptions]) -> _Watching[Kind]: ...
    @overload
    def watch(self, *kind: object, **options: Unpack[WatchOptions]) -> _Watching[JsonObject]: ...
    @_implemented_by(_entering(Client.watch))
    def watch(self, *args: Any, **kwargs: Any) -> Any: ...

    @overload
    def wait_for(
        self, target: Foreign, /, *name: str, condition: Condition, **options: Unpack[WaitOptions]
    ) -> JsonObject: ...
    @overload
    def wait_for(
        self, kind: type[Kind], name: str, /, *, condition: TypedCondition[Kind], **options: Unpack[WaitOptions]
    ) -> Kind: ...
    @overload
    def wait_for(self, obj: Kind, /, *, condition: TypedCondition[Kind], **options: Unpack[WaitOptions]) -> Kind: ...
    @overload
    def wait_for(self, *target: object, condition: Condition, **options: Unpack[WaitOptions]) -> JsonObject: ...
    @_implemented_by(_blocking(Client.wait_for))
    def wait_for(self, *args: Any, **kwargs: Any) -> Any: ...

    @overload
    def create(self, obj: Foreign, *parent: object, **options: Unpack[CreateAnyOptions]) -> JsonObject: ...
    @overload
    def create(self, obj: Kind, **options: Unpack[CreateOptions]) -> Kind: ...
    @overload
    def create(self, obj: object, *parent: object, **options: Unpack[CreateAnyOptions]) -> JsonObject: ...
    @_implemented_by(_blocking(Client.create))
    def create(self, *args: Any, **kwargs: Any) -> Any: ...

    @overload
    def replace(self, obj: Foreign, **options: Unpack[ReplaceOptions[str | None]]) -> JsonObject: ...
    @overload
    def replace(self, obj: Kind, **options: Unpack[ReplaceOptions[Status]]) -> Kind: ...
    @overload
    def replace(self, obj: object, **options: Unpack[ReplaceOptions[str | None]]) -> JsonObject: ...
    @_implemented_by(_blocking(Client.replace))
    def replace(self, *args: Any, **kwargs: Any) -> Any: ...

    @overload
    def apply(self, obj: Foreign, **options: Unpack[ApplyOptions[str | None]]) -> JsonObject: ...
    @overload
    def apply(self, obj: Kind, **options: Unpack[ApplyOptions[Status]]) -> Kind: ...
    @overload
    def apply(self, obj: object, **options: Unpack[ApplyOptions[str | None]]) -> JsonObject: ...
    @_implemented_by(_blocking(Client.apply))
    def apply(self, *args: Any, **kwargs: Any) -> Any: ...

    @overload
    def patch(self, target: Foreign, /, *name: str, **options: Unpack[PatchOptions[str | None]]) -> JsonObject: ...
    @overload
    def patch(self, kind: type[Kind], name: str, /, **options: Unpack[PatchOptions[Status]]) -> Kind: ...
    @overload
    def patch(self, obj: Kind, /, **options: Unpack[PatchOptions[Status]]) -> Kind: ...
    @overload
    def patch(self, *target: object, **options: Unpack[PatchOptions[str | None]]) -> JsonObject: ...
    @_implemented_by(_blocking(Client.patch))
    def patch(self, *args: Any, **kwargs: Any) -> Any: ...


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
