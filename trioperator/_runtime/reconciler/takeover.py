"""Taking objects over from another operator: of which of them a cache may lag behind what that one has done.

The watches of a standby may be seconds late, or minutes. So a change that comes after the takeover may have been
handled before it. A state that is newer than the takeover shows all that was written before it; any other is read
again from the server before a change is handled. Daemons do not wait for that; but what is stored on such an object is
bound to its version, as it may be gone, and another one may have its name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

from trioperator._kube.api_client import ApiClient
from trioperator._logs import get_logger
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.object_state import Cache, ObjectState
from trioperator._runtime.result import AGAIN, DONE, Result
from trioperator.errors import NotFoundError, TrioperatorError

_logger = get_logger("trioperator.coordination")


class Refreshes(Protocol):
    """Reader that makes the state of an object on the server the newest one."""

    async def refresh(self, state: ObjectState, /) -> None: ...


class Takeover:
    """The versions of caches when their objects were taken over. Caches that are not taken over are never stale."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._paths: dict[ObjectCache, str] = {}
        self._versions: dict[Cache, float] = {}
        self._verified: set[ObjectState] = set()

    def begin(self, caches: Iterable[tuple[ObjectCache, str]]) -> None:
        """Take over the objects of caches, with the paths of their kinds. Until their versions are known, all count."""
        for cache, path in caches:  # also of those that are not listed: a list may be on its way, and late as well
            is_received = not cache.is_partial  # else what is taken over comes after this moment
            if is_received and cache.kind.handlers.needs_state:
                self._paths[cache] = path
                self._versions[cache] = math.inf

    async def find_versions(self) -> None:
        """Ask the server for the versions, by one request for each cache."""
        while self._paths:
            cache, path = self._paths.popitem()
            try:
                page = await self._client.list_page(path, limit=1)
            except TrioperatorError as error:
                _logger.debug("Each object at %s is read before its next change is handled: %s", path, error)
            else:
                self._versions[cache] = cache.versions.number_list(page.resource_version)

    def may_be_stale(self, state: ObjectState) -> bool:
        """Check whether the state of an object may be older than the takeover, and was not read from the server."""
        if not self._versions or state in self._verified:
            return False
        taken = self._versions.get(state.cache, -math.inf)
        return state.version <= taken or (state.cache.versions.are_opaque and taken > -math.inf)

    def was_gone(self, state: ObjectState) -> bool:
        """Check whether an object was deleted before it was taken over, though that is known only now."""
        return state.seen_version <= self._versions.get(state.cache, -math.inf) < math.inf

    async def verify(self, state: ObjectState, patcher: Refreshes) -> Result:
        """Read an object from the server, and return what is to be done then: nothing if it is gone."""
        try:
            await patcher.refresh(state)
        except NotFoundError as error:
            if not error.details:  # its kind is not served just now
                raise
            state.make_logger().debug("The object is gone, and its watch will bring that later: %s", error)
            return DONE
        self._verified.add(state)
        return AGAIN

    def forget(self, state: ObjectState) -> None:
        """Forget an object that is gone, or is no longer handled."""
        self._verified.discard(state)
