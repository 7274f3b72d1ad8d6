"""Plays of operators, as ``python -m tests.world --real`` has them."""

from __future__ import annotations

import pathlib

import trio
import trio.testing
import yaml

from tests.world.operators import declare
from tests.world.playing import Play, play
from tests.world.servers import open_plane
from trioperator import open_client
from trioperator.apiserver import write_kubeconfig

OPERATOR = """
import trioperator as kopf


@kopf.on.create("kopfexamples")
@kopf.on.update("kopfexamples")
async def fn(spec, patch, client, **_):
    patch.status["seen"] = spec["field"]
    meta = {"name": "child"}
    await client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"field": spec["field"]}})
"""
CRD = pathlib.Path(__file__).parents[2] / "examples" / "crd.yaml"
OBJECT = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "one", "namespace": "default"}}


async def act(play: Play) -> None:
    await play.apply(CRD)
    async with play.running("--standalone", "--all-namespaces", "main.py"):
        await play.apply({**OBJECT, "spec": {"field": "a"}})
        await play.until("kopfexamples", "one", lambda found: found.get("status"))
        await play.record("created", quiet=1)
    await play.apply({**OBJECT, "spec": {"field": "b"}})
    play.states["refusal"] = [(await play.refusal(None, "kopfexamples", "two", "default")).partition(" (")[0]]
    async with play.running("--standalone", "--all-namespaces", "main.py"):
        await play.record("changed while it was down", quiet=1)


async def test_an_operator_is_played_on_a_real_control_plane_as_on_the_embedded_server(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "own"
    root.mkdir()
    (root / "main.py").write_text(OPERATOR)
    states = {}
    for real in (False, True):
        home = tmp_path / f"own.native-{int(real)}"
        home.mkdir()
        states[real] = (await play(act, "native", root, home, real=real)).states
    assert [len(lines) for lines in states[False].values()] == [2, 1, 2], states[False]
    assert states[True] == states[False]


async def test_what_is_applied_waits_for_a_kind_that_the_operator_defines(tmp_path: pathlib.Path) -> None:
    definition = yaml.safe_load(CRD.read_text())
    async with open_plane(tmp_path) as plane, trio.open_nursery() as nursery:
        nursery.start_soon(plane.apply, {**OBJECT, "spec": {}})
        await trio.testing.wait_all_tasks_blocked()
        await plane.create(definition)
        await plane.wait_for("kopfexamples", "one", bool, "default")


async def test_kinds_in_versions_of_any_name_are_applied(tmp_path: pathlib.Path) -> None:
    thing = {"apiVersion": "example.com/v1beta", "kind": "Thing", "metadata": {"name": "one", "namespace": "default"}}
    async with open_plane(tmp_path) as plane:
        await plane.apply(declare("example.com", "v1beta", "Thing"))
        await plane.apply({**thing, "spec": {"a": 1}})
        (merged,) = await plane.apply({**thing, "spec": {"b": 2}})
        assert merged["spec"] == {"a": 1, "b": 2}


async def test_a_client_certificate_of_a_real_control_plane_logs_in(tmp_path: pathlib.Path) -> None:
    async with open_plane(tmp_path) as plane:
        server = yaml.safe_load((tmp_path / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
        write_kubeconfig(str(tmp_path / "certified"), plane.kubeconfig(server, certificate=True))
        async with open_client(kubeconfig=tmp_path / "certified") as client:
            assert await client.list("namespaces")
