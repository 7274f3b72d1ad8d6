"""Rules of docs/lifetimes.md, checked in the sources: shields have limits, and nothing polls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from tests.house import ROOT, Module, read_modules, without_gc

# Shields without a deadline, and what limits them instead.
SHIELDS: Final = {
    "trioperator._supervisor.shutdown.Shutdown.__init__": "the supervisor sets the deadline when it enters the scope",
    "trioperator._http.server": (
        "`stop` sets the deadline of the connections, and is called when the server is cancelled"
    ),
    "trioperator._concurrency.threads.run_in_nursery_thread": (
        "cancelling the nursery abandons the thread, which ends the wait"
    ),
    "trioperator.kopf.bridge.Loop.start": "the asyncio code that waits for it cancels it, and the end of the operator",
    "trioperator.kopf.host.HostedLoop.__init__": "the loop goes on until all that waits for it has ended",
    "trioperator.kopf.host._bridging": "for asyncio tasks that are cancelled, as asyncio.run() waits for them",
}

# All sleeps, and what they wait for: never for something that could have been an event.
SLEEPS: Final = {
    "trioperator.kopf.host.HostedLoop._wait": "until a thread has most likely finished with objects of asyncio",
    "trioperator.cli.cluster.serve": "for the signal that ends the command",
    "trioperator.cli.file_changes._set_when_cancelled": "for its cancellation",
    "trioperator.cli.keys._wait": "between two looks at an operator, where no key can be pressed",
    "trioperator.client.writing.retry_conflicts": "backoff after a conflict",
    "trioperator.client.deleting.Deletion.send": "backoff after a failed deletion",
    "trioperator.client.watching._Failures.back_off": "backoff after a failed list or watch",
    "trioperator._coordination.leadership.Leadership._acquire": "the retry period of a lease, as in client-go",
    "trioperator._coordination.leadership.Leadership._renew": "the same, when the lease is held",
    "trioperator._coordination.shards.Shards._keep_session": "the retry period of a session",
    "trioperator._coordination.shards.Shards._release": "backoff after a failed release",
    "trioperator._coordination.peerings.Peerings._find": "backoff after a failed discovery",
    "trioperator._supervisor.endpoints.Endpoints._show_live": "for its cancellation",
    "trioperator._kube.api_client.ApiClient._retry": "backoff after a failed request",
    "trioperator._kube.credential_store.CredentialStore._update": "backoff after rejected credentials",
    "trioperator._kube.credential_store._report_delay": "the interval of messages about a login that does not end",
    "trioperator._runtime.activities._run_to_the_end": "the delay before a retry",
    "trioperator._runtime.patching.retry_on_conflict.PatchFunctions.apply": "backoff after a conflict",
    "trioperator._runtime.watching.reflector.Reflector._back_off": "backoff after a failed list or watch",
    "trioperator._runtime.watching.reflector.Reflector._reopen": "backoff after a broken watch",
    "trioperator._runtime.watching.reflector.Reflector._try": (
        "the pause between two watches, each of which takes minutes"
    ),
    "trioperator._runtime.watching.deletion_checker.DeletionChecker._check": "backoff after a failed list of an object",
    "trioperator._runtime.watching.deletion_checker.DeletionChecker._find_left": "backoff after a failed list",
    "trioperator._runtime.watching.catalog.Catalog._discover_the_rest": ("backoff after API groups were unavailable"),
    "trioperator._supervisor.shutdown.report_awaited": (
        "the interval of messages about what a stopping operator waits for"
    ),
    "trioperator._supervisor.signals._Listener._end_process": (
        "the time that a second signal leaves the process to end by itself"
    ),
    "trioperator._supervisor.signals.end_process_after.end": "the time until the process is ended",
    "trioperator._supervisor.intake.Intake.watch": "for its cancellation, or after a start has failed",
    "trioperator.testing.crashes._Play._on_write": "for the crash",
    "trioperator.testing.crashes._Play.run": "the time for what an operator still does after a scenario",
    "trioperator.testing.exploring.plays._Performance._perform": "another moment of virtual time for each seed",
    "trioperator.testing.exploring.stages._Writes.begin": "slow writes in a loop without pauses, in virtual time",
    "trioperator.testing.exploring.stages.Stage.settle": "the virtual time in which nothing may be written",
    "trioperator.testing.exploring.stages.Stage.wait": "the same, in steps",
    "trioperator.testing.exploring.scenarios._Play._run": "the time for what an operator still does after a scenario",
    "trioperator.testing.exploring.troubles.Crash._maybe_crash": "for the crash",
    "trioperator.testing.exploring.troubles.Trouble.after": "until late events have come, in virtual time",
    "trioperator.testing.operator_runner.OperatorRunner.assert_converged": "the time in which nothing must be written",
    "trioperator.testing.operator_runner.OperatorRunner.assert_idempotent": "the same, after a restart",
    "trioperator.testing.webhooks.MemoryWebhookServer.__call__": "for its cancellation",
    "trioperator.testing.transport._FaultyStream._lag": "the delay of an injected fault",
    "trioperator.testing.transport._sleep": "the delay of an injected fault",
    "trioperator.testing.transport._wait_forever": "the silence of an injected fault",
    "trioperator._tooling.releasing.Releaser.release": "the time in which an operator that still runs reacts",
    "trioperator._supervisor.storage_migration._migrate_at_last": "backoff after a failed migration",
    "trioperator._supervisor.storage_migration._wait_noticed": "the time in which API servers notice a changed CRD",
    "trioperator._supervisor.storage_migration._Migration.run": "the rate of writes",
    "trioperator._webhooks.configurations.WebhookConfigurations._announce": (
        "the time in which API servers notice new webhooks"
    ),
    "trioperator._webhooks.definitions.ConversionDefinitions._repair": "backoff before what others change again",
    "trioperator._webhooks.server.WebhookServer._serve": "for its cancellation",
    "trioperator._webhooks.server._TlsFiles._replace": "until API servers notice, who do not say when",
    "trioperator._webhooks.server._TlsFiles.wait_for_authority": "the interval of reading certificates again",
    "trioperator._webhooks.service.Admission.linger": "the time in which Services still pass reviews on",
    "trioperator._endpoints.health._HealthThread._keep_asking": (
        "the interval of heartbeats of a loop that may be blocked"
    ),
    "trioperator._endpoints.health.serve_health": "for its cancellation",
    "trioperator._http.listener.accept_connections": "backoff after the server has failed",
    "trioperator._http.server_connection.Connection.wait_for_disconnect": "for the end of the response",
    "trioperator._webhooks.webhooks_app.WebhooksApp.serve": "for its cancellation",
}

# Timeouts in loops, and what happens when they are over: not a look whether something has happened.
TIMEOUTS: Final = {
    "trioperator._concurrency.timeouts.Timeouts.serve": "the next deadline is over, or has been moved",
    "trioperator._coordination.leadership.Leadership._lead": "the lease is lost",
    "trioperator._coordination.peering.Peering._keep_alive": "the record must be renewed",
    "trioperator._coordination.peering.Peering.serve": "the record of a peer has expired",
    "trioperator._coordination.shards.Shards._keep_session": "the session is over",
    "trioperator._http.connection_pool.ConnectionPool.fetch": "the request is given up: it is sent twice at most",
    "trioperator._http.tls_connection.TlsConnection._wait": "the deadline is over, which ends the loop",
    "trioperator._kube.credential_store.CredentialStore.serve": "the credentials must be renewed",
    "trioperator._runtime.daemons.alarm_clock.AlarmClock.serve": "the next alarm goes off",
    "trioperator._runtime.watching.index_gate._find_unlistable": "the first list has made no progress for too long",
    "trioperator._runtime.progress.saver.Saver._save_when_due": "the progress is due to be stored",
    "trioperator._runtime.workqueue.WorkQueue._requeue": "an item is due",
    "trioperator._webhooks.managed.ManagedObjects.serve": "backoff after a failed write",
    "trioperator._webhooks.configurations.WebhookConfigurations._drop_others": (
        "the CAs and webhooks of others are dropped"
    ),
    "trioperator._webhooks.configurations.WebhookConfigurations._repair": "backoff before what others change again",
    "trioperator._webhooks.definitions.ConversionDefinitions._drop_others": "the CAs of others are dropped",
    "trioperator.client.waiting.wait_until": "the object is read once more before the timeout is over",
}

_TIMEOUTS: Final = frozenset({"move_on_after", "move_on_at", "fail_after", "fail_at"})
_SLEEPS: Final = frozenset({"sleep", "sleep_until", "sleep_forever"})


@pytest.fixture(scope="module")
def modules() -> Iterator[list[Module]]:
    """Yield the modules of the package but the API server's."""
    found = read_modules(ROOT, "trioperator")
    with without_gc():
        yield [module for module in found if not module.name.startswith("trioperator.apiserver")]


