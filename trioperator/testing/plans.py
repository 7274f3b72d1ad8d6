"""Fault injection: selection of the requests that fail, by attributes, number and time, or at random."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypedDict, Unpack
from urllib.parse import unquote

import httpx
import trio

from .faults import Fault

_VERBS: Final[Mapping[str, str]] = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class Selection(TypedDict, total=False):
    """Requests that a rule applies to: all criteria must match."""

    method: str
    """The HTTP method."""
    path: str
    """A regular expression to search for in the path with its query."""
    watch: bool
    """True for watches only, False for all other requests only."""
    verb: str | Iterable[str]
    """One or more verbs of the API: get, list, watch, create, update, patch, delete, deletecollection."""
    resource: str
    """The plural name, with or without the group: ``pods``, ``widgets.example.com``."""
    subresource: str
    """The subresource; an empty string is for requests without one."""
    namespace: str
    """The namespace of the request."""
    name: str
    """The name of the object."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """Attributes of a request, from its method and URL; empty if it is not about objects."""

    verb: str = ""
    resource: str = ""
    group: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def describe_request(request: httpx.Request) -> RequestInfo:
    """Return the attributes of the request."""
    parts = [unquote(part) for part in request.url.path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return RequestInfo()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    return RequestInfo(
        verb=_parse_verb(request, has_name=bool(name)),
        resource=resource,
        group=group,
        namespace=namespace,
        name=name,
        subresource=subresource,
    )


def _parse_verb(request: httpx.Request, *, has_name: bool) -> str:
    if request.method in {"GET", "HEAD"}:
        return "watch" if is_watch(request) else "get" if has_name else "list"
    if request.method == "DELETE":
        return "delete" if has_name else "deletecollection"
    return _VERBS.get(request.method, "")


def is_watch(request: httpx.Request) -> bool:
    """Return whether the request is a watch."""
    return _asks_to_watch(request.url.query)


@functools.lru_cache(maxsize=256)
def _asks_to_watch(query: bytes) -> bool:
    return httpx.QueryParams(query.decode("ascii")).get("watch", "").lower() in {"1", "true"}


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class FaultRule:
    """Fault and the requests that get it. ``seen`` counts those that matched, ``hits`` those that got the fault."""

    fault: Fault
    selection: Selection
    times: float = math.inf
    skip: int = 0
    since: float = -math.inf
    until: float = math.inf
    chance: float = 1
    hits: int = 0
    seen: int = 0

    def applies_to(self, request: httpx.Request, *, rng: random.Random) -> bool:
        """Return whether the fault is injected into the request, and count it."""
        if self.hits >= self.times or not self.since <= trio.current_time() < self.until:
            return False
        if not _matches(self.selection, request):
            return False
        self.seen += 1
        if self.seen <= self.skip or (self.chance < 1 and rng.random() >= self.chance):
            return False
        self.hits += 1
        return True


def _matches(selection: Selection, request: httpx.Request) -> bool:
    if "method" in selection and request.method != selection["method"]:
        return False
    if "watch" in selection and is_watch(request) is not selection["watch"]:
        return False
    if "path" in selection and not re.search(selection["path"], request.url.raw_path.decode()):
        return False
    info = describe_request(request)
    verbs = selection.get("verb", info.verb)
    if info.verb not in ({verbs} if isinstance(verbs, str) else set(verbs)):
        return False
    names = {info.resource, f"{info.resource}.{info.group}" if info.group else info.resource}
    return (
        selection.get("resource", info.resource) in names
        and selection.get("subresource", info.subresource) == info.subresource
        and selection.get("namespace", info.namespace) == info.namespace
        and selection.get("name", info.name) == info.name
    )


class FaultPlan:
    """Ordered rules, of which the first that applies to a request decides its fault.

    The *seed* makes rules with a ``chance`` repeatable.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self._rules: list[FaultRule] = []
        self._rng = random.Random(seed)

    @property
    def rules(self) -> Sequence[FaultRule]:
        """The rules, in their order."""
        return tuple(self._rules)

    def add(
        self,
        fault: Fault,
        *,
        times: int | None = None,
        skip: int = 0,
        since: float | None = None,
        until: float | None = None,
        chance: float = 1,
        **selection: Unpack[Selection],
    ) -> FaultRule:
        """Inject the fault into the requests that match the selection, and return the rule.

        Of the matching requests, the first ``skip`` are spared and the next ``times`` (default: all) fail; ``since``
        and ``until`` limit that to a span of Trio's time, in seconds; ``chance`` is the probability of each failure.
        The criteria of the selection: see :class:`Selection`. Raises TypeError for any other.
        """
        if unknown := selection.keys() - Selection.__annotations__.keys():
            raise TypeError(f"FaultPlan.add() has no criteria {', '.join(sorted(unknown))}.")
        rule = FaultRule(
            fault=fault,
            selection=selection,
            times=math.inf if times is None else times,
            skip=skip,
            since=-math.inf if since is None else since,
            until=math.inf if until is None else until,
            chance=chance,
        )
        self._rules.append(rule)
        return rule

    def remove(self, rule: FaultRule) -> None:
        """Remove the rule."""
        self._rules.remove(rule)

    def clear(self) -> None:
        """Remove all rules."""
        self._rules.clear()

    def choose(self, request: httpx.Request) -> Fault | None:
        """Return the fault to inject into the request, if any."""
        for rule in self._rules:
            if rule.applies_to(request, rng=self._rng):
                return rule.fault
        return None
