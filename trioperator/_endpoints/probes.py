"""Health probes: an HTTP endpoint for the kubelet.

GET returns the results of the probe handlers as JSON with HTTP 200, or an error message with HTTP 500. Anybody may
ask, so the message has only the ids of handlers and the names of exception classes; the log has the details.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
import trio

from trioperator._concurrency.core_tasks import keep
from trioperator._concurrency.pulse import Pulse
from trioperator._endpoints.plain_app import Answer, PlainApp, Request
from trioperator._http.endpoint import parse_endpoint
from trioperator._logs import get_logger
from trioperator.errors import ActivityError, HandlerRetriesError

# Returns the results of the probe handlers by their ids, or raises if the operator is unhealthy.
Probe: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]

# Seconds for which a report is cached, so that frequent probes cost no more than rare ones (as in Kopf).
_MAX_AGE: Final = 10.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """Health of the operator; ``content`` is JSON."""

    healthy: bool
    content: bytes


class Prober:
    """A cache of reports: probes on request, one at a time, at most once in ten seconds.

    Probing is a separate task: if a request times out before its report is ready, the next one gets the report.
    """

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._logger = get_logger("trioperator.endpoints.probes")
        self._report: ProbeReport | None = None
        self._made_at = -math.inf
        self._requested = Pulse()
        self._finished = Pulse()

    async def get(self) -> ProbeReport:
        """Return the newest report; wait for the next one if it is too old."""
        while self._report is None or trio.current_time() - self._made_at >= _MAX_AGE:
            self._requested.set()
            await self._finished.wait()
        return self._report

    async def serve(self) -> None:
        """Probe on request, until cancelled."""
        while True:
            await self._requested.wait()
            self._report = await self._probe_once()
            self._made_at = trio.current_time()
            self._requested.clear()  # requests in the meantime get this report too
            self._finished.set()

    async def _probe_once(self) -> ProbeReport:
        try:
            results = await self._probe()
            return ProbeReport(healthy=True, content=msgspec.json.encode(results, enc_hook=str))
        except ActivityError as error:
            self._logger.warning("The health probe failed: %s", error)
            names = [f"{name}: {_name_error(failure)}" for name, failure in error.failures.items()]
            message = f"The probe handlers have failed: {'; '.join(names)}"
        except Exception as error:
            self._logger.exception("The health probe failed.")
            message = f"The probe has failed: {type(error).__name__}"
        return ProbeReport(
            healthy=False, content=msgspec.json.encode({"error": message.encode(errors="replace").decode()})
        )


def _name_error(error: BaseException) -> str:
    """Return the name of an error's class; the last error's where retries are used up."""
    last = error.__cause__ if isinstance(error, HandlerRetriesError) else None
    return type(last or error).__name__


async def serve_probes(
    endpoint: str, probe: Probe, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve health probes at *endpoint*, such as ``http://0.0.0.0:8080/healthz``.

    Started once it is listening, with the URL as the value. *probe* is called on request; its result is cached for ten
    seconds. Ends by cancellation only, within two seconds. Raises ConfigError if it cannot listen.
    """
    from trioperator._http.server import serve_app

    parsed = parse_endpoint(endpoint)
    prober = Prober(probe)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep, "prober", prober.serve, name="prober")
        url = str(await nursery.start(serve_app, _build_app(parsed.path, prober), parsed, name="probes"))
        get_logger("trioperator.endpoints.probes").info("Serving health status at %s", url)
        task_status.started(url)


def _build_app(path: str, prober: Prober) -> PlainApp:
    async def answer(request: Request) -> Answer:
        report = await prober.get()
        return Answer(report.content, 200 if report.healthy else 500, "application/json")

    return PlainApp({path: answer})
