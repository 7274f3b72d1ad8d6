"""Secrets, and other fields whose values are not stored: what is on the object, and what handlers see."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator._model.keyed_digest import KEYED_DIGEST

on = trioperator.on
LAST = "trioperator.dev/last-handled-configuration"
SEEN = "trioperator.dev/seen-configuration"


def encode(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def secret(**data: str) -> dict[str, Any]:
    data = {name: encode(value) for name, value in data.items()}
    metadata = {"name": "s", "namespace": "default", "labels": {"a": "b"}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


class Seen:
    """Handlers of Secrets, and what they have seen."""

    def __init__(self, bench: Bench, *, name: str = "secrets") -> None:
        self.calls: list[tuple[str, Any, Any, Any]] = []

        @on.create(name, id="handle", registry=bench.registry)
        @on.update(name, id="handle", registry=bench.registry)
        @on.resume(name, id="handle", registry=bench.registry)
        async def handle(reason: str, old: Any, new: Any, diff: trioperator.Diff, **_: object) -> None:
            self.calls.append((reason, old, new, diff))


async def get_annotations(bench: Bench, kind: str = "secrets", name: str = "s") -> dict[str, str]:
    found: dict[str, str] = (await bench.cluster.get(kind, name))["metadata"].get("annotations", {})
    return found


def is_digest(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == [KEYED_DIGEST]


async def test_the_data_of_a_secret_is_not_copied_and_its_changes_are_still_seen(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen(bench)
    async with bench.running():
        await bench.cluster.create(secret(user="admin", password="1234"))
        await settle(1)
        stored = json.loads((await get_annotations(bench))[LAST])
        assert stored["metadata"] == {"labels": {"a": "b"}}
        assert is_digest(stored["data"]["user"])
        assert is_digest(stored["data"]["password"])
        await bench.cluster.patch("secrets", "s", {"data": {"password": encode("5678")}})
        await settle(1)
        assert [call[0] for call in seen.calls] == ["create", "update"]
        _, old, new, diff = seen.calls[1]
        assert old["data"] == {"user": encode("admin"), "password": stored["data"]["password"]}
        assert new["data"] == {"user": encode("admin"), "password": encode("5678")}
        assert diff == (("change", ("data", "password"), stored["data"]["password"], encode("5678")),)
        everything = json.dumps(await get_annotations(bench))
    for value in ("admin", "1234", "5678"):
        assert value not in everything
        assert encode(value) not in everything
    assert "too big" not in caplog.text


async def test_after_a_restart_an_unchanged_secret_is_unchanged_and_a_changed_one_is_not(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen = Seen(bench)
    await bench.cluster.create(secret(user="admin", password="1234"))
    async with bench.running():
        await settle(1)
    async with bench.running():
        await settle(1)
    await bench.cluster.patch("secrets", "s", {"data": {"password": None}})
    async with bench.running():
        await settle(1)
    assert [call[0] for call in seen.calls] == ["create", "resume", "update"]
    assert seen.calls[1][1] == seen.calls[1][2]
    assert seen.calls[1][3] == ()
    ((operation, field, value, new),) = seen.calls[2][3]
    assert (operation, field, new) == ("remove", ("data", "password"), None)
    assert is_digest(value)


async def test_what_was_stored_in_full_is_rewritten_at_the_next_handling(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.settings.persistence.digested_fields = {"secrets": []}
    seen = Seen(bench)
    async with bench.running():
        await bench.cluster.create(secret(password="1234"))
        await settle(1)
        assert encode("1234") in (await get_annotations(bench))[LAST]
    bench.settings.persistence.digested_fields = {}
    async with bench.running():
        await settle(1)
        assert [call[0] for call in seen.calls] == ["create", "resume"]  # no update: nothing has changed
        assert encode("1234") not in (await get_annotations(bench))[LAST]
        await bench.cluster.patch("secrets", "s", {"metadata": {"labels": {"a": "c"}}})
        await settle(1)
    assert [call[0] for call in seen.calls] == ["create", "resume", "update"]
    assert seen.calls[2][3] == (("change", ("metadata", "labels", "a"), "b", "c"),)


async def test_a_change_of_what_was_stored_in_full_shows_the_old_value(bench: Bench, autojump_clock: MockClock) -> None:
    bench.settings.persistence.digested_fields = {"secrets": []}
    seen = Seen(bench)
    async with bench.running():
        await bench.cluster.create(secret(password="1234"))
        await settle(1)
    bench.settings.persistence.digested_fields = {}
    await bench.cluster.patch("secrets", "s", {"data": {"password": encode("5678")}})
    async with bench.running():
        await settle(1)
    assert seen.calls[-1][3] == (("change", ("data", "password"), encode("1234"), encode("5678")),)


async def test_what_the_first_of_several_handlers_has_seen_is_stored_without_values(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @on.create("secrets", id="quick", registry=bench.registry)
    async def quick(new: Any, **_: object) -> None:
        calls.append(f"quick {new['data']['password']}")

    @on.create("secrets", id="slow", registry=bench.registry)
    async def slow(retry: int, **_: object) -> None:
        if not retry:
            raise trioperator.TemporaryError("later", delay=100)
        calls.append("slow")

    @on.update("secrets", id="quick", registry=bench.registry)
    async def update(diff: trioperator.Diff, **_: object) -> None:
        calls.append(f"update {[item.field for item in diff]}")

    async with bench.running():
        await bench.cluster.create(secret(password="1234"))
        await settle(1)
        stored = await get_annotations(bench)
        assert is_digest(json.loads(stored[SEEN])["data"]["password"])
    async with bench.running():
        await settle(200)
    assert calls == [f"quick {encode('1234')}", "slow"]  # nothing has changed since
    assert encode("1234") not in json.dumps(await get_annotations(bench))


async def test_fields_of_other_kinds_can_be_digested(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench.settings.persistence.digested_fields = {
        "widgets.example.com": ["spec.password", ("spec", "a.b")],
        "widgetz.example.com": ["spec.password"],
    }
    seen = Seen(bench, name="widgets")
    async with bench.running():
        fields: dict[str, Any] = {"password": "hush", "size": 1, "a.b": ["hush"]}
        await bench.cluster.create(widget(**fields))
        await settle(1)
        stored = json.loads((await get_annotations(bench, "widgets", "w"))[LAST])["spec"]
        assert (stored["size"], is_digest(stored["password"]), is_digest(stored["a.b"])) == (1, True, True)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
    assert seen.calls[-1][3] == (("change", ("spec", "size"), 1, 2),)
    assert "no kind with handlers is known: widgetz.example.com." in caplog.text


@pytest.mark.parametrize(
    "storage",
    [trioperator.StatusDiffBaseStorage(), trioperator.MultiDiffBaseStorage([trioperator.StatusDiffBaseStorage()])],
)
async def test_every_storage_stores_digests(bench: Bench, autojump_clock: MockClock, storage: Any) -> None:
    bench.settings.persistence.digested_fields = {"widgets.example.com": ["spec.password"]}
    bench.settings.persistence.diffbase_storage = storage
    seen = Seen(bench, name="widgets")
    async with bench.running():
        await bench.cluster.create(widget(password="hush"))
        await settle(1)
        assert "hush" not in json.dumps((await bench.cluster.get("widgets", "w"))["status"])
    async with bench.running():
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
    assert [call[0] for call in seen.calls] == ["create", "resume", "update"]
    assert seen.calls[-1][3] == (("add", ("spec", "size"), None, 2),)


async def test_a_big_secret_is_handled_once(bench: Bench, autojump_clock: MockClock) -> None:
    seen = Seen(bench)
    values = {f"key{number}": "x" * 300 for number in range(3000)}
    async with bench.running():
        await bench.cluster.create(secret(**values))
        await settle(1)
        await bench.cluster.patch("secrets", "s", {"metadata": {"labels": {"a": "c"}}})
        await settle(1)
    assert [call[0] for call in seen.calls] == ["create", "update"]
    assert seen.calls[-1][3] == (("change", ("metadata", "labels", "a"), "b", "c"),)


async def test_another_key_makes_each_secret_count_as_changed_once(bench: Bench, autojump_clock: MockClock) -> None:
    seen = Seen(bench)
    await bench.cluster.create(secret(password="1234"))
    for key in (None, "k", "k"):
        bench.settings.persistence.digest_key = key
        async with bench.running():
            await settle(1)
    assert [call[0] for call in seen.calls] == ["create", "update", "resume"]
