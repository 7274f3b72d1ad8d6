"""Other handlers of the objects whose changes are handled: what one kind of handlers does must not matter to others."""

# The framework is a module that the plan chooses.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel
import trio

import trioperator

if TYPE_CHECKING:
    from tests.lives.parts.changes import Changes

#: Their names.
ADDITIONS: Final = ("daemon", "event", "index", "level", "timer")
# Seconds between two calls of the timer, and in which it must have been called.
_INTERVAL, _PATIENCE = 4.0, 30.0


def add_handlers(part: Changes, registry: trioperator.OperatorRegistry, who: str) -> None:
    """Declare the other handlers that the plan of a life has."""
    chosen = part.life.plan.options.get("additions", ())
    if "event" in chosen:
        _add_event(part, registry, who)
    if "daemon" in chosen:
        _add_daemon(part, registry, who)
    if "timer" in chosen:
        _add_timer(part, registry, who)
    if "level" in chosen:
        _add_level(part, registry, who, index="index" in chosen)
    if "index" in chosen:

        @part.framework.index("widgets", id="serials", registry=registry)
        async def serials(name: str, spec: Any, **_: Any) -> Any:
            await anyio.lowlevel.checkpoint()
            return {name: spec["serial"]}


def _add_event(part: Changes, registry: trioperator.OperatorRegistry, who: str) -> None:
    @part.framework.on.event("widgets", id="glance", registry=registry)
    async def glance(meta: Any, spec: Any, patch: Any, **_: Any) -> None:
        with part.life.call(who, "glance", meta, seen=spec.get("serial"), group="glances"):
            await anyio.lowlevel.checkpoint()


def _add_daemon(part: Changes, registry: trioperator.OperatorRegistry, who: str) -> None:
    @part.framework.daemon("widgets", id="follow", registry=registry, cancellation_timeout=2)
    async def follow(meta: Any, spec: Any, patch: Any, stopped: Any, **_: Any) -> None:
        with part.life.call(who, "endless: follow", meta, group="endless: follow"):
            while not stopped:
                if not part.life.plan.options.get("asyncio"):
                    patch.status["followed"] = spec["serial"]
                    await patch.store()
                await stopped.wait(5)


def _add_timer(part: Changes, registry: trioperator.OperatorRegistry, who: str) -> None:
    @part.framework.timer("widgets", id="beat", registry=registry, interval=_INTERVAL)
    async def beat(meta: Any, spec: Any, patch: Any, **_: Any) -> None:
        with part.life.call(who, "beat", meta, seen=spec["serial"], group="beat"):
            patch.status["beat"] = {"serial": spec["serial"]}
            await anyio.sleep(part.life.random.choice([0, 0.1, 1]))


def _add_level(part: Changes, registry: trioperator.OperatorRegistry, who: str, *, index: bool) -> None:
    async def see(meta: Any, spec: Any, patch: Any) -> None:
        with part.life.call(who, "level", meta, seen=spec["serial"], group="level"):
            await anyio.sleep(part.life.random.choice([0, 0.1, 2]))
            patch.status["level"] = spec["serial"]
            if part.life.random.random() < (0 if part.life.is_peaceful else 0.2):
                raise trioperator.TemporaryError("not yet", delay=2)

    if index:

        @trioperator.on.reconcile("widgets", id="level", registry=registry)
        async def look_up(meta: Any, spec: Any, patch: Any, serials: Any, **_: Any) -> None:
            found = list(serials.get(meta["name"], ()))
            if found != [spec["serial"]] and not part.life.has("restore", "retire", "versions", "watches", "reads"):
                part.find("stale index", f"{meta['name']} has {spec['serial']}, and its index {found}")
            await see(meta, spec, patch)
    else:

        @trioperator.on.reconcile("widgets", id="level", registry=registry)
        async def reconcile(meta: Any, spec: Any, patch: Any, **_: Any) -> None:
            await see(meta, spec, patch)


def check_additions(part: Changes, body: dict[str, Any]) -> None:
    """Note in the journal what other handlers have not done for an object."""
    chosen, name, serial = part.life.plan.options.get("additions", ()), body["metadata"]["name"], body["spec"]["serial"]
    journal, status, uid = part.life.journal, body.get("status") or {}, body["metadata"]["uid"]
    for addition, handler in (("level", "level"), ("event", "glance")):
        if addition in chosen and (seen := journal.last_seen(handler, name, uid)) != serial:
            part.find("not handled", f"{name} has {serial}, and {handler} has seen {seen}")
    if "level" in chosen and status.get("level") != serial:
        part.find("lost write", f"{name} has {serial}, and its status says {status.get('level')}")
    if "timer" in chosen:
        calls = [call for call in journal.of("beat", name) if call.uid == uid]
        if not calls or trio.current_time() - calls[-1].started > _PATIENCE:
            part.find("no ticks", f"the timer of {name} is not called")
        elif status.get("beat") != {"serial": serial}:
            part.find("lost write", f"{name} has {serial}, and its timer has stored {status.get('beat')}")
    if "daemon" in chosen:
        running = [call for call in journal.running if call.handler == "endless: follow" and call.uid == uid]
        if len(running) != 1:
            part.find("daemons", f"{len(running)} daemons of {name} are running")
        elif status.get("followed") != serial and not part.life.plan.options.get("asyncio"):
            part.find("lost write", f"{name} has {serial}, and its daemon has stored {status.get('followed')}")
