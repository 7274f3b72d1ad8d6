"""Kopf's queue of events, which operators look at in their probes."""

from __future__ import annotations

import pytest

import trioperator
from tests.recorder.test_recorder import recording
from trioperator.apiserver import Cluster
from trioperator.kopf.posting import event_queue_var


async def test_the_queue_says_how_many_events_wait(cluster: Cluster) -> None:
    async with recording(cluster) as found:
        with found.recorder.active():
            queue = event_queue_var.get()
            assert (queue.qsize(), queue.empty()) == (0, True)
            trioperator.info(
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}, reason="Some", message="a"
            )
            assert (queue.qsize(), queue.empty()) == (1, False)
        await found.events()
        assert queue.empty()


def test_there_is_no_queue_without_an_operator() -> None:
    with pytest.raises(LookupError):
        event_queue_var.get()
