"""Access control: authentication, impersonation and authorization of every request.

If everything is allowed, attributes are not even parsed: this costs nothing.
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

_OPEN_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz"})


class Authorizer(Protocol):
    """Interface of authorizers."""

    def decide(self, user: User, wanted: Attributes) -> Decision:
        """Return whether the user is authorized."""

    def grants(self, user: User, namespace: str) -> list[Grant]:
        """Return what is granted to the user, cluster-wide and in the namespace."""


class AlwaysAllow:
    """Authorizer that allows everything."""

    def decide(self, user: User, wanted: Attributes) -> Decision:
        """Return that it is allowed."""
        return Decision(True)

    def grants(self, user: User, namespace: str) -> list[Grant]:
        """Return a grant of everything."""
        return [Grant("", EVERYTHING)]


def make_authorizer(state: State, mode: str) -> Authorizer:
    """Return the authorizer of the mode. Raises ConfigError for unknown modes."""
    match mode.lower():
        case "rbac":
            return RbacAuthorizer(state)
        case "alwaysallow" | "always-allow":
            return AlwaysAllow()
    raise ConfigError(f"There is no authorization {mode!r}: it is 'always-allow' or 'rbac'.")


class AccessControl:
    """Access control of one cluster."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self.authenticator = authenticator
        self.authorizer = authorizer
        self._is_open = isinstance(authorizer, AlwaysAllow)

    def admit(self, request: Request) -> None:
        """Authenticate and authorize the request, and set its user. Raises 401 or 403."""
        user = request.user = self.authenticator.authenticate(request)
        if self._is_open and not request.impersonation:
            return
        attributes = read_attributes(request)
        if request.impersonation:
            wanted = wanted_user(request.impersonation)
            if wanted is not None:
                request.user = impersonate(wanted, lambda part: self.check(user, part))
        if attributes.is_resource or attributes.path not in _OPEN_PATHS:
            self.check(request.user, attributes)

    def check(self, user: User, wanted: Attributes) -> None:
        """Raise 403 unless the user is authorized."""
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
