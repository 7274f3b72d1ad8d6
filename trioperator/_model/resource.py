"""Resource kinds, and the selectors by which handlers select them."""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from trioperator._model.similar_names import find_similar

_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?")
# Segments that need no quoting: quote() is slow.
_PLAIN = re.compile(r"[\w.~-]*", re.ASCII)


class Marker(enum.Enum):
    """Marker for all resource kinds."""

    EVERYTHING = enum.auto()

    def __repr__(self) -> str:
        return self.name


EVERYTHING: Final = Marker.EVERYTHING


# Positional, as users write Resource("apps", "v1", "deployments").
@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """Resource kind of a cluster, in one version. The group, version and plural determine equality.

    ``namespaced`` is None if that is not known, as where the others are all that is passed: paths may have a namespace.
    ``selectable_fields`` are the fields of a CRD by which objects can be selected, such as ``spec.color``.
    """

    group: str
    version: str
    plural: str
    kind: str | None = None
    singular: str | None = None
    shortcuts: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    subresources: frozenset[str] = frozenset()
    namespaced: bool | None = None
    preferred: bool = True
    verbs: frozenset[str] = frozenset()
    selectable_fields: frozenset[str] = frozenset()
    #: The API version, as in manifests: ``group/version``, or ``version`` for the core group.
    api_version: str = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)

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

    def has_name(self, name: str) -> bool:
        """Return whether *name* is the plural, the singular, the kind or a short name."""
        return name in (self.plural, self.kind, self.singular) or name in self.shortcuts

    def get_path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of a collection, an object or a subresource.

        Raises ValueError for names, namespaces and parts of subresources that lead elsewhere: empty, "." and "..", and
        those with "/" or "%", as the API server decodes a path before it splits it.
        """
        if subresource is not None and name is None:
            raise ValueError("A subresource belongs to an object: pass its name.")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace and self.namespaced is not False:
            parts += ["namespaces", _quote(namespace)]
        parts += [self.plural]
        if name is not None:
            parts += [_quote(name)]
        if subresource is not None:
            parts += map(_quote, subresource.split("/"))  # a proxy has a path of its own
        return "/".join(parts)

    def get_url(
        self,
        *,
        server: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        params: Mapping[str, str | float] | None = None,
    ) -> str:
        """Return the URL of a collection, an object or a subresource; *params* may be numbers, too."""
        query = "&".join(f"{quote(key)}={quote(str(value))}" for key, value in (params or {}).items())
        path = self.get_path(namespace=namespace, name=name, subresource=subresource)
        return f"{(server or '').rstrip('/')}{path}{f'?{query}' if query else ''}"


class InvalidNameError(ValueError):
    """Raised for what cannot be the name of an object, of a namespace or of a subresource, as no path can have it."""


@functools.lru_cache(maxsize=1024)
def _quote(segment: str) -> str:
    if segment in ("", ".", "..") or "/" in segment or "%" in segment:
        raise InvalidNameError(f"{segment!r} is no name: it must not be empty, . or .., nor contain / or %.")
    return segment if _PLAIN.fullmatch(segment) else quote(segment, safe="")


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """Selector of one or several resource kinds."""

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
        """Parse a selector: a name after an optional group and version, or attributes by keyword.

        The forms are described in Kopf's "Resource specification". Raises TypeError for any other.
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
                raise TypeError(
                    f"A resource selector has one {key}, not both {by_position[key]!r} and {by_keyword[key]!r}."
                )
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
                "A resource is selected by exactly one name: positional, or one of kind=, plural=, singular=, shortcut="
                f" and category=; this selector has {', '.join(named) or 'none'}."
            )
        for key, value in {**named, "group": self.group, "version": self.version}.items():
            if not (value is None or isinstance(value, str) or value is EVERYTHING or value is self.test):
                raise TypeError(f"A resource is selected by strings, not by {key}={value!r}.")
            if value == "" and key != "group":  # the core group has an empty name
                raise TypeError(f"A resource selector has an empty {key}: omit it to match any.")
            if isinstance(value, str) and "/" in value:
                raise TypeError(f"{value!r} is a part of a resource selector: only all of it is 'group/version/name'.")

    def __str__(self) -> str:
        if self.plural is not None and self.group and self.version:
            return f"{self.plural}.{self.version}.{self.group}"  # as for kubectl
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
        """Whether the selector is for one resource kind, not for several."""
        return self.category is None and self.test is None and self.any_name is not EVERYTHING

    @property
    def name(self) -> str | None:
        """The name that selects a kind; None if it selects by something else."""
        return next((n for n in (self.any_name, self.plural, self.kind) if isinstance(n, str)), None)

    def matches(self, resource: Resource) -> bool:
        """Return whether the resource kind matches; ambiguities with other kinds are not considered."""
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
        raise TypeError(f"A resource is selected by at most a group, a version and a name, not by {args!r}.")
    if not args:
        return {}
    *where, name = args
    if isinstance(name, str) and "/" in name and not where:  # as in messages
        *where, name = name.rpartition("/")[::2]
    if callable(name):
        if where:
            raise TypeError("A selector function must be the only positional argument: pass group=... by keyword.")
        return {"test": name}
    if len(where) == 2:
        return {"group": where[0], "version": where[1], "any_name": name}
    if where:
        return {**_split_api_version(where[0]), "any_name": name}
    return _split_name(name)


