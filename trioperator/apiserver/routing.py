"""Routing of requests: which kind, object and verb a path and a method mean. Pure."""

from __future__ import annotations

import dataclasses
from typing import Final
from urllib.parse import unquote

from .model.errors import not_found, unknown_resource
from .model.kinds import Catalog, Kind
from .model.messages import Request
from .reading.reader import read_flag

_CREATED: Final = frozenset({"binding", "eviction", "token"})  # subresources that are only created
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The kind and the object that a path names."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class PageNotFoundError(Exception):
    """Raised when nothing is served at the path; the response is plain text."""


class Router:
    """Paths of the kinds that are served."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def resolve(self, path: str) -> Target | None:
        """Return the target of the path; None for discovery and other documents."""
        parts = path.strip("/").split("/")
        if "%" in path:
            parts = [unquote(part) for part in parts]
        if parts[0] == "api" and len(parts) > 2:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            return None
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in {"status", "finalize"}):
            namespace, rest = rest[1], rest[2:]
        kind = self._catalog.get(group, version, rest[0])
        if kind is None or len(rest) > 3:
            raise self.no_such_path(group, version)
        target = Target(
            kind=kind,
            namespace=namespace,
            name=rest[1] if len(rest) > 1 else "",
            subresource=rest[2] if len(rest) > 2 else "",
        )
        if kind.namespaced != bool(namespace) and (namespace or target.name):
            raise self.no_such_path(group, version)
        if target.subresource and target.subresource not in kind.subresources:
            raise not_found(kind, target.name) if kind.custom else unknown_resource()
        return target

    def no_such_path(self, group: str, version: str) -> Exception:
        """Return the error for a path at which the group and version serve nothing."""
        kinds = self._catalog.kinds(group, version)
        is_builtin = any(kind.custom is None for kind in kinds) or any(
            kind.custom is None for other in self._catalog.versions(group) for kind in self._catalog.kinds(group, other)
        )
        return unknown_resource() if is_builtin else PageNotFoundError()


def verb_of(request: Request, target: Target | None) -> str:
    """Return the verb of the request in the terms of Kubernetes; empty for documents and wrong methods."""
    if target is None or (request.method == "HEAD" and target.kind.custom is None):
        return ""
    if request.method in {"GET", "HEAD"}:
        if target.name:
            return "get"
        return "watch" if read_flag(request.query, "watch") else "list"
    verb = _VERBS.get(request.method, "")
    if target.name:
        if verb == "create":
            return verb if target.subresource in _CREATED else ""
        return verb if not (verb == "delete" and target.subresource) else ""
    return {"create": "create", "delete": "deletecollection"}.get(verb, "")


def subresource_verbs(target: Target) -> tuple[str, ...]:
    """Return the verbs that the subresource allows."""
    if target.subresource in _CREATED:
        return ("create",)
    return {"finalize": ("update",), "log": ("get",)}.get(target.subresource, ("get", "patch", "update"))
