"""Health probes: what a kubelet is told about the operator.

A GET of the endpoint gives the results of the probe handlers as JSON, with HTTP 200, or what is wrong, with HTTP 500.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
import trio

from trioperator.errors import TrioperatorError
from trioperator.logs import get_logger
from trioperator.web.endpoint import parse_endpoint

__all__ = ["Probe", "ProbeReport", "Prober", "serve_probes"]

# Give the results of the probe handlers by their ids, or raise what says that the operator is not well.
Probe: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]

# Seconds for which a report is good, so that many probes are no more work than a few (Kopf, "Probe handlers").
_MAX_AGE: Final = 10.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """Say how the operator is: ``content`` is JSON."""

    healthy: bool
    content: bytes


class Prober:
    """Make reports when they are asked for, at most one at a time and one in ten seconds.

    Probing is a task of its own, so that a prober which does not wait long enough finds the report the next time.
    """

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._logger = get_logger(__name__)
        self._report: ProbeReport | None = None
        self._made_at = -math.inf
        self._asked = trio.Event()
        self._made = trio.Event()

    async def get(self) -> ProbeReport:
        """Give the newest report, or wait for the next one if it is too old."""
        while self._report is None or trio.current_time() - self._made_at >= _MAX_AGE:
            self._asked.set()
            await self._made.wait()
        return self._report

    async def serve(self) -> None:
        """Make reports. It ends by cancellation only."""
        while True:
            await self._asked.wait()
            report = await self._make()
            self._asked = trio.Event()  # who has asked meanwhile gets this report too
            self._report, self._made_at = report, trio.current_time()
            made, self._made = self._made, trio.Event()
            made.set()

    async def _make(self) -> ProbeReport:
        try:
            results = await self._probe()
            return ProbeReport(healthy=True, content=msgspec.json.encode(results, enc_hook=str))
        except TrioperatorError as error:
            self._logger.warning("The health probe has failed: %s", error)
            message = str(error)
        except Exception as error:
            self._logger.exception("The health probe has failed.")
            message = repr(error)
        return ProbeReport(
            healthy=False, content=msgspec.json.encode({"error": message.encode(errors="replace").decode()})
        )


async def serve_probes(
    endpoint: str, probe: Probe, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve the operator's health at *endpoint*, such as ``http://0.0.0.0:8080/healthz``.

    It has started when it listens, and tells its URL. *probe* is called when a report is asked for, and its result is
    good for ten seconds. Ends by cancellation only, within two seconds. Raises ConfigError where it cannot listen.
    """
    from trioperator.web.server import serve_app

    place = parse_endpoint(endpoint)
    prober = Prober(probe)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(prober.serve, name="prober")
        url = str(await nursery.start(serve_app, _make_app(place.path, prober), place, name="probes"))
        get_logger(__name__).info("Serving health status at %s", url)
        task_status.started(url)


def _make_app(path: str, prober: Prober) -> Any:
    import quart_trio

    app = quart_trio.QuartTrio(__name__, static_folder=None)
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}

    @app.get(path, strict_slashes=False)
    async def answer() -> tuple[bytes, int, dict[str, str]]:
        report = await prober.get()
        return report.content, 200 if report.healthy else 500, headers

    return app
