"""An operator under test: the test starts and stops it; everything that it does is recorded and checked."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import AsyncIterator
from typing import Any, Final

import trio

from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._kube.api_client import open_client
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.discovery import discover
from trioperator._logs import bound_contextvars
from trioperator._model.exception_groups import unwrap_group
from trioperator._supervisor.app import make_plan
from trioperator._supervisor.plan import OperatorOptions, Plan
from trioperator._supervisor.tree import supervise
from trioperator._telemetry.why import History, find_history
from trioperator._tooling.permissions import Requirements, list_permissions
from trioperator.apiserver import Cluster
from trioperator.crds.definitions import collect_definitions
from trioperator.testing.library_routes import routing_to
from trioperator.testing.recording import Journal, OnWrite, RecordingInstruments, RecordingTransport, record_logs
from trioperator.testing.records import Call, LogLine, RecordLog, Write
from trioperator.testing.rights import LearningTransport, MissingRights, find_missing_rights
from trioperator.testing.sources import Source, fresh_registry, gather_handlers
from trioperator.testing.verdict import (
    Expectations,
    describe_stuck,
    describe_tasks,
    find_registrations,
    find_system_tasks,
    list_writes,
)
from trioperator.testing.waiting import eventually
from trioperator.testing.webhooks import MemoryWebhooks

# Seconds for objects that are being deleted at the end of a test, until they count as stuck.
_DELETION_TIMEOUT: Final = 5.0
# Seconds of virtual time in which an operator does what is due.
_SETTLING: Final = 60.0


@contextlib.asynccontextmanager
async def open_runner(cluster: Cluster, *, module: str | None = None) -> AsyncIterator[OperatorRunner]:
    """Open a runner of operators on a cluster: the fixture ``operator``, for tests without pytest-trio.

    ::

        async with open_runner(cluster) as operator:
            await operator.start("main.py")
            ...

    At the end of the block, the operator is cancelled and checked: see :meth:`OperatorRunner.check`. In the block, the
    default registry has only the handlers that are declared in it and in *module*.
    """
    try:
        async with open_unchecked_runner(cluster, module=module) as runner:
            yield runner
    except BaseExceptionGroup as group:
        error = unwrap_group(group)
        raise error from error.__cause__  # without the exception groups of nurseries
    runner.check()


@contextlib.asynccontextmanager
async def open_unchecked_runner(cluster: Cluster, *, module: str | None = None) -> AsyncIterator[OperatorRunner]:
    """Open a runner whose caller checks it after the block. Raises exception groups."""
    with fresh_registry(module) as registry:
        async with trio.open_nursery() as nursery:
            runner = OperatorRunner(cluster, registry, nursery)
            with record_logs(runner.logs):
                yield runner
                await runner.finish()
            nursery.cancel_scope.cancel(reason="the test has ended")


class OperatorRunner:
    """An operator on a test's cluster, which the test starts and stops. All of its starts share the records.

    - ``calls``: calls of handlers, as :class:`Call`
    - ``logs``: what was logged at INFO or above, as :class:`LogLine`
    - ``writes``: requests that may change anything except Events, leases and peerings, as :class:`Write`

    ``on_write``, if set before a start, is called in place of sending each write, with the function that sends it.
    """

    def __init__(self, cluster: Cluster, registry: OperatorRegistry, nursery: trio.Nursery) -> None:
        self.cluster = cluster
        self.on_write: OnWrite | None = None
        self._registry = registry
        self._nursery = nursery
        self._journal = Journal()
        self._webhooks = MemoryWebhooks(cluster)
        self._expectations = Expectations()
        self._start: tuple[tuple[Source, ...], dict[str, Any]] = ((), {})
        self._run: _Run | None = None
        self._system_tasks = find_system_tasks()
        self._problems: list[str] = []

    @property
    def calls(self) -> RecordLog[Call]:
        """The calls of handlers, in order."""
        return self._journal.calls

    @property
    def logs(self) -> RecordLog[LogLine]:
        """The log, in order."""
        return self._journal.logs

    @property
    def writes(self) -> RecordLog[Write]:
        """The requests that may have changed anything, in order; empty if the test passes its own ``connection``."""
        return self._journal.writes

    @property
    def has_started(self) -> bool:
        """Whether the operator has been started."""
        return self._run is not None

    @property
    def is_running(self) -> bool:
        """Whether the operator has been started, and has not ended."""
        return self._run is not None and not self._run.ended.is_set()

    async def list_events(self, name: str, *, kind: str | None = None, namespace: str | None = None) -> list[Any]:
        """Return the Kubernetes Events in the cluster about objects with a name, in order.

        *kind* is the kind in manifests, such as ``"Database"``; default: any. Without *namespace*, return those in all
        namespaces.
        """
        events = await self.cluster.list("events", namespace, fields=f"involvedObject.name={name}")
        return [event for event in events if kind in (None, event["involvedObject"].get("kind"))]

    def why(self, name: str, *, kind: str = "", namespace: str = "") -> History:
        """Return why an object was reconciled since the last start, what ran for it, and which requests followed.

        ::

            assert operator.why("orders").writes == 4
            print(operator.why("orders", kind="databases", namespace="default"))

        *kind* is a plural, singular or kind, with or without its group. The history is empty if nothing has happened to
        such an object. See docs/day-two.md.
        """
        found = find_history(self._get_run().plan.ledger, name, kind=kind, namespace=namespace)
        return History(kind=kind, namespace=namespace, name=name, uid="") if found is None else found

    async def start(self, *sources: Source, **options: Any) -> None:
        """Start the operator, and return when it is ready.

        ::

            await operator.start()                               # the handlers that the test declares
            await operator.start("main.py", namespaces=["default"])
            await operator.start("package.handlers")             # a module, or its name
            await operator.start(create_fn, delete_fn)           # some of those that were declared before
            await operator.start(registry)

        Files are relative to the working directory. Files and modules are imported once in a process. The options are
        the same as for ``trioperator.operator()``. By default, the operator handles the whole cluster through an
        in-memory transport, and leaves signals to pytest. The kinds that classes declare are defined in the cluster,
        unless the test has done that. Without arguments, the operator starts with the same ones as before.

        Raises RuntimeError if it is running already, LoadingError for errors in files, ConfigError without handlers,
        ActivityError if startup handlers have failed, and the other errors of ``trioperator.operator()``.
        """
        __tracebackhide__ = True  # pytest shows the line of the test
        if self.is_running:
            raise RuntimeError("The operator is running already. For several operators, use open_runner() for each.")
        if sources or options:
            self._start = (sources, options)
        sources, given = self._start
        plan = self._make_plan(sources, given)
        if "connection" not in given:
            await self._define_kinds(plan.registry)
        run = self._run = _Run(plan, self._journal)
        run.record_writes(self.cluster, self.on_write)
        failures = len(self._journal.failures)
        try:
            await self._nursery.start(run.serve, name="operator")
        except Exception as error:  # noqa: BLE001 -- it is raised, without the frames of the framework
            del self._journal.failures[failures:]  # failures of startup handlers are the error
            raise error.with_traceback(None) from error.__cause__

    async def stop(self) -> None:
        """Stop the operator gracefully, as SIGTERM does, and return when it has ended."""
        run = self._get_run()
        run.stop_flag.set()
        await run.ended.wait()

    async def crash(self) -> None:
        """End the operator as SIGKILL or the loss of a node does: nothing is stored, no cleanup handlers are called.

        Async handlers are cancelled; sync handlers that run in threads go on, as they cannot be killed.
        """
        run = self._get_run()
        run.cut_off()
        run.scope.cancel(reason="the operator crashes")
        await run.ended.wait()

    def cut_off(self) -> None:
        """Let no request of the operator reach the server, and call none of its handlers, until it is crashed."""
        self._get_run().cut_off()

    def expect_failures(self, *handlers: str | type[BaseException]) -> None:
        """Expect that handlers fail: those with the given ids, or with these errors; without arguments, any handler.

        The test fails if another handler fails, and also if one of these does not.
        """
        self._expectations.add(*handlers)

    async def assert_converged(self, seconds: float = 3600) -> None:
        """Raise AssertionError if the operator writes anything, or a handler fails, within the given seconds.

        These begin after a minute for what is due now. Use virtual time. Events, leases and peerings do not count,
        and neither do requests that change nothing, such as a server-side apply of what is there already.
        """
        await trio.sleep(_SETTLING)
        writes, failures = len(self.writes), len(self._journal.failures)
        await trio.sleep(seconds)
        written = self._list_changes(since=writes)
        if written:
            raise AssertionError(
                list_writes(f"The operator has not converged. In {seconds:g} seconds it wrote", written)
            )
        failed = [call for call in self._journal.failures[failures:] if call.failed]
        if failed:
            raise AssertionError(f"The operator has not converged: {failed[0]} has failed: {failed[0].error!r}.")

    async def assert_idempotent(self) -> None:
        """Restart the operator gracefully, and raise AssertionError if it writes anything within a minute.

        Before the restart, it has a minute for what is due. Use virtual time. Events, leases and peerings do not count,
        and neither do requests that change nothing. Webhooks that are not persistent may be removed and put back.
        """
        await trio.sleep(_SETTLING)
        registered = find_registrations(self.cluster)
        await self.stop()
        writes = len(self.writes)
        await self.start()
        await trio.sleep(_SETTLING)
        same = registered & find_registrations(self.cluster)
        kept = {path for path, _ in same}
        written = [write for write in self._list_changes(since=writes) if write.path not in kept]
        if written:
            raise AssertionError(list_writes("The operator is not idempotent. After a restart it wrote", written))

    async def find_missing_rights(self) -> list[MissingRights]:
        """Return, by handlers, what they have requested and the role of ``trioperator rbac`` does not allow.

        Requests of the operator itself do not count, and neither do those of clients that do not use its transport.
        Raises ConfigError for a handler of a kind that does not exist.
        """
        plan = self._get_run().plan
        info = ConnectionInfo(server="http://cluster")
        async with open_client(lambda: info, settings=plan.settings, transport=self.cluster.transport()) as client:
            resources = (await discover(client)).resources
        requirements = Requirements(scope=plan.scope, scanning=not plan.settings.scanning.disabled)
        handlers = tuple(plan.registry)
        permissions = list_permissions(handlers, resources, requirements)
        return find_missing_rights(self._journal.rights, handlers, permissions)

    async def assert_rights(self) -> None:
        """Raise AssertionError if handlers have requested what the role of ``trioperator rbac`` does not allow.

        Its message lists the ``rights=`` to declare, for all requests since the test began.
        """
        if missing := await self.find_missing_rights():
            listed = "\n".join(f"  {each}" for each in missing)
            raise AssertionError(f"The generated role does not allow what handlers have requested. Declare:\n{listed}")

    async def finish(self) -> None:
        """End the test: wait for deletions, cancel the operator, and look for what it leaves behind."""
        run = self._run
        if run is not None and self.is_running:
            finalizer = run.plan.settings.persistence.finalizer
            if not _is_manual(trio.lowlevel.current_clock()):
                with contextlib.suppress(TimeoutError):
                    await eventually(lambda: not describe_stuck(self.cluster, finalizer), timeout=_DELETION_TIMEOUT)
            self._problems += describe_stuck(self.cluster, finalizer)
            run.scope.cancel(reason="the test has ended")
            await run.ended.wait()
        self._problems += describe_tasks(find_system_tasks() - self._system_tasks)

    def check(self) -> None:
        """Raise AssertionError if a handler has failed unexpectedly, a task has leaked, or a deletion is stuck.

        A handler has failed if it has raised anything but a TemporaryError within its limits, or a denial. The fixture
        calls this at the end of a test that has passed.
        """
        if self.problems:
            raise AssertionError("\n\n".join(self.problems))

    @property
    def problems(self) -> list[str]:
        """The problems that :meth:`check` raises."""
        return [*self._expectations.find_problems(self._journal.failures), *self._problems]

    def _list_changes(self, *, since: int) -> list[Write]:
        """Return the writes, from the one with this index on, that have changed anything."""
        return [write for write in [*self.writes][since:] if write.changed]

    def _get_run(self) -> _Run:
        if self._run is None:
            raise RuntimeError("The operator has not been started.")
        return self._run

    async def _define_kinds(self, registry: OperatorRegistry) -> None:
        """Create the CRDs of the classes that declare kinds, except those that the test has created."""
        for definition in collect_definitions(registry):
            name = definition["metadata"]["name"]
            if await self.cluster.find("customresourcedefinitions", name) is None:
                await self.cluster.apply(definition)

    def _make_plan(self, sources: tuple[Source, ...], given: dict[str, Any]) -> Plan:
        options = {"handle_signals": False, **given}
        if "connection" not in options:
            options["connection"] = ConnectionInfo(server="http://cluster")
            options.setdefault("transport", self.cluster.transport())
        if sources or "registry" not in options:
            options["registry"] = gather_handlers(sources, self._registry)
        plan = make_plan(OperatorOptions(**options))
        if "connection" not in given:
            plan.replace_webhook_server = self._webhooks.replace
        return plan


class _Run:
    """One start of the operator."""

    def __init__(self, plan: Plan, journal: Journal) -> None:
        self.plan = plan
        self.scope = trio.CancelScope()
        self.stop_flag = trio.Event()
        self.ended = trio.Event()
        self._journal = journal
        self._instruments: RecordingInstruments | None = None
        plan.instruments = functools.partial(self._make_instruments, journal)
        self.transport: RecordingTransport | None = None

    def record_writes(self, cluster: Cluster, on_write: OnWrite | None) -> None:
        """Record what is written by the transport of the plan, if it has one."""
        plan, writes = self.plan, self._journal.writes
        if plan.transport is not None:
            learning = LearningTransport(plan.transport, self._journal.rights)
            plan.transport = self.transport = RecordingTransport(
                learning, writes, revision=lambda: cluster.revision, on_write=on_write
            )

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the operator until it ends."""
        given = self.plan.stop_flag
        if given is None:
            self.plan.stop_flag = self.stop_flag
        elif isinstance(given, trio.Event):
            self.stop_flag = given
        try:
            naming = bound_contextvars(operator=self.plan.name) if self.plan.name else contextlib.nullcontext()
            with self.scope, naming, routing_to(self.transport):
                await supervise(self.plan, task_status=task_status)
            if self.scope.cancelled_caught:
                with contextlib.suppress(RuntimeError):  # it has been ready before the crash
                    task_status.started()
        finally:
            self.ended.set()

    def cut_off(self) -> None:
        """Let nothing reach the server, and no handler be called."""
        if self.transport is not None:
            self.transport.is_cut = True
        if self._instruments is not None:
            self._instruments.is_dead = True

    def _make_instruments(self, journal: Journal, *args: Any, **kwargs: Any) -> RecordingInstruments:
        self._instruments = RecordingInstruments(journal, *args, **kwargs)
        return self._instruments


def _is_manual(clock: trio.abc.Clock) -> bool:
    """Return whether a mock clock moves only when the test moves it."""
    threshold = getattr(clock, "autojump_threshold", None)
    return threshold is not None and math.isinf(threshold) and not getattr(clock, "rate", 0)
