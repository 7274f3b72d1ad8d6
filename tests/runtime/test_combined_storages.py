"""Storages of the user's within our own that combine storages."""

from __future__ import annotations

from collections.abc import Iterable

import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator._model.fields import FieldSpec

on = trioperator.on


class Failing(trioperator.AnnotationsDiffBaseStorage):
    """A storage that fails while it is armed."""

    armed = False

    def build(
        self, *, body: trioperator.Body, extra_fields: Iterable[FieldSpec] | None = None
    ) -> trioperator.BodyEssence:
        if self.armed:
            raise KeyError("a storage of the user's")
        return super().build(body=body, extra_fields=extra_fields)


async def test_a_combined_storage_that_fails_while_a_handler_may_be_interrupted_does_not_end_the_operator(
    bench: Bench, autojump_clock: MockClock
) -> None:
    storage = Failing(prefix="example.com")
    bench.settings.persistence.diffbase_storage = trioperator.MultiDiffBaseStorage([storage])
    sizes: list[int] = []

    @on.create("widgets", on_change="cancel", registry=bench.registry)
    async def create(spec: trioperator.Spec, **_: object) -> None:
        await trio.sleep(5)
        sizes.append(spec["size"])

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(1)
        storage.armed = True
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        storage.armed = False
        await settle(60)
    assert sizes


async def test_an_operator_moves_to_another_storage_without_handling_objects_again(
    bench: Bench, autojump_clock: MockClock
) -> None:
    called: list[str] = []
    in_status = trioperator.StatusDiffBaseStorage(field="status.lastHandled")
    in_annotations = trioperator.AnnotationsDiffBaseStorage()

    @on.create("widgets", registry=bench.registry)
    async def create(**_: object) -> None:
        called.append("create")

    @on.update("widgets", registry=bench.registry)
    async def update(**_: object) -> None:
        called.append("update")

    await bench.cluster.create(widget(size=1))
    for storage in (in_annotations, trioperator.MultiDiffBaseStorage([in_status, in_annotations]), in_status):
        bench.settings.persistence.diffbase_storage = storage
        async with bench.running():
            await settle(1)
            if storage is not in_status:
                await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"moved": str(len(called))}}})
            await settle(1)
    assert called == ["create", "update", "update"]
    assert "lastHandled" in (await bench.cluster.get("widgets", "w"))["status"]
