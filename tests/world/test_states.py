"""End states: what differs between any two runs is left out, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from tests.world.states import compare, normalize


def make(name: str, uid: str = "1", kind: str = "Secret", **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "uid": f"uid-{uid}", **meta}}


def test_what_the_server_adds_is_left_out() -> None:
    one = make("a", "1", resourceVersion="5", creationTimestamp="2026-01-01T00:00:00Z", generation=1)
    two = make("a", "2", resourceVersion="9", creationTimestamp="2027-01-01T00:00:00Z", generation=2)
    assert normalize([one], []) == normalize([two], [])


def test_what_was_there_before_and_what_clusters_have_is_left_out() -> None:
    objects = [make("a"), make("kube-root-ca.crt", "2", "ConfigMap"), make("e", "3", "Event"), make("old", "4")]
    (line,) = normalize(objects, ["uid-4"])
    assert json.loads(line)["metadata"]["name"] == "a"


def test_uids_are_the_names_of_their_objects_and_times_are_all_the_same() -> None:
    def state(uid: str, time: str) -> list[str]:
        child = make("child", "c", ownerReferences=[{"uid": f"uid-{uid}"}], annotations={"at": time})
        return normalize([make("parent", uid), child], [])

    assert state("u1", "2026-01-01T00:00:00.5Z") == state("u2", "2027-01-01 00:00:00")
    assert "<uid of Secret parent>" in state("u1", "")[0]


def test_the_names_of_the_frameworks_are_the_same_and_their_absence_is_a_difference() -> None:
    def state(annotation: str, finalizer: str) -> list[str]:
        return normalize([make("a", annotations={annotation: "x"}, finalizers=[finalizer])], [])

    kopf = state("kopf.zalando.org/last-handled-configuration", "kopf.zalando.org/KopfFinalizerMarker")
    assert state("trioperator.dev/last-handled-configuration", "trioperator.dev/finalizer") == kopf
    assert state("mine.example.com/seen-configuration", "trioperator.dev/finalizer") == kopf
    assert state("other/annotation", "trioperator.dev/finalizer") != kopf
    assert state("trioperator.dev/last-handled-configuration", "other/finalizer") != kopf


def test_the_order_in_which_fields_were_written_is_no_difference() -> None:
    def state(text: str) -> list[str]:
        return normalize([make("a", annotations={"example.com/last-handled-configuration": text})], [])

    assert state('{"a":{"b":1,"c":2}}') == state('{"a":{"c":2,"b":1}}\n')
    assert state('{"a":{"b":1}}') != state('{"a":{"b":2}}')
    assert state("{") != state("}")


def test_objects_that_are_being_deleted_differ_from_others() -> None:
    deleted = make("a", deletionTimestamp="2026-01-01T00:00:00Z")
    assert normalize([deleted], []) != normalize([make("a")], [])


def test_masks_hide_what_is_random() -> None:
    assert normalize([make("a-x1y2z")], [], ["a-[a-z0-9]{5}"]) == normalize([make("a-98765")], [], ["a-[a-z0-9]{5}"])


def test_the_steps_that_differ_are_named() -> None:
    same, one, two = normalize([make("a")], []), normalize([make("b")], []), normalize([make("c")], [])
    assert compare({"created": same}, {"created": same}) == []
    lines = compare({"created": same, "changed": one}, {"created": same, "changed": two})
    assert lines[-1] == "^ changed"
    assert [line for line in lines if line[:1] in "+-" and line[1:2] == " "] == ['-  "name": "b"', '+  "name": "c"']
    assert compare({"created": same}, {})[-1] == "^ created"


def test_owners_that_are_gone_have_no_uids_to_compare() -> None:
    gone = ("85776e9a-dd84-439e-b154-5a137a1d5006", "8d723104-f773-43c1-b458-a748e9bb17bc")
    first, second = (normalize([make("child", "c", ownerReferences=[{"uid": uid}])], []) for uid in gone)
    assert first == second


def test_what_only_one_framework_records_of_attempts_is_no_difference() -> None:
    def state(**more: str) -> list[str]:
        record = {"started": "2026-01-01T00:00:00Z", "retries": 1, **more}
        text = json.dumps(record, separators=(",", ":"))
        return normalize([make("a", annotations={"app.dev/create_fn": text}) | {"status": {"create_fn": record}}], [])

    assert state(attempted="2026-01-02T00:00:00Z") == state()


def test_what_kopf_leaves_of_its_progress_is_no_difference() -> None:
    left: list[dict[str, Any]] = [{"kopf": {}}, {"kopf": {"progress": {}}}, {}]
    first, second, third = (normalize([make("a") | {"status": {"some": 1, **status}}], []) for status in left)
    assert first == second == third != normalize([make("a") | {"status": {"kopf": {"progress": {"fn": {}}}}}], [])
