"""Workloads converge to their specs after random changes, and nothing more is written."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.apiserver.controllers.objects import Object, template, workload
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError

KINDS = {"Deployment": "deploy", "StatefulSet": "sts", "DaemonSet": "ds", "ReplicaSet": "rs"}
PEACE = 900  # seconds: longer than the longest delay of a container that ends again and again


class Trouble:
    """Random changes of one workload and its Pods."""

    def __init__(self, cluster: Cluster, kind: str, seed: int) -> None:
        self.cluster = cluster
        self.kind = kind
        self.random = random.Random(f"{kind} {seed}")
        self.image = "i"

    async def begin(self) -> None:
        options: Object = {} if self.kind == "DaemonSet" else {"replicas": self.random.randint(0, 4)}
        if self.kind == "Deployment":
            strategy = self.random.choice(
                [
                    {"type": "Recreate"},
                    {"type": "RollingUpdate"},
                    {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
                    {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}},
                ]
            )
            options |= {"strategy": strategy, "minReadySeconds": self.random.choice([0, 5])}
        if self.kind == "StatefulSet":
            options["podManagementPolicy"] = self.random.choice(["OrderedReady", "Parallel"])
        await self.cluster.create(workload(self.kind, **options))

    async def happen(self) -> None:
        """Apply one random change after some time."""
        await trio.sleep(self.random.choice([0, 0.1, 1, 3, 20]))
        pods = [obj["metadata"]["name"] for obj in await self.cluster.list("pods")]
        things = [self.scale, self.renew, *([self.kill, self.kill, self.fail] if pods else [])]
        try:
            await self.random.choice(things)(*([self.random.choice(pods)] if pods else [""]))
        except ApiError as error:
            assert error.status == 404  # noqa: PT017 - it is gone already

    async def scale(self, _: str) -> None:
        if self.kind != "DaemonSet":
            await self.change({"replicas": self.random.randint(0, 5)})

    async def renew(self, _: str) -> None:
        if self.kind != "ReplicaSet":
            self.image = self.random.choice(["i", "j", "k"])
            await self.change({"template": template({"app": "w"}, image=self.image)})

    async def kill(self, name: str) -> None:
        await self.cluster.delete("pods", name)

    async def fail(self, name: str) -> None:
        await self.cluster.patch("pods", name, {"status": {"phase": "Failed"}}, subresource="status")

    async def change(self, spec: Object) -> None:
        await self.cluster.patch(KINDS[self.kind], "w", {"spec": spec})

    async def check(self) -> None:
        obj = await self.cluster.get(KINDS[self.kind], "w")
        pods = [obj for obj in await self.cluster.list("pods") if obj["status"]["phase"] == "Running"]
        replicas = obj["spec"].get("replicas", 1)
        assert [pod["spec"]["containers"][0]["image"] for pod in pods] == [self.image] * replicas
        status: Any = obj["status"]
        field = "numberAvailable" if self.kind == "DaemonSet" else "availableReplicas"
        assert status.get(field, 0) == replicas
        assert status["observedGeneration"] == obj["metadata"]["generation"]
        if self.kind == "StatefulSet":
            assert [pod["metadata"]["name"] for pod in pods] == [f"w-{number}" for number in range(replicas)]
            assert status["currentRevision"] == status["updateRevision"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
async def test_workloads_converge_to_their_specs(
    deterministic: int, cluster: Cluster, autojump_clock: MockClock, kind: str, seed: int
) -> None:
    trouble = Trouble(cluster, kind, seed)
    async with cluster.open_controllers():
        await trouble.begin()
        for _ in range(15):
            await trouble.happen()
        await trio.sleep(PEACE)
        await trouble.check()
        revision = cluster.revision
        await trio.sleep(PEACE)
        assert cluster.revision == revision
