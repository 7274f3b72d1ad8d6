"""The documents of API discovery, aggregated and plain, parsed into resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from trioperator._kube.deep_json import DECODE_ERRORS
from trioperator._logs import get_logger
from trioperator._model.resource import Resource

_logger = get_logger("trioperator.kube.discovery_documents")

#: The ``Accept`` header of a request for aggregated discovery.
AGGREGATED: Final = ",".join(
    (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    )
)


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
    """The response of ``/api`` and ``/apis``, in any format."""

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


class GroupVersion(msgspec.Struct, frozen=True):
    """One version of an API group; ``stale`` are its resources according to an aggregator that could not reach it."""

    group: str
    version: str
    preferred: bool
    stale: tuple[Resource, ...] = ()

    @property
    def path(self) -> str:
        """The path of its discovery document."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


class Group(msgspec.Struct, frozen=True):
    """An API group: its versions, the preferred one first, and the resources of those that are described with it.

    ``missing`` are the versions whose resources must be requested separately.
    """

    name: str
    versions: list[str]
    resources: list[Resource]
    missing: list[GroupVersion]


def parse_root(data: bytes, root: str, groups: frozenset[str] | None) -> list[Group]:
    """Parse the list of API groups at *root* (``/api`` or ``/apis``), restricted to *groups* unless that is None.

    Raises ``msgspec.DecodeError``, UnicodeDecodeError, or RecursionError if it is nested too deeply.
    """
    parsed = _decode_root(data)
    if parsed.versions is not None and root == "/api":
        return [_make_plain_group("", parsed.versions)]
    found: list[Group] = []
    parse = _parse_aggregated_group if parsed.kind == "APIGroupDiscoveryList" else _parse_plain_group
    for raw in (parsed.items if parsed.kind == "APIGroupDiscoveryList" else parsed.groups) or ():
        try:
            found += parse(raw, groups)
        except DECODE_ERRORS as exc:
            _logger.warning("Discovering resources: skipping an invalid API group: %s", exc)
    return found


def parse_group_version(data: bytes, version: GroupVersion) -> list[Resource]:
    """Parse the plain discovery document of one group version. Raises as :func:`parse_root`."""
    subresources: dict[str, set[str]] = {}
    plain: list[msgspec.Raw] = []
    for raw in _decode_plain_resources(data).resources or ():
        try:
            name = _decode_plain_resource(raw).name
        except DECODE_ERRORS:
            name = ""
        plural, slash, subresource = name.partition("/")
        if slash:
            subresources.setdefault(plural, set()).add(subresource)
        else:
            plain.append(raw)

    def parse(raw: msgspec.Raw, version: GroupVersion) -> Resource:
        return _parse_plain_resource(raw, version, subresources)

    return _parse_resources(plain, version, parse)


def _parse_aggregated_group(raw: msgspec.Raw, groups: frozenset[str] | None) -> list[Group]:
    parsed = _decode_aggregated_group(raw)
    name = parsed.metadata.name or ""
    if groups is not None and name not in groups:
        return []
    versions = parsed.versions or []
    group = Group(name, [each.version for each in versions], [], [])
    for each in versions:  # in order of preference
        version = GroupVersion(name, each.version, each is versions[0])
        resources = _parse_resources(each.resources, version, _parse_aggregated_resource)
        if each.freshness == "Stale":
            group.missing.append(msgspec.structs.replace(version, stale=tuple(resources)))
        else:
            group.resources.extend(resources)
    return [group]


def _parse_plain_group(raw: msgspec.Raw, groups: frozenset[str] | None) -> list[Group]:
    parsed = _decode_plain_group(raw)
    if groups is not None and parsed.name not in groups:
        return []
    preferred = [] if parsed.preferred is None else [parsed.preferred.version]
    versions = dict.fromkeys((*preferred, *(each.version for each in parsed.versions or ())))
    return [_make_plain_group(parsed.name, list(versions))]


def _make_plain_group(name: str, versions: list[str]) -> Group:
    return Group(name, versions, [], [GroupVersion(name, version, version == versions[0]) for version in versions])


def _parse_resources(
    raws: Iterable[msgspec.Raw] | None,
    version: GroupVersion,
    parse: Callable[[msgspec.Raw, GroupVersion], Resource | None],
) -> list[Resource]:
    """Parse each resource separately; skip invalid ones with a warning."""
    found: list[Resource] = []
    for raw in raws or ():
        try:
            resource = parse(raw, version)
        except DECODE_ERRORS as exc:
            _logger.warning("Discovering resources: skipping an invalid resource of %s: %s", version.path, exc)
            continue
        if resource is not None:
            found.append(resource)
    return found


def _parse_aggregated_resource(raw: msgspec.Raw, version: GroupVersion) -> Resource | None:
    parsed = _decode_aggregated_resource(raw)
    kind = parsed.response_kind.kind if parsed.response_kind is not None else None
    if not kind:
        return None  # it only has subresources
    return Resource(
        group=version.group,
        version=version.version,
        plural=parsed.resource,
        kind=kind,
        singular=parsed.singular or kind.lower(),
        shortcuts=frozenset(parsed.short_names or ()),
        categories=frozenset(parsed.categories or ()),
        subresources=frozenset(each.subresource for each in parsed.subresources or ()),
        namespaced=parsed.scope == "Namespaced",
        preferred=version.preferred,
        verbs=frozenset(parsed.verbs or ()),
    )


def _parse_plain_resource(raw: msgspec.Raw, version: GroupVersion, subresources: dict[str, set[str]]) -> Resource:
    parsed = _decode_plain_resource(raw)
    return Resource(
        group=version.group,
        version=version.version,
        plural=parsed.name,
        kind=parsed.kind,
        singular=parsed.singular or parsed.kind.lower(),
        shortcuts=frozenset(parsed.short_names or ()),
        categories=frozenset(parsed.categories or ()),
        subresources=frozenset(subresources.get(parsed.name, ())),
        namespaced=parsed.namespaced,
        preferred=version.preferred,
        verbs=frozenset(parsed.verbs or ()),
    )
