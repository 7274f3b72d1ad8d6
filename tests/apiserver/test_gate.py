"""Tests for :mod:`trioperator.apiserver.gate`: one cluster's users, roles and tokens work together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trioperator.apiserver.gate import Gate
from trioperator.apiserver.model.kinds import Kind
from trioperator.apiserver.model.messages import Request
from trioperator.apiserver.model.user import MASTERS, User
from trioperator.apiserver.store.state import State
from trioperator.errors import ConfigError, ForbiddenError

ADMIN = User(name="admin", groups=(MASTERS,))
NOBODY = User(name="nobody")
ROLES = ("rbac.authorization.k8s.io", "clusterroles")


@pytest.fixture
def state() -> State:
    return State(clock=None, seed=0, history=100, history_age=300)


def make_gate(state: State, authorization: str = "rbac") -> Gate:
    """Return a gate with one user."""
    return Gate(state, users={"secret": NOBODY}, authorization=authorization)


def pods(state: State) -> Kind:
    """Return the kind of pods."""
    kind = state.catalog.get("", "v1", "pods")
    assert kind is not None
    return kind


def test_who_may_not_create_an_object_is_told_so(state: State) -> None:
    gate = make_gate(state)
    with pytest.raises(ForbiddenError, match='User "nobody" cannot create resource "pods" in API group ""'):
        gate.check_creation(pods(state), "ns", "a", NOBODY)
    gate.check_creation(pods(state), "ns", "a", ADMIN)


def test_everybody_may_do_everything_without_rbac(state: State) -> None:
    gate = make_gate(state, "always-allow")
    gate.check_creation(pods(state), "ns", "a", NOBODY)
    assert gate.guard is None


def test_an_unknown_authorization_is_an_error(state: State) -> None:
    with pytest.raises(ConfigError, match="There is no authorization 'abac'"):
        make_gate(state, "abac")


@pytest.mark.parametrize(("authorization", "has_roles"), [("rbac", True), ("always-allow", False)])
def test_default_roles_exist_only_with_rbac(state: State, authorization: str, has_roles: bool) -> None:
    make_gate(state, authorization).prepare()
    assert ("cluster-admin" in state.store.table(ROLES).objects) is has_roles


def test_users_have_static_tokens_or_tokens_of_the_cluster(state: State) -> None:
    gate = make_gate(state, "always-allow")
    for token in ("secret", gate.tokens.issue_for(NOBODY)):
        request = Request(method="GET", path="/version", authorization=f"Bearer {token}")
        gate.access.admit(request)
        assert request.user.name == "nobody"


def test_cluster_roles_are_aggregated_as_a_follow_up(state: State) -> None:
    gate = make_gate(state)
    due: list[Callable[[], None]] = []
    gate.follow(due.append, certificate=lambda: None)
    table = state.store.table(ROLES)
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    selector = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    state.store.put(table, "whole", {"metadata": {"name": "whole", "uid": "1"}, "aggregationRule": selector})
    state.store.put(table, "part", {"metadata": {"name": "part", "uid": "2", "labels": {"a": "b"}}, "rules": [rule]})
    while due:
        due.pop(0)()
    assert table.objects["whole"].obj["rules"] == [rule]
