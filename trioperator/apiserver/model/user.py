"""Users, groups and service accounts. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"  # superusers: RBAC does not apply


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user: a person, a program, or a service account."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict, hash=False)

    def describe(self) -> dict[str, Any]:
        """Return the ``UserInfo`` of ``authentication.k8s.io/v1``, without empty fields."""
        info: dict[str, Any] = {"username": self.name} if self.name else {}
        if self.uid:
            info["uid"] = self.uid
        if self.groups:
            info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {key: list(values) for key, values in self.extra.items()}
        return info


ANONYMOUS: Final = User(name="system:anonymous", groups=(UNAUTHENTICATED,))
NO_CREDENTIALS: Final = User(name="")  # no credentials where they are required: always 401
ADMIN: Final = User(name="kubernetes-admin", groups=(MASTERS, AUTHENTICATED))


def service_account_name(namespace: str, name: str) -> str:
    """Return the user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of the service accounts in the namespace, without the groups of all users."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")


def system_account(name: str) -> User:
    """Return the user of a controller of the control plane."""
    groups = (*service_account_groups("kube-system"), AUTHENTICATED)
    return User(name=service_account_name("kube-system", name), groups=groups)


def split_service_account(name: str) -> tuple[str, str] | None:
    """Return the namespace and the name of the service account, or None for other users."""
    match = re.fullmatch(
        r"system:serviceaccount:([a-z0-9](?:[-a-z0-9]*[a-z0-9])?):([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)", name
    )
    return (match[1], match[2]) if match else None
