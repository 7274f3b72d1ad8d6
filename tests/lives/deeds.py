"""What goes wrong around the operators of any life: each function is a deed, which plans name."""

from __future__ import annotations

import contextlib
import datetime
import math
from typing import TYPE_CHECKING, Any, Final

import trio

import trioperator
from tests.lives.parts.base import STRANGER
from tests.lives.world import NAMESPACES_PEERING, definition, make_fault, manifest
from trioperator._concurrency import clock
from trioperator._concurrency.clock import wall_now
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._tooling.releasing import Place, Releaser, Traces
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError, ConfigError

if TYPE_CHECKING:
    from tests.lives.life import Life

PAUSED: Final = "trioperator.dev/paused"
POKED: Final = "trioperator.dev/reconcile-requested-at"
NOTES: Final = "notes"

# -- operators ----------------------------------------------------------------------------------------------------


async def stop(life: Life, name: str) -> None:
    """Stop an operator in order."""
    await life.operators[name].stop()


async def crash(life: Life, name: str) -> None:
    """Kill an operator."""
    await life.operators[name].crash()


async def start(life: Life, name: str, variant: str | None = None) -> None:
    """Start an operator that has ended, with other handlers if another variant is given."""
    await life.operators[name].start(variant)


async def retire(life: Life, name: str) -> None:
    """Stop an operator in order, for good."""
    life.operators[name].is_retired = True
    await life.operators[name].stop()


# -- the network --------------------------------------------------------------------------------------------------


async def fault(
    life: Life, name: str, kind: str, number: float, seconds: float, times: int | None, selection: dict[str, Any]
) -> None:
    """Let requests of an operator (or of the client) fail for some seconds."""
    now = trio.current_time()
    until = min(life.end, now + seconds)
    life.faults[name].add(make_fault(kind, number), since=now, until=until, times=times, **selection)


async def hold_back(life: Life, seconds: float) -> None:
    """Let the events of all watches arrive at the same moment, after a while."""
    if life.tide.is_set():
        life.tide = trio.Event()
        await trio.sleep(seconds)
        life.tide.set()


async def slow(life: Life, resource: str, seconds: float, duration: float) -> None:
    """Let responses about a resource (or all) be slow for a while."""
    now = trio.current_time()
    life.slow.append((now, now + duration, resource, seconds))


async def freeze(life: Life, seconds: float) -> None:
    """Suspend the process, and let another one take the lease meanwhile."""
    life.clock.jump(seconds)
    life.frozen += seconds
    if seconds > life.plan.options["lease"][0] and life.plan.together == "leader":
        await _set_holder(life, "rival", 3600)


# -- coordination -------------------------------------------------------------------------------------------------


async def steal(life: Life, seconds: float) -> None:
    """Take the lease against all rules for a while."""
    if await life.cluster.find("leases", "trioperator", namespace="default") is None:
        return
    life.stolen_until = max(life.stolen_until, trio.current_time() + seconds)
    # Not for longer: a restore may bring that record back, and nobody believes then that it was released.
    await _set_holder(life, "thief", math.ceil(life.stolen_until - trio.current_time()))
    life.nursery.start_soon(_give_back, life, seconds)


async def _give_back(life: Life, seconds: float) -> None:
    await trio.sleep(seconds)
    if trio.current_time() >= life.stolen_until:  # else it was stolen again, and nobody had the time to notice
        await release(life)


async def release(life: Life) -> None:
    """Let nobody else hold the lease."""
    lease = await life.cluster.find("leases", "trioperator", namespace="default")
    if lease is not None and lease["spec"].get("holderIdentity") in {"thief", "rival"}:
        await _set_holder(life, "", 1)


async def _set_holder(life: Life, holder: str, seconds: int) -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
    await life.cluster.patch("leases", "trioperator", {"spec": spec}, "default")
    await life.leases.look()


async def boss(life: Life, seconds: float) -> None:
    """Let somebody with a higher priority appear among the peers for a while (in one namespace)."""
    record = {"priority": 1000, "lifetime": int(seconds), "lastseen": wall_now().isoformat()}
    namespace = "default" if life.peering == NAMESPACES_PEERING else None
    await life.cluster.patch(life.peering[1], "default", {"status": {"boss": record}}, namespace)
    life.journal.changes += [trio.current_time(), trio.current_time() + seconds]
    await life.peers.look()


