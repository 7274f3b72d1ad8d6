"""What is reviewed before a database is stored."""

import trioperator
from database_operator.kinds import Database, DatabaseSpec
from trioperator import crds

NEWEST = "18"


@trioperator.on.mutate(Database, operation="CREATE")
async def set_version(spec: DatabaseSpec, patch: trioperator.Patch) -> None:
    """Choose the newest version: databases that exist stay with theirs when the operator knows a newer one."""
    if spec.version is None:
        patch.spec["version"] = NEWEST


@trioperator.on.validate(Database, operations=["CREATE", "UPDATE"])
async def check_backups(spec: DatabaseSpec, warnings: list[str]) -> None:
    if spec.backups is None:
        warnings.append("There are no backups of this database.")


@trioperator.on.validate(Database, operation="UPDATE", field="spec.storage")
async def refuse_shrinking(old: str, new: str) -> None:
    if crds.Quantity(new) < crds.Quantity(old):
        raise trioperator.AdmissionError(f"A database cannot shrink from {old} to {new}.", code=422)
