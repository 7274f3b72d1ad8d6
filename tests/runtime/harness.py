"""Parts of an operator without the operator: objects on a cluster, pending patches, and the progress of handlers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

import trioperator
from tests.runtime.conftest import CRD, widget
from tests.runtime.guards import make_guard
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._handling.storages.diffbase import AnnotationsDiffBaseStorage
from trioperator._handling.storages.progress import SmartProgressStorage
from trioperator._kube.api_client import ApiClient, open_client
from trioperator._kube.objects import parse_object
from trioperator._logs import get_logger
from trioperator._model.patch import apply_merge
from trioperator._model.resource import Resource
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.kind import Kind
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.causes import CauseFactory, Change, Essences
from trioperator._runtime.patching.patcher import Patcher
from trioperator._runtime.patching.pending import PendingPatches
from trioperator._runtime.progress.progress import Progress
from trioperator._runtime.progress.records import RecordStore
from trioperator._runtime.workqueue import Lane
from trioperator.apiserver import Cluster
from trioperator.settings import OperatorSettings
from trioperator.testing import FaultPlan, FaultyTransport

LOGGER = get_logger("trioperator.test")
WIDGETS = Resource("example.com", "v1", "widgets", kind="Widget", subresources=frozenset({"status"}))


class Queue:
    """A queue from which nothing is taken."""

    is_divided = False

    def find_shard(self, uid: str) -> int:
        return 0

    def owns(self, uid: str) -> bool:
        return True

    def add(self, item: ObjectState, lane: Lane = Lane.FRESH, *, at_once: bool = False) -> None:
        pass


class Harness:
    """The progress of objects, the cluster on which it is stored, and what goes wrong there."""

    def __init__(self, cluster: Cluster, client: ApiClient, *, plan: FaultPlan, settings: OperatorSettings) -> None:
        progress, diffbase = SmartProgressStorage(), AnnotationsDiffBaseStorage()
        self.cluster = cluster
        self.plan = plan
        self.settings = settings
        self.pending = PendingPatches()
        self.records = RecordStore(progress=progress, diffbase=diffbase)
        self.client = client
        self.patcher = Patcher(client, self.pending, make_guard(settings, self.pending))
        self.progress = Progress(self.records, self.patcher)
        self.essences = Essences(progress=progress, diffbase=diffbase)
        self.causes = CauseFactory(self.essences, diffbase=diffbase, finalizer="example.com/f")

    async def make(self, *ids: str, **spec: Any) -> ObjectState:
        """Create an object, and return its state in the cache of an operator with handlers of these ids."""
        return make_state(await self.cluster.create(widget(**spec)), *ids)

    def detect(self, state: ObjectState) -> Change:
        """Detect the change of an object, as a reconcile does."""
        return self.causes.detect_change(state, self.progress.recall)

    async def get(self) -> dict[str, Any]:
        return await self.cluster.get("widgets", "w")

    async def annotations(self) -> dict[str, str]:
        """Return the annotations of the object by their names, without the operator's prefix."""
        found = (await self.get())["metadata"].get("annotations", {})
        return {key.removeprefix("trioperator.dev/"): value for key, value in found.items()}

    @property
    def patches(self) -> int:
        """The number of patches that were sent."""
        return len(self.cluster.requests.select(verb="patch", resource="widgets"))


def make_state(body: dict[str, Any], *ids: str) -> ObjectState:
    """Return the state of an object in the cache of an operator with handlers of these ids."""
    registry = trioperator.OperatorRegistry()
    for id in ids:

        @trioperator.on.create("widgets", id=id, registry=registry)
        @trioperator.on.update("widgets", id=id, registry=registry)
        async def handle(**_: Any) -> None:
            raise AssertionError

    kind = Kind(WIDGETS, KindHandlers.of(registry.resource_handlers()))
    cache = ObjectCache(kind, Queue(), memo=None, consistency_timeout=5)
    cache.observe("ADDED", parse_object(msgspec.json.encode(body)))
    (state,) = cache
    for event in state.take_events():
        state.advance(event)
    state.body = body
    return state


def observe(state: ObjectState, body: Mapping[str, Any]) -> None:
    """Observe a newer state of an object, as its watch does."""
    assert isinstance(state.cache, ObjectCache)
    state.cache.observe("MODIFIED", parse_object(msgspec.json.encode(body)))


def patched(body: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the merge patch applied."""
    result: dict[str, Any] = apply_merge(body, patch)
    return result


@contextlib.asynccontextmanager
async def open_harness(cluster: Cluster) -> AsyncIterator[Harness]:
    """Open a harness, whose client retries nothing."""
    await cluster.apply(CRD)
    plan, settings = FaultPlan(), OperatorSettings()
    settings.networking.error_backoffs = ()
    info = trioperator.ConnectionInfo(server="http://embedded")
    async with open_client(
        lambda: info, settings=settings, transport=FaultyTransport(cluster.transport(), plan)
    ) as client:
        yield Harness(cluster, client, plan=plan, settings=settings)
