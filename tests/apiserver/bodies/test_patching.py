"""JSON patches, also of webhooks, and strategic merge patches as pure functions."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._model.patch import apply_merge
from trioperator.apiserver.bodies.patching import apply_json_patch, apply_operations, apply_strategic_patch
from trioperator.apiserver.model.kind_schemas import OBJECT_META, definition
from trioperator.errors import ApiError, ServerError

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
names = st.sampled_from(["a", "b", "c"])
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3))
objects = st.dictionaries(names, values, max_size=3)

OBJECT: dict[str, Any] = {"metadata": {"name": "a"}, "data": {"a": "b"}, "list": [1, 2]}
keys = st.text("ab~/", min_size=1, max_size=3)

META = definition(OBJECT_META)
POD, CONTAINER = definition("io.k8s.api.core.v1.PodSpec"), definition("io.k8s.api.core.v1.Container")
SERVICE, DEPLOYMENT = definition("io.k8s.api.core.v1.ServiceSpec"), definition("io.k8s.api.apps.v1.DeploymentSpec")


class TestJsonPatch:
    @given(objects, st.lists(st.dictionaries(st.sampled_from(["op", "path", "value", "from"]), values), max_size=3))
    def test_only_invalid_operations_are_rejected(self, target: Any, operations: Any) -> None:
        codes = {400, 422}
        try:
            apply_json_patch(msgspec.json.encode(target), operations)
        except ApiError as error:
            codes &= {error.status}
        assert codes

    def test_too_many_operations_are_too_large(self) -> None:
        with pytest.raises(ApiError, match="maximum operations"):
            apply_json_patch(b"{}", [{"op": "test", "path": ""}] * 10_001)


class TestStrategicPatch:
    def test_lists_without_a_key_are_replaced(self) -> None:
        assert apply_strategic_patch({"args": [1, 2]}, {"args": [3]}, CONTAINER) == {"args": [3]}

    def test_items_are_deleted_by_their_key(self) -> None:
        target = {"containers": [{"name": "a", "x": 1}, {"name": "b"}]}
        patch = {"containers": [{"name": "b", "$patch": "delete"}, {"name": "c"}]}
        assert apply_strategic_patch(target, patch, POD) == {"containers": [{"name": "c"}, {"name": "a", "x": 1}]}

    def test_a_list_is_replaced_by_a_directive(self) -> None:
        target = {"containers": [{"name": "a"}]}
        patch = {"containers": [{"$patch": "replace"}, {"name": "c"}]}
        assert apply_strategic_patch(target, patch, POD) == {"containers": [{"name": "c"}]}

    def test_the_order_is_set(self) -> None:
        target = {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}
        patch = {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}
        order = [item["name"] for item in apply_strategic_patch(target, patch, POD)["containers"]]
        assert order == ["c", "a", "b"]

    def test_keys_are_retained(self) -> None:
        target = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}
        patch = {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}
        assert apply_strategic_patch(target, patch, DEPLOYMENT) == {"strategy": {"type": "Recreate"}}

    def test_ports_have_the_key_of_their_place(self) -> None:
        ports = [{"port": 1, "containerPort": 1, "name": "a"}]
        patch = {"ports": [{"port": 1, "containerPort": 2, "name": "b"}]}
        of_service = apply_strategic_patch({"ports": ports}, patch, SERVICE)
        assert of_service == {"ports": [{"port": 1, "containerPort": 2, "name": "b"}]}
        of_container = apply_strategic_patch({"ports": ports}, patch, CONTAINER)
        assert of_container == {"ports": [*patch["ports"], *ports]}

    def test_scalar_lists_are_merged_by_the_schema(self) -> None:
        assert apply_strategic_patch({"finalizers": ["a", "b"]}, {"finalizers": ["b", "c"]}, META) == {
            "finalizers": ["a", "b", "c"]
        }
        assert apply_strategic_patch(
            {"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, META
        ) == {"finalizers": ["b"]}

    def test_lists_without_a_schema_are_replaced(self) -> None:
        assert apply_strategic_patch({"containers": [{"name": "a"}]}, {"containers": [{"name": "b"}]}, None) == {
            "containers": [{"name": "b"}]
        }

    def test_an_item_without_its_merge_key_is_rejected(self) -> None:
        with pytest.raises(ApiError, match="does not contain declared merge key: name"):
            apply_strategic_patch({"containers": []}, {"containers": [{"x": 1}]}, POD)

    @given(objects, objects)
    def test_without_lists_and_directives_it_is_a_merge_patch(self, target: Any, patch: Any) -> None:
        assert apply_strategic_patch(target, patch, None) == apply_merge(target, patch)


class TestLongLists:
    """Items are found by their keys in constant time, but as before."""

    def test_a_deletion_removes_the_first_item_with_the_key(self) -> None:
        ports = [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}]
        patch = [{"$patch": "delete", "containerPort": 53}, {"containerPort": 53, "name": "dns"}]
        merged = apply_strategic_patch({"ports": ports}, {"ports": patch}, CONTAINER)
        assert merged["ports"] == [{"containerPort": 53, "protocol": "TCP", "name": "dns"}]

    def test_an_added_item_is_found_by_later_ones(self) -> None:
        patch = [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]
        assert apply_strategic_patch({}, {"env": patch}, CONTAINER)["env"] == [{"name": "a", "value": "2"}]

    def test_items_that_are_no_scalars_can_be_removed_from_lists(self) -> None:
        patch = {"$deleteFromPrimitiveList/args": [{"a": 1}, "b"]}
        assert apply_strategic_patch({"args": [{"a": 1}, "b", "c"]}, patch, CONTAINER)["args"] == ["c"]


def test_a_copy_shares_nothing_with_what_it_was_copied_from() -> None:
    operations = [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/c", "value": 1}]
    assert apply_json_patch(b'{"a":{}}', operations) == {"a": {}, "b": {"c": 1}}


def pointer(name: str) -> str:
    return "/data/" + name.replace("~", "~0").replace("/", "~1")


def test_operations_are_applied_in_order() -> None:
    operations: list[dict[str, Any]] = [
        {"op": "add", "path": "/data/c", "value": "d"},
        {"op": "move", "from": "/data/c", "path": "/data/e"},
        {"op": "test", "path": "/data/e", "value": "d"},
        {"op": "remove", "path": "/data/a"},
        {"op": "add", "path": "/list/-", "value": 3},
    ]
    patched = apply_operations(OBJECT, operations)
    assert patched == {"metadata": {"name": "a"}, "data": {"e": "d"}, "list": [1, 2, 3]}


def test_the_object_itself_stays_as_it_is() -> None:
    before = copy.deepcopy(OBJECT)
    patched = apply_operations(OBJECT, [{"op": "replace", "path": "/data/a", "value": "x"}])
    assert patched["data"] == {"a": "x"}
    patched["metadata"]["name"] = "other"
    assert before == OBJECT


@pytest.mark.parametrize(
    ("operation", "value"),
    [
        ({"op": "replace", "path": "/data/z", "value": "1"}, "1"),
        ({"op": "add", "path": "/data/z"}, None),
        ({"op": "copy", "from": "/data/missing", "path": "/data/z"}, None),
    ],
)
def test_missing_values_are_null_and_missing_fields_are_added(operation: dict[str, Any], value: Any) -> None:
    assert apply_operations(OBJECT, [operation])["data"] == {"a": "b", "z": value}


def test_a_missing_field_equals_null() -> None:
    assert apply_operations(OBJECT, [{"op": "test", "path": "/data/z", "value": None}]) == OBJECT


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "remove", "path": "/data/z"},
        {"op": "move", "from": "/data/z", "path": "/data/y"},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "test", "path": "/data/a", "value": "x"},
        {"op": "frob", "path": "/data/a"},
        {"path": "/data/a"},
    ],
)
def test_an_operation_that_cannot_be_applied_is_an_internal_error(operation: dict[str, Any]) -> None:
    with pytest.raises(ServerError, match="Internal error occurred: "):
        apply_operations(OBJECT, [operation])


@given(st.dictionaries(keys, st.integers()), st.dictionaries(keys, st.integers()))
def test_added_and_removed_fields_lead_to_any_other_content(old: dict[str, int], new: dict[str, int]) -> None:
    removed = [{"op": "remove", "path": pointer(name)} for name in old.keys() - new.keys()]
    added = [{"op": "add", "path": pointer(name), "value": value} for name, value in new.items()]
    assert apply_operations({"data": old}, [*removed, *added]) == {"data": new}
