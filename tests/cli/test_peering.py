"""Tests for :mod:`trioperator.cli.peering`: the commands that pause operators by their peering object."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Command
from tests.coordination.peers import peering, peering_crd
from trioperator.apiserver import Cluster
from trioperator.cli.failures import USAGE_ERROR


@pytest.fixture
async def command(command: Command, cluster: Cluster) -> Command:
    """Return the command on a cluster with the kinds of peering objects and one of each."""
    for manifest in (peering_crd(), peering_crd(clusterwide=False), peering(), peering(namespace="default")):
        await cluster.apply(manifest)
    return command


async def status(cluster: Cluster, namespace: str | None = None) -> dict[str, Any]:
    kind = "clusterkopfpeerings" if namespace is None else "kopfpeerings"
    found = await cluster.get(kind, "default", **({} if namespace is None else {"namespace": namespace}))
    records: dict[str, Any] = found.get("status") or {}
    return records


async def test_freeze_writes_a_record_and_resume_removes_it(cluster: Cluster, command: Command) -> None:
    assert (await command("freeze", "--lifetime=60")).returncode == 0
    ((identity, record),) = (await status(cluster)).items()
    assert "@" in identity
    assert (record["priority"], record["lifetime"]) == (100, 60)
    assert (await command("resume")).returncode == 0
    assert await status(cluster) == {}


async def test_the_options_of_freeze(cluster: Cluster, command: Command) -> None:
    done = await command("freeze", "-t", "5", "-p", "7", "-i", "it", "-n", "default", "-m", "maintenance")
    assert done.returncode == 0, done.stderr
    record = (await status(cluster, "default"))["it"]
    assert (record["priority"], record["lifetime"]) == (7, 5)
    assert (await command("freeze", "-t", "5", "--dev", "--id=it")).returncode == 0
    assert (await status(cluster))["it"]["priority"] == 666


async def test_a_peering_object_that_does_not_exist_is_named(command: Command) -> None:
    done = await command("freeze", "-t", "5", "-P", "absent")
    assert done.returncode == 1
    assert b'"absent" not found' in done.stderr


async def test_a_cluster_without_peerings_is_an_error_that_says_what_is_missing(
    cluster: Cluster, command: Command
) -> None:
    await cluster.delete("customresourcedefinitions", "clusterkopfpeerings.kopf.dev")
    done = await command("resume")
    assert done.returncode == USAGE_ERROR
    assert b"The cluster has no kind ClusterKopfPeering" in done.stderr


async def test_namespaces_and_the_whole_cluster_exclude_each_other(command: Command) -> None:
    done = await command("resume", "-A", "-n", "default")
    assert done.returncode == USAGE_ERROR
    assert b"not both" in done.stderr


async def test_a_lifetime_is_required(command: Command) -> None:
    done = await command("freeze")
    assert done.returncode == USAGE_ERROR
    assert b"--lifetime" in done.stderr
