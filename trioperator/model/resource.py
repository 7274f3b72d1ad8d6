"""Resource kinds, and the selectors by which handlers name them."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final
from urllib.parse import quote

__all__ = ["EVERYTHING", "Marker", "Resource", "Selection", "Selector", "select_resources"]

_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?")
# What needs no quoting, which takes longer than all else about a path.
_PLAIN = re.compile(r"[\w.~-]*", re.ASCII)


class Marker(enum.Enum):
    """Stand for all resource kinds."""

    EVERYTHING = enum.auto()

    def __repr__(self) -> str:
        return self.name


EVERYTHING: Final = Marker.EVERYTHING


# By position, too: users write Resource("apps", "v1", "deployments").
@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """Be a resource kind of a cluster, in one version.

    Two are the same that have the same group, version and plural.
    """

    group: str
    version: str
    plural: str
    kind: str | None = None
    singular: str | None = None
    shortcuts: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    subresources: frozenset[str] = frozenset()
    namespaced: bool = True
    preferred: bool = True
    verbs: frozenset[str] = frozenset()

    def __hash__(self) -> int:
        return hash((self.group, self.version, self.plural))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Resource):
            return NotImplemented
        return (self.group, self.version, self.plural) == (other.group, other.version, other.plural)

    def __iter__(self) -> Iterator[str]:
        return iter((self.group, self.version, self.plural))

    def __str__(self) -> str:
        return ".".join(part for part in (self.plural, self.version, self.group) if part)

    @property
    def api_version(self) -> str:
        """Give the group and the version, as manifests name them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def has_name(self, name: str) -> bool:
        """Tell whether it is a name of the kind: its plural, its singular, the kind itself or a short name."""
        return name in (self.plural, self.kind, self.singular) or name in self.shortcuts

    def get_path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Give the path of a collection, of an object, or of a subresource of it."""
        if subresource is not None and name is None:
            raise ValueError("A subresource is one of an object: its name is needed.")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", _quote(namespace)]
        parts += [self.plural]
        if name is not None:
            parts += [_quote(name)]
        if subresource is not None:
            parts += [subresource]
        return "/".join(parts)

    def get_url(
        self,
        *,
        server: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        params: dict[str, str] | None = None,
    ) -> str:
        """Give the address of a collection, of an object, or of a subresource of it."""
        query = "&".join(f"{quote(key)}={quote(value)}" for key, value in (params or {}).items())
        path = self.get_path(namespace=namespace, name=name, subresource=subresource)
        return f"{(server or '').rstrip('/')}{path}{f'?{query}' if query else ''}"


def _quote(segment: str) -> str:
    return segment if _PLAIN.fullmatch(segment) else quote(segment, safe="")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Name resource kinds, as precisely or as loosely as a user does."""

    group: str | None = None
    version: str | None = None
    kind: str | None = None
    plural: str | None = None
    singular: str | None = None
    shortcut: str | None = None
    category: str | None = None
    any_name: str | Marker | None = None
    test: Callable[[Resource], bool] | None = None

    @classmethod
    def parse(
        cls,
        *args: Any,
        group: str | None = None,
        version: str | None = None,
        kind: str | None = None,
        plural: str | None = None,
        singular: str | None = None,
        shortcut: str | None = None,
        category: str | None = None,
    ) -> Selector:
        """Read a selector: the name, before it the group and the version, or one attribute by keyword.

        The forms are those of Kopf's "Resource specification". Raises TypeError for what is none of them.
        """
        named = {
            "group": group,
            "version": version,
            "kind": kind,
            "plural": plural,
            "singular": singular,
            "shortcut": shortcut,
            "category": category,
        }
        by_keyword = {key: value for key, value in named.items() if value is not None}
        by_position = _read_positional(tuple(arg for arg in args if arg is not None))
        for key in by_keyword.keys() & by_position.keys():
            if by_keyword[key] != by_position[key]:
                raise TypeError(f"A resource has one {key}, not both {by_position[key]!r} and {by_keyword[key]!r}.")
        selector = cls(**(by_keyword | by_position))
        selector._check()
        return selector

    def _check(self) -> None:
        named = {
            key: value
            for key in ("kind", "plural", "singular", "shortcut", "category", "any_name", "test")
            if (value := getattr(self, key)) is not None
        }
        if len(named) != 1 and not (len(named) > 1 and self.test is not None and self.any_name is None):
            raise TypeError(
                "A resource is selected by exactly one name: by position, or by one of kind=, plural=, singular=,"
                f" shortcut= or category=; here it is by {', '.join(named) or 'none'}."
            )
        for key, value in {**named, "group": self.group, "version": self.version}.items():
            if not (value is None or isinstance(value, str) or value is EVERYTHING or value is self.test):
                raise TypeError(f"A resource is selected by texts, not by {value!r} as its {key}.")
            if value == "" and key != "group":  # the core group's name is empty
                raise TypeError(f"A resource has no empty {key}: leave it out if it does not matter.")

    def __str__(self) -> str:
        where = "/".join(part for part in (self.group, self.version) if part)
        name = next(
            (
                f"{key}={value}" if key != "any_name" else str(getattr(value, "name", value))
                for key in ("any_name", "kind", "plural", "singular", "shortcut", "category")
                if (value := getattr(self, key)) is not None
            ),
            getattr(self.test, "__qualname__", repr(self.test)),
        )
        return f"{where}/{name}" if where else name

    @property
    def is_specific(self) -> bool:
        """Tell whether one resource kind is meant, rather than all of some sort."""
        return self.category is None and self.test is None and self.any_name is not EVERYTHING

    def matches(self, resource: Resource) -> bool:
        """Tell whether the resource kind is meant, as far as one can tell without knowing the others."""
        return (
            (self.group is None or self.group == resource.group)
            and (self.version is None or self.version == resource.version)
            and (self.version is not None or self.test is not None or resource.preferred)
            and (self.kind is None or self.kind == resource.kind)
            and (self.plural is None or self.plural == resource.plural)
            and (self.singular is None or self.singular == resource.singular)
            and (self.shortcut is None or self.shortcut in resource.shortcuts)
            and (self.category is None or self.category in resource.categories)
            and (self.any_name is None or self.any_name is EVERYTHING or resource.has_name(self.any_name))
            and (self.is_specific or self.category is not None or not _is_event(resource))
            and (self.test is None or bool(self.test(resource)))
        )


