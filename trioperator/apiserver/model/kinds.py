"""Kinds that the API serves: built-in ones, and those that custom resource definitions define.

Pure. A kind is one version of one resource; all versions of a resource share its objects.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from .builtin_kinds import BUILTIN_KINDS
from .client_config import Conversion
from .structure import Structure

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
NAMESPACE_VERBS: Final = tuple(verb for verb in VERBS if verb != "deletecollection")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One ``additionalPrinterColumns`` entry of a custom resource definition."""

    name: str
    type: str
    path: str
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CustomTraits:
    """Properties that only custom kinds have."""

    schema: Mapping[str, Any] | None = None
    structure: Structure | None = None
    columns: tuple[Column, ...] = ()
    scale: Mapping[str, str] | None = None
    selectable: tuple[str, ...] = ()
    terminating: bool = False
    conversion: Conversion | None = None  # the conversion webhook
    storage: Kind | None = None  # the storage version, if it is another one
    schema_revision: float = 0  # objects that were stored later have the shape that the schema requires
    deprecation: str = ""  # the warning for requests, if the version is deprecated


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """One version of one resource."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool
    list_kind: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    subresources: frozenset[str] = frozenset()
    has_generation: bool = False
    needs_version: bool = False
    creates_on_update: bool = False
    shows_deleted: bool = False
    is_virtual: bool = False  # a review: created objects are answered, and not stored
    is_event_alias: bool = False  # events.k8s.io: its objects are the same as in the core group
    custom: CustomTraits | None = None

    # Derived; used by every request.
    api_version: str = dataclasses.field(init=False)
    qualified: str = dataclasses.field(init=False)
    resource: tuple[str, str] = dataclasses.field(init=False)
    type_meta: Mapping[str, str] = dataclasses.field(init=False)  # the first fields of an object, in their order
    head: bytes = dataclasses.field(init=False)  # the first bytes of the JSON of an object

    def __post_init__(self) -> None:
        api_version = f"{self.group}/{self.version}" if self.group else self.version
        object.__setattr__(self, "api_version", api_version)
        object.__setattr__(self, "qualified", f"{self.plural}.{self.group}" if self.group else self.plural)
        object.__setattr__(self, "resource", ("" if self.is_event_alias else self.group, self.plural))
        fields = [("kind", self.kind), ("apiVersion", api_version)]  # as Go encodes structures; it sorts maps
        fields = fields if self.custom is None else sorted(fields)
        object.__setattr__(self, "type_meta", dict(fields))
        object.__setattr__(self, "head", b"{" + b"".join(f'"{key}":"{value}",'.encode() for key, value in fields))

    @property
    def stored_api_version(self) -> str:
        """The ``apiVersion`` of stored objects."""
        if self.resource == ("autoscaling", "horizontalpodautoscalers"):
            return "autoscaling/v2"
        return self.version if self.is_event_alias else self.api_version

    def key(self, namespace: str, name: str) -> str:
        """Return the storage key of the object."""
        return f"{namespace}/{name}" if self.namespaced else name


class Catalog:
    """The kinds that are served, by group, version and plural name."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self._groups: dict[str, dict[str, list[Kind]]] = {}
        self._found: dict[str, Kind] = {}  # by the names that they were found by
        for kind in _list_builtins():
            self.add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def add(self, kind: Kind) -> None:
        """Serve the kind, and no longer an earlier one of the same group, version and plural name."""
        self._found.clear()
        self._kinds[kind.group, kind.version, kind.plural] = kind
        kinds = self._groups.setdefault(kind.group, {}).setdefault(kind.version, [])
        kinds[:] = [other for other in kinds if other.plural != kind.plural]
        kinds.append(kind)

    def discard(self, resource: tuple[str, str]) -> None:
        """Stop serving the resource in all versions."""
        group, plural = resource
        self._found.clear()
        versions = self._groups.get(group, {})
        for version in list(versions):
            versions[version][:] = [kind for kind in versions[version] if kind.plural != plural]
            if not versions[version]:
                del versions[version]
            self._kinds.pop((group, version, plural), None)
        if not versions:
            self._groups.pop(group, None)

    def get(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind, or None if it is not served."""
        return self._kinds.get((group, version, plural))

    def groups(self) -> list[str]:
        """Return the names of the groups, the core group (an empty name) first."""
        return list(self._groups)

    def versions(self, group: str) -> list[str]:
        """Return the versions of the group, the preferred one first."""
        return sorted(self._groups.get(group, {}), key=version_priority)

    def kinds(self, group: str, version: str) -> list[Kind]:
        """Return the kinds of the group and version, sorted by plural name."""
        return sorted(self._groups.get(group, {}).get(version, ()), key=lambda kind: kind.plural)

    def by_resource(self, resource: tuple[str, str]) -> Kind | None:
        """Return the preferred version of the resource."""
        group, plural = resource
        for version in self.versions(group):
            kind = self.get(group, version, plural)
            if kind is not None:
                return kind
        return None

    def by_object(self, api_version: str, kind_name: str) -> Kind | None:
        """Return the kind of objects with this ``apiVersion`` and ``kind``, or None."""
        group, _, version = api_version.rpartition("/")
        for kind in self._groups.get(group, {}).get(version, ()):
            if kind.kind == kind_name:
                return kind
        return None

    def find(self, name: str) -> Kind | None:
        """Return the kind by any name that kubectl accepts: ``pods``, ``po``, ``deployments.v1.apps``…"""
        kind = self._found.get(name) or self._look_up(name)
        if kind is not None:
            self._found[name] = kind
        return kind

    def _look_up(self, name: str) -> Kind | None:
        word, _, rest = name.partition(".")
        for group in self.groups():
            for version in self.versions(group):
                if rest and rest not in {group, f"{version}.{group}", version if not group else ""}:
                    continue
                for kind in self.kinds(group, version):
                    if word in {kind.plural, kind.singular, kind.kind, *kind.short_names}:
                        return kind
        return None


@functools.lru_cache(maxsize=256)  # it is looked up with each request
def version_priority(version: str) -> tuple[int, int, int, str]:
    """Return the sort key of a version: ``v2, v1, v1beta2, v1beta1, v1alpha1``, then others by name."""
    import re

    match = re.fullmatch(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?", version)
    if not match:
        return (3, 0, 0, version)
    major, stage, minor = match.groups()
    return ({None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0), version)


_SUBRESOURCE_TRAITS: Final = {
    "a": ("approval",),
    "e": ("binding", "ephemeralcontainers", "eviction", "log"),
    "r": ("scale",),
    "s": ("status",),
    "t": ("token",),
}


def _verbs_of(plural: str, traits: str) -> tuple[str, ...]:
    if "v" in traits:
        return ("create",)
    if "l" in traits:
        return ("get", "list")
    return VERBS if plural != "namespaces" else NAMESPACE_VERBS


@functools.cache
def _list_builtins() -> tuple[Kind, ...]:
    """Return the built-in kinds, which all catalogs share."""
    return tuple(_parse_builtins(BUILTIN_KINDS))


def _parse_builtins(text: str) -> Iterable[Kind]:
    group = version = ""
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            group, _, version = line.rpartition("/")
            continue
        plural, kind, traits, short_names, categories = line.split()
        subresources = {name for trait, names in _SUBRESOURCE_TRAITS.items() if trait in traits for name in names}
        if plural == "namespaces":
            subresources.add("finalize")
        yield Kind(
            group=group,
            version=version,
            plural=plural,
            kind=kind,
            list_kind=f"{kind}List",
            singular=kind.lower(),
            namespaced=traits[0] == "N",
            short_names=tuple(short_names.split(",")) if short_names != "-" else (),
            categories=tuple(categories.split(",")) if categories != "-" else (),
            verbs=_verbs_of(plural, traits),
            subresources=frozenset(subresources),
            has_generation="g" in traits,
            needs_version="u" in traits,
            creates_on_update="c" in traits,
            shows_deleted="d" in traits,
            is_virtual="v" in traits,
            is_event_alias=group == "events.k8s.io",
        )


def subresource_kind(group: str, version: str, kind: str) -> Kind:
    """Return the kind of what is written to a subresource of namespaced objects: no resource has it."""
    word = kind.lower()
    return Kind(
        group=group,
        version=version,
        plural=f"{word}s",
        kind=kind,
        singular=word,
        list_kind=f"{kind}List",
        namespaced=True,
    )


def kind_of(obj: Mapping[str, Any]) -> tuple[str, str]:
    """Return ``apiVersion`` and ``kind`` of the object, or empty strings."""
    return str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
