"""Who sends requests: users and their groups, as the Kubernetes API knows them. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = [
    "ADMIN",
    "ANONYMOUS",
    "AUTHENTICATED",
    "MASTERS",
    "NO_CREDENTIALS",
    "UNAUTHENTICATED",
    "User",
    "service_account_groups",
    "service_account_name",
    "split_service_account",
    "system_account",
]

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"  # its members may do everything, whatever the rules say


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One user: a person, a program, or a service account."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict, hash=False)

    def describe(self) -> dict[str, Any]:
        """Return the ``UserInfo`` of ``authentication.k8s.io/v1``, without what is empty."""
        info: dict[str, Any] = {"username": self.name} if self.name else {}
        if self.uid:
            info["uid"] = self.uid
        if self.groups:
            info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {key: list(values) for key, values in self.extra.items()}
        return info


ANONYMOUS: Final = User(name="system:anonymous", groups=(UNAUTHENTICATED,))
NO_CREDENTIALS: Final = User(name="")  # who shows no credentials where they are required: nobody is let in like that
ADMIN: Final = User(name="kubernetes-admin", groups=(MASTERS, AUTHENTICATED))


def service_account_name(namespace: str, name: str) -> str:
    """Return the name of the user that a service account is."""
    return f"system:serviceaccount:{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups that the service accounts of the namespace are in, apart from those of everybody."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")


def system_account(name: str) -> User:
    """Return the user that a controller of the cluster acts as."""
    groups = (*service_account_groups("kube-system"), AUTHENTICATED)
    return User(name=service_account_name("kube-system", name), groups=groups)


def split_service_account(name: str) -> tuple[str, str] | None:
    """Return the namespace and the name of the service account that the user is, or None."""
    match = re.fullmatch(
        r"system:serviceaccount:([a-z0-9](?:[-a-z0-9]*[a-z0-9])?):([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)", name
    )
    return (match[1], match[2]) if match else None
