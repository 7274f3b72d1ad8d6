"""Operators that log in to a real API server by each means, and whose credentials are rotated while they work."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import json
import logging
import os
import pathlib
import urllib.parse
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
import trustme
import yaml

import trioperator
from tests.controlplane import ControlPlane
from trioperator._kube.api_client import ApiClient, open_client
from trioperator._kube.connection import load_connection

EXEC = "client.authentication.k8s.io/v1"
PATH = "/apis/kopf.dev/v1/namespaces/default/kopfexamples"
REJECTED = "The API server rejected the credentials (HTTP 401): they are wrong or have expired; reloading them."
# For which the API server accepts a token that has been revoked, in seconds: it caches tokens.
CACHED = 12.0


class Account:
    """A service account whose tokens can be revoked, as each is bound to a Secret of its own."""

    def __init__(self, controlplane: ControlPlane) -> None:
        self.name = f"robot-{uuid.uuid4().hex[:6]}"
        self._kubectl = controlplane.kubectl
        self._kubectl("create", "serviceaccount", self.name)
        user = f"--serviceaccount=default:{self.name}"
        self._kubectl("create", "clusterrolebinding", self.name, "--clusterrole=cluster-admin", user)
        self._secrets: list[str] = []

    @property
    def user(self) -> str:
        return f"system:serviceaccount:default:{self.name}"

    def issue(self) -> str:
        """Return another token."""
        secret = f"{self.name}-{len(self._secrets)}"
        self._kubectl("create", "secret", "generic", secret)
        self._secrets.append(secret)
        bound = ("--bound-object-kind=Secret", f"--bound-object-name={secret}")
        return self._kubectl("create", "token", self.name, "--duration=10m", *bound).strip()

    def revoke(self) -> None:
        """Revoke all tokens but the last one."""
        for secret in self._secrets[:-1]:
            self._kubectl("delete", "secret", secret, "--ignore-not-found")


@dataclasses.dataclass
class Work:
    """An operator that handles the changes of an object, and somebody who makes them."""

    admin: ApiClient
    name: str = dataclasses.field(default_factory=lambda: f"kex-{uuid.uuid4().hex[:8]}")
    registry: trioperator.OperatorRegistry = dataclasses.field(default_factory=trioperator.OperatorRegistry)
    stop: trio.Event = dataclasses.field(default_factory=trio.Event)
    changed: int = 0
    handled: int = -1
    _handled: trio.Event = dataclasses.field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        mine = {"work": self.name}

        @trioperator.on.create("kopfexamples", labels=mine, registry=self.registry)
        @trioperator.on.update("kopfexamples", labels=mine, registry=self.registry)
        async def handle(spec: Any, **_: Any) -> int:
            self.handled = int(spec["number"])
            self._handled.set()
            return self.handled

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run the operator, with watches that end every few seconds."""
        settings = trioperator.OperatorSettings()
        settings.watching.server_timeout = 3
        settings.watching.infer_selectors = False  # else another list looks for finalizers on what is not received
        settings.posting.enabled = False
        settings.scanning.disabled = settings.peering.standalone = True
        await trioperator.operator(
            registry=self.registry,
            settings=settings,
            stop_flag=self.stop,
            handle_signals=False,
            task_status=task_status,
        )

    async def change(self) -> None:
        """Change the object, and wait until the operator has handled that."""
        self.changed += 1
        self._handled = trio.Event()
        await self.admin.patch(f"{PATH}/{self.name}", {"spec": {"number": self.changed}})
        while self.handled != self.changed:
            await self._handled.wait()
            self._handled = trio.Event()

    async def go_on(self, seconds: float, pause: float = 0.3) -> None:
        """Change the object again and again."""
        end = trio.current_time() + seconds
        while trio.current_time() < end:
            await self.change()
            await trio.sleep(pause)


@contextlib.asynccontextmanager
async def working(controlplane: ControlPlane) -> AsyncIterator[Work]:
    """Make an object for the work, and remove it afterwards."""
    settings = trioperator.OperatorSettings()
    load = functools.partial(load_connection, [controlplane.kubeconfig])
    async with open_client(load, settings=settings) as admin:
        made = Work(admin)
        manifest = {
            "apiVersion": "kopf.dev/v1",
            "kind": "KopfExample",
            "metadata": {"name": made.name, "labels": {"work": made.name}},
        }
        await admin.post(PATH, {**manifest, "spec": {"number": 0}})
        yield made
        await admin.patch(f"{PATH}/{made.name}", {"metadata": {"finalizers": None}})
        await admin.delete(f"{PATH}/{made.name}")


@pytest.fixture
async def work(controlplane: ControlPlane) -> AsyncIterator[Work]:
    async with working(controlplane) as made:
        yield made


@pytest.fixture
async def other_work(controlplane: ControlPlane) -> AsyncIterator[Work]:
    async with working(controlplane) as made:
        yield made


@pytest.fixture
def login(
    controlplane: ControlPlane, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[dict[str, Any]], None]:
    """Return a function that makes the kubeconfig of the process, with a user."""
    config = yaml.safe_load(controlplane.kubeconfig.read_text())

    def login(user: dict[str, Any]) -> None:
        config["users"][0]["user"] = user
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))

    return login


@pytest.fixture
def certified(controlplane: ControlPlane) -> str:
    """Return the name of a user for client certificates, whose group may do everything."""
    name = f"user-{uuid.uuid4().hex[:6]}"
    controlplane.kubectl("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", "--group=certified")
    return name


async def call(fn: Callable[..., Any], *args: Any) -> Any:
    return await trio.to_thread.run_sync(fn, *args)


