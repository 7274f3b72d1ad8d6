"""Tests for :mod:`trioperator.cli.pausing`: the commands that pause single objects, and let them be reconciled."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Command
from tests.runtime.conftest import CRD, widget
from trioperator.apiserver import Cluster
from trioperator.cli.failures import FAILURE, SUCCESS, USAGE_ERROR

PAUSED, POKED = "trioperator.dev/paused", "trioperator.dev/reconcile-requested-at"


@pytest.fixture
async def command(command: Command, cluster: Cluster) -> Command:
    """Return the command on a cluster with two widgets."""
    await cluster.apply(CRD)
    for name in "ab":
        await cluster.create(widget(name))
    return command


async def annotation(cluster: Cluster, name: str, key: str = PAUSED) -> str | None:
    body = await cluster.get("widgets", name)
    value: str | None = (body["metadata"].get("annotations") or {}).get(key)
    return value


async def test_objects_are_paused_and_go_on(cluster: Cluster, command: Command) -> None:
    args = ("--until", "2099-12-01T00:00Z", "--reason", "DBA  at work")
    done = await command("pause", "widgets/a", "widgets.example.com/b", "-n", "default", *args)
    assert (done.returncode, done.stdout.decode().splitlines()) == (
        SUCCESS,
        [
            "widgets/default/a: paused until 2099-12-01T00:00:00Z: DBA at work",
            "widgets.example.com/default/b: paused until 2099-12-01T00:00:00Z: DBA at work",
        ],
    )
    assert await annotation(cluster, "a") == "until=2099-12-01T00:00:00Z reason=DBA at work"
    done = await command("unpause", "widgets/a")
    assert done.stdout == b"widgets/default/a: no longer paused\n"
    assert await annotation(cluster, "a") is None
    assert (await command("unpause", "widgets/a")).stdout == b"widgets/default/a: not paused\n"
    assert (await command("pause", "widgets/a", "--annotation", "example.org/hold")).returncode == SUCCESS
    assert await annotation(cluster, "a", "example.org/hold") == "true"


async def test_each_poke_has_a_value_of_its_own(cluster: Cluster, command: Command) -> None:
    values = set()
    for _ in range(2):
        assert (await command("poke", "widgets/a")).stdout.startswith(b"widgets/default/a: requested at 2")
        values.add(await annotation(cluster, "a", POKED))
    assert len(values - {None}) == 2


async def test_input_that_is_wrong_is_explained(cluster: Cluster, command: Command) -> None:
    for args, code, text in [
        (("pause", "widgets/a", "widgets"), USAGE_ERROR, b"pass KIND/NAME"),
        (("pause", "widgets/a", "--until", "tomorrow"), USAGE_ERROR, b"not the end of a pause"),
        (("pause", "widgets/a", "--reason", "\udcff"), USAGE_ERROR, b"--reason '\\udcff' is not UTF-8"),
        (("poke", "wigdets/a"), FAILURE, b"does not serve the kind wigdets (did you mean widgets?)"),
        (("unpause", "widgets/c"), FAILURE, b'"c" not found'),
    ]:
        done = await command(*args)
        assert (done.returncode, text in done.stderr) == (code, True), done.stderr
    assert await annotation(cluster, "a") is None  # nothing is done if one of the names is wrong
