"""Discovery of the resources that the cluster serves: aggregated if available, else group by group.

A group whose server is unavailable (an aggregated API that is down) is skipped with a warning. Nothing is cached.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import trio

from trioperator._kube.api_client import ApiClient
from trioperator._kube.deep_json import DECODE_ERRORS
from trioperator._kube.discovery_documents import AGGREGATED, GroupVersion, parse_group_version, parse_root
from trioperator._logs import get_logger
from trioperator._model.resource import Resource
from trioperator.errors import ApiError, ConnectionLostError, NotFoundError

_logger = get_logger("trioperator.kube.discovery")

# For the document of one group version, whose server may be down. In seconds.
_GROUP_TIMEOUT: Final = 10.0
_GROUP_BACKOFFS: Final = (0.5,)
# Concurrent requests, if each group version is requested separately.
_MAX_REQUESTS: Final = 8


class Discovery(msgspec.Struct, frozen=True):
    """The resources that were found, and the API groups that could not be discovered."""

    resources: frozenset[Resource]
    broken: frozenset[str]


async def discover(client: ApiClient, groups: frozenset[str] | None = None) -> Discovery:
    """Discover the resources in *groups* (``""`` is the core group), by default in all groups.

    A group that does not exist has no resources; one that is unavailable has those that the aggregator remembers, if
    any. Raises ApiError and ConnectionLostError only if the lists of groups cannot be fetched.
    """
    found: list[Resource] = []
    missing: list[GroupVersion] = []
    versions: dict[str, list[str]] = {}
    for root in ("/api", "/apis"):
        wanted = groups is None or ("" in groups if root == "/api" else bool(groups - {""}))
        if not wanted:
            continue
        try:
            data = await client.request("GET", root, accept=AGGREGATED)
        except NotFoundError:
            continue
        try:
            parsed = parse_root(data, root, groups)
        except DECODE_ERRORS as exc:
            raise ConnectionLostError(f"GET {root}: the response is not a list of API groups: {exc}") from exc
        for group in parsed:
            found += group.resources
            missing += group.missing
            versions[group.name] = group.versions
    broken: set[str] = set()
    found += await _request_each(client, missing, broken)
    complete = {group: names for group, names in versions.items() if group not in broken}
    return Discovery(frozenset(_prefer(found, complete)), frozenset(broken))


def _prefer(resources: Collection[Resource], versions: Mapping[str, Sequence[str]]) -> Iterator[Resource]:
    """Yield the resources, each preferred in the best version that serves it: the group's preferred one may not.

    *versions* are the versions of each group in order. Groups with a version that is not available are not among them,
    as that one may serve the resource.
    """
    served = set(resources)
    for resource in resources:
        group, plural = resource.group, resource.plural
        best = next((name for name in versions.get(group, ()) if Resource(group, name, plural) in served), None)
        is_preferred = resource.preferred if best is None else resource.version == best
        yield resource if is_preferred is resource.preferred else dataclasses.replace(resource, preferred=is_preferred)


async def _request_each(client: ApiClient, versions: list[GroupVersion], broken: set[str]) -> list[Resource]:
    """Request each group version separately, some at a time; add the groups of those that fail to *broken*."""
    found: list[Resource] = []
    limiter = trio.CapacityLimiter(_MAX_REQUESTS)
    client = client.retrying(_GROUP_BACKOFFS, timeout=_GROUP_TIMEOUT)

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


async def _request(client: ApiClient, version: GroupVersion) -> Iterable[Resource] | None:
    """Request the document of one group version; return None if it is unavailable or invalid."""
    try:
        data = await client.request("GET", version.path)
        return parse_group_version(data, version)
    except NotFoundError:
        return ()
    except (ApiError, ConnectionLostError, *DECODE_ERRORS) as exc:
        _logger.warning("Discovering resources: %s is not available, continuing without it: %s", version.path, exc)
        return None
