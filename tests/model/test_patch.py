"""Patches: the argument of handlers, merging, applying and converting."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import jsonpatch
import jsonpointer
import pytest
from hypothesis import assume, given

from tests.model.strategies import Untouched, objects, untimed
from trioperator._model.body import Body
from trioperator._model.patch import (
    Patch,
    apply_merge,
    is_result,
    json_patch,
    merge_as_additions,
    merge_as_json_patch,
    merge_patches,
    split_status,
    with_version_test,
)


class TestPatch:
    def test_it_is_a_dictionary_whose_sections_are_created_on_demand(self) -> None:
        patch = Patch()
        patch.spec["size"] = 1
        patch.status["a"] = {"b": 2}
        patch.meta.labels["app"] = "x"
        patch.metadata.annotations["k"] = "v"
        patch.meta["finalizers"] = []
        patch["data"] = {"x": 1}
        assert patch == {
            "spec": {"size": 1},
            "status": {"a": {"b": 2}},
            "metadata": {"labels": {"app": "x"}, "annotations": {"k": "v"}, "finalizers": []},
            "data": {"x": 1},
        }

    def test_reading_creates_no_sections(self) -> None:
        patch = Patch()
        assert patch.status.get("x") is None
        assert patch.meta.labels.get("x", "d") == "d"
        assert "x" not in patch.spec
        assert list(patch.meta.annotations) == []
        assert len(patch.spec) == 0
        assert patch.status == {}
        assert repr(patch.status) == "{}"
        with pytest.raises(KeyError):
            patch.spec["x"]
        with pytest.raises(KeyError):
            del patch.spec["x"]
        assert patch.status.pop("x", None) is None
        assert patch == {}
        assert not patch

    def test_none_means_removal(self) -> None:
        patch = Patch()
        patch.meta.annotations["k"] = None
        assert patch == {"metadata": {"annotations": {"k": None}}}
        assert patch

    def test_a_section_is_removed_with_its_last_item(self) -> None:
        patch = Patch()
        patch.meta.labels["app"] = "x"
        del patch.meta.labels["app"]
        assert patch == {}

    def test_nested_values_can_be_filled_in_place(self) -> None:
        patch = Patch()
        patch.setdefault("status", {})["a"] = 1
        patch.status.setdefault("children", {})["x"] = 1
        patch.status["children"]["y"] = 2
        patch.status.update(done=True)
        patch.spec["nested"] = {"deep": {}}
        patch.spec["nested"]["deep"]["er"] = 1
        assert patch == {
            "status": {"a": 1, "children": {"x": 1, "y": 2}, "done": True},
            "spec": {"nested": {"deep": {"er": 1}}},
        }

    def test_views_stay_valid_while_the_patch_is_emptied_and_filled(self) -> None:
        patch = Patch()
        status = patch.status
        status["a"] = 1
        patch.clear()
        assert status == {}
        status["b"] = 2
        assert patch == {"status": {"b": 2}}

    def test_it_is_true_unless_empty(self) -> None:
        assert not Patch()
        assert Patch({"spec": None})
        assert Patch({"spec": {}})
        assert Patch(fns=[lambda body: None])

    def test_clearing_removes_the_functions(self) -> None:
        patch = Patch({"spec": {}}, fns=[lambda body: None])
        patch.clear()
        assert not patch
        assert patch.fns == []

    def test_each_patch_has_its_own_functions(self) -> None:
        Patch().fns.append(lambda body: None)
        assert Patch().fns == []
        assert Patch(None) == {}

    def test_a_patch_made_of_another_one_has_its_functions_first(self) -> None:
        def one(body: dict[str, Any]) -> None: ...

        def two(body: dict[str, Any]) -> None: ...

        first = Patch({"spec": {"a": 1}}, fns=[one])
        second = Patch(first, fns=[two])
        assert second == first
        assert (first.fns, second.fns) == ([one], [one, two])

    def test_as_a_json_patch_it_includes_the_functions(self) -> None:
        body = {"spec": {"items": ["one"]}, "metadata": {"labels": {"a": "b"}}}
        patch = Patch({"metadata": {"labels": {"a": None, "c": "d"}}})
        patch.fns.append(lambda target: target["spec"]["items"].append("two"))
        patch.fns.append(lambda target: target["metadata"]["labels"].update(e="f"))
        with Untouched(body, dict(patch)):
            ops = patch.as_json_patch(body)
        assert jsonpatch.apply_patch(body, ops) == {
            "spec": {"items": ["one", "two"]},
            "metadata": {"labels": {"c": "d", "e": "f"}},
        }
        assert Patch({"spec": {"a": 1}}).as_json_patch() == [{"op": "add", "path": "/spec", "value": {"a": 1}}]

    def test_the_body_of_the_patch_is_the_default(self) -> None:
        patch = Patch({"spec": {"a": 1}}, body={"spec": {"a": 0}})
        assert patch.as_json_patch() == [{"op": "replace", "path": "/spec/a", "value": 1}]
        assert patch.as_json_patch({"spec": {"a": 1}}) == []
        assert patch == {"spec": {"a": 1}}


class TestApplyingMergePatches:
    @pytest.mark.parametrize(
        ("target", "patch", "result"),
        [  # the examples of RFC 7386, appendix A
            ({"a": "b"}, {"a": "c"}, {"a": "c"}),
            ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
            ({"a": "b"}, {"a": None}, {}),
            ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
            ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
            ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
            ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
            ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
            (["a", "b"], ["c", "d"], ["c", "d"]),
            ({"a": "b"}, ["c"], ["c"]),
            ({"a": "foo"}, None, None),
            ({"a": "foo"}, "bar", "bar"),
            ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
            ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
            ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ],
    )
    def test_merge_patches_are_applied_as_in_the_standard(self, target: Any, patch: Any, result: Any) -> None:
        assert apply_merge(target, patch) == result

    @given(objects, objects)
    @untimed
    def test_applying_changes_no_arguments(self, body: dict[str, Any], patch: dict[str, Any]) -> None:
        with Untouched(body, patch):
            result = apply_merge(body, patch)
            result.clear()

    @given(objects, objects)
    @untimed
    def test_applying_is_idempotent(self, body: dict[str, Any], patch: dict[str, Any]) -> None:
        once = apply_merge(body, patch)
        assert apply_merge(once, patch) == once

    def test_unpatched_values_are_shared(self) -> None:
        body: dict[str, Any] = {"spec": {"big": {"x": 1}, "size": 1}, "data": {"y": 1}}
        result = apply_merge(body, {"spec": {"size": 2}})
        assert result["data"] is body["data"]
        assert result["spec"]["big"] is body["spec"]["big"]

    def test_views_can_be_patched(self) -> None:
        body = Body({"spec": {"a": 1}})
        assert apply_merge(body, {"spec": {"b": 2}}) == {"spec": {"a": 1, "b": 2}}


def replaces_a_mapping(first: Any, second: Any) -> bool:
    """Return whether one patch removes a field in which the other one sets a mapping."""
    return any(
        isinstance(value, dict)
        and key in first
        and (not isinstance(first[key], dict) or replaces_a_mapping(first[key], value))
        for key, value in second.items()
    )


class TestMergingMergePatches:
    @given(objects, objects, objects)
    @untimed
    def test_a_merged_patch_has_the_effect_of_both_in_order(
        self, body: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
    ) -> None:
        assume(not replaces_a_mapping(first, second))
        with Untouched(first, second):
            merged = merge_patches(first, second)
        assert apply_merge(body, merged) == apply_merge(apply_merge(body, first), second)

    @given(objects, objects, objects)
    @untimed
    def test_a_merged_patch_for_a_given_object_has_the_effect_of_both_always(
        self, body: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
    ) -> None:
        with Untouched(body, first, second):
            merged = merge_patches(first, second, onto=body)
        assert apply_merge(body, merged) == apply_merge(apply_merge(body, first), second)

    def test_a_mapping_replaces_a_removed_one_in_a_given_object(self) -> None:
        body = {"spec": {"a": {"x": 1, "y": {"z": 1}}}}
        first, second = {"spec": {"a": None}}, {"spec": {"a": {"y": {"q": 2}}}}
        assert merge_patches(first, second, onto=body) == {"spec": {"a": {"x": None, "y": {"z": None, "q": 2}}}}
        assert merge_patches(first, second) == second

    def test_a_later_removal_wins(self) -> None:
        assert merge_patches({"spec": {"a": 1, "b": 2}}, {"spec": {"a": None}}) == {"spec": {"a": None, "b": 2}}
        assert merge_patches({"spec": {"a": 1}}, {"spec": None}) == {"spec": None}


class TestSplitting:
    def test_the_status_is_split_off(self) -> None:
        patch = {"spec": {"a": 1}, "status": {"b": 2}}
        with Untouched(patch):
            assert split_status(patch) == ({"spec": {"a": 1}}, {"b": 2})

    def test_either_part_may_be_empty(self) -> None:
        assert split_status({}) == ({}, {})
        assert split_status({"status": {"b": 2}}) == ({}, {"b": 2})
        assert split_status({"spec": None}) == ({"spec": None}, {})

    @pytest.mark.parametrize("status", [None, "text", [1]])
    def test_a_status_that_is_not_a_mapping_stays_with_the_object(self, status: Any) -> None:
        assert split_status({"status": status}) == ({"status": status}, {})

    @given(objects, objects)
    @untimed
    def test_both_parts_together_have_the_effect_of_the_patch(
        self, body: dict[str, Any], patch: dict[str, Any]
    ) -> None:
        patch = {**patch, "status": patch.get("spec", {})}
        main, status = split_status(patch)
        assert apply_merge(apply_merge(body, main), {"status": status} if status else {}) == apply_merge(
            body, {key: value for key, value in patch.items() if value != {} or key != "status"}
        )


class TestJsonPatches:
    @given(objects, objects)
    @untimed
    def test_a_merge_patch_is_converted_to_a_json_patch(self, body: dict[str, Any], patch: dict[str, Any]) -> None:
        with Untouched(body, patch):
            ops = merge_as_json_patch(body, patch)
        assert jsonpatch.apply_patch(copy.deepcopy(body), ops) == apply_merge(body, patch)

    @given(objects, objects)
    @untimed
    def test_changes_without_effect_need_no_operation(self, body: dict[str, Any], patch: dict[str, Any]) -> None:
        assert merge_as_json_patch(apply_merge(body, patch), patch) == []

    def test_names_are_escaped(self) -> None:
        assert merge_as_json_patch({"a/b": {"x~y": 1}}, {"a/b": {"x~y": 2}}) == [
            {"op": "replace", "path": "/a~1b/x~0y", "value": 2}
        ]

    def test_missing_parents_are_created(self) -> None:
        assert merge_as_json_patch({}, {"metadata": {"labels": {"a": "b", "c": None}}}) == [
            {"op": "add", "path": "/metadata", "value": {"labels": {"a": "b"}}}
        ]

    def test_true_is_not_equal_to_one(self) -> None:
        assert merge_as_json_patch({"a": 1}, {"a": True}) == [{"op": "replace", "path": "/a", "value": True}]

    @given(objects, objects, objects)
    @untimed
    def test_additions_have_the_effect_of_a_merge_patch_on_later_states_too(
        self, body: dict[str, Any], patch: dict[str, Any], change: dict[str, Any]
    ) -> None:
        with Untouched(body, patch):
            ops = merge_as_additions(body, patch)
        later = apply_merge(body, change)
        for state in (body, later):
            if ops is not None:
                with contextlib.suppress(jsonpatch.JsonPatchException, jsonpointer.JsonPointerException):
                    found = jsonpatch.apply_patch(copy.deepcopy(state), ops)
                    assert found == apply_merge(state, patch)

    def test_additions_do_not_depend_on_what_is_there(self) -> None:
        body = {"status": {"a": 1, "b": {"c": [1]}}}
        patch = {"status": {"a": 1, "b": {"c": [1, 2]}, "d/e": "f"}}
        assert merge_as_additions(body, patch) == [
            {"op": "add", "path": "/status/a", "value": 1},
            {"op": "add", "path": "/status/b/c", "value": [1, 2]},
            {"op": "add", "path": "/status/d~1e", "value": "f"},
        ]

    @pytest.mark.parametrize(
        "patch", [{"a": None}, {"b": {"c": None}}, {"b": {}}, {"c": {"d": 1}}, {"a": {}}, {"a": {"b": 1}}]
    )
    def test_what_depends_on_what_is_there_is_more_than_additions(self, patch: dict[str, Any]) -> None:
        assert merge_as_additions({"a": 1, "b": {"c": 2}}, patch) is None

    @given(objects, objects)
    @untimed
    def test_a_json_patch_turns_one_object_into_the_other(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        with Untouched(before, after):
            ops = json_patch(before, after)
        assert jsonpatch.apply_patch(copy.deepcopy(before), ops) == after

    def test_no_operation_moves_values_between_sections(self) -> None:
        ops = json_patch({"spec": {"x": {"big": 1}}, "status": {}}, {"spec": {}, "status": {"x": {"big": 1}}})
        assert {op["op"] for op in ops} == {"remove", "add"}

    def test_a_version_test_comes_first(self) -> None:
        op = {"op": "add", "path": "/spec", "value": {}}
        assert with_version_test([op], {"metadata": {"resourceVersion": "5"}}) == [
            {"op": "test", "path": "/metadata/resourceVersion", "value": "5"},
            op,
        ]
        assert with_version_test([op], {"metadata": {}}) == [op]
        assert with_version_test([op], {}) == [op]


class TestResults:
    @given(objects, objects)
    def test_an_object_is_the_result_of_a_patch_in_whatever_version(
        self, before: dict[str, Any], patch: dict[str, Any]
    ) -> None:
        before["metadata"] = {"name": "x", "resourceVersion": "1", "annotations": {"a": "1"}}
        patch["metadata"] = {"annotations": {"b": "2"}}
        after = apply_merge(before, patch)
        after["metadata"] |= {"resourceVersion": "2", "managedFields": [{"manager": "x"}]}
        assert is_result(after, before, patch)

    @pytest.mark.parametrize(
        "changed",
        [
            {"spec": {"size": 2}},
            {"metadata": {"labels": {"app": "x"}}},
            {"metadata": {"deletionTimestamp": "now"}},
            {"metadata": {"annotations": {"b": "another"}}},
            {"metadata": {"annotations": {"b": None}}},
            {"metadata": {"generation": 2}},
        ],
        ids=str,
    )
    def test_it_is_not_where_anything_else_has_changed(self, changed: dict[str, Any]) -> None:
        before = {"metadata": {"name": "x", "resourceVersion": "1"}, "spec": {"size": 1}}
        patch = {"metadata": {"annotations": {"b": "2"}}}
        assert not is_result(apply_merge(apply_merge(before, patch), changed), before, patch)
