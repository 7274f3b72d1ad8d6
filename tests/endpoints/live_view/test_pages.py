"""Tests for :mod:`trioperator._endpoints.live_view.pages`: what pages show, and how their addresses filter it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio
import trio.lowlevel

import trioperator
from tests.endpoints.live_view.conftest import Showing
from tests.runtime.conftest import PLAIN_CRD, Bench, settle, widget
from trioperator._endpoints.live_view.pages import ROWS, Links, Paging

on = trioperator.on


def cells(text: str) -> list[str]:
    """Return the headers of the rows of all tables."""
    found = re.findall(r'<th scope="row">(.*?)</th>', text, re.S)
    return [re.sub(r"<[^>]+>", "", cell).strip() for cell in found]


def test_links_quote_what_is_in_them_and_leave_out_what_is_empty() -> None:
    links = Links("/a b")
    assert links() == "/a%20b/"
    assert links("object", uid="a/b&c=ü", kind="", page=2, other=None) == "/a%20b/object?uid=a%2Fb%26c%3D%C3%BC&page=2"


@pytest.mark.parametrize(
    ("asked", "number"),
    [
        ("", 1),
        ("1", 1),
        ("2", 2),
        ("3", 3),
        ("4", 3),
        ("99999999999999999999", 1),
        ("-1", 1),
        ("x", 1),
        ("²", 1),
        ("0", 1),
    ],
)
def test_any_page_number_is_a_page(asked: str, number: int) -> None:
    paging = Paging.of(range(2 * ROWS + 5), {"page": asked})
    assert (paging.number, paging.count, paging.total) == (number, 3, 2 * ROWS + 5)
    assert paging.rows[0] == paging.first - 1 == (number - 1) * ROWS
    assert paging.rows[-1] == paging.last - 1


def test_an_empty_table_has_one_page() -> None:
    paging: Paging[str] = Paging.of([], {"page": "7"})
    assert (paging.number, paging.count, paging.total) == (1, 1, 0)


async def test_objects_are_in_pages_with_links_that_keep_the_filter(bench: Bench, showing: Showing) -> None:
    on.event("widgets", registry=bench.registry)(lambda **_: None)
    for number in range(ROWS + 5):
        await bench.cluster.create(widget(f"w{number:03}"))
    await bench.cluster.create(widget("other"))
    async with showing() as client:
        first = (await client.ask("/objects?q=w0")).text
        assert len(cells(first)) == ROWS
        assert "1 to 100 of 100 objects" in first
        first = (await client.ask("/objects?q=w&kind=widgets.example.com")).text
        assert cells(first) == [f"w{number:03}" for number in range(ROWS)]
        assert 'rel="prev"' not in first
        [target] = re.findall(r'rel="next" href="([^"]+)"', first)
        second = (await client.ask(target.replace("&amp;", "&"))).text
        assert cells(second) == [f"w{number:03}" for number in range(ROWS, ROWS + 5)]
        assert 'rel="next"' not in second
        assert (await client.ask("/objects?q=w&page=9")).text.count('<th scope="row">') == 5, "the last page"
        assert cells((await client.ask("/objects?q=nobody")).text) == []
        assert 'value="nobody"' in (await client.ask("/objects?q=nobody")).text


async def test_the_pages_tell_what_the_operator_does(bench: Bench, showing: Showing) -> None:
    begun = trio.Event()

    @on.create("widgets", id="works", field="spec.works", registry=bench.registry)
    async def works(**_: Any) -> None:
        begun.set()
        await trio.sleep_forever()

    @on.create("widgets", id="fails", field="spec.fails", registry=bench.registry)
    async def fails(**_: Any) -> None:
        raise trioperator.PermanentError("it is broken")

    bench.settings.process.grace = 1.0
    works_uid = (await bench.cluster.create(widget("w", works=1)))["metadata"]["uid"]
    fails_uid = (await bench.cluster.create(widget("f", fails=1)))["metadata"]["uid"]
    async with showing() as client:
        await begun.wait()
        await settle(0.1)
        overview = (await client.ask("/")).text
        assert "The operator is active" in overview
        assert {"works/spec.works", "fails/spec.fails"} <= set(cells(overview))
        assert "it is broken" in overview
        assert "watching" in (await client.ask("/kinds")).text
        assert cells((await client.ask("/kinds?q=nothing")).text) == []
        handlers = (await client.ask("/handlers")).text
        assert cells(handlers) == ["works/spec.works", "works/spec.works", "fails/spec.fails"]
        assert 'class="bad">failed 1' in handlers
        assert cells((await client.ask("/handlers?q=fails")).text) == ["fails/spec.fails"]
        errors = (await client.ask("/errors?handler=fails/spec.fails&q=default")).text
        assert (cells(errors), "PermanentError" in errors) == (["fails/spec.fails"], True)
        assert cells((await client.ask("/errors?handler=works/spec.works")).text) == []
        tasks = (await client.ask("/tasks?q=works")).text
        assert "Widget/default/w" in tasks
        assert "watchdog" not in tasks
        assert "watchdog" in (await client.ask("/tasks")).text
        page = (await client.ask(f"/object?uid={works_uid}")).text
        assert (cells(page), "<h1>Widget default/w</h1>" in page) == (["works/spec.works"] * 2, True)
        by_name = await client.ask("/object?kind=widgets.example.com&namespace=default&name=w")
        assert (by_name.status, works_uid in by_name.text) == (200, True)
        await bench.cluster.delete("widgets.example.com", "f", namespace="default")
        with trio.fail_after(60):
            while "no longer in the cache" not in (page := (await client.ask(f"/object?uid={fails_uid}")).text):
                await trio.lowlevel.checkpoint()
        assert "it is broken" in page, "its errors are still known"


async def test_a_task_is_shown_with_as_many_children_as_a_table_has_rows(bench: Bench, showing: Showing) -> None:
    begun: list[str] = []
    all_begun = trio.Event()

    @on.daemon("widgets", id="daemon", registry=bench.registry)
    async def daemon(name: str, stopped: Any, **_: Any) -> None:
        begun.append(name)
        if len(begun) == ROWS + 20:
            all_begun.set()
        await stopped.wait()

    for number in range(ROWS + 20):
        await bench.cluster.create(widget(f"w{number:03}"))
    async with showing() as client:
        with trio.fail_after(60):
            await all_begun.wait()
        tasks = (await client.ask("/tasks")).text
        assert tasks.count("Daemon daemon") <= ROWS
        more = [int(number) for number in re.findall(r"and (\d+) more: filter for them", tasks)]
        assert more
        assert more[0] >= 20
        found = (await client.ask("/tasks?q=w119")).text
        assert "Widget/default/w119" in found
        assert "more: filter for them" not in found


async def test_a_standby_says_why(bench: Bench, showing: Showing) -> None:
    async with showing() as client:
        shown = client.app._shown  # type: ignore[attr-defined]
        shown.parts.pauses.pause("x", "while <others> are active")
        assert "stands by</strong> while &lt;others&gt; are active" in (await client.ask()).text
        shown.parts.pauses.resume("x")
        shown.parts.ready = False
        assert "The operator is starting" in (await client.ask()).text


async def test_watches_are_shown_with_what_they_select(bench: Bench, showing: Showing) -> None:
    await bench.cluster.apply(PLAIN_CRD)
    on.event("widgets", labels={"tier": "gold"}, registry=bench.registry)(lambda **_: None)
    on.event("gadgets", registry=bench.registry)(lambda **_: None)
    async with showing() as client:
        shown = (await client.ask("/kinds?q=example.com")).text
    rows = re.findall(r">(widgets|gadgets)\.example\.com<.*?<td>(<code>tier=gold</code>|all objects)", shown, re.S)
    assert rows == [("gadgets", "all objects"), ("widgets", "<code>tier=gold</code>")]
