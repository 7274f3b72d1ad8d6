"""Storages with Kopf's names by default."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from trioperator._handling.guard import guarded
from trioperator._handling.storages import diffbase, progress
from trioperator._model.body import Body
from trioperator.kopf import storages

BODY = Body({"metadata": {"name": "x"}, "spec": {"x": 1}})
CLASSES = [name for name in storages.__all__ if name.endswith("Storage")]


@pytest.mark.parametrize("name", CLASSES)
def test_only_the_default_names_differ(name: str) -> None:
    ours = getattr(storages, name)
    native = getattr(diffbase, name, None) or getattr(progress, name)
    assert issubclass(ours, native)
    mine, theirs = inspect.signature(ours).parameters, inspect.signature(native).parameters
    assert list(mine) == list(theirs)
    changed = {key: mine[key].default for key in mine if mine[key].default != theirs[key].default}
    assert changed
    assert changed.items() <= {"prefix": "kopf.zalando.org", "name": "kopf"}.items()


def test_storages_call_none_of_the_users_code() -> None:
    for name in CLASSES:
        storage = getattr(storages, name)()
        assert guarded(storage) is storage


def test_state_is_stored_where_kopf_stores_it() -> None:
    patch: dict[str, Any] = {}
    storages.AnnotationsDiffBaseStorage().store(body=BODY, patch=patch, essence={"spec": {"x": 1}})
    record = progress.ProgressRecord(retries=2)
    storages.SmartProgressStorage().store(key="fn", record=record, body=BODY, patch=patch)
    keys = set(patch["metadata"]["annotations"])
    assert {"kopf.zalando.org/last-handled-configuration", "kopf.zalando.org/fn"} <= keys
    assert all(key.startswith("kopf.zalando.org/") for key in keys)


def test_progress_in_the_status_is_found() -> None:
    body = Body({"metadata": {}, "status": {"kopf": {"progress": {"fn": {"retries": 3}}}}})
    record = storages.SmartProgressStorage().fetch(key="fn", body=body)
    assert record is not None
    assert record["retries"] == 3


@pytest.mark.parametrize("owner", ["Deployment", "StatefulSet"])
def test_the_keys_of_storages_are_known_to_those_that_users_make_of_them(owner: str) -> None:
    body = Body({"kind": "ReplicaSet", "metadata": {"ownerReferences": [{"kind": owner}]}})
    last = storages.AnnotationsDiffBaseStorage(prefix="old.dev", key="last")
    records = storages.AnnotationsProgressStorage(prefix="a-very-long-prefix-of-an-operator.old.dev")
    patch: dict[str, Any] = {}
    name = "one/two/three/four/five/six/seven"
    last.store(body=body, patch=patch, essence={})
    records.store(key=name, record=progress.ProgressRecord(), body=body, patch=patch)
    stored = {key for key in patch["metadata"]["annotations"] if not key.endswith("/kopf-managed")}
    assert stored == {
        *last.make_keys("last", body=body),
        *records.make_keys(name, body=body),
    }
    assert list(last.make_keys("last")) == ["old.dev/last"]
    assert len(records.make_keys(name)) == 2
