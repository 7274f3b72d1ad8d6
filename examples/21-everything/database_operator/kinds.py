"""The kind Database, in two versions. Its CustomResourceDefinition is made from the classes."""

from typing import Annotated

import msgspec

from trioperator import crds

Replicas = Annotated[int, msgspec.Meta(ge=1, le=9)]
Schedule = Annotated[
    str, msgspec.Meta(max_length=100, pattern=r"^(@(hourly|daily|weekly)|([-0-9A-Za-z*,/]+ ){4}[-0-9A-Za-z*,/]+)$")
]


class DatabaseStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    """What the database is like, in both versions."""

    ready_replicas: int = 0
    last_backup: str | None = None
    """The name of the last Job that has made a backup."""

    conditions: crds.ConditionList = []

    def find(self, type: str) -> crds.Condition | None:
        return next((each for each in self.conditions if each.type == type), None)


class OldDatabaseSpec(msgspec.Struct, rename="camel"):
    size_gb: Annotated[int, msgspec.Meta(ge=1)]
    """The size in GiB."""

    replicas: Replicas = 1
    version: str | None = None
    settings: str | None = None
    backup: Schedule | None = None
    """When backups are made, as a cron expression."""


@crds.kind("db.example.com/v1alpha1", kind="Database", deprecated="use db.example.com/v1")
class OldDatabase(msgspec.Struct):
    """A database, as it was first."""

    spec: OldDatabaseSpec
    status: DatabaseStatus | None = None


class Backups(msgspec.Struct, rename="camel"):
    """When backups are made, and how many are kept."""

    schedule: Schedule
    """A cron expression."""

    keep: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    """How many Jobs are kept."""


class DatabaseSpec(msgspec.Struct, rename="camel"):
    """What the database shall be like."""

    storage: crds.Quantity
    """The size of the volume of each replica. It can grow."""

    replicas: Replicas = 1
    version: str | None = None
    """The version of PostgreSQL; by default, the newest when the object is created."""

    settings: str | None = None
    """The name of a Secret with settings, which has the label db.example.com/settings."""

    backups: Backups | None = None


@crds.kind(
    "db.example.com/v1",
    storage=True,
    short_names=["db"],
    columns=[
        crds.Column("Version", ".spec.version"),
        crds.Column("Replicas", ".status.readyReplicas"),
        crds.Column("Ready", '.status.conditions[?(@.type=="Ready")].status', type="string"),
        crds.Column("Backup", ".status.lastBackup"),
    ],
)
class Database(msgspec.Struct):
    """A database."""

    spec: DatabaseSpec
    status: DatabaseStatus | None = None
