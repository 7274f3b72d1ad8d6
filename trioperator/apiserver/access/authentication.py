"""Authentication by bearer tokens, or by the transport."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from ..model.errors import unauthorized
from ..model.messages import Request
from ..model.quoting import quote_all
from ..model.user import ANONYMOUS, AUTHENTICATED, NO_CREDENTIALS, User
from .tokens import AUDIENCE, TokenError, Tokens

_INVALID: Final = "invalid bearer token"


class Authenticator:
    """Authenticator of a cluster, with *given* static tokens and the tokens that the cluster issues."""

    def __init__(self, given: Mapping[str, User], tokens: Tokens) -> None:
        self._users = {token: _authenticated(user) for token, user in given.items()}
        self._tokens = tokens

    def authenticate(self, request: Request) -> User:
        """Return the user of the request. Raises 401 for an invalid token, or without required credentials."""
        scheme, _, token = request.authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            user = None if request.user is NO_CREDENTIALS else request.user
        else:
            user = self._users.get(token) or self.review(token, (AUDIENCE,))[0]
        if user is None:
            request.user = ANONYMOUS
            raise unauthorized()
        return user

    def review(self, token: str, audiences: tuple[str, ...]) -> tuple[User | None, tuple[str, ...], str]:
        """Return the user of the token, its valid audiences, and an error message."""
        if token in self._users:
            return (self._users[token], (AUDIENCE,), "") if AUDIENCE in audiences else (None, (), _INVALID)
        try:
            found = self._tokens.check(token)
        except TokenError as error:
            return None, (), f"[{_INVALID}, {error}]"
        if found is None:
            return None, (), _INVALID
        user, own = found
        common = tuple(audience for audience in audiences if audience in own)
        if not common:
            text = f"token audiences {quote_all(own)} is invalid for the target audiences {quote_all(audiences)}"
            return None, (), f"[{_INVALID}, {text}]"
        return user, common, ""


def _authenticated(user: User) -> User:
    if AUTHENTICATED in user.groups or user == ANONYMOUS:
        return user
    return dataclasses.replace(user, groups=(*user.groups, AUTHENTICATED))
