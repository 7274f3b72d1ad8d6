"""One watch of an operator: the reflectors of its streams, and who reads what they bring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import trio

from trioperator._kube.api_client import ApiClient
from trioperator._logs import get_logger
from trioperator._runtime.watching.deletion_checker import DeletionChecker
from trioperator._runtime.watching.reflector import Reflector
from trioperator._runtime.watching.streams import Streams
from trioperator._runtime.watching.targets import Target
from trioperator._runtime.watching.view import RelatedKind, View

_logger = get_logger("trioperator.runtime.watching")


class Watch:
    """One watch: a reflector, and the view of the objects that it brings; with a selector, a checker between them.

    With two selectors there are two reflectors, and *streams* that join them.
    """

    __slots__ = ("checker", "gone", "reflectors", "scope", "streams", "target", "view")

    def __init__(
        self,
        view: View,
        target: Target[RelatedKind],
        checker: DeletionChecker | None,
        streams: Streams | None,
    ) -> None:
        self.view = view
        self.reflectors: tuple[Reflector, ...] = ()
        self.target = target
        self.checker = checker
        self.streams = streams
        self.scope = trio.CancelScope()
        self.gone = False  # the kind or the namespace, and all objects with it

    @property
    def reflector(self) -> Reflector:
        """The reflector of its only stream, or of the first one of two."""
        return self.reflectors[0]

    @property
    def parameters(self) -> tuple[Mapping[str, str], ...]:
        """The parameters of the requests of each reflector."""
        target = self.target
        if self.checker is None:
            return (target.configured.parameters,)
        return (target.parameters,) if self.streams is None else tuple(map(target.select, target.parts))

    def follow(self, reflectors: Iterable[Reflector]) -> None:
        """Take the reflectors of its streams, before it is served."""
        self.reflectors = tuple(reflectors)

    def update(self, target: Target[RelatedKind], restart: Callable[[Watch], None]) -> None:
        """Take over what a target says now: a CRD that has changed may have other subresources."""
        if self.view.cache is not None and target.kind is not None:
            self.view.cache.update_kind(target.kind)
        if not target.is_divisible:
            self.reflector.give_up_division()
        before, self.target = self.parameters, target
        if self.streams is not None and not target.parts:
            self.view.adjust(target.related)
            self.streams.redundant.set()
            return
        if self.checker is not None:
            self.checker.require((target.inferred,) if self.streams is None else target.parts)
        if self.view.adjust(target.related) or self.parameters != before:
            restart(self)

    def stop(self, *, gone: bool) -> None:
        """End it; *gone* is whether the kind or the namespace is, and all objects with it."""
        self.gone = gone
        self.scope.cancel(reason="out of scope")

    def join(self) -> None:
        """Bring all objects by one stream from the next list on."""
        assert self.streams is not None
        assert self.checker is not None
        self.streams.join()
        self.streams, self.reflectors = None, self.reflectors[:1]
        self.checker.require((self.target.inferred,))

    async def serve(self, client: ApiClient, restart: Callable[[Watch], None]) -> None:
        """List and watch until cancelled. The *client* counts the objects."""
        async with trio.open_nursery() as nursery:
            if self.checker is not None:
                nursery.start_soon(self.checker.serve, self.reflector.path, name="check deletions")
            if self.streams is not None:
                nursery.start_soon(self._serve_streams, self.streams, client, restart, name="follow two streams")
            await self.reflector.serve()

    async def _serve_streams(self, streams: Streams, client: ApiClient, restart: Callable[[Watch], None]) -> None:
        """Follow the second stream until one for all objects is to take the place of both."""
        first, second = self.reflectors
        async with trio.open_nursery() as nursery:
            nursery.start_soon(streams.compare, client, first.path, name=f"count {first.path}")
            nursery.start_soon(second.serve, name=f"second stream of {first.path}")
            await streams.redundant.wait()
            nursery.cancel_scope.cancel(reason="one stream is enough")
        _logger.debug("The objects at %s are received by one stream, which is less than two.", first.path)
        self.join()
        restart(self)
