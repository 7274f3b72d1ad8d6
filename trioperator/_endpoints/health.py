"""Liveness and readiness of an operator, served by a thread with an event loop of its own.

A blocked event loop cannot answer for itself: so this thread does. It asks the operator's loop for its report, on
request and every few seconds; if that does not answer for long, ``/livez`` fails. The formats are kube-apiserver's.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from trioperator._endpoints.plain_app import Answer, PlainApp, Request
from trioperator._http.endpoint import Endpoint, open_sockets, parse_endpoint
from trioperator._logs import get_logger

if TYPE_CHECKING:
    import socket

_logger = get_logger("trioperator.endpoints.health")

# Seconds between two questions to the operator's loop while nobody asks.
_INTERVAL: Final = 5.0
# Seconds that a request waits for the operator's loop: less than the second that kubelets wait.
_PATIENCE: Final = 0.5
# Seconds for which a report counts as new.
_MAX_AGE: Final = 0.5


class Check(msgspec.Struct, frozen=True):
    """One thing that is checked, with its problem if it has one. A problem that is not *fatal* is only shown."""

    name: str
    problem: str = ""
    fatal: bool = True

    @property
    def failed(self) -> bool:
        """Whether the probe fails for it."""
        return bool(self.problem) and self.fatal


class HealthReport(msgspec.Struct, frozen=True):
    """Health of an operator: the checks of ``/livez`` and of ``/readyz``."""

    live: tuple[Check, ...] = ()
    ready: tuple[Check, ...] = ()


_STARTING: Final = HealthReport(ready=(Check("startup", "the operator is starting"),))


def describe_checks(name: str, checks: Sequence[Check]) -> str:
    """Return the checks in the words of kube-apiserver, for the probe with the name."""
    lines = []
    for check in checks:
        if check.failed:
            lines.append(f"[-]{check.name} failed: {check.problem}")
        else:
            lines.append(f"[+]{check.name} ok{', but ' + check.problem if check.problem else ''}")
    verdict = "failed" if any(check.failed for check in checks) else "passed"
    return "\n".join([*lines, f"{name} check {verdict}", ""])


async def serve_health(
    endpoint: str,
    describe: Callable[[], HealthReport],
    *,
    limit: Callable[[], float | None],
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve ``/livez`` and ``/readyz`` below *endpoint*, such as ``http://0.0.0.0:8081``, in a thread.

    *describe* is called in the current event loop. If that does not answer for *limit* seconds, ``/livez`` fails.
    Started once it is listening, with the URL as the value. Ends by cancellation only, within two seconds. Raises
    ConfigError if it cannot listen.
    """
    parsed = parse_endpoint(endpoint)
    where, sockets = await open_sockets(msgspec.structs.replace(parsed, path=parsed.find_base("/livez", "/readyz")))
    with contextlib.ExitStack() as stack:
        for sock in sockets:
            stack.enter_context(sock)
        thread = _HealthThread(where, sockets, describe, limit)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_run, thread, name="health thread")
            try:
                await thread.serving.wait()
                url = str(where)
                _logger.info("Serving health checks at %s/livez and %s/readyz", url, url)
                task_status.started(url)
                await trio.sleep_forever()
            finally:
                thread.stop()


async def _run(thread: _HealthThread) -> None:
    await trio.to_thread.run_sync(thread.run, limiter=trio.CapacityLimiter(1), thread_name="trioperator-health")


class _HealthThread:
    """The thread of the health checks, and its event loop. Created in the operator's, where ``serving`` is set."""

    def __init__(
        self,
        endpoint: Endpoint,
        sockets: Sequence[socket.socket],
        describe: Callable[[], HealthReport],
        limit: Callable[[], float | None],
    ) -> None:
        self._endpoint = endpoint
        self._sockets = sockets
        self._describe = describe
        self._limit = limit
        self.serving = trio.Event()
        self._operator = trio.lowlevel.current_trio_token()
        self._stopped = threading.Event()
        self._scope: trio.CancelScope | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._report = _STARTING
        self._made_at = -math.inf
        self._question: _Question | None = None

    def run(self) -> None:
        """Serve until it is stopped. Called in the thread."""
        trio.run(self._serve)

    def stop(self) -> None:
        """Stop serving. Called in the operator's thread, once."""
        self._stopped.set()
        if self._token is not None and self._scope is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._scope.cancel)

    async def _serve(self) -> None:
        from trioperator._http.server import serve_app  # saves loading a web server without probes

        base = self._endpoint.path
        app = PlainApp({f"{base}/livez": self._answer_livez, f"{base}/readyz": self._answer_readyz})
        with trio.CancelScope() as self._scope:
            self._token = trio.lowlevel.current_trio_token()
            if self._stopped.is_set():
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_asking, name="heartbeat")
                await nursery.start(functools.partial(serve_app, app, self._endpoint, sockets=self._sockets))
                self._operator.run_sync_soon(self.serving.set)

    async def _keep_asking(self) -> None:
        """Ask the operator's loop every few seconds, to know since when it has not answered."""
        while True:
            question = self._ask()
            await question.answered.wait()
            await trio.sleep(_INTERVAL)

    def _ask(self) -> _Question:
        """Ask the operator's loop for a report, unless it is being asked. One question at a time, whoever asks."""
        if self._question is None:
            self._question = question = _Question()
            self._operator.run_sync_soon(self._reply, question)
        return self._question

    def _reply(self, question: _Question) -> None:
        """Reply to a question. Called in the operator's loop, which must not fail for it."""
        try:
            report: HealthReport | None = self._describe()
        except Exception:
            _logger.exception("The health of the operator cannot be checked.")
            report = None
        assert self._token is not None
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._take, question, report)

    def _take(self, question: _Question, report: HealthReport | None) -> None:
        """Take the reply to a question. Called in the loop of this thread."""
        if report is not None:
            self._report = report
        self._made_at = trio.current_time()
        self._question = None
        question.answered.set()

    async def _refresh(self) -> None:
        """Get a new report, if the operator's loop answers in time."""
        if trio.current_time() - self._made_at >= _MAX_AGE:
            question = self._ask()
            with trio.move_on_after(_PATIENCE):
                await question.answered.wait()

    def _check_loop(self) -> Check:
        limit = self._limit()
        seconds = 0.0 if self._question is None else trio.current_time() - self._question.asked_at
        if seconds < _PATIENCE:
            return Check("event-loop")
        fatal = limit is not None and seconds >= limit
        return Check("event-loop", f"it has been blocked for {seconds:.0f} seconds", fatal=fatal)

    async def _answer_livez(self, request: Request) -> Answer:
        await self._refresh()
        return _answer("livez", (self._check_loop(), *self._report.live), request)

    async def _answer_readyz(self, request: Request) -> Answer:
        await self._refresh()
        return _answer("readyz", (self._check_loop(), *self._report.ready), request)


class _Question:
    """A question to the operator's loop."""

    def __init__(self) -> None:
        self.asked_at = trio.current_time()
        self.answered = trio.Event()


def _answer(name: str, checks: Sequence[Check], request: Request) -> Answer:
    """Answer a request: ``ok``, or all checks if one has failed, or for ``?verbose``. ``?exclude=`` leaves one out."""
    checks = [check for check in checks if check.name != request.query.get("exclude")]
    failed = any(check.failed for check in checks)
    text = describe_checks(name, checks) if failed or "verbose" in request.query else "ok"
    return Answer(text.encode(errors="replace"), 503 if failed else 200)
