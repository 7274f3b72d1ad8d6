"""Prevention of privilege escalation: users can only grant permissions that they have.

Users with the verb ``escalate`` or ``bind`` on a role, and members of ``system:masters``, are exempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from trioperator.errors import NotFoundError

from ..model.errors import forbidden, not_found
from ..model.kinds import Kind
from ..model.quoting import quote, quote_all
from ..model.user import MASTERS, User
from .attributes import Attributes
from .policy_rules import EVERYTHING, PolicyRule, describe_missing, find_missing, parse_rules
from .rbac import RbacAuthorizer, join_problems

_GROUP: Final = "rbac.authorization.k8s.io"
_ROLES: Final = frozenset({"roles", "clusterroles"})
# Changes of these fields grant nothing.
_HARMLESS: Final = frozenset({"ownerReferences", "finalizers", "managedFields", "resourceVersion"})


class EscalationCheck:
    """Check of writes to roles and bindings."""

    def __init__(self, roles: RbacAuthorizer) -> None:
        self._roles = roles

    def check(self, kind: Kind, obj: Mapping[str, Any], old: Mapping[str, Any] | None, user: User) -> None:
        """Raise 403 if the write grants more than the user has."""
        if kind.group != _GROUP or MASTERS in user.groups:
            return
        if old is not None and _without_harmless(obj) == _without_harmless(old):
            return
        if kind.plural in _ROLES:
            self._check_role(kind, obj, old, user)
        else:
            self._check_binding(kind, obj, user)

    def _check_role(self, kind: Kind, obj: Mapping[str, Any], old: Mapping[str, Any] | None, user: User) -> None:
        meta = obj["metadata"]
        name, namespace = str(meta.get("name") or ""), str(meta.get("namespace") or "")
        # On creation the name is in the body, which authorization does not see.
        asked = "" if old is None else name
        if self._may(user, "escalate", kind.plural, namespace=namespace, name=asked):
            return
        self._check_rules(kind, name, parse_rules(obj.get("rules")), user=user, namespace=namespace)
        gathers = any(((item or {}).get("aggregationRule") or {}).get("clusterRoleSelectors") for item in (obj, old))
        if gathers and find_missing(self._roles.rules(user, namespace), EVERYTHING):
            raise forbidden(kind, name, "must have cluster-admin privileges to use the aggregationRule")

    def _check_binding(self, kind: Kind, obj: Mapping[str, Any], user: User) -> None:
        meta, ref = obj["metadata"], obj.get("roleRef") or {}
        name, namespace = str(meta.get("name") or ""), str(meta.get("namespace") or "")
        role = str(ref.get("name") or "")
        plural = {"ClusterRole": "clusterroles", "Role": "roles"}.get(str(ref.get("kind")))
        if plural is None:
            return  # invalid: validation follows
        if self._may(user, "bind", plural, namespace=namespace, name=role):
            return
        try:
            rules = self._roles.role_rules(ref, namespace)
        except NotFoundError:
            raise not_found(kind, role) from None
        self._check_rules(kind, name, rules, user=user, namespace=namespace)

    def _may(self, user: User, verb: str, plural: str, *, namespace: str, name: str) -> bool:
        wanted = Attributes(verb=verb, group=_GROUP, version="*", resource=plural, namespace=namespace, name=name)
        return self._roles.decide(user, wanted).allowed

    def _check_rules(self, kind: Kind, name: str, rules: Iterable[PolicyRule], *, user: User, namespace: str) -> None:
        missing = find_missing(self._roles.rules(user, namespace), rules)
        if not missing:
            return
        who = f"user {quote(user.name)} (groups={quote_all(user.groups)})"
        text = f"{who} is attempting to grant RBAC permissions not currently held:\n{describe_missing(missing)}"
        problems = join_problems(self._roles.grants(user, namespace))
        raise forbidden(kind, name, f"{text}; resolution errors: [{problems}]" if problems else text)


def _without_harmless(obj: Mapping[str, Any]) -> dict[str, Any]:
    meta = {field: value for field, value in obj["metadata"].items() if field not in _HARMLESS}
    return {**obj, "metadata": meta}
