"""RBAC authorization by the roles and bindings that are stored in the cluster.

Decisions are cached until a role or a binding changes, so that a repeated request costs one dict lookup.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from trioperator.errors import ApiError

from ..model.kinds import Kind
from ..model.quoting import quote
from ..model.user import MASTERS, User, service_account_name
from ..store.state import State
from .attributes import Attributes
from .policy_rules import PolicyRule, allows, parse_rules

_GROUP: Final = "rbac.authorization.k8s.io"
_TABLES: Final = ("clusterrolebindings", "rolebindings", "clusterroles", "roles")
_LIMIT: Final = 10_000  # decisions in the cache


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """Decision of an authorizer, with a reason where there is one."""

    allowed: bool
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Grant:
    """Rules that one binding grants to a user, or the reason why there are none."""

    source: str
    rules: tuple[PolicyRule, ...] = ()
    problem: str = ""


class RbacAuthorizer:
    """Authorizer of one cluster."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._tables = [state.store.table((_GROUP, plural)) for plural in _TABLES]
        self._seen: tuple[int, ...] = ()
        self._decisions: dict[tuple[User, Attributes], Decision] = {}
        self._grants: dict[tuple[str, tuple[str, ...], str], list[Grant]] = {}

    def decide(self, user: User, wanted: Attributes) -> Decision:
        """Return whether the user is authorized."""
        if MASTERS in user.groups:
            return Decision(True)
        self._invalidate_cache()
        key = (user, wanted)
        decision = self._decisions.get(key)
        if decision is None:
            if len(self._decisions) >= _LIMIT:
                self._decisions.clear()
            decision = self._decisions[key] = self._look_up(user, wanted)
        return decision

    def _look_up(self, user: User, wanted: Attributes) -> Decision:
        grants = self.grants(user, wanted.namespace)
        for grant in grants:
            if any(allows(rule, wanted) for rule in grant.rules):
                return Decision(True, f"RBAC: allowed by {grant.source}")
        problems = join_problems(grants)
        return Decision(False, f"RBAC: {problems}" if problems else "")

    def grants(self, user: User, namespace: str) -> list[Grant]:
        """Return what bindings grant to the user, cluster-wide and in the namespace (if not empty)."""
        self._invalidate_cache()
        key = (user.name, user.groups, namespace)
        grants = self._grants.get(key)
        if grants is None:
            grants = self._grants[key] = list(self._find_grants(user, namespace))
        return grants

    def rules(self, user: User, namespace: str) -> list[PolicyRule]:
        """Return the rules that apply to the user in the namespace."""
        return [rule for grant in self.grants(user, namespace) for rule in grant.rules]

    def role_rules(self, ref: Mapping[str, Any], namespace: str) -> tuple[PolicyRule, ...]:
        """Return the rules of the role that a binding in the namespace refers to. Raises NotFoundError."""
        plural = "clusterroles" if ref.get("kind") == "ClusterRole" else "roles"
        kind = self._kind(plural)
        stored = self._state.require(kind, namespace, str(ref.get("name") or ""))
        return parse_rules(stored.obj.get("rules"))

    def _invalidate_cache(self) -> None:
        seen = tuple(table.end for table in self._tables)
        if seen != self._seen:
            self._seen = seen
            self._decisions.clear()
            self._grants.clear()

    def _find_grants(self, user: User, namespace: str) -> Iterator[Grant]:
        everywhere, local, _, _ = self._tables
        for key in everywhere.keys():  # noqa: SIM118 -- a table is not a dict
            yield from self._grant(everywhere.objects[key].obj, user, "")
        for key in local.keys(f"{namespace}/") if namespace else ():
            yield from self._grant(local.objects[key].obj, user, namespace)

    def _grant(self, binding: Mapping[str, Any], user: User, namespace: str) -> Iterable[Grant]:
        subject = next((item for item in binding.get("subjects") or () if _is_meant(item, user, namespace)), None)
        if subject is None:
            return
        ref = binding.get("roleRef") or {}
        try:
            rules = self.role_rules(ref, namespace)
        except ApiError as error:
            yield Grant("", problem=error.message.replace(f"{_plural(ref)}.", f"{_plural(ref)[:-1]}.", 1))
            return
        name = binding["metadata"]["name"]
        shown = quote(f"{name}/{namespace}" if namespace else name)
        role = f"{ref.get('kind')} {quote(str(ref.get('name')))}"
        yield Grant(f"{binding['kind']} {shown} of {role} to {_describe(subject, namespace)}", rules)

    def _kind(self, plural: str) -> Kind:
        kind = self._state.catalog.by_resource((_GROUP, plural))
        assert kind is not None
        return kind


def join_problems(grants: Iterable[Grant]) -> str:
    """Return the problems of the grants as one message."""
    problems = list(dict.fromkeys(grant.problem for grant in grants if grant.problem))
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]" if problems else ""


def _plural(ref: Mapping[str, Any]) -> str:
    return "clusterroles" if ref.get("kind") == "ClusterRole" else "roles"


def _is_meant(subject: Mapping[str, Any], user: User, namespace: str) -> bool:
    name = subject.get("name")
    match subject.get("kind"):
        case "User":
            return name == user.name
        case "Group":
            return name in user.groups
        case "ServiceAccount":
            place = subject.get("namespace") or namespace
            return bool(place) and service_account_name(str(place), str(name)) == user.name
    return False


def _describe(subject: Mapping[str, Any], namespace: str) -> str:
    name = str(subject.get("name"))
    if subject.get("kind") == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or namespace}"
    return f"{subject.get('kind')} {quote(name)}"
