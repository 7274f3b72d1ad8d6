"""A database whose kind is a class: typed handlers, and a CRD that is made of it."""

import logging
from typing import Annotated, Literal

import msgspec

import trioperator
from trioperator import crds


@crds.rule("self.storage == 'ssd' || self.size >= 10", message="disks have 10 GiB or more")
class DatabaseSpec(msgspec.Struct):
    """What the database shall be like."""

    size: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    """The size in GiB."""

    storage: Literal["ssd", "disk"] = "ssd"
    """What it is stored on."""


class DatabaseStatus(msgspec.Struct):
    """What the database is like."""

    phase: Literal["Creating", "Ready"] = "Creating"
    size: int = 0


@crds.kind(
    "example.com/v1",
    short_names=["db"],
    columns=[crds.Column("Size", ".spec.size"), crds.Column("Phase", ".status.phase")],
)
class Database(msgspec.Struct):
    """A database."""

    spec: DatabaseSpec
    status: DatabaseStatus | None = None


@trioperator.on.create(Database)
@trioperator.on.update(Database)
def provide(spec: DatabaseSpec, patch: trioperator.Patch, logger: logging.Logger) -> None:
    logger.info("Providing %d GiB on %s.", spec.size, spec.storage)
    patch.status.update(crds.encode(DatabaseStatus(phase="Ready", size=spec.size)))
