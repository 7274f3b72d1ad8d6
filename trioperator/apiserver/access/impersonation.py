"""Impersonation: its headers, and its authorization: ``impersonate`` on a user, a group, a uid or an extra."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final
from urllib.parse import unquote

from ..model.errors import bad_request
from ..model.user import (
    ANONYMOUS,
    AUTHENTICATED,
    UNAUTHENTICATED,
    User,
    service_account_groups,
    split_service_account,
)
from .attributes import Attributes

_EXTRA: Final = "impersonate-extra-"
_GROUP: Final = "authentication.k8s.io"
_part: Final = partial(Attributes, verb="impersonate", version="v1")

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
    raise bad_request("requested a uid, groups or extras without impersonating a user name")


def impersonate(wanted: User, check: Check) -> User:
    """Return the impersonated user. Raises the error of what is not authorized."""
    for attributes in _parts(wanted):
        check(attributes)
    return _actual(wanted)


def _parts(wanted: User) -> Iterator[Attributes]:
    """Yield everything that must be authorized to impersonate the user."""
    account = split_service_account(wanted.name)
    if account is not None:
        namespace, name = account
        yield _part(resource="serviceaccounts", namespace=namespace, name=name)
    else:
        yield _part(resource="users", name=wanted.name)
    if wanted.uid:
        yield _part(group=_GROUP, resource="uids", name=wanted.uid)
    for name in wanted.groups:
        yield _part(resource="groups", name=name)
    for key, values in wanted.extra.items():
        for value in values:
            yield _part(group=_GROUP, resource="userextras", subresource=key, name=value)


def _actual(wanted: User) -> User:
    """Return the user with its implicit groups."""
    groups = wanted.groups
    account = split_service_account(wanted.name)
    if account is not None and not groups:
        groups = service_account_groups(account[0])
    own = UNAUTHENTICATED if wanted.name == ANONYMOUS.name else AUTHENTICATED
    if own not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, own)
    return dataclasses.replace(wanted, groups=groups)
