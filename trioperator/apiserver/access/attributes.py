"""Attributes of a request for authorization: a verb, and either a resource or a path. Pure.

As on the real server, the path is parsed without knowledge of the served resources, so that an error response does not
reveal what exists.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final
from urllib.parse import unquote

from trioperator.errors import ApiError

from ..model.errors import bad_request
from ..model.messages import Request
from ..model.selectors import parse_fields

_VERBS: Final = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_PATH_VERBS: Final = frozenset({"proxy", "watch"})  # legacy verbs in the path
_NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """Attributes of one request. Without a resource it has a path only."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    is_resource: bool = True

    @property
    def full_resource(self) -> str:
        """The resource with its subresource, as in policy rules."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def read_attributes(request: Request) -> Attributes:
    """Return the attributes of the request."""
    path = unquote(request.path) if "%" in request.path else request.path
    match path.strip("/").split("/"):
        case ["api", version, *parts] if parts:
            group = ""
        case ["apis", group, version, *parts] if parts:
            pass
        case _:
            return Attributes(verb=request.method.lower(), path=path, is_resource=False)
    verb = _VERBS.get(request.method, "")
    if parts[0] in _PATH_VERBS:
        if len(parts) < 2:
            raise bad_request(f"unable to determine kind and namespace from url, {path}")
        verb = parts.pop(0)
    namespace, parts = _split_namespace(parts)
    name = parts[1] if len(parts) > 1 else ""
    if not name:
        verb, name = _of_collection(request, verb)
    return Attributes(
        verb=verb,
        group=group,
        version=version,
        resource=parts[0],
        subresource=parts[2] if len(parts) > 2 and verb != "proxy" else "",
        namespace=namespace,
        name=name,
        path=path,
    )


def _split_namespace(parts: list[str]) -> tuple[str, list[str]]:
    """Return the namespace of a path, and its parts from the resource on, which may be the namespace itself."""
    if parts[0] != "namespaces" or len(parts) < 2:
        return "", parts
    is_inside = len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES
    return parts[1], parts[2:] if is_inside else parts


def _of_collection(request: Request, verb: str) -> tuple[str, str]:
    """Return the verb of a request for a collection, and the name that its field selector requires, if any."""
    if verb == "get":
        selected = _selected_name(request.query.get("fieldSelector", ""))
        return "watch" if _wants_watch(request) else "list", selected
    return "deletecollection" if verb == "delete" else verb, ""


def _wants_watch(request: Request) -> bool:
    return request.query.get("watch", "false").lower() not in {"false", "0"}


def _selected_name(selector: str) -> str:
    """Return the name that the field selector requires, or an empty string."""
    if "metadata.name" not in selector:
        return ""
    try:
        name = parse_fields(selector, lambda _: True).exact(("metadata", "name")) or ""
    except ApiError:
        return ""
    return "" if name in {".", ".."} or re.search("[/%]", name) else name
