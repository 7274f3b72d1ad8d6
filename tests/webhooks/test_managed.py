"""Tests for :mod:`trioperator._webhooks.managed`."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trioperator._kube.api_client import open_client
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._webhooks.managed import ManagedObjects
from trioperator.apiserver import Cluster
from trioperator.errors import ConnectionLostError
from trioperator.settings import OperatorSettings


class Things(ManagedObjects):
    """Things whose writing fails a few times."""

    failures = 0
    times: tuple[float, ...] = ()
    undone = 0
    slow = False

    def change(self) -> None:
        self._changed.set()

    async def _write(self) -> None:
        self.times = (*self.times, trio.current_time())
        if self.slow:
            await trio.sleep(10)
        self.failures -= 1
        if self.failures >= 0:
            raise ConnectionLostError("It is gone.")

    async def _undo(self) -> None:
        self.undone = len(self.times)


async def test_things_are_written_when_they_have_changed_and_again_after_errors(
    autojump_clock: MockClock, cluster: Cluster, caplog: pytest.LogCaptureFixture, nursery: trio.Nursery
) -> None:
    info, began = ConnectionInfo(server="http://embedded"), trio.current_time()
    async with open_client(lambda: info, settings=OperatorSettings(), transport=cluster.transport()) as client:
        things = Things(client, "things")
        nursery.start_soon(things.serve)
        await trio.sleep(100)
        assert (things.times, things.tried.is_set()) == ((), False)
        things.failures = 2
        things.change()
        await wait_all_tasks_blocked()
        assert (things.tried.is_set(), things.problem) == (True, "The things are not up to date.")
        await trio.sleep(1000)
        assert (len(things.times), things.problem) == (3, None)
        assert 105 <= things.times[1] - began < things.times[2] - began
        things.change()
        await wait_all_tasks_blocked()
        assert len(things.times) == 4
    assert caplog.text.count("The things cannot be written; retrying in ") == 2


async def test_who_waits_for_a_change_waits_until_it_is_written(
    autojump_clock: MockClock, cluster: Cluster, nursery: trio.Nursery
) -> None:
    info = ConnectionInfo(server="http://embedded")
    async with open_client(lambda: info, settings=OperatorSettings(), transport=cluster.transport()) as client:
        things = Things(client, "things")
        nursery.start_soon(things.serve)
        things.failures = 2
        things.change()
        await things.expect_written().wait()
        assert len(things.times) == 3
        things.change()
        for written in [things.expect_written() for _ in range(3)]:
            await written.wait()
        assert len(things.times) == 4


async def test_what_is_being_written_is_undone_when_it_is_written(
    autojump_clock: MockClock, cluster: Cluster, nursery: trio.Nursery
) -> None:
    info = ConnectionInfo(server="http://embedded")
    async with open_client(lambda: info, settings=OperatorSettings(), transport=cluster.transport()) as client:
        things = Things(client, "things")
        things.slow = True
        nursery.start_soon(things.serve)
        things.change()
        await trio.sleep(5)
        with trio.move_on_after(1):
            await things.release()
        assert things.undone == 0
        await things.release()
        assert things.undone == 1
        assert trio.current_time() == 10