def replace(path: pathlib.Path, content: bytes | str) -> None:
    """Replace a file as the kubelet does: at once."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.replace(fresh, path)


def assert_listed_once(controlplane: ControlPlane, user: str, *, watched: int = 2) -> None:
    """Check that the watch was resumed by its resource version again and again, without a new list.

    A list of one object is none: that asks for the server's version where a watch has ended before an own write came.
    """
    requests = [
        (request["verb"], urllib.parse.parse_qs(urllib.parse.urlsplit(request["requestURI"]).query))
        for request in controlplane.requests()
        if request["user"]["username"] == user and request.get("objectRef", {}).get("resource") == "kopfexamples"
    ]
    watches = [query for verb, query in requests if verb == "watch"]
    assert len([query for verb, query in requests if verb == "list" and query.get("limit") != ["1"]]) == 1
    assert len(watches) >= watched
    assert all(int(query["resourceVersion"][0]) > 0 for query in watches)


async def test_static_credentials(
    controlplane: ControlPlane, work: Work, login: Callable[[dict[str, Any]], None]
) -> None:
    login({"token": "operator-token"})
    async with trio.open_nursery() as nursery:
        await nursery.start(work.run)
        with trio.fail_after(60):
            await work.go_on(1)
        work.stop.set()


async def test_tokens_that_are_replaced_and_revoked(
    controlplane: ControlPlane, work: Work, other_work: Work, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two operators at the same time, as the API server accepts revoked tokens for a while."""
    account, token, output = Account(controlplane), tmp_path / "token", tmp_path / "output"
    other = Account(controlplane)

    def renew() -> None:
        replace(token, account.issue())
        replace(output, credential(token=other.issue()))

    renew()
    for one, name, user in (
        (work, "file", {"tokenFile": str(token)}),
        (other_work, "plugin", {"exec": print_file(output)}),
    ):
        config = yaml.safe_load(controlplane.kubeconfig.read_text())
        config["users"][0]["user"] = user
        (tmp_path / name).write_text(yaml.safe_dump(config))
        load = functools.partial(load_connection, [tmp_path / name])
        trioperator.on.login(id="login", registry=one.registry)(lambda load=load, **_: load())
    async with trio.open_nursery() as nursery:
        await nursery.start(work.run)
        await nursery.start(other_work.run)
        await call(renew)
        await call(account.revoke)
        await call(other.revoke)
        with trio.fail_after(120):
            async with trio.open_nursery() as changes:
                changes.start_soon(work.go_on, CACHED)
                changes.start_soon(other_work.go_on, CACHED)
        work.stop.set()
        other_work.stop.set()
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == [REJECTED, REJECTED]
    assert_listed_once(controlplane, account.user)
    assert_listed_once(controlplane, other.user)


async def test_tokens_of_exec_plugins_that_expire(
    controlplane: ControlPlane,
    work: Work,
    login: Callable[[dict[str, Any]], None],
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    account, output = Account(controlplane), tmp_path / "output"

    def renew() -> None:
        ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=3)
        replace(output, credential(token=account.issue(), expirationTimestamp=ends.strftime("%Y-%m-%dT%H:%M:%SZ")))

    renew()
    login({"exec": print_file(output, f"{tmp_path}/calls")})
    async with trio.open_nursery() as nursery:
        await nursery.start(work.run)
        with trio.fail_after(120):
            await call(renew)
            await work.go_on(4)
        work.stop.set()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert len((tmp_path / "calls").read_text().splitlines()) >= 2
    assert_listed_once(controlplane, account.user)


async def test_client_certificates_that_are_replaced_and_expire(
    controlplane: ControlPlane,
    work: Work,
    login: Callable[[dict[str, Any]], None],
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    certified: str,
) -> None:
    def renew(seconds: float) -> None:
        ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
        replace(
            tmp_path / "both", certify(controlplane, certified, not_after=ends).private_key_and_cert_chain_pem.bytes()
        )

    renew(10)  # long enough for the operator to start
    login({"client-certificate": str(tmp_path / "both"), "client-key": str(tmp_path / "both")})
    async with trio.open_nursery() as nursery:
        await nursery.start(work.run)
        with trio.fail_after(120):
            renew(600)
            await work.go_on(11)
        work.stop.set()
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == [REJECTED]
    assert_listed_once(controlplane, certified)


async def test_certificates_of_exec_plugins(
    controlplane: ControlPlane,
    work: Work,
    login: Callable[[dict[str, Any]], None],
    tmp_path: pathlib.Path,
    certified: str,
) -> None:
    made = certify(controlplane, certified)
    pem, key = made.cert_chain_pems[0].bytes().decode(), made.private_key_pem.bytes().decode()
    (tmp_path / "output").write_text(credential(clientCertificateData=pem, clientKeyData=key))
    login({"exec": print_file(tmp_path / "output")})
    async with trio.open_nursery() as nursery:
        await nursery.start(work.run)
        with trio.fail_after(60):
            await work.change()
        work.stop.set()


def certify(controlplane: ControlPlane, user: str, **options: Any) -> trustme.LeafCert:
    """Return a client certificate of a user."""
    issue = functools.partial(controlplane.clients.issue_cert, "certified.example.com", **options)
    return issue(common_name=user, organization_name="certified")


def credential(**status: str) -> str:
    """Return what an exec plugin prints."""
    return json.dumps({"kind": "ExecCredential", "apiVersion": EXEC, "status": status})


def print_file(output: pathlib.Path, calls: str = "/dev/null") -> dict[str, Any]:
    """Return an exec plugin that prints a file, and notes that it was called."""
    code = 'cat "$0"; echo called >> "$1"'
    return {
        "apiVersion": EXEC,
        "command": "/bin/sh",
        "args": ["-c", code, str(output), calls],
        "interactiveMode": "Never",
    }
