"""Who sends requests: users and their groups, as the Kubernetes API knows them. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["ADMIN", "ANONYMOUS", "AUTHENTICATED", "MASTERS", "UNAUTHENTICATED", "User"]

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
ADMIN: Final = User(name="kubernetes-admin", groups=(MASTERS, AUTHENTICATED))
