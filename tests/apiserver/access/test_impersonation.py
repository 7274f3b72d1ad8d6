"""Tests for :mod:`trioperator.apiserver.access.impersonation`: who may act as whom, and for what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apiserver.access.accounts import bearing, make_account, make_token, user_info, who_am_i
from tests.apiserver.conftest import Guarded, rule
from trioperator.apiserver import User
from trioperator.apiserver.access.attributes import Attributes
from trioperator.apiserver.access.impersonation import Check, impersonate, wanted_user
from trioperator.apiserver.model.errors import access_denied
from trioperator.errors import ApiError


@pytest.mark.parametrize(
    ("headers", "info"),
    [
        ([("User", "bob")], {"username": "bob", "groups": ["system:authenticated"]}),
        (
            [("User", "bob"), ("Group", "g"), ("Group", "h")],
            {"username": "bob", "groups": ["g", "h", "system:authenticated"]},
        ),
        ([("User", "bob"), ("Uid", "u")], {"username": "bob", "uid": "u", "groups": ["system:authenticated"]}),
        (
            [("User", "bob"), ("Extra-a%2Fb", "1"), ("Extra-a%2Fb", "2")],
            {"username": "bob", "groups": ["system:authenticated"], "extra": {"a/b": ["1", "2"]}},
        ),
        (
            [("User", "system:serviceaccount:x:y")],
            {
                "username": "system:serviceaccount:x:y",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:x", "system:authenticated"],
            },
        ),
        (
            [("User", "system:serviceaccount:x:y"), ("Group", "g")],
            {"username": "system:serviceaccount:x:y", "groups": ["g", "system:authenticated"]},
        ),
    ],
)
async def test_an_administrator_may_impersonate_anybody(
    guarded: Guarded, headers: list[tuple[str, str]], info: dict[str, Any]
) -> None:
    acting = guarded.sending(*((f"Impersonate-{name}", value) for name, value in headers))
    assert await user_info(acting) == info


async def test_impersonation_requires_a_user(guarded: Guarded) -> None:
    answer = await guarded.sending(("Impersonate-Group", "g")).get("/version")
    assert answer.code == 400
    assert answer.message.endswith(" without impersonating a user name")


async def make_robot(guarded: Guarded, *rules: dict[str, Any]) -> Guarded:
    """Return the target as a service account with these cluster-wide rules."""
    robot = bearing(guarded, await make_token(guarded, await make_account(guarded)))
    name = guarded.named("robot")
    await guarded.make_role(name, *rules, plural="clusterroles")
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": guarded.namespace}
    await guarded.bind(name, subject, kind="ClusterRole", plural="clusterrolebindings")
    await robot.until_held(*rules)
    return robot


async def test_impersonation_requires_a_permission(guarded: Guarded) -> None:
    robot = await make_robot(
        guarded,
        rule("impersonate", "users", resourceNames=["anna"]),
        rule("impersonate", "groups", resourceNames=["g"]),
        rule("impersonate", "userextras/scopes", "authentication.k8s.io", resourceNames=["1"]),
        rule("impersonate", "serviceaccounts", resourceNames=["one"]),
    )
    anna = ("Impersonate-User", "anna")
    assert (await user_info(robot.sending(anna)))["username"] == "anna"
    assert (await user_info(robot.sending(anna, ("Impersonate-Group", "g"))))["groups"][0] == "g"
    scoped = robot.sending(anna, ("Impersonate-Extra-Scopes", "1"))
    assert (await user_info(scoped))["extra"] == {"scopes": ["1"]}
    account = ("Impersonate-User", f"system:serviceaccount:{guarded.namespace}:one")
    assert (await user_info(robot.sending(account)))["username"] == account[1]
    for header in (("Group", "h"), ("Extra-Scopes", "2"), ("Uid", "1")):
        rejected = await who_am_i(robot.sending(anna, (f"Impersonate-{header[0]}", header[1])))
        assert (rejected.code, rejected.reason) == (403, "Forbidden")
    for name in ("bob", f"system:serviceaccount:{guarded.namespace}:two"):
        assert (await who_am_i(robot.sending(("Impersonate-User", name)))).code == 403


# -- without a server -------------------------------------------------------------------------------------------------


def allowing(*allowed: str) -> Check:
    """Return a check that allows these, as ``verb resource name``."""

    def check(wanted: Attributes) -> None:
        if f"{wanted.verb} {wanted.full_resource} {wanted.name}".strip() not in allowed:
            raise access_denied(wanted.group, wanted.resource, wanted.name, f"no {wanted.verb}")

    return check


def test_headers_that_name_nobody_impersonate_nobody() -> None:
    assert wanted_user([]) is None
    assert wanted_user([("impersonate-user", "")]) is None


@given(
    st.lists(st.sampled_from(["a", "b", "c d"]), max_size=3), st.dictionaries(st.sampled_from("xyz"), st.just(("1",)))
)
def test_headers_name_a_user_with_groups_and_extras(groups: list[str], extra: dict[str, tuple[str, ...]]) -> None:
    headers = [("impersonate-user", "anna"), *(("impersonate-group", group) for group in groups)]
    headers += [(f"impersonate-extra-{key}", value) for key, values in extra.items() for value in values]
    assert wanted_user(headers) == User(name="anna", groups=tuple(groups), extra=extra)


@pytest.mark.parametrize(
    ("user", "allowed", "groups"),
    [
        (User(name="anna"), ["impersonate users anna"], ("system:authenticated",)),
        (User(name="system:node:one"), ["impersonate users system:node:one"], ("system:authenticated",)),
        (User(name="system:anonymous"), ["impersonate users system:anonymous"], ("system:unauthenticated",)),
    ],
)
def test_impersonated_users_have_their_implicit_groups(user: User, allowed: list[str], groups: tuple[str, ...]) -> None:
    assert impersonate(user, allowing(*allowed)).groups == groups


@pytest.mark.parametrize(
    "allowed",
    [
        [],
        ["impersonate users anna"],
        ["impersonate users anna", "impersonate groups a"],
        ["impersonate users bob", "impersonate groups a", "impersonate groups b"],
    ],
)
def test_every_part_of_a_user_must_be_allowed(allowed: list[str]) -> None:
    with pytest.raises(ApiError, match="no impersonate"):
        impersonate(User(name="anna", groups=("a", "b")), allowing(*allowed))
