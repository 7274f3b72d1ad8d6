"""Conformance: who manages which fields of an object."""

from __future__ import annotations

import re
from typing import Any

from .conftest import GROUP, Answer, Target

VERSION = f"{GROUP}/v1"


def managers(answer: Answer) -> list[dict[str, Any]]:
    """Return the entries without their times and what is the same in all of them."""
    assert answer.code in {200, 201}, answer.content
    entries = answer.content["metadata"].get("managedFields", [])
    assert all(entry["fieldsType"] == "FieldsV1" for entry in entries)
    return [{key: value for key, value in entry.items() if key not in {"fieldsType", "time"}} for entry in entries]


def fields_by_manager(answer: Answer) -> dict[str, Any]:
    """Return the sets of fields by the names of their managers, with the subresource if there is one."""
    return {
        "/".join(part for part in (entry["manager"], entry.get("subresource", "")) if part): entry["fieldsV1"]
        for entry in managers(answer)
    }


class TestCreating:
    async def test_who_creates_an_object_manages_all_that_is_in_it(self, target: Target) -> None:
        spec = {"tags": ["p"], "inner": {"key": "1"}, "free": {"a": {"b": [1]}, "e": {}}, "extra": {"k": 1}}
        meta = {"name": "a", "labels": {"x": "y"}, "finalizers": ["a.b/c"]}
        obj = {"apiVersion": VERSION, "kind": "Shape", "metadata": meta, "spec": spec, "status": {"x": 1}}
        answer = await target.request("POST", target.path("shapes"), obj, fieldManager="me")
        fields = {
            "f:metadata": {"f:finalizers": {".": {}, 'v:"a.b/c"': {}}, "f:labels": {".": {}, "f:x": {}}},
            "f:spec": {
                ".": {},
                "f:extra": {".": {}, "f:k": {}},
                "f:free": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:e": {}},
                "f:inner": {".": {}, "f:key": {}, "f:mode": {}},
                "f:size": {},
                "f:tags": {".": {}, 'v:"p"': {}},
            },
        }
        assert managers(answer) == [
            {"manager": "me", "operation": "Update", "apiVersion": VERSION, "fieldsV1": fields},
        ]
        time = answer.content["metadata"]["managedFields"][0]["time"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time)
        target_obj = (await target.get(target.path("shapes", "a"))).content
        assert target_obj["metadata"]["managedFields"] == answer.content["metadata"]["managedFields"]
        await target.merge(target.path("shapes", "a"), {"metadata": {"finalizers": None}})
