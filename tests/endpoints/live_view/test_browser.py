"""The live view in a real browser: logging in, live pages, focus, actions, and the policy of the pages."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
import trio

import trioperator
from tests.endpoints.browser import BROWSER, Browser, open_browser
from tests.endpoints.live_view.conftest import TOKEN
from tests.runtime.conftest import Bench, widget

on = trioperator.on
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium: apt-get install chromium")


async def until(browser: Browser, condition: str) -> Any:
    """Wait in the page until a condition holds, and return its value. The page may be replaced meanwhile."""
    complete = f"document.readyState === 'complete' && ({condition})"
    script = f"(() => {{ try {{ return {complete} }} catch {{ return null }} }})()"
    with trio.fail_after(60):
        while not (found := await browser.run(script)):  # noqa: ASYNC110 -- the page may be replaced by another one
            await trio.sleep(0.05)
        return found


async def log_in(browser: Browser, url: str) -> None:
    await browser.open(url)
    await until(browser, "document.title.startsWith('Log in')")
    await browser.run(f"document.querySelector('#token').value = {TOKEN!r}, 1")
    await browser.run("document.querySelector('main form').requestSubmit(), 1")
    await until(browser, "document.querySelector('#connection').textContent === 'Live'")


async def test_a_browser_shows_what_happens_and_its_buttons_act(
    bench: Bench, caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path
) -> None:
    begun, again = trio.Event(), trio.Event()

    @on.create("widgets", id="wait-<b>", registry=bench.registry, field="spec.wait")
    async def wait(**_: Any) -> None:
        (again if begun.is_set() else begun).set()
        await trio.sleep_forever()

    bench.settings.process.grace = 1.0  # for the handler that does not end
    uid = (await bench.cluster.create(widget("w", wait=1)))["metadata"]["uid"]
    options: dict[str, Any] = {"live_view_endpoint": "http://127.0.0.1:0", "live_view_token": TOKEN, "standalone": True}
    with trio.fail_after(200):
        async with bench.running(**options), open_browser(tmp_path) as browser:
            await begun.wait()
            [url] = re.findall(r"Serving the live view at (\S+)", caplog.text)
            await log_in(browser, f"{url}/objects?q=w")
            assert await browser.run("location.pathname + location.search") == "/debug/objects?q=w"
            assert await browser.run("document.cookie") == "", "scripts cannot read it"

            # What comes is shown without loading the page again, and the focus stays where it is.
            await browser.run("window.isSame = true, document.querySelector('#live a').focus(), 1")
            await bench.cluster.create(widget("w-another"))
            await until(browser, "document.querySelector('#live').innerText.includes('w-another')")
            assert await browser.run("window.isSame") is True
            assert await browser.run("document.activeElement.textContent") == "w"

            # Nothing changes while it is paused.
            await browser.run("document.querySelector('#pause').click(), 1")
            await bench.cluster.create(widget("w-third"))
            assert await browser.run("document.querySelector('#connection').textContent") == "Paused"
            assert await browser.run("document.querySelector('#pause').getAttribute('aria-pressed')") == "true"
            await browser.run("document.querySelector('#pause').click(), 1")
            await until(browser, "document.querySelector('#live').innerText.includes('w-third')")

            # Scripts that would come in by markup are not run.
            await browser.run(
                "document.body.append(Object.assign(document.createElement('script'), {text: 'hacked = 1'})), 1"
            )
            assert await browser.run("typeof hacked") == "undefined"

            await browser.open(f"{url}/object?uid={uid}")
            await until(browser, "document.querySelector('#live').innerText.includes('wait-<b>')")
            await browser.run("document.querySelector('button.danger').click(), 1")
            done = await until(browser, "document.querySelector('.done')?.textContent")
            assert done == "Its handlers are cancelled, and called again."
            await again.wait()

            # By the keyboard, the first thing is a link over the navigation.
            await browser.run("document.activeElement.blur(), 1")
            for kind in ("keyDown", "keyUp"):
                await browser.command(
                    "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
                )
            assert await browser.run("document.activeElement.textContent") == "Skip to the content"

            await browser.run("document.querySelector('form[action$=logout]').requestSubmit(), 1")
            await until(browser, "document.title.startsWith('Log in')")


async def test_pages_are_whole_without_scripts_and_fit_into_narrow_windows(
    bench: Bench, caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path
) -> None:
    on.event("widgets", registry=bench.registry)(lambda **_: None)
    await bench.cluster.create(widget("a-widget"))
    with trio.fail_after(200):
        async with (
            bench.running(live_view_endpoint="http://127.0.0.1:0", standalone=True),
            open_browser(tmp_path) as browser,
        ):
            [url] = re.findall(r"Serving the live view at (\S+)", caplog.text)
            await browser.open(f"{url}/objects")
            await browser.command("Emulation.setScriptExecutionDisabled", value=True)
            size = {"width": 360, "height": 700, "deviceScaleFactor": 1, "mobile": False}
            await browser.command("Emulation.setDeviceMetricsOverride", **size)
            colors = set()
            for scheme in ("light", "dark"):
                features = [{"name": "prefers-color-scheme", "value": scheme}]
                await browser.command("Emulation.setEmulatedMedia", features=features)
                for page in ("/", "/kinds", "/objects", "/handlers", "/errors", "/tasks"):
                    await browser.go(f"{url}{page}")
                    assert await browser.run("document.documentElement.scrollWidth <= innerWidth"), page
                    assert await browser.run("document.querySelector('#pause').hidden"), page
                colors.add(await browser.run("getComputedStyle(document.body).backgroundColor"))
            assert len(colors) == 2
            await browser.go(f"{url}/objects?state=idle&q=a-w")
            assert "a-widget" in await browser.run("document.querySelector('#live').textContent")
