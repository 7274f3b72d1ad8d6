"""A real browser without a window, by Chromium's protocol for developers, over pipes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

import trio

#: The path of Chromium; None if there is none on this machine.
BROWSER: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_OPTIONS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")
# It reads commands from the file 3, and answers in the file 4, which may be those of other things now.
_START: Final = """
import fcntl, os, sys
high = [fcntl.fcntl(int(file), fcntl.F_DUPFD, 10) for file in sys.argv[1:3]]
for file, number in zip(high, (3, 4)):
    os.dup2(file, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A browser with one page. Messages are JSON, and end with a zero byte."""

    def __init__(self, commands: trio.lowlevel.FdStream, answers: trio.lowlevel.FdStream) -> None:
        self._commands = commands
        self._answers = answers
        self._received = b""
        self._numbers = itertools.count(1)
        self._session: dict[str, str] = {}
        self._events: set[str | None] = set()

    async def open(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        target = await self.command("Target.createTarget", url="about:blank")
        attached = await self.command("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        await self.command("Page.enable")
        await self.go(url)

    async def go(self, url: str) -> None:
        """Go to another URL in the same page, and wait until it is loaded."""
        self._events.clear()  # of the page before
        await self.command("Page.navigate", url=url)
        while "Page.loadEventFired" not in self._events:
            self._events.add((await self._receive()).get("method"))

    async def run(self, script: str) -> Any:
        """Return the value of an expression in the page, when it is known; None for ``undefined``."""
        found = await self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def command(self, method: str, **parameters: Any) -> Any:
        """Send a command, and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters, **self._session}
        await self._commands.send_all(json.dumps(message).encode() + b"\0")
        while True:
            answer = await self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self._events.add(answer.get("method"))

    async def _receive(self) -> Any:
        while b"\0" not in self._received:
            data = await self._answers.receive_some()
            assert data, "the browser has ended"
            self._received += data
        message, _, self._received = self._received.partition(b"\0")
        return json.loads(message)


@contextlib.asynccontextmanager
async def open_browser(profile: pathlib.Path) -> AsyncIterator[Browser]:
    """Run a browser in the block, with its data in an empty folder."""
    assert BROWSER is not None
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    start = [sys.executable, "-c", _START, str(theirs_in), str(theirs_out)]
    command = [*start, BROWSER, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    process = await trio.lowlevel.open_process(
        command, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(theirs_in)
    os.close(theirs_out)
    async with trio.lowlevel.FdStream(ours_out) as commands, trio.lowlevel.FdStream(ours_in) as answers:
        try:
            yield Browser(commands, answers)
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
