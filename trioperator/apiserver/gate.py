"""Access to one cluster: wires up authentication, authorization, tokens and reviews."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .access.access_control import AccessControl, make_authorizer
from .access.access_reviews import AccessReviews
from .access.attributes import Attributes
from .access.authentication import Authenticator
from .access.default_roles import store_default_roles
from .access.escalation import EscalationCheck
from .access.rbac import RbacAuthorizer
from .access.role_aggregation import RoleAggregator
from .access.token_requests import TokenRequests, TokenSecrets
from .access.tokens import Tokens
from .model.kinds import Kind
from .model.user import User
from .store.state import State


class Gate:
    """Authentication and authorization of one cluster. ``users`` maps static bearer tokens to users."""

    def __init__(self, state: State, *, users: Mapping[str, User], authorization: str) -> None:
        self._state = state
        self.tokens = Tokens(state)
        authorizer = make_authorizer(state, authorization)
        self.access = AccessControl(Authenticator(users, self.tokens), authorizer)
        self.reviews = AccessReviews(state, self.access)
        self.token_requests = TokenRequests(state, self.tokens)
        self.guard = EscalationCheck(authorizer).check if isinstance(authorizer, RbacAuthorizer) else None

    def check_creation(self, kind: Kind, namespace: str, name: str, user: User) -> None:
        """Raise 403 unless the user may create the object: for writes that create what they were to update."""
        wanted = Attributes(
            verb="create",
            group=kind.group,
            version=kind.version,
            resource=kind.plural,
            namespace=namespace,
            name=name,
        )
        self.access.check(user, wanted)

    def follow(
        self, schedule: Callable[[Callable[[], None]], None], *, certificate: Callable[[], bytes | None]
    ) -> None:
        """Aggregate ClusterRoles, and fill Secrets with tokens, as a real cluster's controllers do.

        *schedule* queues a follow-up of a write; *certificate* returns the server's CA certificate.
        """
        RoleAggregator(self._state, schedule=schedule)
        TokenSecrets(self._state, self.tokens, schedule=schedule, certificate=certificate)

    def prepare(self) -> None:
        """Store the default roles and bindings, if RBAC is on."""
        if self.guard is not None:
            store_default_roles(self._state)
