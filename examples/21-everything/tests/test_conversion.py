"""Conversions lose nothing, in both directions."""

import pytest
from database_operator.conversion import downgrade_spec, upgrade_spec
from database_operator.kinds import Backups, DatabaseSpec, OldDatabaseSpec
from trio.testing import MockClock

from trioperator import crds
from trioperator.apiserver import Cluster

OLD = "databases.v1alpha1.db.example.com"


@pytest.mark.parametrize("old", [OldDatabaseSpec(3), OldDatabaseSpec(1, 2, "17", "secret", "@daily")])
def test_an_old_database_is_the_same_after_a_round_trip(old: OldDatabaseSpec) -> None:
    assert downgrade_spec(upgrade_spec(old, None)) == old


@pytest.mark.parametrize("storage", ["1Gi", "1536Mi", "2G"])
@pytest.mark.parametrize("backups", [None, Backups("@daily"), Backups("@daily", keep=9)])
def test_a_database_is_the_same_after_a_round_trip(storage: str, backups: Backups | None) -> None:
    spec = DatabaseSpec(crds.Quantity(storage), version="18", backups=backups)
    assert upgrade_spec(downgrade_spec(spec), spec) == spec


async def test_clients_of_the_old_version_keep_what_they_cannot_see(
    database: None, autojump_clock: MockClock, cluster: Cluster
) -> None:
    changes = {"storage": "1536Mi", "backups": {"schedule": "@daily", "keep": 9}}
    await cluster.patch("databases", "orders", {"spec": changes})
    await cluster.patch(OLD, "orders", {"spec": {"replicas": 3}})
    found = await cluster.get("databases", "orders")
    assert found["spec"]["storage"] == "1536Mi"
    assert found["spec"]["backups"] == {"schedule": "@daily", "keep": 9}
    assert "annotations" not in found["metadata"] or "db.example.com/v1" not in found["metadata"]["annotations"]

    await cluster.patch(OLD, "orders", {"spec": {"sizeGb": 4, "backup": None}})
    found = await cluster.get("databases", "orders")
    assert found["spec"]["storage"] == "4Gi"
    assert "backups" not in found["spec"]
