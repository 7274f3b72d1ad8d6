"""Types of fields that many kinds have."""

from __future__ import annotations

import datetime
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from trioperator.crds.declaring import format_of, list_map

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


_TYPE: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
_REASON: Final = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"


class Condition(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """A condition of an object: whether it holds, and since when."""

    type: Annotated[str, Meta(max_length=316, pattern=_TYPE)]
    """The name of the condition in CamelCase, such as Ready."""

    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""

    reason: Annotated[str, Meta(min_length=1, max_length=1024, pattern=_REASON)]
    """Why the condition has this status, as a word in CamelCase for programs."""

    message: Annotated[str, Meta(max_length=32768)]
    """Why the condition has this status, as a text for people; it may be empty."""

    last_transition_time: datetime.datetime
    """When the status changed."""

    observed_generation: Annotated[int, Meta(ge=0), format_of("int64")] | None = None
    """The generation of the object for which the condition was determined."""


#: List of conditions, one for each type, which several managers may share: ``conditions: crds.ConditionList = []``.
ConditionList: TypeAlias = Annotated[list[Condition], list_map("type")]
