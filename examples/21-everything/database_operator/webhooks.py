"""What is reviewed before a database is stored."""

from collections.abc import Mapping
from typing import Any

import trioperator
from database_operator.kinds import Database, DatabaseSpec
from trioperator import crds

NEWEST = "18"


@trioperator.on.mutate(Database, operations=["CREATE", "UPDATE"])
async def set_version(spec: DatabaseSpec, old: Mapping[str, Any] | None, patch: trioperator.Patch) -> None:
    """Choose the newest version. Databases that exist keep theirs, also if a manifest without one replaces them."""
    if spec.version is None and (version := NEWEST if old is None else old["spec"].get("version")):
        patch.spec["version"] = version


@trioperator.on.validate(Database, operations=["CREATE", "UPDATE"])
async def check_backups(spec: DatabaseSpec, warnings: list[str]) -> None:
    if spec.backups is None:
        warnings.append("There are no backups of this database.")


@trioperator.on.validate(Database, operation="UPDATE", field="spec.storage")
async def refuse_shrinking(old: str, new: str) -> None:
    if crds.Quantity(new) < crds.Quantity(old):
        raise trioperator.AdmissionError(f"A database cannot shrink from {old} to {new}.", code=422)
