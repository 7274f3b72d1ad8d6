"""Support, as a ring of the task tree: what the handling of objects needs, and what others ask the operator meanwhile.

It stops last. First the elections end, and others take over, as soon as nothing is handled any longer: webhooks are
still served then.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import trio

from trioperator._concurrency.core_tasks import keep
from trioperator._coordination.leadership import Leadership
from trioperator._coordination.peerings import Peerings
from trioperator._handling.handlers.handler import Activity
from trioperator._kube.api_client import ApiClient
from trioperator._recorder.recorder import EventRecorder
from trioperator._supervisor.assembly import Operator, build_admission, make_elections

if TYPE_CHECKING:
    from trioperator._webhooks.service import Admission


@contextlib.asynccontextmanager
async def open_support(operator: Operator, client: ApiClient) -> AsyncIterator[Admission | None]:
    """Serve probes and webhooks, post events, keep timeouts and credentials, and take part in elections in the block.

    Yields the webhooks, if there are any.
    """
    plan, stop = operator.plan, operator.stop
    elections = make_elections(client, operator.pauses, plan)
    recorder = EventRecorder(client.fenced(operator.pauses.check_write), plan.settings, identity=plan.identity)
    admission = build_admission(operator, client) if plan.registry.webhook_handlers() else None
    operator.health.update_admission(admission)
    operator.inspector.update_lease(next((each.lease for each in elections if isinstance(each, Leadership)), None))
    try:
        with recorder.active():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep, "timeouts", client.credentials.timeouts.serve, name="timeouts")
                nursery.start_soon(keep, "credentials", client.credentials.serve, name="credentials")
                nursery.start_soon(keep, "post events", recorder.serve, name="post events")
                await _start_servers(operator, admission, nursery)
                async with _taking_part(elections, operator, recorder, is_last=admission is None):
                    yield admission
                if admission is not None:
                    await admission.release(stop.remaining)  # while its webhooks are still served
                    await admission.linger(stop.requested_at, stop.remaining)
                    await recorder.flush(stop.remaining)
                nursery.cancel_scope.cancel(reason="the operator is stopping")
    finally:
        if admission is not None:
            await admission.release(stop.remaining)


async def _start_servers(operator: Operator, admission: Admission | None, nursery: trio.Nursery) -> None:
    if operator.plan.liveness_endpoint:
        await nursery.start(keep, "probes", functools.partial(_serve_probes, operator), name="probes")
    with operator.stop.starting():
        await nursery.start(keep, "client libraries", operator.session.serve_libraries, name="client libraries")
        if admission is not None:
            await nursery.start(keep, "webhooks", admission.serve, name="webhooks")


async def _serve_probes(operator: Operator, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
    from trioperator._endpoints.probes import serve_probes  # saves loading a web server without probes

    async def probe() -> dict[str, Any]:
        found = await operator.activities.run(Activity.PROBE)
        results = {name: result for name, result in found.items() if result is not None}  # None is no result
        problems = operator.health.problems
        return {"problems": problems, **results} if problems else results

    assert operator.plan.liveness_endpoint is not None
    await serve_probes(operator.plan.liveness_endpoint, probe, task_status=task_status)


@contextlib.asynccontextmanager
async def _taking_part(
    elections: Sequence[Leadership | Peerings], operator: Operator, recorder: EventRecorder, *, is_last: bool
) -> AsyncIterator[None]:
    """Take part in elections within the block. At its end, let others take over: nothing is handled any longer."""
    stop = operator.stop
    try:
        async with trio.open_nursery() as nursery:
            with stop.starting():
                for election in elections:
                    await nursery.start(election.serve)
            yield
            nursery.cancel_scope.cancel(reason="nothing is left to handle")
        await recorder.flush(stop.remaining, last=is_last)  # those who may write no more post nothing
    finally:
        for election in reversed(elections):
            await election.release()