def _split_name(name: Any) -> dict[str, Any]:
    """Parse kubectl's forms: name, name.group, name.version.group; and name.version, in any group."""
    if not isinstance(name, str) or "." not in name:
        return {"any_name": name}
    plural, rest = name.split(".", 1)
    version, _, group = rest.partition(".")
    if not _VERSION.fullmatch(version):
        return {"any_name": plural, "group": rest}
    return {"any_name": plural, "version": version} | ({"group": group} if group else {})


def _split_api_version(text: Any) -> dict[str, str]:
    if not isinstance(text, str):
        raise TypeError(f"An API group or version must be a string, not {text!r}.")
    if "/" in text:
        group, _, version = text.rpartition("/")
        return {"group": group, "version": version}
    if text == "v1":
        return {"group": "", "version": "v1"}
    return {"group": text}


def _is_event(resource: Resource) -> bool:
    return resource.plural == "events" and resource.group in ("", "events.k8s.io")


class Selection(msgspec.Struct, frozen=True):
    """Resource kinds that a selector matches in a cluster, and a description of the problem, if any."""

    resources: frozenset[Resource] = frozenset()
    problem: str | None = None


def suggest_kind(selector: Selector, resources: Collection[Resource]) -> str:
    """Return the selector of no kind, with the most similar name among the *resources*, or how else it differs."""
    name = selector.name
    if name is None:
        return str(selector)
    named = sorted(str(resource) for resource in resources if resource.has_name(name))
    if named:
        return f"{selector} (there is {', '.join(named)})"
    near = find_similar(name, list_names(resources))
    return f"{selector} (did you mean {near}?)" if near else str(selector)


def list_names(resources: Collection[Resource]) -> set[str]:
    """Return the plurals and kinds of the resources, by which they are usually selected."""
    return {name for resource in resources for name in (resource.plural, resource.kind or resource.plural)}


def select_resources(selector: Selector, resources: Collection[Resource], *, watched: bool = True) -> Selection:
    """Return the resource kinds that a selector matches.

    A specific selector that matches several kinds prefers the core group; if it is still ambiguous, it selects none.
    Kinds that cannot be listed and watched are excluded, unless they need not be *watched*.
    """
    found = frozenset(resource for resource in resources if selector.matches(resource))
    if selector.is_specific and len({(r.group, r.plural) for r in found}) > 1:
        core = frozenset(resource for resource in found if resource.group == "")
        if len({r.plural for r in core}) != 1:
            names = ", ".join(sorted(map(str, found)))
            return Selection(problem=f"The resource {selector} is ambiguous, and is not served. It matches: {names}.")
        found = core
    if not found:
        text = f"The resource {suggest_kind(selector, resources)} does not exist yet, and is served as soon as it does."
        return Selection(problem=text)
    able = frozenset(resource for resource in found if {"list", "watch"} <= resource.verbs)
    if watched and able != found:
        names = ", ".join(sorted(str(resource) for resource in found - able))
        return Selection(able, f"These resources cannot be listed or watched, and are not served: {names}.")
    return Selection(found)
