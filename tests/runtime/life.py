"""One life of an object: random changes, faults and restarts, by a seed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Callable
from typing import Any, Literal

import trio

import trioperator
from tests.runtime.conftest import CRD, widget
from trioperator._concurrency.clock import wall_now
from trioperator._handling.storages.diffbase import AnnotationsDiffBaseStorage
from trioperator._model.body import Body
from trioperator.apiserver import Cluster
from trioperator.errors import NotFoundError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
PREFIX = "trioperator.dev/"
FINALIZER = "trioperator.dev/finalizer"
FOREIGN = "others.example.com/finalizer"
KEPT = {f"{PREFIX}last-handled-configuration", f"{PREFIX}kopf-managed"}
HANDLERS = ("first", "second", "third")
# For so long things go wrong, and after so long they have surely settled, both in seconds.
TROUBLE, PEACE = 120.0, 200.0
Seen = tuple[Any, ...]


@dataclasses.dataclass
class Run:
    """One successful call of a handler: in which run of the operator, and what it has seen."""

    handler: str
    life: int
    seen: Seen
    order: int


def seen_in(meta: Any, spec: Any) -> Seen:
    """Return the edits that are visible in an object."""
    annotations = meta.get("annotations") or {}
    foreign = sorted(key for key in annotations if key.startswith("example.com/"))
    return spec.get("serial"), (meta.get("labels") or {}).get("serial"), annotations.get("example.com/serial"), *foreign


class Life:
    """The life of one object, with all that happens to it."""

    def __init__(self, seed: int, *, restarting: bool, reverting: bool, parted: bool = False) -> None:
        self.seed = seed
        self.restarting = restarting
        self.reverting = reverting
        self.random = random.Random(seed)
        self.cluster = Cluster(clock=wall_now, seed=seed)
        self.registry = trioperator.OperatorRegistry()
        self.settings = trioperator.OperatorSettings()
        self.settings.networking.request_timeout = 30
        self.settings.networking.error_backoffs = (1, 2)
        self.settings.queueing.error_delays = (1, 2, 5)
        self.settings.watching.client_timeout = self.random.choice([None, 5, 30])
        self.settings.queueing.worker_limit = self.random.choice([1, 2, None])
        self.plan = FaultPlan()
        self.transport = FaultyTransport(self.cluster.transport(), self.plan)
        self.lives = itertools.count(1)
        self.life = 0
        self.serials = itertools.count(1)
        self.orders = itertools.count(1)
        self.runs: list[Run] = []
        self.deletions = 0
        self.peace = False
        self.foreign: dict[str, str] = {}
        self.handlers = [f"{id}{part}" for id in HANDLERS for part in (("", "/a", "/b") if parted else ("",))]
        for id in HANDLERS:
            if parted:
                self._add_handler_in_parts(id)
            else:
                self._add_handler(id)
        self._add_delete_handler()

    def _add_handler(self, id: str) -> None:
        @on.create("widgets", id=id, backoff=3, registry=self.registry)
        @on.update("widgets", id=id, backoff=3, registry=self.registry)
        async def handle(spec: Any, meta: Any, patch: Any, retry: int, **_: Any) -> Any:
            seen = seen_in(meta, spec)
            await self._go_through(retry)
            if self.random.random() < 0.2:
                patch.status[id] = retry
            self.runs.append(Run(id, self.life, seen, next(self.orders)))
            return {"seen": str(seen)} if self.random.random() < 0.2 else None

    def _add_handler_in_parts(self, id: str) -> None:
        """Add a handler with sub-handlers, which may be interrupted when the object changes."""
        on_change: Literal["finish", "cancel"] = "cancel" if self.random.random() < 0.5 else "finish"

        @on.create("widgets", id=id, backoff=3, on_change=on_change, registry=self.registry)
        @on.update("widgets", id=id, backoff=3, on_change=on_change, registry=self.registry)
        async def handle(spec: Any, meta: Any, retry: int, **_: Any) -> None:
            seen = seen_in(meta, spec)
            for part in ("a", "b"):
                trioperator.register(functools.partial(self._part, f"{id}/{part}", seen), id=part, backoff=3)
            await trioperator.execute()
            await self._go_through(retry)
            self.runs.append(Run(id, self.life, seen, next(self.orders)))

    async def _part(self, id: str, seen: Any, retry: int) -> Any:
        await self._go_through(retry)
        self.runs.append(Run(id, self.life, seen, next(self.orders)))
        return {"seen": str(seen)} if self.random.random() < 0.2 else None

    def _add_delete_handler(self) -> None:
        @on.delete("widgets", id="delete", backoff=3, registry=self.registry)
        async def delete(retry: int, **_: Any) -> None:
            await self._go_through(retry)
            self.deletions += 1

    async def _go_through(self, retry: int) -> None:
        """Take time, and fail sometimes."""
        await trio.sleep(self.random.choice([0, 0, 0.01, 0.05, 0.15, 1, 5]))
        if self.random.random() < (0.1 if self.peace else 0.3) and retry < 10:
            if self.random.random() < 0.3:
                raise ValueError("something")
            raise trioperator.TemporaryError("not yet", delay=self.random.choice([0, 0.05, 1, 5, 20]))

    # What others do.

    async def edit(self) -> None:
        serial = str(next(self.serials))
        if self.reverting and self.random.random() < 0.6:
            await self.cluster.patch("widgets", "w", {"spec": {"serial": self.random.choice("01")}})
            return
        which = self.random.choice(["spec", "spec", "label", "annotation", "status", "foreign", "finalizer"])
        patch: dict[str, Any] = {}
        match which:
            case "spec":
                patch = {"spec": {"serial": serial}}
            case "label":
                patch = {"metadata": {"labels": {"serial": serial}}}
            case "annotation":
                patch = {"metadata": {"annotations": {"example.com/serial": serial}}}
            case "status":
                await self.cluster.patch("widgets", "w", {"status": {"others": serial}}, subresource="status")
                return
            case "foreign":
                self.foreign[f"example.com/{serial}"] = serial
                patch = {"metadata": {"annotations": {f"example.com/{serial}": serial}}}
            case _:
                body = await self.cluster.get("widgets", "w")
                present = body["metadata"].get("finalizers") or []
                if FOREIGN not in present:
                    patch = {"metadata": {"finalizers": [*present, FOREIGN]}}
        if patch:
            await self.cluster.patch("widgets", "w", patch)

    async def edit_now_and_then(self) -> None:
        while trio.current_time() < self.end:
            await trio.sleep(self.random.choice([0, 0.01, 0.1, 0.5, 3, 10, 20]))
            await self.edit()

    def break_things(self) -> None:
        now = trio.current_time()
        for _ in range(self.random.randrange(6)):
            since = now + self.random.uniform(0, TROUBLE)
            until = min(self.end, since + self.random.choice([0.1, 1, 10, 40]))
            times = self.random.choice([1, 1, 2, 5, None])
            target = self.random.choice(["write", "watch", "read"])
            anywhere = [Fault.refuse, Fault.reset, Fault.lose_answer, lambda: Fault.delay(before=0.3, after=0.3)]
            codes = [409, 429, 500, 503, 403]
            makers: list[Callable[[], Fault]] = [*anywhere, *(_status(code) for code in codes)]
            match target:
                case "write":
                    makers += [_status(422), Fault.stall]
                    options: dict[str, Any] = {"method": "PATCH"}
                case "watch":
                    lines = self.random.choice([0, 0, 1, 2])
                    makers += [
                        lambda n=lines: Fault.close(lines=n),  # type: ignore[misc]
                        lambda n=lines: Fault.break_off(lines=n),  # type: ignore[misc]
                        lambda n=lines: Fault.half_line(lines=n),  # type: ignore[misc]
                        lambda n=lines: Fault.error_event(410, lines=n),  # type: ignore[misc]
                        lambda n=lines: Fault.silence(lines=n),  # type: ignore[misc]
                        Fault.duplicate,
                        Fault.garbage,
                        _status(410),
                    ]
                    options = {"watch": True, "path": "/widgets"}
                case _:
                    makers += [_status(410)]
                    options = {"method": "GET", "watch": False, "path": "/widgets"}
            self.plan.add(self.random.choice(makers)(), since=since, until=until, times=times, **options)

    # The operator.

    async def operate(self, *, seconds: float, how: str) -> None:
        """Run the operator for a while, and end it in order or not."""
        self.life = next(self.lives)
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._operator, stop)
            await trio.sleep(seconds)
            if how == "cancelled":
                nursery.cancel_scope.cancel()
            stop.set()

    async def _operator(self, stop: trio.Event) -> None:
        await trioperator.operator(
            registry=self.registry,
            settings=self.settings,
            connection=trioperator.ConnectionInfo(server="http://embedded"),
            transport=self.transport,
            stop_flag=stop,
        )

    # The whole story.

    async def live(self) -> None:
        await self.cluster.apply(CRD)
        self.end = trio.current_time() + TROUBLE
        manifest = widget(serial="0")
        manifest["metadata"]["annotations"] = {"example.com/theirs": "kept"}
        early = self.random.random() < 0.5
        if early:
            await self.cluster.create(manifest)
        self.break_things()
        async with trio.open_nursery() as others:
            if not early:
                others.start_soon(self._create_later, manifest)
            else:
                others.start_soon(self.edit_now_and_then)
            while self.restarting and trio.current_time() < self.end:
                seconds = self.random.choice([0.5, 2, 10, 60, TROUBLE])
                seconds = min(seconds, max(0.0, self.end - trio.current_time()) + 1)
                await self.operate(seconds=seconds, how=self.random.choice(["stopped", "cancelled"]))
                if self.random.random() < 0.3:
                    await trio.sleep(self.random.choice([0.1, 5]))
            if not self.restarting:
                others.start_soon(self.live_in_peace)
        if self.restarting:
            if self.random.random() < 0.3:
                await self.edit()  # while the operator is down
            await self.live_in_peace()

    async def live_in_peace(self) -> None:
        """Run the operator until all trouble is over and everything has settled, and then delete the object."""
        self.life = next(self.lives)
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._operator, stop)
            await trio.sleep_until(self.end + 1)
            self.plan.clear()
            self.peace = True
            await trio.sleep(30)  # the last edit may still be under way
            if self.random.random() < 0.3:
                await self.edit()
            await trio.sleep(PEACE)
            await self.check_settled()
            await self.delete()
            stop.set()

    async def _create_later(self, manifest: dict[str, Any]) -> None:
        await trio.sleep(self.random.choice([0.1, 3, 20]))
        await self.cluster.create(manifest)
        await self.edit_now_and_then()

    async def check_settled(self) -> None:
        body = await self.cluster.get("widgets", "w")
        meta = body["metadata"]
        final = seen_in(meta, body["spec"])
        for id in self.handlers:
            runs = [run for run in self.runs if run.handler == id]
            assert runs, f"seed {self.seed}: {id} has never succeeded"
            assert runs[-1].seen == final, f"seed {self.seed}: {id} has last seen {runs[-1].seen}, and not {final}"
        if not self.reverting:
            self.check_repetitions()
        storage = AnnotationsDiffBaseStorage()
        essence = storage.build(body=Body(body))
        assert storage.fetch(body=Body(body)) == essence, f"seed {self.seed}: the last-handled state is not the last"
        own = {key for key in meta["annotations"] if key.startswith(PREFIX)}
        assert own <= KEPT, f"seed {self.seed}: left behind: {own - KEPT}"
        foreign = {"example.com/theirs": "kept", **self.foreign}
        kept = {key: value for key, value in meta["annotations"].items() if key in foreign}
        assert kept == foreign, f"seed {self.seed}: others' annotations are {kept}"
        assert FINALIZER in meta["finalizers"], f"seed {self.seed}: the finalizer is not there"

    def check_repetitions(self) -> None:
        """Make sure that nobody is called over and over for the same state.

        Twice it may be: a handler that saw a change which an earlier one did not sees it again together with that.
        """
        for id, life in itertools.product(self.handlers, range(1, self.life + 1)):
            seen = [run.seen for run in self.runs if (run.handler, run.life) == (id, life)]
            often = {each: seen.count(each) for each in seen if seen.count(each) > 2}
            assert not often, f"seed {self.seed}: {id} was called over and over for the same: {often}"

    async def delete(self) -> None:
        await self.cluster.delete("widgets", "w")
        await trio.sleep(PEACE)
        assert self.deletions >= 1, f"seed {self.seed}: the deletion was not handled"
        try:
            body = await self.cluster.get("widgets", "w")
        except NotFoundError:
            return
        finalizers = body["metadata"]["finalizers"]
        assert finalizers == [FOREIGN], f"seed {self.seed}: the object is held by {finalizers}"
        await self.cluster.patch("widgets", "w", {"metadata": {"finalizers": None}})
        await trio.sleep(1)
        assert self.deletions == 1, f"seed {self.seed}: the deletion was handled {self.deletions} times"


def _status(code: int) -> Callable[[], Fault]:
    return lambda: Fault.status(code)
