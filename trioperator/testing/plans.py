"""Plans of faults: what goes wrong with which requests, by what they ask for, by their number, by time or by chance."""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypedDict, Unpack
from urllib.parse import unquote

import httpx
import trio

from .faults import Fault

__all__ = ["FaultPlan", "FaultRule", "Selection", "describe_request"]

_VERBS: Final[Mapping[str, str]] = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class Selection(TypedDict, total=False):
    """Which requests a rule is for: all criteria have to fit."""

    method: str
    """The HTTP method."""
    path: str
    """A regular expression to be found in the path with its query."""
    watch: bool
    """Watches only, or all other requests only."""
    verb: str | Iterable[str]
    """The verb or verbs of the API: get, list, watch, create, update, patch, delete, deletecollection."""
    resource: str
    """The plural name, with the group or without it: ``pods``, ``widgets.example.com``."""
    subresource: str
    """The subresource; an empty text is for requests of none."""
    namespace: str
    """The namespace of the request."""
    name: str
    """The name of the object."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request asks for, as far as its URL and its method tell; empty where it is not about objects."""

    verb: str = ""
    resource: str = ""
    group: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def describe_request(request: httpx.Request) -> Asked:
    """Tell what the request asks for."""
    parts = [unquote(part) for part in request.url.path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return Asked()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    return Asked(
        verb=_verb_of(request, has_name=bool(name)),
        resource=resource,
        group=group,
        namespace=namespace,
        name=name,
        subresource=subresource,
    )


def _verb_of(request: httpx.Request, *, has_name: bool) -> str:
    if request.method in {"GET", "HEAD"}:
        return "watch" if is_watch(request) else "get" if has_name else "list"
    if request.method == "DELETE":
        return "delete" if has_name else "deletecollection"
    return _VERBS.get(request.method, "")


def is_watch(request: httpx.Request) -> bool:
    """Tell whether the request is for a stream of changes."""
    return request.url.params.get("watch", "").lower() in {"1", "true"}


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class FaultRule:
    """To which requests a fault happens; ``seen`` counts those that fit, ``hits`` those to which it has happened."""

    fault: Fault
    selection: Selection
    times: float = math.inf
    skip: int = 0
    since: float = -math.inf
    until: float = math.inf
    chance: float = 1
    hits: int = 0
    seen: int = 0

    def takes(self, request: httpx.Request, *, luck: random.Random) -> bool:
        """Tell whether the fault happens to the request, and count it."""
        if self.hits >= self.times or not self.since <= trio.current_time() < self.until:
            return False
        if not _fits(self.selection, request):
            return False
        self.seen += 1
        if self.seen <= self.skip or (self.chance < 1 and luck.random() >= self.chance):
            return False
        self.hits += 1
        return True


def _fits(selection: Selection, request: httpx.Request) -> bool:
    if "method" in selection and request.method != selection["method"]:
        return False
    if "watch" in selection and is_watch(request) is not selection["watch"]:
        return False
    if "path" in selection and not re.search(selection["path"], request.url.raw_path.decode()):
        return False
    asked = describe_request(request)
    verbs = selection.get("verb", asked.verb)
    if asked.verb not in ({verbs} if isinstance(verbs, str) else set(verbs)):
        return False
    names = {asked.resource, f"{asked.resource}.{asked.group}" if asked.group else asked.resource}
    return (
        selection.get("resource", asked.resource) in names
        and selection.get("subresource", asked.subresource) == asked.subresource
        and selection.get("namespace", asked.namespace) == asked.namespace
        and selection.get("name", asked.name) == asked.name
    )


class FaultPlan:
    """What goes wrong: rules in order, of which the first that takes a request decides its fate.

    The *seed* is for rules with a ``chance``.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self._rules: list[FaultRule] = []
        self._luck = random.Random(seed)

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
        """Let the fault happen to the requests that fit.

        The first ``skip`` requests that fit are spared, the next ``times`` are hit; ``since`` and ``until`` are in
        Trio's time; ``chance`` is the share of requests that are hit. Which requests fit: see :class:`Selection`.
        """
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
        """Let the rule's fault happen no more."""
        self._rules.remove(rule)

    def clear(self) -> None:
        """Let nothing go wrong any more."""
        self._rules.clear()

    def choose(self, request: httpx.Request) -> Fault | None:
        """Return the fault that happens to the request."""
        for rule in self._rules:
            if rule.takes(request, luck=self._luck):
                return rule.fault
        return None
