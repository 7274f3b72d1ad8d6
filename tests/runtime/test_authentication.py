"""Login handlers of operators on the embedded cluster, which accepts the tokens that it knows."""

from __future__ import annotations

import collections
import contextlib
import datetime
import json
import logging
import pathlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, settle, widget
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster, User

on = trioperator.on


class Gate(httpx.AsyncBaseTransport):
    """The way to a cluster, for requests with one of the tokens that are valid at that moment."""

    def __init__(self, cluster: Cluster) -> None:
        self.valid = {"one"}
        self.rejections = 0
        self.hosts: set[str] = set()
        self._inner = cluster.transport(user=User(name="robot", groups=("system:masters",)))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.hosts.add(request.url.host)
        if request.headers.pop("Authorization", "").removeprefix("Bearer ") in self.valid:
            return await self._inner.handle_async_request(request)
        self.rejections += 1
        return httpx.Response(401, json={"kind": "Status", "code": 401, "message": "Unauthorized"})


class Stage:
    """A cluster behind a gate, and an operator with login handlers."""

    def __init__(self) -> None:
        self.cluster = Cluster(clock=wall_now)
        self.gate = Gate(self.cluster)
        self.registry = trioperator.OperatorRegistry()
        self.settings = trioperator.OperatorSettings()
        self.handled: list[str] = []

        @on.event("widgets", registry=self.registry)
        def seen(name: str, **_: Any) -> None:
            self.handled.append(name)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the operator in the block."""
        await self.cluster.apply(CRD)
        stop = trio.Event()

        async def operate(*, task_status: trio.TaskStatus[None]) -> None:
            await trioperator.operator(
                registry=self.registry,
                settings=self.settings,
                transport=self.gate,
                standalone=True,
                stop_flag=stop,
                handle_signals=False,
                task_status=task_status,
            )

        async with trio.open_nursery() as nursery:
            await nursery.start(operate)
            yield
            stop.set()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def connect(token: str, **fields: Any) -> trioperator.ConnectionInfo:
    return trioperator.ConnectionInfo(server="http://embedded", token=token, **fields)


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_operator_uses_the_credentials_of_a_login_handler(
    stage: Stage, autojump_clock: MockClock, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: dict[str, Any] = {}

    def login(**kwargs: Any) -> trioperator.ConnectionInfo:
        seen.update(kwargs, thread=threading.current_thread() is not threading.main_thread())
        return connect("one")

    async def login_async(**kwargs: Any) -> trioperator.ConnectionInfo:
        await trio.sleep(1)
        return login(**kwargs)

    on.login(registry=stage.registry, id="mine", param=5)(login_async if is_async else login)
    async with stage.running():
        await stage.cluster.create(widget("w"))
        await settle(1)
    assert stage.handled == ["w"]
    assert stage.gate.rejections == 0
    assert seen["thread"] is not is_async
    assert (seen["param"], seen["retry"], str(seen["activity"])) == (5, 0, "authentication")
    assert {"settings", "memo", "logger", "started", "runtime"} <= seen.keys()
    assert "Initial authentication has been initiated." in caplog.messages
    assert "Activity 'mine' succeeded." in caplog.messages
    assert "Initial authentication has finished." in caplog.messages
    assert all(not message.startswith("Bearer") and "token='one'" not in message for message in caplog.messages)


async def test_all_login_handlers_are_called_and_used_by_priority(stage: Stage, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.login(registry=stage.registry)
    def best(**_: Any) -> trioperator.ConnectionInfo:
        calls.append("best")
        return connect("unknown", priority=10)

    @on.login(registry=stage.registry)
    def none(**_: Any) -> None:
        calls.append("none")

    @on.login(registry=stage.registry)
    async def fallback(**_: Any) -> trioperator.ConnectionInfo:
        calls.append("fallback")
        return connect("one")

    async with stage.running():
        await stage.cluster.create(widget("w"))
        await settle(1)
    assert stage.handled == ["w"]
    assert calls == ["best", "none", "fallback"]
    assert stage.gate.rejections == 1


async def test_an_operator_logs_in_again_when_its_token_is_rejected_and_lists_nothing_again(
    stage: Stage, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    calls = 0

    @on.login(registry=stage.registry)
    async def login(**_: Any) -> trioperator.ConnectionInfo:
        nonlocal calls
        calls += 1
        return connect(min(stage.gate.valid))

    async with stage.running():
        await stage.cluster.create(widget("a"))
        await settle(1)
        lists = stage.cluster.requests.count(verb="list")
        stage.gate.valid = {"two"}
        await trio.sleep(1200)  # watches end, and are opened again
        await stage.cluster.create(widget("b"))
        await settle(1)
    assert stage.handled == ["a", "b"]
    assert calls == 2
    assert stage.cluster.requests.count(verb="list") == lists
    assert 1 <= stage.gate.rejections <= 5  # one for each watch
    assert "Re-authentication has been initiated." in caplog.messages


async def test_an_operator_logs_in_again_before_its_token_expires(stage: Stage, autojump_clock: MockClock) -> None:
    calls = 0

    @on.login(registry=stage.registry)
    async def login(**_: Any) -> trioperator.ConnectionInfo:
        nonlocal calls
        calls += 1
        stage.gate.valid = {f"token {calls - 1}", f"token {calls}"}
        return connect(f"token {calls}", expiration=wall_now() + datetime.timedelta(minutes=10))

    async with stage.running():
        await trio.sleep(10800)
        await stage.cluster.create(widget("w"))
        await settle(1)
    assert stage.handled == ["w"]
    assert stage.gate.rejections == 0
    assert 20 <= calls <= 23


async def test_a_login_handler_is_retried(stage: Stage, autojump_clock: MockClock) -> None:
    retries: list[int] = []

    @on.login(registry=stage.registry, backoff=5)
    def login(retry: int, **_: Any) -> trioperator.ConnectionInfo:
        retries.append(retry)
        if retry == 0:
            raise ValueError("no answer")
        if retry == 1:
            raise trioperator.TemporaryError("later", delay=7)
        return connect("one")

    async with stage.running():
        assert trio.current_time() >= 12
    assert retries == [0, 1, 2]


FAILURES: dict[str, tuple[dict[str, Any], Any, str]] = {
    "permanent": ({}, trioperator.PermanentError("no account"), "login: no account"),
    "retries": ({"retries": 2, "backoff": 1}, ValueError("no answer"), "login: "),
    "timeout": ({"timeout": 10, "backoff": 1}, ValueError("no answer"), "login: "),
    "mode": ({"errors": trioperator.ErrorsMode.PERMANENT}, ValueError("no answer"), "login: .*no answer"),
    "ignored": ({"errors": trioperator.ErrorsMode.IGNORED}, ValueError("no answer"), "login handlers.$"),
    "none": ({}, None, "no credentials were retrieved from the login handlers.$"),
    "wrong": ({}, {"server": "x", "token": "s3cret"}, "login: it returned dict, not a ConnectionInfo or None"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_without_any_credentials_the_operator_fails_to_start(
    stage: Stage, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    options, result, message = FAILURES[name]

    @on.login(registry=stage.registry, id="login", **options)
    async def login(**_: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    with pytest.raises(trioperator.LoginError, match=message) as caught:
        await trioperator.operator(registry=stage.registry, transport=stage.gate, handle_signals=False)
    assert "s3cret" not in str(caught.value) + caplog.text
    assert len(stage.cluster.requests) == 0


async def test_one_failing_login_handler_does_not_matter_if_another_has_credentials(
    stage: Stage, autojump_clock: MockClock
) -> None:
    @on.login(registry=stage.registry)
    def broken(**_: Any) -> None:
        raise trioperator.PermanentError("no account")

    on.login(registry=stage.registry, id="good")(lambda **_: connect("one"))
    async with stage.running():
        pass


async def test_a_login_that_fails_later_does_not_stop_the_operator(stage: Stage, autojump_clock: MockClock) -> None:
    calls: collections.deque[Any] = collections.deque([connect("one"), trioperator.PermanentError("down"), None])

    @on.login(registry=stage.registry)
    async def login(**_: Any) -> Any:
        result = calls.popleft() if calls else connect("two")
        if isinstance(result, Exception):
            raise result
        return result

    async with stage.running():
        stage.gate.valid = {"two"}
        await trio.sleep(1200)
        await stage.cluster.create(widget("w"))
        await settle(1)
    assert stage.handled == ["w"]


async def test_a_login_that_hangs_ends_when_the_operator_is_stopped(stage: Stage, autojump_clock: MockClock) -> None:
    @on.login(registry=stage.registry)
    async def login(**_: Any) -> None:
        await trio.sleep_forever()

    stop = trio.Event()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def operate() -> None:
            await trioperator.operator(
                registry=stage.registry, transport=stage.gate, stop_flag=stop, handle_signals=False
            )

        await trio.sleep(5)
        stop.set()
    assert trio.current_time() == 5


async def test_an_explicit_connection_has_precedence_over_login_handlers(
    stage: Stage, autojump_clock: MockClock
) -> None:
    called: list[bool] = []
    on.login(registry=stage.registry, id="login")(lambda **_: called.append(True))
    stop = trio.Event()
    stop.set()
    await trioperator.operator(
        registry=stage.registry,
        connection=connect("one"),
        transport=stage.gate,
        stop_flag=stop,
        handle_signals=False,
    )
    assert called == []


async def test_a_leader_leads_on_when_a_login_takes_longer_than_requests_for_its_lease(
    stage: Stage, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage.settings.leadership.enabled, stage.settings.leadership.namespace = True, "default"
    token = "one"

    @on.login(registry=stage.registry)
    async def log_in(**_: Any) -> trioperator.ConnectionInfo:
        info = trioperator.ConnectionInfo(server="http://embedded", token=token)
        await trio.sleep(7)  # a request for the lease takes five at most
        return info

    async with stage.running():
        await trio.sleep(60)
        token, stage.gate.valid = "two", {"two"}
        await trio.sleep(60)
        lease = await stage.cluster.get("leases", "trioperator")
        renewed = datetime.datetime.fromisoformat(lease["spec"]["renewTime"])
        assert wall_now() - renewed < datetime.timedelta(seconds=5)
    assert "The leadership is lost" not in caplog.text


@pytest.mark.parametrize("has_handler", [False, True])
async def test_an_operator_stays_in_its_cluster_when_another_context_becomes_the_current_one(
    stage: Stage, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, has_handler: bool
) -> None:
    def write(current: str, token: str) -> None:
        config = {
            "current-context": current,
            "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in ("mine", "production")],
            "clusters": [{"name": name, "cluster": {"server": f"http://{name}"}} for name in ("mine", "production")],
            "users": [{"name": "me", "user": {"token": token}}],
        }
        path.write_text(json.dumps(config))

    path = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(path))
    if has_handler:
        on.login(registry=stage.registry)(trioperator.login_with_kubeconfig)
    write("mine", "one")
    async with stage.running():
        write("production", "two")  # as by kubectl config use-context
        stage.gate.valid = {"two"}
        await trio.sleep(700)
        await stage.cluster.create(widget("w"))
        await trio.sleep(10)
        assert stage.handled == ["w"]
    assert stage.gate.hosts == {"mine"}
