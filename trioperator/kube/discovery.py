"""Which resources the cluster serves: aggregated discovery where there is one, else group by group.

A group that cannot tell what it serves (an aggregated API whose server is down) costs a warning and itself, never the
rest. Nothing is cached or selected here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import trio

from trioperator.errors import ApiError, ConnectionLostError, NotFoundError
from trioperator.kube.client import Client
from trioperator.logs import get_logger
from trioperator.model.resource import Resource

__all__ = ["Discovery", "discover"]

_logger = get_logger(__name__)

_AGGREGATED: Final = ",".join(
    (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    )
)
# For one group's own document: its server may be down, and then waiting long helps nobody. In seconds.
_GROUP_TIMEOUT: Final = 10.0
_GROUP_BACKOFFS: Final = (0.5,)
# Requests at a time, where each group version is asked for itself.
_MAX_REQUESTS: Final = 8


class _Kind(msgspec.Struct):
    kind: str | None = None


class _Subresource(msgspec.Struct):
    subresource: str


class _AggregatedResource(msgspec.Struct):
    resource: str
    response_kind: _Kind | None = msgspec.field(name="responseKind", default=None)
    scope: str | None = None
    singular: str | None = msgspec.field(name="singularResource", default=None)
    verbs: list[str] | None = None
    short_names: list[str] | None = msgspec.field(name="shortNames", default=None)
    categories: list[str] | None = None
    subresources: list[_Subresource] | None = None


class _AggregatedVersion(msgspec.Struct):
    version: str
    resources: list[msgspec.Raw] | None = None
    freshness: str | None = None


class _Metadata(msgspec.Struct):
    name: str | None = None


class _AggregatedGroup(msgspec.Struct):
    metadata: _Metadata
    versions: list[_AggregatedVersion] | None = None


class _PlainVersion(msgspec.Struct):
    version: str


class _PlainGroup(msgspec.Struct):
    name: str
    versions: list[_PlainVersion] | None = None
    preferred: _PlainVersion | None = msgspec.field(name="preferredVersion", default=None)


class _Root(msgspec.Struct):
    """The answer of ``/api`` and ``/apis``, in any of its forms."""

    kind: str | None = None
    items: list[msgspec.Raw] | None = None  # aggregated
    groups: list[msgspec.Raw] | None = None  # /apis, plain
    versions: list[str] | None = None  # /api, plain


class _PlainResource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False
    singular: str | None = msgspec.field(name="singularName", default=None)
    verbs: list[str] | None = None
    short_names: list[str] | None = msgspec.field(name="shortNames", default=None)
    categories: list[str] | None = None


class _PlainResources(msgspec.Struct):
    resources: list[msgspec.Raw] | None = None


_decode_root: Final = msgspec.json.Decoder(_Root).decode
_decode_aggregated_group: Final = msgspec.json.Decoder(_AggregatedGroup).decode
_decode_aggregated_resource: Final = msgspec.json.Decoder(_AggregatedResource).decode
_decode_plain_group: Final = msgspec.json.Decoder(_PlainGroup).decode
_decode_plain_resources: Final = msgspec.json.Decoder(_PlainResources).decode
_decode_plain_resource: Final = msgspec.json.Decoder(_PlainResource).decode


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """One version of one group; ``known`` is what was said of it in place of an answer of its own."""

    group: str
    version: str
    preferred: bool
    known: tuple[Resource, ...] = ()

    @property
    def path(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


@dataclasses.dataclass(frozen=True, slots=True)
class Discovery:
    """Hold the resources that were found, and the groups that could not say what they serve."""

    resources: frozenset[Resource]
    broken: frozenset[str]


async def discover(client: Client, groups: frozenset[str] | None = None) -> Discovery:
    """Find the resources that the cluster serves in *groups* (``""`` is the core group), by default in all.

    A group that is not there is empty; one that is broken is warned of, and gives what is known of it, if anything.
    Raises ApiError and ConnectionLostError only where the cluster's own lists of groups cannot be had.
    """
    found: list[Resource] = []
    places: list[_Place] = []
    broken: set[str] = set()
    for root in ("/api", "/apis"):
        wanted = groups is None or ("" in groups if root == "/api" else bool(groups - {""}))
        if not wanted:
            continue
        try:
            data = await client.request("GET", root, accept=_AGGREGATED)
        except NotFoundError:
            continue
        known, asked = _parse_root(data, root, groups)
        found += known
        places += asked
    found += await _ask_each(client, places, broken)
    return Discovery(frozenset(found), frozenset(broken))


def _parse_root(data: bytes, root: str, groups: frozenset[str] | None) -> tuple[list[Resource], list[_Place]]:
    """Give the resources that a list of groups tells of, and the group versions to be asked for themselves."""
    try:
        parsed = _decode_root(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ConnectionLostError(f"GET {root}: the answer is no list of API groups: {exc}") from exc
    if parsed.versions is not None and root == "/api":
        versions = parsed.versions
        return [], [_Place("", version, version == versions[0]) for version in versions]
    found: list[Resource] = []
    places: list[_Place] = []
    parse = _parse_aggregated_group if parsed.kind == "APIGroupDiscoveryList" else _parse_plain_group
    for raw in (parsed.items if parsed.kind == "APIGroupDiscoveryList" else parsed.groups) or ():
        try:
            known, asked = parse(raw, groups)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            _logger.warning("Discovering resources: an API group is left out, its description is broken: %s", exc)
            continue
        found += known
        places += asked
    return found, places


def _parse_aggregated_group(raw: msgspec.Raw, groups: frozenset[str] | None) -> tuple[list[Resource], list[_Place]]:
    parsed = _decode_aggregated_group(raw)
    group = parsed.metadata.name or ""
    found: list[Resource] = []
    places: list[_Place] = []
    if groups is not None and group not in groups:
        return found, places
    for index, version in enumerate(parsed.versions or ()):
        place = _Place(group, version.version, index == 0)  # they are in the order of preference
        resources = _parse_resources(version.resources, place, _parse_aggregated_resource)
        if version.freshness == "Stale":
            places.append(dataclasses.replace(place, known=tuple(resources)))
        else:
            found += resources
    return found, places


def _parse_plain_group(raw: msgspec.Raw, groups: frozenset[str] | None) -> tuple[list[Resource], list[_Place]]:
    parsed = _decode_plain_group(raw)
    if groups is not None and parsed.name not in groups:
        return [], []
    versions = [version.version for version in parsed.versions or ()]
    preferred = parsed.preferred.version if parsed.preferred is not None else (versions or [""])[0]
    return [], [_Place(parsed.name, version, version == preferred) for version in versions]


def _parse_resources(
    raws: Iterable[msgspec.Raw] | None, place: _Place, parse: Callable[[msgspec.Raw, _Place], Resource | None]
) -> list[Resource]:
    """Take each resource for itself: a broken one is left out, with a warning."""
    found: list[Resource] = []
    for raw in raws or ():
        try:
            resource = parse(raw, place)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            _logger.warning("Discovering resources: one of %s is left out, it is broken: %s", place.path, exc)
            continue
        if resource is not None:
            found.append(resource)
    return found


def _parse_aggregated_resource(raw: msgspec.Raw, place: _Place) -> Resource | None:
    parsed = _decode_aggregated_resource(raw)
    kind = parsed.response_kind.kind if parsed.response_kind is not None else None
    if not kind:
        return None  # it is there only to hold subresources
    return Resource(
        group=place.group,
        version=place.version,
        plural=parsed.resource,
        kind=kind,
        singular=parsed.singular or kind.lower(),
        shortcuts=frozenset(parsed.short_names or ()),
        categories=frozenset(parsed.categories or ()),
        subresources=frozenset(each.subresource for each in parsed.subresources or ()),
        namespaced=parsed.scope == "Namespaced",
        preferred=place.preferred,
        verbs=frozenset(parsed.verbs or ()),
    )


async def _ask_each(client: Client, places: list[_Place], broken: set[str]) -> list[Resource]:
    """Ask each group version for itself, some at a time; add to *broken* the groups of those that cannot say."""
    found: list[Resource] = []
    limiter = trio.CapacityLimiter(_MAX_REQUESTS)

    async def ask(place: _Place) -> None:
        async with limiter:
            resources = await _ask(client, place)
            if resources is None:
                broken.add(place.group)
            found.extend(place.known if resources is None else resources)

    async with trio.open_nursery() as requests:
        for place in places:
            requests.start_soon(ask, place, name=f"discover {place.path}")
    return found


async def _ask(client: Client, place: _Place) -> Iterable[Resource] | None:
    """Ask one group version what it serves; give None where it cannot say."""
    try:
        data = await client.request("GET", place.path, timeout=_GROUP_TIMEOUT, backoffs=_GROUP_BACKOFFS)
        raws = _decode_plain_resources(data).resources or []
    except NotFoundError:
        return ()
    except (ApiError, ConnectionLostError, msgspec.DecodeError, UnicodeDecodeError) as exc:
        _logger.warning("Discovering resources: %s does not tell what it serves, going on without: %s", place.path, exc)
        return None
    subresources: dict[str, set[str]] = {}
    plain: list[msgspec.Raw] = []
    for raw in raws:
        try:
            name = _decode_plain_resource(raw).name
        except (msgspec.DecodeError, UnicodeDecodeError):
            name = ""
        plural, slash, subresource = name.partition("/")
        if slash:
            subresources.setdefault(plural, set()).add(subresource)
        else:
            plain.append(raw)

    def parse(raw: msgspec.Raw, place: _Place) -> Resource:
        parsed = _decode_plain_resource(raw)
        return Resource(
            group=place.group,
            version=place.version,
            plural=parsed.name,
            kind=parsed.kind,
            singular=parsed.singular or parsed.kind.lower(),
            shortcuts=frozenset(parsed.short_names or ()),
            categories=frozenset(parsed.categories or ()),
            subresources=frozenset(subresources.get(parsed.name, ())),
            namespaced=parsed.namespaced,
            preferred=place.preferred,
            verbs=frozenset(parsed.verbs or ()),
        )

    return _parse_resources(plain, place, parse)