def named_nodes(node: ast.AST, name: str, *, loop: bool = False) -> Iterator[tuple[str, ast.AST, bool]]:
    """Yield all nodes with the name of the function or class around them, and whether they are in a loop of it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from named_nodes(child, f"{name}.{child.name}")
        else:
            is_loop = isinstance(child, ast.While | ast.For | ast.AsyncFor)
            yield name, child, loop
            yield from named_nodes(child, name, loop=loop or is_loop)


def called(node: ast.AST) -> str:
    """Return the last part of the name of the function that is called, if the node is a call."""
    return last_name(node.func) if isinstance(node, ast.Call) else ""


def last_name(node: ast.AST) -> str:
    """Return the last part of a name with dots, if the node is one."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def find_unlimited_shields(module: Module) -> set[str]:
    """Find shields without a deadline: neither of their own, nor assigned to the scope in the same module."""
    with_deadline, found = set(), set()
    for _, node, _ in named_nodes(module.tree, module.name):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            attributes = [target for target in targets if isinstance(target, ast.Attribute)]
            with_deadline |= {last_name(target.value) for target in attributes if target.attr == "deadline"}
            if any(target.attr == "shield" for target in attributes):
                found.add(module.name)
    scopes: dict[int, str] = {}
    for _, node, _ in named_nodes(module.tree, module.name):
        if isinstance(node, ast.Assign):
            scopes[id(node.value)] = last_name(node.targets[0])
    for name, node, _ in named_nodes(module.tree, module.name):
        if not isinstance(node, ast.Call) or all(keyword.arg != "shield" for keyword in node.keywords):
            continue
        options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if options["shield"] == "False":
            continue
        limit = ast.unparse(node.args[0]) if called(node) in _TIMEOUTS and node.args else options.get("deadline", "inf")
        if "inf" in limit and scopes.get(id(node)) not in with_deadline:
            found.add(name)
    return found


