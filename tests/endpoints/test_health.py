"""Tests for :mod:`trioperator._endpoints.health`: a thread that answers while the event loop cannot."""

from __future__ import annotations

import contextlib
import threading
import time

import httpx
import pytest
import trio

from tests.endpoints.plain_client import get
from tests.http.attacks import ATTACKS
from trioperator._endpoints.health import Check, HealthReport, describe_checks, serve_health
from trioperator._http.endpoint import Endpoint, parse_endpoint
from trioperator.errors import ConfigError

GOOD = HealthReport(live=(Check("task a"),), ready=(Check("startup"), Check("watch x", "it is slow", fatal=False)))


class Operator:
    """What an operator says of itself, and its limit."""

    def __init__(self, report: HealthReport = GOOD, limit: float | None = 30.0) -> None:
        self.report = report
        self.limit = limit
        self.error: Exception | None = None
        self.endpoint = "http://127.0.0.1:0/health"

    def describe(self) -> HealthReport:
        if self.error is not None:
            raise self.error
        return self.report

    async def serve(self, *, task_status: trio.TaskStatus[str]) -> None:
        await serve_health(self.endpoint, self.describe, limit=lambda: self.limit, task_status=task_status)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "trioperator-health"]


async def test_a_healthy_operator_is_live_and_ready(nursery: trio.Nursery, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    url = await nursery.start(Operator().serve)
    assert caplog.messages == [f"Serving health checks at {url}/livez and {url}/readyz"]
    assert await get(f"{url}/livez") == (200, "ok")
    assert await get(f"{url}/readyz") == (200, "ok")
    assert await get(f"{url}/livez?verbose") == (200, "[+]event-loop ok\n[+]task a ok\nlivez check passed\n")
    status, text = await get(f"{url}/readyz?verbose")
    assert (status, text.splitlines()[2]) == (200, "[+]watch x ok, but it is slow")


async def test_a_check_that_fails_is_named_and_can_be_excluded(nursery: trio.Nursery) -> None:
    operator = Operator(HealthReport(live=(Check("task a", "it has ended"),), ready=(Check("startup", "\ud800"),)))
    url = await nursery.start(operator.serve)
    status, text = await get(f"{url}/livez")
    assert status == 503
    assert text == "[+]event-loop ok\n[-]task a failed: it has ended\nlivez check failed\n"
    assert await get(f"{url}/livez?exclude=task%20a") == (200, "ok")
    assert (await get(f"{url}/readyz"))[0] == 503


async def test_only_its_paths_are_served(nursery: trio.Nursery) -> None:
    url = await nursery.start(Operator().serve)
    assert (await get(url))[0] == (await get(f"{url}/livezz"))[0] == 404
    assert (await get(f"{url}/livez", "POST"))[0] == 405
    assert await get(f"{url}/livez", "HEAD") == (200, "")


class Asker(threading.Thread):
    """A thread that asks until the answer has the text, or it has asked for long enough."""

    def __init__(self, url: str, text: str) -> None:
        super().__init__()
        self.url = url
        self.text = text
        self.answers: list[tuple[int, str]] = []

    def run(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            response = httpx.get(self.url, timeout=60, trust_env=False)
            self.answers.append((response.status_code, response.text))
            if self.text in response.text:
                return


async def test_a_blocked_event_loop_is_not_live(nursery: trio.Nursery) -> None:
    url = await nursery.start(Operator(limit=0.6).serve)
    asker = Asker(f"{url}/livez", "[-]event-loop failed: it has been blocked for")
    asker.start()
    asker.join()  # blocks the event loop
    assert asker.answers[-1][0] == 503
    assert await get(f"{url}/livez") == (200, "ok")


async def test_the_limit_can_be_switched_off(nursery: trio.Nursery) -> None:
    url = await nursery.start(Operator(limit=None).serve)
    asker = Asker(f"{url}/livez?verbose", "[+]event-loop ok, but it has been blocked for")
    asker.start()
    asker.join()
    assert asker.text in asker.answers[-1][1]
    assert {status for status, _ in asker.answers} == {200}


async def test_an_error_of_the_report_is_logged_and_leaves_the_last_one(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    operator = Operator()
    url = await nursery.start(operator.serve)
    assert (await get(f"{url}/readyz"))[0] == 200
    operator.error = LookupError("what")
    with trio.fail_after(60):
        while "cannot be checked" not in caplog.text:  # the report is as good as new for a while
            assert (await get(f"{url}/readyz"))[0] == 200


async def test_before_the_first_report_it_is_live_but_not_ready(nursery: trio.Nursery) -> None:
    operator = Operator()
    operator.error = LookupError("not yet")
    url = await nursery.start(operator.serve)
    assert (await get(f"{url}/livez"))[0] == 200
    assert (await get(f"{url}/readyz"))[0] == 503


async def test_the_thread_ends_with_its_task() -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(Operator().serve)
            assert (await get(f"{url}/livez"))[0] == 200
            assert len(threads()) == 1
            nursery.cancel_scope.cancel(reason="the test")
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(Operator().serve)
            nursery.cancel_scope.cancel(reason="the test")  # before the thread has begun, perhaps
    endpoint = parse_endpoint(url)
    with pytest.raises(OSError):
        await trio.open_tcp_stream(endpoint.host, endpoint.port)


async def test_an_endpoint_that_cannot_be_listened_on_is_refused(nursery: trio.Nursery) -> None:
    with pytest.raises(ConfigError, match="http://"):
        await serve_health("https://localhost/", GOOD.__class__, limit=lambda: 1)
    url = await nursery.start(Operator().serve)
    with pytest.raises(ConfigError, match="Cannot listen"):
        await serve_health(url, GOOD.__class__, limit=lambda: 1)


async def _attack(endpoint: Endpoint, attack: bytes) -> None:
    async with await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream:
        with contextlib.suppress(trio.BrokenResourceError), trio.move_on_after(1):
            await stream.send_all(attack)
            await stream.send_eof()
            while await stream.receive_some():
                pass


async def test_attacks_leave_it_alive_and_the_log_empty(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    url = await nursery.start(Operator().serve)
    caplog.set_level("WARNING")
    endpoint = parse_endpoint(url)
    async with trio.open_nursery() as attacks:
        for attack in ATTACKS.values():
            attacks.start_soon(_attack, endpoint, attack)
    assert await get(f"{url}/livez") == (200, "ok")
    assert caplog.messages == []


@pytest.mark.parametrize("path", ["", "/", "/livez", "/readyz/"])
async def test_the_url_may_be_that_of_a_probe(path: str, nursery: trio.Nursery) -> None:
    operator = Operator()
    operator.endpoint = f"http://127.0.0.1:0{path}"
    url = await nursery.start(operator.serve)
    assert url.rpartition(":")[2].isdigit()
    assert await get(f"{url}/livez") == await get(f"{url}/readyz") == (200, "ok")


def test_checks_are_described_as_kube_apiserver_describes_them() -> None:
    checks = [Check("a"), Check("b", "it is late", fatal=False), Check("c", "it is gone")]
    text = "[+]a ok\n[+]b ok, but it is late\n[-]c failed: it is gone\nlivez check failed\n"
    assert describe_checks("livez", checks) == text
