"""Types of fields that many kinds have."""

from __future__ import annotations

import datetime
from typing import TypeAlias

import msgspec

__all__ = ["IntOrString", "ObjectMeta", "OwnerRef"]

#: An integer, or a string such as ``"25%"`` or the name of a port.
IntOrString: TypeAlias = int | str


class OwnerRef(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A reference to an owner, in the metadata of an object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of an object, for the field ``metadata`` of a class that declares a kind.

    Fields that are not set are not sent.
    """

    name: str = ""
    generate_name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime.datetime | None = None
    deletion_timestamp: datetime.datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerRef] = []
