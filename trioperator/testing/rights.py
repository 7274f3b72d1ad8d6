"""Rights of handlers: comparison of the requests that they send in tests with the role that is generated."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Final

import httpx
import msgspec

from trioperator._handling.handlers.handler import Handler
from trioperator._model.rights import VERBS, Rule
from trioperator._tooling.checking.problems import locate
from trioperator._tooling.permissions import Permissions
from trioperator.apiserver.access.attributes import read_attributes
from trioperator.apiserver.model.messages import Request
from trioperator.errors import ApiError

#: The id of the handler whose function is being called in the current context.
handler_at_work: Final[ContextVar[str | None]] = ContextVar("trioperator-handler-at-work", default=None)

# Granted to all users that are logged in.
_GRANTED: Final = ("authentication.k8s.io", "authorization.k8s.io")
_CREATED: Final = 201


class UsedRight(msgspec.Struct, frozen=True):
    """A right that a request of a handler has used; ``request`` is an example of it."""

    handler: str
    rule: Rule
    namespace: str
    name: str
    request: str


class LackedRights(msgspec.Struct, frozen=True):
    """Rights that the generated role does not grant a handler, in words only: processes can send this to others.

    ``verbs`` are those that it needs, by kinds, with those that it has declared. ``requests`` are examples of what it
    has requested, one for each right. ``elsewhere`` are requests in namespaces that the operator does not serve: no
    right helps there.
    """

    description: str
    verbs: Mapping[str, frozenset[str]] = {}
    requests: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()

    @property
    def rights(self) -> list[str]:
        """The value that the option ``rights=`` needs."""
        kinds: dict[str, list[str]] = {}
        for kind, verbs in self.verbs.items():
            kinds.setdefault(",".join(sorted(verbs, key=VERBS.index)), []).append(kind)
        return [f"{verbs}:{','.join(sorted(names))}" for verbs, names in kinds.items()]

    def merge(self, other: LackedRights) -> LackedRights:
        """Return what both say of the same handler."""
        verbs = {kind: self.verbs.get(kind, frozenset()) for kind in (*self.verbs, *other.verbs)}
        return LackedRights(
            self.description,
            {kind: found | other.verbs.get(kind, frozenset()) for kind, found in verbs.items()},
            tuple(dict.fromkeys((*self.requests, *other.requests))),
            tuple(dict.fromkeys((*self.elsewhere, *other.elsewhere))),
        )

    def __str__(self) -> str:
        lines = [self.description]
        if self.requests:
            lines.append("    rights=[" + ", ".join(f'"{right}"' for right in self.rights) + "]")
        lines += [f"      {request}" for request in self.requests]
        lines += [f"    in a namespace that the operator does not serve: {request}" for request in self.elsewhere]
        return "\n".join(lines)


class MissingRights(LackedRights, frozen=True, kw_only=True):
    """Rights that the generated role does not grant a handler."""

    handler: Handler


class LearningTransport(httpx.AsyncBaseTransport):
    """Transport that notes which rights the requests of handlers use, in *used*: each once."""

    def __init__(self, inner: httpx.AsyncBaseTransport, used: dict[UsedRight, None]) -> None:
        self._inner = inner
        self._used = used

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return the response."""
        handler = handler_at_work.get()
        response = await self._inner.handle_async_request(request)
        if handler is not None:
            self._used.update(dict.fromkeys(_read_rights(handler, request, response.status_code)))
        return response

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


def _read_rights(handler: str, request: httpx.Request, status: int) -> Iterator[UsedRight]:
    """Yield the rights that a request uses: a patch that has created its object uses two."""
    url = request.url
    asked = Request(method=request.method, path=url.raw_path.decode().partition("?")[0], query=dict(url.params))
    try:
        found = read_attributes(asked)
    except ApiError:  # no API server understands it
        return
    if not found.is_resource or found.group in _GRANTED:
        return
    verbs = (found.verb, "create") if found.verb == "patch" and status == _CREATED else (found.verb,)
    for verb in verbs:
        rule = Rule(found.group, found.full_resource, frozenset({verb}))
        yield UsedRight(handler, rule, found.namespace, found.name, f"{request.method} {url.path}")


def find_missing_rights(
    used: Iterable[UsedRight], handlers: Collection[Handler], permissions: Permissions
) -> list[MissingRights]:
    """Return what the permissions of an operator with these handlers lack for what has been used, by the handlers."""
    owners = {handler.id: handler for handler in reversed(list(handlers))}
    lacking: dict[str, list[UsedRight]] = {}
    for right in used:
        if not _is_granted(right, permissions):
            lacking.setdefault(_find_owner(right.handler, owners), []).append(right)
    return [_describe(owners[owner], rights, permissions) for owner, rights in lacking.items() if owner in owners]


def _find_owner(id: str, owners: Collection[str]) -> str:
    """Return the declared handler of an id: a sub-handler's begins with it."""
    return max((owner for owner in owners if id == owner or id.startswith(f"{owner}/")), key=len, default=id)


def _is_granted(right: UsedRight, permissions: Permissions) -> bool:
    rules = (*permissions.cluster, *permissions.namespaces.get(right.namespace, ()))
    return any(_allows(rule, right) for rule in rules)


def _allows(rule: Rule, right: UsedRight) -> bool:
    names = frozenset({right.name}) if right.name else frozenset()
    return rule.covers(msgspec.structs.replace(right.rule, names=names)) and bool(rule.verbs & {"*", *right.rule.verbs})


def _describe(handler: Handler, lacking: Collection[UsedRight], permissions: Permissions) -> MissingRights:
    served = [rule for rules in permissions.namespaces.values() for rule in rules]
    elsewhere = [right for right in lacking if any(_allows(rule, right) for rule in served)]
    missing = [right for right in lacking if right not in elsewhere]
    verbs: dict[str, frozenset[str]] = {}
    for rule in (*handler.rights, *(right.rule for right in missing)):
        verbs[rule.kind] = verbs.get(rule.kind, frozenset()) | rule.verbs
    file, line = locate(handler.fn)
    return MissingRights(
        f"{handler} ({os.path.relpath(file)}:{line})" if file else str(handler),
        verbs,
        requests=tuple(dict.fromkeys(right.request for right in missing)),
        elsewhere=tuple(dict.fromkeys(right.request for right in elsewhere)),
        handler=handler,
    )
