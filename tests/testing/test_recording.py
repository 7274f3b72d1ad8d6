"""Tests for :mod:`trioperator.testing.recording`; what is recorded of an operator: see ``test_operator_runner.py``."""

from __future__ import annotations

import logging

import httpx
import msgspec
import pytest

from trioperator._logs import get_logger
from trioperator.apiserver import Cluster
from trioperator.testing import LogLine, RecordLog, Write
from trioperator.testing.recording import RecordingTransport, record_logs

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
EVENT = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}


def recording(cluster: Cluster, writes: RecordLog[Write]) -> RecordingTransport:
    return RecordingTransport(cluster.transport(), writes, revision=lambda: cluster.revision)


async def test_writes_that_change_nothing_are_marked(cluster: Cluster) -> None:
    writes: RecordLog[Write] = RecordLog()
    base, apply = "/api/v1/namespaces/default/configmaps", {"fieldManager": "me"}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    async with httpx.AsyncClient(transport=recording(cluster, writes), base_url="http://cluster") as client:
        for data in ({"a": "1"}, {"a": "1"}, {"a": "2"}):
            content = msgspec.json.encode({**CONFIG_MAP, "data": data})
            response = await client.patch(f"{base}/c", content=content, headers=headers, params=apply)
            assert response.json()["data"] == data
        await client.delete(f"{base}/c", params={"dryRun": "All"})
        await client.delete(f"{base}/c")
        await client.delete(f"{base}/c")
    assert [write.changed for write in writes] == [True, False, True, False, True, True]


async def test_writes_are_recorded_but_no_reads_and_no_routine(cluster: Cluster) -> None:
    writes: RecordLog[Write] = RecordLog()
    transport = recording(cluster, writes)
    async with httpx.AsyncClient(transport=transport, base_url="http://cluster") as client:
        assert (await client.get("/api/v1/configmaps")).status_code == 200
        assert (await client.post("/api/v1/namespaces/default/events", json=EVENT)).status_code == 201
        assert (await client.post("/api/v1/namespaces/default/configmaps", json=CONFIG_MAP)).status_code == 201
    assert [(str(write), b'"ConfigMap"' in write.body) for write in writes] == [
        ("POST /api/v1/namespaces/default/configmaps", True)
    ]


async def test_nothing_passes_a_transport_that_is_cut_off(cluster: Cluster) -> None:
    transport = recording(cluster, RecordLog())
    async with httpx.AsyncClient(transport=transport, base_url="http://cluster") as client:
        transport.is_cut = True
        with pytest.raises(httpx.ConnectError, match="has crashed"):
            await client.get("/api/v1/configmaps")


def test_logs_are_recorded_from_info_on_and_the_level_is_restored() -> None:
    logs: RecordLog[LogLine] = RecordLog()
    logger = logging.getLogger("trioperator")
    before = logger.level, list(logger.handlers)
    with record_logs(logs):
        get_logger("trioperator.test").info("seen", number=1)
        get_logger("trioperator.test").debug("unseen")
    get_logger("trioperator.test").error("unseen")
    assert [line.message for line in logs] == ["seen number=1"]
    assert (logger.level, logger.handlers) == before
