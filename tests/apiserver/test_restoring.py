"""Objects of a data file that the server would stumble over."""

from __future__ import annotations

import logging
import pathlib
from typing import Any

import msgspec
import pytest

from tests.apiserver.conftest import definition
from trioperator.apiserver import open_cluster
from trioperator.apiserver.model.kinds import Catalog
from trioperator.apiserver.restoring import stored_check
from trioperator.apiserver.store import frames

NAME = ("conformance.dev", "frees", "default/b")


def stored(name: str, **content: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **content}


def with_meta(name: str, **meta: Any) -> bytes:
    obj = stored(name)
    return msgspec.json.encode({**obj, "metadata": {**obj["metadata"], **meta}})


BAD = {
    "deep": b'{"metadata":{"name":"b"},"spec":' + b"[" * 3000 + b'"]"' + b"]" * 3000 + b"}",
    "list": b"[]",
    "no metadata": b'{"kind":"ConfigMap"}',
    "no version": with_meta("b", resourceVersion=5),
    "another name": with_meta("c"),
    "owners": with_meta("b", ownerReferences=5),
    "type": msgspec.json.encode(stored("b", data=5)),
}


@pytest.mark.parametrize("raw", BAD.values(), ids=list(BAD))
async def test_a_bad_object_is_reported_and_set_aside(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, raw: bytes
) -> None:
    path = tmp_path / "cluster.data"
    changes = [
        ("", "configmaps", "default/a", msgspec.json.encode(stored("a"))),
        ("", "configmaps", "default/b", raw),
        ("", "configmaps", "default/gone", None),
    ]
    path.write_bytes(frames.encode_head(objects=0) + frames.encode_frame(7, changes, {"x": "[{"}))
    for _ in range(2):
        caplog.clear()
        async with open_cluster(path) as cluster:
            assert [obj["metadata"]["name"] for obj in await cluster.list("cm")] == ["a"]
            await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}})
            await cluster.delete("cm", "n")
        (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert "default/b of configmaps cannot be used, and is left out" in record.getMessage()


@pytest.mark.parametrize(
    "schema", [5, {"type": "object", "properties": {"a": 5}}, {"type": "object", "items": {"pattern": 5}}]
)
def test_a_definition_must_define_kinds(schema: Any) -> None:
    meta = {"name": "frees.conformance.dev", "uid": "u", "resourceVersion": "1"}
    obj = {**definition("frees", "Free", schema={"openAPIV3Schema": schema}), "metadata": meta}
    check = stored_check(Catalog())
    check({**definition("frees", "Free"), "metadata": meta})
    with pytest.raises(ValueError, match="cannot unmarshal"):
        check(obj)
