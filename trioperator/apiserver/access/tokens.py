"""Tokens of the cluster: issuing and verification of signed claims.

Tokens of service accounts are valid until they expire, or the objects that they are bound to are deleted. The claims
are the same as on the real server; the signature is symmetric (HS256), because only this server verifies it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from ..model.user import AUTHENTICATED, User, service_account_groups, service_account_name
from ..store.state import State
from ..store.storage import Stored

AUDIENCE: Final = "https://kubernetes.default.svc"  # the API server itself
_OLD_ISSUER: Final = "kubernetes/serviceaccount"
_OLD: Final = "kubernetes.io/serviceaccount/"
_USER_ISSUER: Final = "trioperator"  # of the tokens in kubeconfigs
_LEEWAY: Final = 60  # seconds for which an expired token is still valid
_LIMIT: Final = 10_000  # tokens in the cache of verified signatures
_EXTRA: Final = "authentication.kubernetes.io/"
_BOUND: Final = (("pod", ("", "pods")), ("secret", ("", "secrets")), ("node", ("", "nodes")))

Claims = Mapping[str, Any]


class TokenError(Exception):
    """Raised when a token of this cluster is no longer valid."""


class Tokens:
    """Tokens of one cluster, signed with its key, which is persisted with its objects."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[str, Claims] = {}
        self._users: dict[str, User] = {}

    @cached_property
    def _key(self) -> bytes:
        return bytes.fromhex(self._state.persisted("signing-key", lambda: secrets.token_hex(32)))

    def sign(self, claims: Claims) -> str:
        """Return a token with the claims."""
        head = {"alg": "HS256", "kid": hashlib.sha256(self._key).hexdigest()[:16]}
        content = f"{_encode(head)}.{_encode(claims)}"
        return f"{content}.{self._signature(content)}"

    def issue(self, account: Stored, *, audiences: Sequence[str], seconds: int, bound: Claims) -> str:
        """Issue a token for the service account, bound to the *bound* objects (``{"pod": {"name":…, "uid":…}}``)."""
        meta = account.obj["metadata"]
        now = int(self._state.now().timestamp())
        name = {"name": meta["name"], "uid": meta["uid"]}
        return self.sign(
            {
                "aud": list(audiences),
                "exp": now + seconds,
                "iat": now,
                "iss": AUDIENCE,
                "jti": self._state.uid(),
                "kubernetes.io": {"namespace": meta["namespace"], **bound, "serviceaccount": name},
                "nbf": now,
                "sub": service_account_name(meta["namespace"], meta["name"]),
            }
        )

    def issue_lasting(self, account: Stored, secret: str) -> str:
        """Issue the token of a Secret, valid until the Secret or the service account is deleted."""
        meta = account.obj["metadata"]
        return self.sign(
            {
                "iss": _OLD_ISSUER,
                f"{_OLD}namespace": meta["namespace"],
                f"{_OLD}secret.name": secret,
                f"{_OLD}service-account.name": meta["name"],
                f"{_OLD}service-account.uid": meta["uid"],
                "sub": service_account_name(meta["namespace"], meta["name"]),
            }
        )

    def issue_for(self, user: User) -> str:
        """Issue a token for any user: always the same one, which never expires."""
        extra = {key: list(values) for key, values in sorted(user.extra.items())}
        content = {"name": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}
        return self.sign({"iss": _USER_ISSUER, "user": content})

    def check(self, token: str) -> tuple[User, tuple[str, ...]] | None:
        """Return the user and the audiences of the token, or None if it is not of this cluster.

        Raises TokenError if it is no longer valid.
        """
        claims = self._verify(token)
        if claims is None:
            return None
        if claims.get("iss") == _OLD_ISSUER:
            return self._check_lasting(claims, token), (AUDIENCE,)
        if claims.get("iss") == _USER_ISSUER:
            return _given_user(claims["user"]), (AUDIENCE,)
        now = self._state.now().timestamp()
        if now > claims["exp"] + _LEEWAY:
            raise TokenError("service account token has expired")
        return self._check_bound(claims, token), tuple(claims["aud"])

    def _verify(self, token: str) -> Claims | None:
        claims = self._known.get(token)
        if claims is None:
            content, _, signature = token.rpartition(".")
            if not hmac.compare_digest(signature.encode(), self._signature(content).encode()):
                return None
            try:
                claims = msgspec.json.decode(_decode(content.partition(".")[2]))
            except (msgspec.DecodeError, binascii.Error):
                return None
            if len(self._known) >= _LIMIT:
                self._known.clear()
                self._users.clear()
            self._known[token] = claims
        return claims

    def _check_bound(self, claims: Claims, token: str) -> User:
        own = claims["kubernetes.io"]
        self._require_account(own["namespace"], own["serviceaccount"]["name"], own["serviceaccount"]["uid"])
        for field, resource in _BOUND:
            if field in own and not (field == "node" and "pod" in own):  # the node of a Pod is not checked
                self._require_bound(own["namespace"] if field != "node" else "", resource, own[field])
        user = self._users.get(token)
        if user is None:
            user = self._users[token] = _bound_user(claims)
        return user

    def _require_bound(self, namespace: str, resource: tuple[str, str], claim: Claims) -> None:
        key = f"{namespace}/{claim['name']}" if namespace else claim["name"]
        found = self._state.store.table(resource).objects.get(key)
        if found is None or found.uid != claim["uid"]:
            raise TokenError("service account token has been invalidated")

    def _check_lasting(self, claims: Claims, token: str) -> User:
        namespace = claims[f"{_OLD}namespace"]
        name, uid = claims[f"{_OLD}service-account.name"], claims[f"{_OLD}service-account.uid"]
        secret = self._state.store.table(("", "secrets")).objects.get(f"{namespace}/{claims[f'{_OLD}secret.name']}")
        kept = (secret.obj.get("data") or {}).get("token") if secret else None
        if kept != base64.b64encode(token.encode()).decode():
            raise TokenError("service account token has been invalidated")
        self._require_account(namespace, name, uid)
        return _user(namespace, name, uid, {})

    def _require_account(self, namespace: str, name: str, uid: str) -> None:
        found = self._state.store.table(("", "serviceaccounts")).objects.get(f"{namespace}/{name}")
        if found is None:
            raise TokenError(f'serviceaccounts "{name}" not found')
        if found.uid != uid:
            raise TokenError(f"service account UID ({found.uid}) does not match claim ({uid})")

    def _signature(self, content: str) -> str:
        return _text(hmac.digest(self._key, content.encode(), "sha256"))


def _bound_user(claims: Claims) -> User:
    own = claims["kubernetes.io"]
    extra: dict[str, tuple[str, ...]] = {f"{_EXTRA}credential-id": (f"JTI={claims['jti']}",)}
    for field in ("pod", "node"):
        if field in own:
            extra[f"{_EXTRA}{field}-name"] = (own[field]["name"],)
            if uid := own[field].get("uid"):
                extra[f"{_EXTRA}{field}-uid"] = (uid,)
    return _user(own["namespace"], own["serviceaccount"]["name"], own["serviceaccount"]["uid"], extra)


def _user(namespace: str, name: str, uid: str, extra: Mapping[str, tuple[str, ...]]) -> User:
    groups = (*service_account_groups(namespace), AUTHENTICATED)
    return User(name=service_account_name(namespace, name), uid=uid, groups=groups, extra=extra)


def _given_user(content: Mapping[str, Any]) -> User:
    groups = tuple(content["groups"])
    return User(
        name=content["name"],
        uid=content["uid"],
        groups=groups if AUTHENTICATED in groups else (*groups, AUTHENTICATED),
        extra={key: tuple(values) for key, values in content["extra"].items()},
    )


def _encode(content: Any) -> str:
    return _text(msgspec.json.encode(content))


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
