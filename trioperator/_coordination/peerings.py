"""All peerings of an operator: one for the cluster, or one for each namespace that it handles."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from typing import Final

import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._concurrency.core_tasks import keep
from trioperator._concurrency.pulse import Pulse
from trioperator._coordination.pauses import Pauses
from trioperator._coordination.peering import Peering, PeeringObject, find_peering_resource
from trioperator._kube.api_client import ApiClient
from trioperator._logs import get_logger
from trioperator._model.resource import Resource
from trioperator._runtime.watching.reflector import Observer, Reflector
from trioperator._runtime.watching.scope import ObservedItems, Scope
from trioperator.errors import ApiError, ConnectionLostError
from trioperator.settings import OperatorSettings

_NAMESPACES: Final = "/api/v1/namespaces"
_OWNER: Final = "peerings"
# Seconds to wait for the first lists before objects are handled without them.
_PATIENCE: Final = 5.0
# Delays between attempts to find the kind of a mandatory peering object.
_BACKOFF: Final = Backoff(initial=1.0, maximum=60.0, jitter=0.25)
_ALONE: Final = (
    "There is no leader election, and no peering: another pod of this operator, even one during a rolling update,"
    " handles the same objects, too. Use --leader-elect, or --standalone if there is never another one."
)


class Peerings:
    """The peerings of an operator: they pause and resume it."""

    def __init__(
        self, client: ApiClient, pauses: Pauses, *, scope: Scope, settings: OperatorSettings, identity: str
    ) -> None:
        self._client = client
        self._pauses = pauses
        self._scope = scope
        self._settings = settings
        self._identity = identity
        self._logger = get_logger("trioperator.coordination")
        self._peerings: dict[str | None, tuple[Peering, trio.CancelScope]] = {}
        self._changed = Pulse()
        self._namespaces: ObservedItems[str] = ObservedItems(lambda obj: obj.name, self._changed.set)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part in all peerings until cancelled. It has started when the peers are known, or cannot be for now."""
        mandatory = self._settings.peering.mandatory
        if mandatory:
            self._pauses.pause(_OWNER, f"until the peering object {self._settings.peering.name!r} exists")
            task_status.started()
        resource = await self._find(mandatory=mandatory)
        if resource is None:
            if "KUBERNETES_SERVICE_HOST" in os.environ and not self._settings.leadership.expects_replicas:
                self._logger.info(_ALONE)
            task_status.started()
            return
        async with trio.open_nursery() as nursery:
            if self._has_patterns and not self._settings.scanning.disabled:
                reflector = self._make_reflector(_NAMESPACES, self._namespaces)
                nursery.start_soon(reflector.serve, name=f"observe {_NAMESPACES} for peering")
            with trio.move_on_after(_PATIENCE):
                for reflector in self._adjust(nursery, resource):
                    await reflector.status.tried.wait()
            self._pauses.resume(_OWNER)
            if not mandatory:
                task_status.started()
            while True:
                await self._changed.wait()
                self._adjust(nursery, resource)

    async def release(self) -> None:
        """Remove the operator's records from all peering objects."""
        async with trio.open_nursery() as nursery:
            for peering, _ in self._peerings.values():
                nursery.start_soon(peering.release)

    async def _find(self, *, mandatory: bool) -> Resource | None:
        """Return the kind of the peering objects; wait for it if peering is mandatory. Raises ConnectionLostError."""
        for attempt in itertools.count(1):
            resource = None
            try:
                resource = await find_peering_resource(self._client, clusterwide=self._scope.clusterwide)
            except ApiError as error:
                self._logger.warning("The peering objects cannot be discovered: %s", error)
            except ConnectionLostError:
                if not mandatory:
                    raise
            if resource is not None or not mandatory:
                break
            await trio.sleep(_BACKOFF.delay(attempt))
        return resource

    @property
    def _has_patterns(self) -> bool:
        return not self._scope.clusterwide and len(self._scope.exact) < len(self._scope.namespaces)

    def _wanted(self) -> Collection[str | None]:
        if self._scope.clusterwide:
            return {None}
        observed = {name for name in self._namespaces if self._scope.includes(name)}
        return observed | self._scope.exact

    def _adjust(self, nursery: trio.Nursery, resource: Resource) -> list[Reflector]:
        """Begin the peerings of new namespaces, and end them where namespaces are gone. Returns what is new."""
        wanted = self._wanted()
        for namespace in set(self._peerings) - set(wanted):
            _, scope = self._peerings.pop(namespace)
            scope.cancel(reason="the namespace is gone")
        return [self._begin(nursery, resource, name) for name in wanted if name not in self._peerings]

    def _begin(self, nursery: trio.Nursery, resource: Resource, namespace: str | None) -> Reflector:
        peering = Peering(
            self._client,
            self._pauses,
            PeeringObject(resource, namespace, self._settings.peering.name),
            identity=self._identity,
            settings=self._settings,
        )
        scope = trio.CancelScope()
        self._peerings[namespace] = peering, scope
        reflector = self._make_reflector(peering.path, peering)
        nursery.start_soon(self._serve, namespace, peering, reflector, scope, name=f"take part in the {peering}")
        return reflector

    def _make_reflector(self, path: str, observer: Observer) -> Reflector:
        return Reflector(
            self._client,
            path,
            observer,
            consequence="Other operators are not noticed until then",
            can_do_without=True,
        )

    async def _serve(
        self, namespace: str | None, peering: Peering, reflector: Reflector, scope: trio.CancelScope
    ) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reflector.serve)
                nursery.start_soon(keep, f"judge the {peering}", peering.serve, name=f"judge the {peering}")
        if namespace not in self._peerings:  # else it has come again, and a new peering decides for it
            peering.leave()  # only now: a task that was already woken up may have judged once more