# -- objects ------------------------------------------------------------------------------------------------------


async def hold(life: Life, plural: str, name: str, seconds: float, by_itself: bool) -> None:
    """Pause an object by its annotation for a while; it ends *by itself*, or is ended."""
    until = (wall_now() + datetime.timedelta(seconds=seconds)).isoformat()
    is_timed = by_itself and not life.has("clock", "freeze")  # by which the time of the end would move
    body = await _annotate(life, plural, name, PAUSED, f"until={until} reason=a life" if is_timed else "true")
    if body is not None:
        life.holds.begin(body["metadata"]["uid"], seconds)
        life.nursery.start_soon(_let_go, life, plural, body, seconds, is_timed)


async def _let_go(life: Life, plural: str, body: dict[str, Any], seconds: float, is_timed: bool) -> None:
    await trio.sleep(seconds)
    life.holds.end(body["metadata"]["uid"])
    if not is_timed:
        await _annotate(life, plural, body["metadata"]["name"], PAUSED, None)


async def poke(life: Life, plural: str, name: str, value: str) -> None:
    """Request that an object is reconciled now."""
    await _annotate(life, plural, name, POKED, value)


async def fill(life: Life, plural: str, name: str, seconds: float) -> None:
    """Leave no room for more annotations on an object for a while, or nearly none."""
    found = await life.cluster.find(plural, name)
    if found is not None:
        annotations = found["metadata"].get("annotations", {})
        taken = sum(len(key) + len(value) for key, value in annotations.items() if key != NOTES)
        left = life.random.choice([0, 100, 600])
        await _annotate(life, plural, name, NOTES, "x" * (256 * 1024 - taken - len(NOTES) - left))
        life.nursery.start_soon(_empty, life, plural, name, seconds)


async def _empty(life: Life, plural: str, name: str, seconds: float) -> None:
    await trio.sleep(seconds)
    await _annotate(life, plural, name, NOTES, None)


async def cling(life: Life, seconds: float) -> None:
    """Let somebody else keep a child from going for a while, by a finalizer."""
    owned = [each for each in await life.cluster.list("configmaps") if each["metadata"].get("ownerReferences")]
    if owned:
        name = life.random.choice(owned)["metadata"]["name"]
        await life.cluster.patch("configmaps", name, {"metadata": {"finalizers": [STRANGER]}}, "default")
        life.nursery.start_soon(_unclasp, life, name, seconds)


async def _unclasp(life: Life, name: str, seconds: float) -> None:
    await trio.sleep(seconds)
    with contextlib.suppress(ApiError, ConfigError):
        await life.cluster.patch("configmaps", name, {"metadata": {"finalizers": None}}, "default")


async def unclasp_all(life: Life) -> None:
    """Let all children go, also those that a restore has brought back."""
    for each in await life.cluster.list("configmaps") if life.has("clinging") else ():
        if each["metadata"].get("finalizers"):
            await _unclasp(life, each["metadata"]["name"], 0)


async def release_objects(life: Life, plural: str, state: bool) -> None:
    """Remove what operators have left on objects: finalizers, and with *state* what they remember."""
    connection = ConnectionInfo(server="http://release")
    async with trioperator.open_client(connection=connection, transport=life.cluster.transport()) as client:
        await Releaser(client, Traces(state=state), lambda _: None).release(plural, Place("default"))


async def _annotate(life: Life, plural: str, name: str, annotation: str, value: str | None) -> dict[str, Any] | None:
    """Set an annotation, and return the object; None if there is none, or it is another one by now."""
    try:
        return await life.cluster.patch(plural, name, {"metadata": {"annotations": {annotation: value}}})
    except (ApiError, ConfigError):
        return None


# -- the cluster --------------------------------------------------------------------------------------------------


async def set_clock(life: Life, seconds: float) -> None:
    """Set the wall clock forward or back."""
    clocks = clock.find_clocks()
    assert clocks.virtual is not None
    clocks.virtual += seconds


