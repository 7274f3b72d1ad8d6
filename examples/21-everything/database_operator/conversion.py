"""Databases of v1alpha1 and of v1 are converted into each other without a loss."""

import math

import msgspec

import trioperator
from database_operator.kinds import Backups, Database, DatabaseSpec, OldDatabase, OldDatabaseSpec
from trioperator import crds

#: The annotation for what v1 has and v1alpha1 cannot say.
KEPT = "db.example.com/v1"


@trioperator.on.convert(Database, from_="v1alpha1", to="v1")
def upgrade(body: OldDatabase, annotations: trioperator.Annotations, patch: trioperator.Patch) -> Database:
    patch.meta.annotations[KEPT] = None
    text = annotations.get(KEPT)
    kept = crds.decode(DatabaseSpec, msgspec.json.decode(text)) if text else None
    return Database(spec=upgrade_spec(body.spec, kept), status=body.status)


@trioperator.on.convert(Database, from_="v1", to="v1alpha1")
def downgrade(body: Database, patch: trioperator.Patch) -> OldDatabase:
    spec = downgrade_spec(body.spec)
    is_lossy = upgrade_spec(spec, None) != body.spec
    patch.meta.annotations[KEPT] = msgspec.json.encode(crds.encode(body.spec)).decode() if is_lossy else None
    return OldDatabase(spec=spec, status=body.status)


def downgrade_spec(spec: DatabaseSpec) -> OldDatabaseSpec:
    return OldDatabaseSpec(
        size_gb=math.ceil(spec.storage.value / 2**30),
        replicas=spec.replicas,
        version=spec.version,
        settings=spec.settings,
        backup=spec.backups.schedule if spec.backups else None,
    )


def upgrade_spec(old: OldDatabaseSpec, kept: DatabaseSpec | None) -> DatabaseSpec:
    """Return the spec in v1, with what v1alpha1 cannot say as it was, where v1alpha1 has not been changed since."""
    storage = crds.Quantity(f"{old.size_gb}Gi")
    backups = Backups(old.backup) if old.backup else None
    if kept is not None:
        if downgrade_spec(kept).size_gb == old.size_gb:
            storage = kept.storage
        if backups and kept.backups:
            backups.keep = kept.backups.keep
    return DatabaseSpec(storage, old.replicas, old.version, old.settings, backups)
