"""The gate of the API: every request is brought in by a user who may do what it asks for.

Where everything is allowed, nothing is looked up: a request without credentials costs nothing here.
"""

from __future__ import annotations

import html
from typing import Final, Protocol

from trioperator.errors import ApiError, ConfigError

from ..model.errors import access_denied
from ..model.messages import Request
from ..model.quoting import quote
from ..model.user import User
from ..store.state import State
from .attributes import Attributes, read_attributes
from .authentication import Authenticator
from .impersonation import impersonate, wanted_user
from .policy_rules import EVERYTHING
from .rbac import Decision, Grant, RbacAuthorizer

__all__ = ["AccessControl", "AlwaysAllow", "Authorizer", "make_authorizer"]

_OPEN_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz"})


class Authorizer(Protocol):
    """What decides who may do what."""

    def decide(self, user: User, wanted: Attributes) -> Decision:
        """Return whether the user may do what is wanted."""

    def grants(self, user: User, namespace: str) -> list[Grant]:
        """Return what the user has been given, in the whole cluster and in the namespace."""


class AlwaysAllow:
    """Everybody may do everything."""

    def decide(self, user: User, wanted: Attributes) -> Decision:
        """Allow it."""
        return Decision(True)

    def grants(self, user: User, namespace: str) -> list[Grant]:
        """Return that the user has everything."""
        return [Grant("", EVERYTHING)]


def make_authorizer(state: State, mode: str) -> Authorizer:
    """Make the authorizer of that name; raise ConfigError if there is none."""
    match mode.lower():
        case "rbac":
            return RbacAuthorizer(state)
        case "alwaysallow" | "always-allow":
            return AlwaysAllow()
    raise ConfigError(f"There is no authorization {mode!r}: it is 'always-allow' or 'rbac'.")


class AccessControl:
    """Who may come in, and what they may do."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self.authenticator = authenticator
        self.authorizer = authorizer
        self._is_open = isinstance(authorizer, AlwaysAllow)

    def admit(self, request: Request) -> None:
        """Set the user of the request; refuse those who are not known (401), or who may not do that (403)."""
        user = request.user = self.authenticator.authenticate(request)
        if self._is_open and not request.impersonation:
            return
        attributes = read_attributes(request)
        if request.impersonation:
            wanted = wanted_user(request.impersonation)
            if wanted is not None:
                request.user = impersonate(wanted, attributes, lambda part: self.check(user, part))
        if attributes.is_resource or attributes.path not in _OPEN_PATHS:
            self.check(request.user, attributes)

    def check(self, user: User, wanted: Attributes) -> None:
        """Refuse what the user may not do."""
        decision = self.authorizer.decide(user, wanted)
        if not decision.allowed:
            raise _forbidden(user, wanted, decision.reason)


def _forbidden(user: User, wanted: Attributes, reason: str) -> ApiError:
    who = f"User {quote(user.name)} cannot {wanted.verb}"
    if not wanted.is_resource:
        text = f"{who} path {quote(wanted.path)}"
    else:
        where = f"in the namespace {quote(wanted.namespace)}" if wanted.namespace else "at the cluster scope"
        text = f"{who} resource {quote(wanted.full_resource)} in API group {quote(wanted.group)} {where}"
    text = html.escape(text, quote=False)
    return access_denied(wanted.group, wanted.resource, wanted.name, f"{text}: {reason}" if reason else text)
