"""The operators of a life: started, stopped, killed, and upgraded to other handlers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import trio

import trioperator
from tests.lives.network import Wire
from tests.lives.tuning import tune

if TYPE_CHECKING:
    from tests.lives.life import Life


class Operator:
    """One operator, through all of its starts. *runs* counts them."""

    def __init__(self, life: Life, name: str) -> None:
        self.name = name
        self.runs = 0
        self.started = 0.0
        self.is_retired = False
        self.is_stopping = False
        self.variant = life.plan.options.get("variants", ("",))[0]
        self.priority = life.plan.options.get("priorities", {}).get(name, 0)
        self._life = life
        self._scope: trio.CancelScope | None = None
        self._stop: trio.Event | threading.Event = trio.Event()
        self._ended = trio.Event()
        self._wire: Wire | None = None
        self._is_crashing = False

    @property
    def is_running(self) -> bool:
        """Whether it has been started, and has not ended."""
        return self._scope is not None

    async def start_after(self, seconds: float) -> None:
        """Start it later."""
        await trio.sleep(seconds)
        await self.start()

    async def start(self, variant: str | None = None) -> None:
        """Start it, and do not wait until it is ready."""
        if self._scope is not None:
            return
        self.variant = self.variant if variant is None else variant
        self.runs += 1
        self.started = trio.current_time()
        self._life.journal.changes.append(self.started)
        self._scope, self._is_crashing = trio.CancelScope(), False
        self._stop = threading.Event() if self._life.plan.options.get("thread_flag") else trio.Event()
        self._ended = trio.Event()
        self._life.nursery.start_soon(self._run, self._scope, self._ended, name=f"operator {self.name}")

    async def _run(self, scope: trio.CancelScope, ended: trio.Event) -> None:
        life = self._life
        registry = trioperator.OperatorRegistry()
        for part in life.parts:
            part.declare(registry, self)
        options: dict[str, Any] = {}
        if life.plan.options["network"] == "memory":
            self._wire = Wire(life, self.name, life.faults[self.name])
            options["transport"] = self._wire
        if life.plan.options.get("namespaces"):
            options["namespaces"] = ["default", "team-*", "tenant-*"]
        try:
            with scope:
                await life.framework.operator(
                    registry=registry,
                    settings=make_settings(life, self.priority),
                    identity=self.name,
                    name=self.name,
                    connection=trioperator.ConnectionInfo(server=f"http://{self.name}"),
                    stop_flag=self._stop,
                    handle_signals=False,
                    **options,
                )
        except BaseExceptionGroup as group:
            others = group.split((trioperator.ApiError, trioperator.TrioperatorError, trio.Cancelled))[1]
            if others is not None:
                life.journal.find("crash", f"operator {self.name} ends with {others.exceptions[0]!r}")
                raise
        except trioperator.TrioperatorError:
            pass  # it gives up while it starts: somebody starts it again
        finally:
            self._scope = None
            if isinstance(self._stop, threading.Event) and not life.plan.options.get("keeps_flag"):
                self._stop.set()  # its thread looks only once in a second of real time whether anybody waits for it
            life.journal.changes.append(trio.current_time())
            ended.set()
            for call in list(life.journal.running):
                if call.operator == self.name and call.run == self.runs and not call.is_sync:
                    life.journal.find("left tasks", f"{call.handler} of {call.name} runs after {self.name} has ended")

    async def stop(self) -> None:
        """Stop it in order, and wait until it has ended."""
        if self._scope is not None:
            self.is_stopping = True
            self._stop.set()
            life, begun = self._life, trio.current_time() - self._life.frozen
            await self._ended.wait()
            self.is_stopping = False
            taken = trio.current_time() - life.frozen - begun
            if taken > 25 + 2 and not isinstance(self._stop, threading.Event):  # that flag is seen in real time
                life.journal.find("hang", f"stopping {self.name} has taken {taken:.1f} s")

    async def crash(self) -> None:
        """Kill it: nothing reaches the server any more."""
        if self._scope is not None:
            self._is_crashing = True
            if self._wire is not None:
                self._wire.is_cut = True
            self._scope.cancel(reason="a crash")
            await self._ended.wait()

    async def wait_crashed(self) -> None:
        """Wait until it has ended, if it was killed: what it is at may take a second."""
        if self._is_crashing:
            await self._ended.wait()

    async def finish(self) -> None:
        """End it in order or by cancellation, as a program would."""
        if self._life.random.random() < 0.5:
            await self.stop()
        elif self._scope is not None:
            self._scope.cancel(reason="the life has ended")
            await self._ended.wait()


def make_settings(life: Life, priority: int) -> trioperator.OperatorSettings:
    """Return the settings of an operator: shorter times, and those that the plan draws."""
    plan, options = life.plan, life.plan.options
    settings = trioperator.OperatorSettings()
    settings.posting.enabled = False
    settings.networking.request_timeout = options.get("request_timeout", 30)
    settings.networking.error_backoffs = (1, 2)
    settings.queueing.error_delays = (1, 2, 5)
    settings.execution.default_backoff = 3
    settings.watching.client_timeout = options.get("client_timeout")
    settings.background.spread = 0
    settings.peering.standalone = plan.together != "peering"
    settings.peering.priority = priority
    settings.peering.mandatory = plan.together == "peering" and options.get("mandatory", True)
    settings.persistence.write_delay = options.get("write_delay", 0.1)
    lease = options.get("lease", (15, 10, 2))
    leadership = settings.leadership
    leadership.lease_duration, leadership.renew_deadline, leadership.retry_period = lease
    leadership.enabled = plan.together == "leader"
    leadership.shards = 4 if plan.together == "shards" else 1
    leadership.namespace = "default"
    if life.has("stops"):
        settings.process.grace = 1  # handlers are interrupted
    tune(settings, life)
    for part in life.parts:
        part.configure(settings)
    return settings
