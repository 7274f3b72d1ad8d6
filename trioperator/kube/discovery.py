"""Discovery of the resources that the cluster serves: aggregated if available, else group by group.

A group whose server is unavailable (an aggregated API that is down) is skipped with a warning. Nothing is cached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import trio

from trioperator.errors import ApiError, ConnectionLostError, NotFoundError
from trioperator.kube.client import Client
from trioperator.kube.deep_json import DECODE_ERRORS
from trioperator.kube.discovery_documents import AGGREGATED, GroupVersion, parse_group_version, parse_root
from trioperator.logs import get_logger
from trioperator.model.resource import Resource

__all__ = ["Discovery", "discover"]

_logger = get_logger(__name__)

# For the document of one group version, whose server may be down. In seconds.
_GROUP_TIMEOUT: Final = 10.0
_GROUP_BACKOFFS: Final = (0.5,)
# Concurrent requests, if each group version is requested separately.
_MAX_REQUESTS: Final = 8


class Discovery(msgspec.Struct, frozen=True):
    """The resources that were found, and the API groups that could not be discovered."""

    resources: frozenset[Resource]
    broken: frozenset[str]


async def discover(client: Client, groups: frozenset[str] | None = None) -> Discovery:
    """Discover the resources in *groups* (``""`` is the core group), by default in all groups.

    A group that does not exist has no resources; one that is unavailable has those that the aggregator remembers, if
    any. Raises ApiError and ConnectionLostError only if the lists of groups cannot be fetched.
    """
    found: list[Resource] = []
    missing: list[GroupVersion] = []
    for root in ("/api", "/apis"):
        wanted = groups is None or ("" in groups if root == "/api" else bool(groups - {""}))
        if not wanted:
            continue
        try:
            data = await client.request("GET", root, accept=AGGREGATED)
        except NotFoundError:
            continue
        try:
            resources, separate = parse_root(data, root, groups)
        except DECODE_ERRORS as exc:
            raise ConnectionLostError(f"GET {root}: the response is not a list of API groups: {exc}") from exc
        found += resources
        missing += separate
    broken: set[str] = set()
    found += await _request_each(client, missing, broken)
    return Discovery(frozenset(found), frozenset(broken))


async def _request_each(client: Client, versions: list[GroupVersion], broken: set[str]) -> list[Resource]:
    """Request each group version separately, some at a time; add the groups of those that fail to *broken*."""
    found: list[Resource] = []
    limiter = trio.CapacityLimiter(_MAX_REQUESTS)

    async def request(version: GroupVersion) -> None:
        async with limiter:
            resources = await _request(client, version)
            if resources is None:
                broken.add(version.group)
            found.extend(version.stale if resources is None else resources)

    async with trio.open_nursery() as requests:
        for version in versions:
            requests.start_soon(request, version, name=f"discover {version.path}")
    return found


async def _request(client: Client, version: GroupVersion) -> Iterable[Resource] | None:
    """Request the document of one group version; return None if it is unavailable or invalid."""
    try:
        data = await client.request("GET", version.path, timeout=_GROUP_TIMEOUT, backoffs=_GROUP_BACKOFFS)
        return parse_group_version(data, version)
    except NotFoundError:
        return ()
    except (ApiError, ConnectionLostError, *DECODE_ERRORS) as exc:
        _logger.warning("Discovering resources: %s is not available, continuing without it: %s", version.path, exc)
        return None
