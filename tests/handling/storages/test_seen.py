"""Storages of what the first handler to succeed has seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from trioperator._handling.storages.diffbase import (
    AnnotationsDiffBaseStorage,
    DiffBaseStorage,
    MultiDiffBaseStorage,
    StatusDiffBaseStorage,
)
from trioperator._handling.storages.progress import (
    AnnotationsProgressStorage,
    MultiProgressStorage,
    ProgressStorage,
    SmartProgressStorage,
    StatusProgressStorage,
)
from trioperator._handling.storages.seen import make_seen_storages, purge_seen
from trioperator._model.body import Body, BodyEssence
from trioperator._model.patch import apply_merge

ESSENCE = BodyEssence(spec={"size": 1})
ANNOTATION = "trioperator.dev/seen-configuration"


class OwnStorage(ProgressStorage):
    """A storage of the user's."""

    def fetch(self, *, key: str, body: Body) -> None: ...
    def store(self, **_: Any) -> None: ...
    def purge(self, **_: Any) -> None: ...


class OwnDiffBase(DiffBaseStorage):
    """Another storage of the user's."""

    def fetch(self, *, body: Body) -> None: ...
    def store(self, **_: Any) -> None: ...


def store(progress: ProgressStorage, diffbase: DiffBaseStorage, body: dict[str, Any]) -> dict[str, Any]:
    """Return an object with what handlers have seen."""
    patch = dict[str, Any]()
    for storage in make_seen_storages(progress, diffbase):
        storage.store(body=Body(body), patch=patch, essence=ESSENCE)
    merged: dict[str, Any] = apply_merge(body, patch)
    return merged


def _list_places(body: Mapping[str, Any]) -> set[str]:
    annotations = body["metadata"].get("annotations", {})
    status = body.get("status", {}).get("trioperator", {})
    return {key for key in (*annotations, *status) if key.endswith("seen-configuration")}


BOTH = {ANNOTATION, "seen-configuration"}


@pytest.mark.parametrize(
    ("progress", "diffbase", "places"),
    [
        (SmartProgressStorage(), StatusDiffBaseStorage(), {ANNOTATION}),
        (AnnotationsProgressStorage(), StatusDiffBaseStorage(), {ANNOTATION}),
        (StatusProgressStorage(), AnnotationsDiffBaseStorage(), {"seen-configuration"}),
        (MultiProgressStorage([StatusProgressStorage(), SmartProgressStorage()]), OwnDiffBase(), BOTH),
        (MultiProgressStorage([OwnStorage(), StatusProgressStorage()]), OwnDiffBase(), {"seen-configuration"}),
        (OwnStorage(), AnnotationsDiffBaseStorage(), {ANNOTATION}),
        (OwnStorage(), StatusDiffBaseStorage(), {"seen-configuration"}),
        (OwnStorage(), MultiDiffBaseStorage([OwnDiffBase(), AnnotationsDiffBaseStorage()]), {ANNOTATION}),
    ],
)
def test_it_is_stored_wherever_the_progress_is_or_else_the_last_handled_one(
    progress: ProgressStorage, diffbase: DiffBaseStorage, places: set[str]
) -> None:
    body = store(progress, diffbase, {"metadata": {"name": "x"}})
    assert _list_places(body) == places | {place.replace("seen-", "also-seen-") for place in places}
    patch = dict[str, Any]()
    for storage in make_seen_storages(progress, diffbase):
        assert storage.fetch(body=Body(body)) == ESSENCE
        purge_seen(storage, body=body, patch=patch)
    assert not _list_places(apply_merge(body, patch))


@pytest.mark.parametrize("diffbase", [StatusDiffBaseStorage(), AnnotationsDiffBaseStorage()])
def test_beside_the_last_handled_one_it_is_no_part_of_essences(diffbase: DiffBaseStorage) -> None:
    body: dict[str, Any] = {"metadata": {"name": "x"}, "status": {"phase": "Ready"}}
    stored = store(OwnStorage(), diffbase, body)
    assert stored != body
    essences = [diffbase.build(body=Body(each), extra_fields=["status"]) for each in (body, stored)]
    assert essences == [{"status": {"phase": "Ready"}}] * 2


def test_what_is_only_in_a_patch_is_taken_out_of_it() -> None:
    [storage, _], patch = make_seen_storages(StatusProgressStorage(), OwnDiffBase()), dict[str, Any]()
    storage.store(body=Body({}), patch=patch, essence=ESSENCE)
    purge_seen(storage, body={}, patch=patch)
    assert not patch


@pytest.mark.parametrize("progress", [OwnStorage(), MultiProgressStorage([OwnStorage()])])
def test_storages_that_users_write_have_none(progress: ProgressStorage) -> None:
    assert make_seen_storages(progress, OwnDiffBase()) == ()


def test_in_the_status_it_is_no_part_of_essences_and_counts_as_a_record() -> None:
    progress = StatusProgressStorage()
    body = store(progress, OwnDiffBase(), {"metadata": {"name": "x"}, "status": {"phase": "Ready"}})
    essence = progress.clear(essence=BodyEssence(status=body["status"]))
    assert essence == {"status": {"phase": "Ready"}}
    assert progress.has_records(body=Body(body))
    assert not progress.has_records(body=Body({"status": {"phase": "Ready"}}))