def _read_positional(args: tuple[Any, ...]) -> dict[str, Any]:
    if len(args) > 3:
        raise TypeError(f"A resource is selected by a group, a version and a name at the most, not by {args!r}.")
    if not args:
        return {}
    *where, name = args
    if callable(name):
        if where:
            raise TypeError("A selecting function stands alone, or with group=... and the like.")
        return {"test": name}
    if len(where) == 2:
        return {"group": where[0], "version": where[1], "any_name": name}
    if where:
        return {**_split_api_version(where[0]), "any_name": name}
    return _split_name(name)


def _split_name(name: Any) -> dict[str, Any]:
    """Read what kubectl accepts: name, name.group, name.version.group; and name.version, in any group."""
    if not isinstance(name, str) or "." not in name:
        return {"any_name": name}
    plural, rest = name.split(".", 1)
    version, _, group = rest.partition(".")
    if not _VERSION.fullmatch(version):
        return {"any_name": plural, "group": rest}
    return {"any_name": plural, "version": version} | ({"group": group} if group else {})


def _split_api_version(text: Any) -> dict[str, str]:
    if not isinstance(text, str):
        raise TypeError(f"An API group or version is a text, not {text!r}.")
    if "/" in text:
        group, _, version = text.rpartition("/")
        return {"group": group, "version": version}
    if text == "v1":
        return {"group": "", "version": "v1"}
    return {"group": text}


def _is_event(resource: Resource) -> bool:
    return resource.plural == "events" and resource.group in ("", "events.k8s.io")


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """Tell which resource kinds a selector stands for in a cluster, and what is wrong with it if anything is."""

    resources: frozenset[Resource] = frozenset()
    problem: str | None = None


def select_resources(selector: Selector, resources: Collection[Resource]) -> Selection:
    """Choose the resource kinds that a selector stands for.

    A specific selector that fits several kinds prefers the core group's; if that does not decide, none is served.
    Kinds that cannot be listed and watched are not served.
    """
    found = frozenset(resource for resource in resources if selector.matches(resource))
    if selector.is_specific and len({(r.group, r.plural) for r in found}) > 1:
        core = frozenset(resource for resource in found if resource.group == "")
        if len({r.plural for r in core}) != 1:
            names = ", ".join(sorted(map(str, found)))
            return Selection(
                problem=f"The resource {selector} is ambiguous, and is not served. It may be any of: {names}."
            )
        found = core
    if not found:
        return Selection(problem=f"The resource {selector} is not known to the cluster. It is served when it comes.")
    watched = frozenset(resource for resource in found if {"list", "watch"} <= resource.verbs)
    if watched != found:
        names = ", ".join(sorted(str(resource) for resource in found - watched))
        return Selection(watched, f"These resources cannot be listed or watched, and are not served: {names}.")
    return Selection(found)
