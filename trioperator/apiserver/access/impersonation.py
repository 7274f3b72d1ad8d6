"""Impersonation: its headers, and its authorization.

As on the real server, there are two modes. Unconstrained, ``impersonate`` on a user, a group, a uid or an extra allows
everything that these may do. Constrained, ``impersonate:user-info`` (or ``serviceaccount``, ``arbitrary-node``) on
them, together with ``impersonate-on:user-info:<verb>`` on the requested resource, allows that request only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from urllib.parse import unquote

from trioperator.errors import ApiError

from ..model.errors import access_denied, bad_request
from ..model.quoting import quote_all
from ..model.user import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    UNAUTHENTICATED,
    User,
    service_account_groups,
    split_service_account,
)
from .attributes import Attributes

_EXTRA: Final = "impersonate-extra-"
_GROUP: Final = "authentication.k8s.io"
_NODE: Final = "system:node:"

Check = Callable[[Attributes], None]  # raises for what is not authorized


def wanted_user(headers: Sequence[tuple[str, str]]) -> User | None:
    """Return the user to impersonate by the headers (names in lower case), or None."""
    name = next((value for header, value in headers if header == "impersonate-user"), "")
    uid = next((value for header, value in headers if header == "impersonate-uid"), "")
    groups = tuple(value for header, value in headers if header == "impersonate-group")
    extra: dict[str, tuple[str, ...]] = {}
    for header, value in headers:
        if header.startswith(_EXTRA):
            key = unquote(header.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), value)
    if name:
        return User(name=name, uid=uid, groups=groups, extra=extra)
    if not uid and not groups and not extra:
        return None
    lists = ", ".join(f'"{key}":[]string{{{_go_list(values)}}}' for key, values in extra.items())
    shown_extra = f"{{{lists}}}" if extra else "(nil)"
    shown_groups = f"{{{_go_list(groups)}}}" if groups else "(nil)"
    shown = f'Name:"", UID:"{uid}", Groups:[]string{shown_groups}, Extra:map[string][]string{shown_extra}'
    raise bad_request(f"requested &user.DefaultInfo{{{shown}}} without impersonating a user name")


def _go_list(values: Sequence[str]) -> str:
    return quote_all(values)[1:-1].replace('" "', '", "')


def impersonate(wanted: User, request: Attributes, check: Check) -> User:
    """Return the impersonated user. Raises the error of the first mode that was tried."""
    first_error: ApiError | None = None
    for mode in (*_modes(wanted), ""):
        try:
            if mode:
                check(dataclasses.replace(request, verb=f"impersonate-on:{mode}:{request.verb}"))
                _check_limits(wanted)
            for attributes in _parts(wanted, mode):
                check(attributes)
        except ApiError as error:
            first_error = first_error or error
        else:
            return _actual(wanted, mode)
    assert first_error is not None
    raise first_error


def _check_limits(wanted: User) -> None:
    if MASTERS in wanted.groups:
        raise access_denied(_GROUP, "groups", MASTERS, f"impersonating the {MASTERS} group is not allowed")


def _modes(wanted: User) -> Iterator[str]:
    """Yield the constrained modes for the user. Nodes and service accounts must have just a name."""
    is_account = split_service_account(wanted.name) is not None
    is_node = wanted.name.startswith(_NODE)
    has_more = bool(wanted.uid or wanted.groups or wanted.extra)
    if not is_account and not is_node:
        yield "user-info"
    elif is_node and not has_more:
        yield "arbitrary-node"
    elif is_account and not has_more:
        yield "serviceaccount"


def _parts(wanted: User, mode: str) -> Iterator[Attributes]:
    """Yield everything that must be authorized to impersonate the user."""
    verb = f"impersonate:{mode}" if mode else "impersonate"
    group, version = (_GROUP if mode else ""), "v1"
    account = split_service_account(wanted.name)
    if account is not None:
        namespace, name = account
        yield Attributes(
            verb=verb, group=group, version=version, resource="serviceaccounts", namespace=namespace, name=name
        )
    elif mode == "arbitrary-node":
        name = wanted.name.removeprefix(_NODE)
        yield Attributes(verb=verb, group=group, version=version, resource="nodes", name=name)
    else:
        yield Attributes(verb=verb, group=group, version=version, resource="users", name=wanted.name)
    if wanted.uid:
        yield Attributes(verb=verb, group=_GROUP, version=version, resource="uids", name=wanted.uid)
    for name in wanted.groups:
        yield Attributes(verb=verb, group=group, version=version, resource="groups", name=name)
    for key, values in wanted.extra.items():
        for value in values:
            yield Attributes(
                verb=verb, group=_GROUP, version=version, resource="userextras", subresource=key, name=value
            )


def _actual(wanted: User, mode: str) -> User:
    """Return the user with its implicit groups."""
    groups = wanted.groups
    account = split_service_account(wanted.name)
    if mode == "arbitrary-node":
        groups = ("system:nodes",)
    elif account is not None and not groups:
        groups = service_account_groups(account[0])
    own = UNAUTHENTICATED if wanted.name == ANONYMOUS.name else AUTHENTICATED
    if own not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, own)
    return dataclasses.replace(wanted, groups=groups)
