"""A client of the live view in memory: a browser without a window, and without sockets."""

from __future__ import annotations

import contextlib
import dataclasses
import http.cookies
import json
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import trio

HTML = "text/html,application/xhtml+xml,*/*;q=0.8"
STREAM = "text/event-stream"
App = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


@dataclasses.dataclass
class Answer:
    """A response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""

    @property
    def text(self) -> str:
        return self.body.decode()

    def header(self, name: str) -> str:
        return ", ".join(value for other, value in self.headers if other == name)

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Sends requests to an ASGI application, and keeps its cookies."""

    def __init__(self, app: App, *, token: str | None = None, host: str = "localhost:8083", root: str = "") -> None:
        self.app = app
        self.host = host
        self.root = root
        self.token = token
        self.cookies: dict[str, str] = {}

    def scope(self, target: str, method: str, headers: Mapping[str, str]) -> dict[str, Any]:
        path, _, query = f"{self.root}{target}".partition("?")
        sent = {"host": self.host, "accept": HTML, **headers}
        if self.token is not None:
            sent.setdefault("authorization", f"Bearer {self.token}")
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": urllib.parse.unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": self.root,
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8083),
        }

    async def ask(
        self, target: str = "/", method: str = "GET", *, form: Mapping[str, str] | None = None, **headers: str
    ) -> Answer:
        """Send a request, and return the whole response. Its cookies are kept."""
        body = b"" if form is None else urllib.parse.urlencode(form).encode()
        if form is not None:
            headers = {"content_type": "application/x-www-form-urlencoded", "origin": f"http://{self.host}", **headers}
        sent = [{"type": "http.request", "body": body, "more_body": False}]
        answers: list[Answer] = []

        async def receive() -> dict[str, Any]:
            if sent:
                return sent.pop()
            await trio.sleep_forever()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                found = [(name.decode().lower(), value.decode()) for name, value in message["headers"]]
                answers.append(Answer(message["status"], found))
            else:
                answers[0].body += message.get("body", b"")

        with trio.fail_after(30):
            await self.app(self.scope(target, method, headers), receive, send)
        for name, value in answers[0].headers:
            if name == "set-cookie":
                self.cookies.update({key: each.value for key, each in http.cookies.SimpleCookie(value).items()})
        return answers[0]

    async def post(self, target: str, **form: str) -> Answer:
        """Send a form of the page itself."""
        return await self.ask(target, "POST", form=form)

    @contextlib.asynccontextmanager
    async def stream(self, target: str = "/", *, slow: trio.Event | None = None) -> AsyncIterator[Stream]:
        """Open a stream in the block. The reader reads nothing until *slow* is set."""
        stream = Stream(slow)

        async def receive() -> dict[str, Any]:
            if not stream.has_sent:
                stream.has_sent = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await stream.left.wait()
            return {"type": "http.disconnect"}

        async def run() -> None:
            await self.app(self.scope(target, "GET", {"accept": STREAM}), receive, stream.send)
            stream.ended.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            with trio.fail_after(60):
                await stream.started.wait()
            yield stream
            stream.left.set()
            with trio.fail_after(60):
                await stream.ended.wait()


class Stream:
    """A stream of server-sent events, and the states that it has brought, as HTML."""

    def __init__(self, slow: trio.Event | None) -> None:
        self.started, self.ended, self.left = trio.Event(), trio.Event(), trio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.states: list[str] = []
        self.times: list[float] = []
        self.events: list[str] = []
        self.has_sent = False
        self._slow = slow
        self._more = trio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
            self.started.set()
            return
        if self._slow is not None:
            await self._slow.wait()
        for block in message.get("body", b"").decode().split("\n\n"):
            fields = dict(line.partition(": ")[::2] for line in block.splitlines())
            if "event" in fields:
                self.events.append(fields["event"])
                self.times.append(trio.current_time())
            if fields.get("event") == "state":
                self.states.append(json.loads(fields["data"]))
        self._more.set()
        self._more = trio.Event()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, which is checked when something has come."""
        with trio.fail_after(60):
            while not condition():
                await self._more.wait()
