"""Tests for :mod:`trioperator.apiserver.model.metadata`: metadata are validated, cleaned and carried over."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.model.kinds import Catalog, CustomTraits, Kind
from trioperator.apiserver.model.metadata import (
    ANNOTATIONS_LIMIT,
    META_FIELDS,
    SUBDOMAIN_TEXT,
    carry_over,
    check_key,
    check_metadata,
    check_metadata_update,
    clean_metadata,
    generated_name,
    label_problem,
    segment_problem,
    subdomain_problem,
)

CATALOG = Catalog()
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}


def builtin(plural: str, group: str = "") -> Kind:
    """Return a built-in kind."""
    kind = CATALOG.by_resource((group, plural))
    assert kind is not None
    return kind


PODS = builtin("pods")


def problems(kind: Kind = PODS, **meta: Any) -> list[tuple[str, str]]:
    """Return fields and messages of the validation errors of otherwise valid metadata."""
    causes = list(check_metadata(kind, {"name": "a", "namespace": "ns", **meta}))
    return [(cause.field.removeprefix("metadata."), cause.message) for cause in causes]


class TestNames:
    @pytest.mark.parametrize(
        ("kind", "name"),
        [
            (PODS, "a"),
            (PODS, "a-b.c-1"),
            (PODS, "a" * 253),
            (builtin("namespaces"), "a" * 63),
            (builtin("services"), "a-1"),
            (builtin("clusterroles", "rbac.authorization.k8s.io"), "System:A b"),
        ],
    )
    def test_names_are_valid_by_the_rules_of_their_kinds(self, kind: Kind, name: str) -> None:
        assert problems(kind, name=name) == []

    @pytest.mark.parametrize(
        ("kind", "name", "message"),
        [
            (PODS, "", "Required value: name or generateName is required"),
            (PODS, "A", f'Invalid value: "A": {SUBDOMAIN_TEXT}'),
            (PODS, "a..b", f'Invalid value: "a..b": {SUBDOMAIN_TEXT}'),
            (PODS, "a" * 254, f'Invalid value: "{"a" * 254}": must be no more than 253 bytes'),
            (builtin("namespaces"), "a.b", 'Invalid value: "a.b": must not contain dots'),
            (builtin("services"), "a" * 64, f'Invalid value: "{"a" * 64}": must be no more than 63 bytes'),
            (
                builtin("roles", "rbac.authorization.k8s.io"),
                "a/b",
                "Invalid value: \"a/b\": may not contain '/'",
            ),
        ],
    )
    def test_invalid_names_are_errors(self, kind: Kind, name: str, message: str) -> None:
        assert problems(kind, name=name) == [("name", message)]

    def test_objects_in_namespaces_need_a_namespace(self) -> None:
        assert problems(namespace="") == [("namespace", "Required value")]
        assert problems(builtin("nodes"), namespace="") == []

    @pytest.mark.parametrize(
        ("name", "problem"),
        [(".", "may not be '.'"), ("..", "may not be '..'"), ("a%b", "may not contain '%'"), ("...", ""), ("A b", "")],
    )
    def test_a_path_segment_has_no_slashes(self, name: str, problem: str) -> None:
        assert segment_problem(name) == problem

    @given(st.text("aB1-._", max_size=6))
    def test_labels_are_subdomains_without_dots(self, name: str) -> None:
        assert (not label_problem(name)) == (not subdomain_problem(name) and "." not in name)

    def test_labels_have_at_most_63_bytes(self) -> None:
        assert label_problem("a" * 63) == ""
        assert label_problem("a" * 64) == "must be no more than 63 bytes"

    @given(st.text("ab", max_size=70))
    def test_a_generated_name_keeps_its_prefix_within_the_limit_of_labels(self, prefix: str) -> None:
        name = generated_name(prefix, lambda letters: letters[-1])
        assert name == f"{prefix[:58]}99999"
        assert len(name) <= 63


class TestLabelsAndAnnotations:
    @pytest.mark.parametrize("key", ["a", "A.b_c-1", "x.dev/a", f"{'a' * 253}/{'b' * 63}"])
    def test_valid_keys_have_no_errors(self, key: str) -> None:
        assert list(check_key("f", key)) == []

    @pytest.mark.parametrize(
        ("key", "problem"),
        [
            ("/a", "prefix part must be non-empty"),
            ("X/a", f"prefix part {SUBDOMAIN_TEXT}"),
            (f"{'a' * 254}/a", "prefix part must be no more than 253 bytes"),
            ("x.dev/", "name part must be non-empty"),
            ("a" * 64, "name part must be no more than 63 bytes"),
        ],
    )
    def test_invalid_keys_are_errors(self, key: str, problem: str) -> None:
        assert next(iter(check_key("f", key))).message == f'Invalid value: "{key}": {problem}'

    @pytest.mark.parametrize("value", ["a" * 64, "-a", "a b"])
    def test_invalid_values_of_labels_are_errors(self, value: str) -> None:
        ((field, message),) = problems(labels={"a": value})
        assert (field, message.startswith(f'Invalid value: "{value}": ')) == ("labels", True)
        assert problems(labels={"a": "", "b": "A_b.c"}, annotations={"a": value}) == []

    def test_keys_of_annotations_may_be_in_upper_case(self) -> None:
        assert problems(annotations={"X.dev/A": "x"}) == []
        assert [field for field, _ in problems(labels={"X.dev/A": "x"})] == ["labels"]

    def test_annotations_are_limited_in_bytes(self) -> None:
        assert problems(annotations={"a": "x" * (ANNOTATIONS_LIMIT - 1)}) == []
        text = f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"
        assert problems(annotations={"a": "x" * ANNOTATIONS_LIMIT}) == [("annotations", text)]
        assert problems(annotations={"a": "ä" * (ANNOTATIONS_LIMIT // 2)}) == [("annotations", text)]


class TestFinalizersAndOwners:
    def test_finalizers_of_built_in_kinds_are_qualified_or_standard(self) -> None:
        text = 'Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified'
        assert problems(finalizers=["orphan", "x.dev/a", "mine"]) == [("finalizers[2]", text)]
        assert problems(dataclasses.replace(PODS, custom=CustomTraits()), finalizers=["mine"]) == []

    def test_a_deletion_cannot_orphan_and_delete_the_dependents(self) -> None:
        ((field, message),) = problems(finalizers=["orphan", "foregroundDeletion"])
        assert field == "finalizers"
        assert message.endswith("finalizer orphan and foregroundDeletion cannot be both set")

    @pytest.mark.parametrize(
        ("missing", "problem"),
        [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ],
    )
    def test_an_owner_is_identified_completely(self, missing: str, problem: str) -> None:
        assert problems(ownerReferences=[OWNER]) == []
        expected = [(f"ownerReferences.{missing}", f'Invalid value: "": {problem}')]
        assert problems(ownerReferences=[{**OWNER, missing: ""}]) == expected

    def test_only_one_owner_is_the_controller(self) -> None:
        owner = {**OWNER, "controller": True}
        assert problems(ownerReferences=[owner, {**OWNER, "controller": False}]) == []
        ((field, message),) = problems(ownerReferences=[owner, {**owner, "name": "q"}])
        assert field == "ownerReferences"
        assert message.endswith('Found "true" in references for Pod/p and Pod/q')


class TestFields:
    def test_cleaning_drops_unknown_and_empty_fields(self) -> None:
        meta: dict[str, Any] = {
            "name": "a",
            "labels": {},
            "finalizers": [],
            "uid": "",
            "generation": None,
            "x": 1,
            "selfLink": "/x",
        }
        assert clean_metadata(meta) == {"name": "a"}
        owner = {**OWNER, "controller": None, "x": 1}
        assert clean_metadata({"ownerReferences": [owner, "x"]}) == {"ownerReferences": [OWNER, "x"]}

    @given(
        st.dictionaries(
            st.sampled_from([*META_FIELDS, "x"]).filter(lambda name: name != "ownerReferences"),
            st.none() | st.integers() | st.text() | st.lists(st.text()) | st.dictionaries(st.text(), st.text()),
        )
    )
    def test_cleaning_is_idempotent_and_changes_nothing_in_place(self, meta: dict[str, Any]) -> None:
        before = copy.deepcopy(meta)
        clean = clean_metadata(meta)
        assert clean_metadata(clean) == clean
        assert meta == before


class TestUpdates:
    @pytest.mark.parametrize("field", ["name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"])
    def test_the_identity_and_the_deletion_are_immutable(self, field: str) -> None:
        (cause,) = check_metadata_update({"labels": {"a": "b"}, field: "new"}, {field: "old"})
        assert (cause.field, cause.message) == (f"metadata.{field}", 'Invalid value: "new": field is immutable')

    def test_an_object_that_is_being_deleted_gets_no_new_finalizers(self) -> None:
        old = {"finalizers": ["a/a"]}
        new = {"finalizers": ["b/c", "a/a", "b/b"]}
        assert check_metadata_update(new, old) == []
        deleted = {"deletionTimestamp": "2020"}
        (cause,) = check_metadata_update(new | deleted, old | deleted)
        assert cause.reason == "FieldValueForbidden"
        assert cause.message.endswith('found new finalizers []string{"b/b", "b/c"}')
        assert check_metadata_update(deleted, old | deleted) == []

    def test_fields_that_clients_cannot_change_are_carried_over(self) -> None:
        old = {"uid": "u", "creationTimestamp": "2020", "deletionTimestamp": "2021", "deletionGracePeriodSeconds": 0}
        new = {"creationTimestamp": "1999", "generation": 7, "deletionTimestamp": "1999", "labels": {"a": "b"}}
        carry_over(new, old)
        assert new == {**old, "labels": {"a": "b"}}

    def test_another_uid_stays_and_is_an_error_later(self) -> None:
        new = {"uid": "other"}
        carry_over(new, {"uid": "u"})
        assert [cause.field for cause in check_metadata_update(new, {"uid": "u"})] == ["metadata.uid"]