async def add_version(life: Life, kind: str, versions: int) -> None:
    """Let a kind have more versions."""
    await life.cluster.apply(definition(kind, versions=versions))


async def drop_kind(life: Life, plural: str, seconds: float) -> None:
    """Delete a kind with all of its objects, and define it again a while after it is gone, with the same objects."""
    part = next(each for each in life.parts if each.plural == plural)
    names = {each["metadata"]["name"] for each in await life.cluster.list(plural)}
    life.journal.gone |= names
    kind = ("customresourcedefinitions", definition(part.kind)["metadata"]["name"])
    found = await life.cluster.get(*kind)
    await life.cluster.delete(*kind)
    with trio.move_on_after(60):  # its objects may have finalizers, and there may be nobody to remove them
        await life.cluster.wait_deleted(*kind, timeout=None)
    await trio.sleep(seconds)
    await life.cluster.apply({**found, "metadata": {"name": kind[1]}, "status": {}})
    for each in sorted(names & part.options["objects"].keys()):
        await part.create(each)


async def forbid(life: Life, namespace: str, seconds: float) -> None:
    """Take the rights to read in a namespace away for a while, or for good if that lasts longer than the trouble."""
    now = trio.current_time()
    if now + seconds > life.end:
        life.forbidden.add(namespace)
    for plan in life.faults.values():
        plan.add(make_fault("status", 403), since=now, until=now + seconds, verb=["list", "watch"], namespace=namespace)


async def delete_namespace(life: Life, namespace: str) -> None:
    """Delete a namespace with all that is in it."""
    life.journal.gone.add(f"note-{namespace}")
    await life.cluster.delete("namespaces", namespace)


async def move_town(life: Life, namespace: str, seconds: float) -> None:
    """Delete a namespace with all that is in it, and create it again a while after it is gone, with a note."""
    await delete_namespace(life, namespace)
    life.nursery.start_soon(_found_town, life, namespace, seconds)


async def _found_town(life: Life, namespace: str, seconds: float) -> None:
    with trio.move_on_after(40), contextlib.suppress(ApiError):  # a tenant's is made by the operator as well
        await life.cluster.wait_deleted("namespaces", namespace, timeout=None)
        await trio.sleep(seconds)
        await life.add_namespace(namespace)
        await life.cluster.apply(manifest("Note", f"note-{namespace}", {"v": -2}, namespace=namespace))


async def compact(life: Life) -> None:
    """Forget the history: watches and pages begin anew."""
    life.cluster.compact()


class Backup:
    """What a cluster can be restored from: it passes for a data file."""

    def __init__(self, cluster: Cluster) -> None:
        tables = cluster._state.store.tables
        self.objects = {
            (*name, key): stored.raw for name, table in tables.items() for key, stored in table.objects.items()
        }
        self.facts: dict[str, str] = {}
        self.revision = cluster.revision

    def observe(self, table: Any, change: Any) -> None:
        """Ignore a change."""

    def set_fact(self, name: str, value: str) -> None:
        """Keep a fact."""
        self.facts[name] = value

    async def flush(self) -> None:
        """Do nothing."""
        await trio.lowlevel.checkpoint()


async def back_up(life: Life) -> None:
    """Make a backup of the cluster."""
    life.saved = Backup(life.cluster)


async def restore(life: Life) -> None:
    """Restore the cluster from the backup: it is as it was, and so are its versions."""
    if life.saved is not None:
        before = {each["metadata"]["name"] for each in life.cluster.objects()}
        life.cluster = Cluster(clock=wall_now, seed=life.plan.seed, data=life.saved)
        life.journal.gone |= before - {each["metadata"]["name"] for each in life.cluster.objects()}
        cut, life.cut = life.cut, trio.Event()
        cut.set()
        life.leases.forget()
        for part in life.parts:
            await part.forget()


async def touch(life: Life, times: int) -> None:
    """Let the versions of the cluster grow by changes that concern nobody."""
    for number in range(times):
        try:
            await life.cluster.apply(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"n": f"{number}"}}}
            )
        except ApiError:
            return