def find_sleeps(module: Module) -> set[str]:
    """Find the functions that sleep."""
    return {name for name, node, _ in named_nodes(module.tree, module.name) if called(node) in _SLEEPS}


def find_timeouts_in_loops(module: Module) -> set[str]:
    """Find the functions with a timeout in a loop."""
    nodes = named_nodes(module.tree, module.name)
    return {name for name, node, loop in nodes if loop and called(node) in _TIMEOUTS}


def test_each_shield_has_a_limit(modules: list[Module]) -> None:
    assert {name for module in modules for name in find_unlimited_shields(module)} == set(SHIELDS)


def test_nothing_sleeps_without_a_reason(modules: list[Module]) -> None:
    assert {name for module in modules for name in find_sleeps(module)} == set(SLEEPS)


def test_nothing_waits_with_a_timeout_in_a_loop_without_a_reason(modules: list[Module]) -> None:
    assert {name for module in modules for name in find_timeouts_in_loops(module)} == set(TIMEOUTS)


# The rules themselves.

SHIELDED: Final[Mapping[str, bool]] = {
    "with trio.CancelScope(shield=True): await x()": False,
    "with CancelScope(shield=True, deadline=math.inf): await x()": False,
    "with trio.move_on_after(float('inf'), shield=True): await x()": False,
    "scope.shield = True": False,
    "self.scope = trio.CancelScope(shield=True)": False,
    "self.scope = trio.CancelScope(shield=True)\nself.scope.deadline = 5": True,
    "self.other = trio.CancelScope(shield=True)\nself.scope.deadline = 5": False,
    "with trio.CancelScope(shield=True, deadline=5): await x()": True,
    "with trio.move_on_after(1, shield=True): await x()": True,
    "with trio.CancelScope(shield=False): await x()": True,
    "with trio.CancelScope(): await x()": True,
}


def module_of(text: str) -> Module:
    lines = "\n".join(f"    {line}" for line in text.splitlines())
    return Module(ROOT / "example.py", "example", f"async def fn():\n{lines}\n")


@pytest.mark.parametrize("text", SHIELDED)
def test_a_shield_without_a_limit_is_found(text: str) -> None:
    assert bool(find_unlimited_shields(module_of(text))) is not SHIELDED[text]


@pytest.mark.parametrize(
    "text",
    [
        "while not done: await trio.sleep(1)",
        "time.sleep(1)",
        "await sleep_until(5)",
        "async with x:\n await sleep(0)",
    ],
)
def test_a_sleep_is_found(text: str) -> None:
    assert find_sleeps(module_of(text)) == {"example.fn"}


@pytest.mark.parametrize("loop", ["while True:", "for x in y:", "async for x in y:"])
def test_a_timeout_is_found_where_it_is_in_a_loop(loop: str) -> None:
    wait = "with trio.move_on_after(1):\n  await event.wait()"
    indented = wait.replace("with", "  with").replace("  await", "    await")
    assert find_timeouts_in_loops(module_of(wait)) == set()
    assert find_timeouts_in_loops(module_of(f"{loop}\n{indented}")) == {"example.fn"}
    assert find_timeouts_in_loops(module_of(f"{loop}\n def inner():\n  pass")) == set()
