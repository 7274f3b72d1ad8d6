"""Attribution of changes to field managers."""

from typing import Any

import pytest

from trioperator._model.field_managers import (
    Attribution,
    find_changed_fields,
    find_last_manager,
    format_field,
)


def entry(manager: str, second: int, *fields: str, subresource: str | None = None) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for field in fields:
        node = tree
        for key in field.split("."):
            node = node.setdefault(f"f:{key}", {})
    made = {"manager": manager, "operation": "Update", "time": f"2026-01-01T00:00:{second:02}Z", "fieldsV1": tree}
    return made if subresource is None else {**made, "subresource": subresource}


def obj(*entries: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {"metadata": {"name": "orders", "managedFields": list(entries)}, **sections}


def test_what_the_server_changes_with_each_write_is_no_change() -> None:
    before = {"metadata": {"resourceVersion": "1", "generation": 1, "managedFields": []}, "spec": {"size": 1}}
    after = {"metadata": {"resourceVersion": "2", "generation": 2, "managedFields": [1]}, "spec": {"size": 2}}
    assert [*find_changed_fields(before, after)] == [("spec", "size")]


def test_a_new_mapping_counts_as_its_fields() -> None:
    after = {"metadata": {"labels": {"a": "1", "b": "2"}}, "status": {"list": [1]}}
    fields = [*find_changed_fields({"metadata": {}}, after)]
    assert fields == [("metadata", "labels", "a"), ("metadata", "labels", "b"), ("status", "list")]


def test_a_changed_field_belongs_to_who_has_changed_it() -> None:
    before = obj(entry("trioperator", 1, "spec.size"), entry("kubectl", 1, "spec.color"), spec={"size": 1, "color": 2})
    after = obj(entry("kubectl", 2, "spec.size", "spec.color"), spec={"size": 2, "color": 2})
    assert Attribution(before, after).find(("spec", "size")) == "kubectl"


def test_a_subresource_has_entries_of_its_own() -> None:
    ours = entry("trioperator", 1, "status.phase", subresource="status")
    before = obj(ours, entry("kubectl-edit", 1, "spec.size"), status={"phase": "a"})
    theirs = entry("kubectl-edit", 3, "status.phase", subresource="status")
    after = obj(entry("kubectl-edit", 1, "spec.size"), theirs, status={"phase": "b"})
    assert Attribution(before, after, own={"trioperator"}).find(("status", "phase")) == "kubectl-edit"


def test_a_change_whose_entry_is_as_before_was_made_by_its_manager_in_the_same_second() -> None:
    entries = entry("kubectl", 1, "spec.color"), entry("trioperator", 2, "spec.size")
    before, after = obj(*entries, spec={"size": 1}), obj(*entries, spec={"size": 2})
    assert Attribution(before, after).find(("spec", "size")) == "trioperator"


def test_a_field_within_an_atomic_one_belongs_to_its_manager() -> None:
    before = obj(entry("a", 1, "spec.selector"), spec={"selector": {"app": "x"}})
    after = obj(entry("b", 2, "spec.selector"), spec={"selector": {"app": "y"}})
    assert Attribution(before, after).find(("spec", "selector", "app")) == "b"


@pytest.mark.parametrize("is_known", [True, False], ids=["the state before is known", "it is not"])
def test_a_scaled_field_belongs_to_who_has_scaled_it(is_known: bool) -> None:
    # As kube-apiserver answers to `kubectl scale` of a custom resource: without a time, and with what is left of the
    # entry of `kubectl apply`.
    before = obj(entry("kubectl-client-side-apply", 1, "spec.replicas"), spec={"replicas": 1})
    scaled = {**entry("kubectl", 0, "spec.replicas", subresource="scale"), "time": None}
    after = obj(scaled, entry("kubectl-client-side-apply", 1, "spec"), spec={"replicas": 3})
    assert Attribution(before if is_known else {}, after).find(("spec", "replicas")) == "kubectl"


def test_who_has_lost_a_field_to_the_operator_since_has_changed_it() -> None:
    before = obj(entry("trioperator", 1, "metadata.labels.team"))
    ours = entry("trioperator", 2, "metadata.labels.team")
    after = {"metadata": {"labels": {"team": "ours"}, "managedFields": [entry("stomper", 2, "metadata.labels"), ours]}}
    found = Attribution(before, after, own={"trioperator"})
    assert found.find(("metadata", "labels", "team")) == "stomper"


def test_a_removal_is_never_put_down_to_who_has_lost_the_field() -> None:
    before = obj(entry("trioperator", 1, "spec.size", "spec.color"), spec={"size": 1, "color": 2})
    after = obj(entry("trioperator", 1, "spec.color"), spec={"color": 2})
    assert Attribution(before, after).find(("spec", "size")) is None


def test_a_removal_is_put_down_to_who_has_changed_something_else() -> None:
    before = obj(entry("trioperator", 1, "spec.size"), spec={"size": 1})
    after = obj(entry("stomper", 2, "spec.color"), spec={"color": 2})
    assert Attribution(before, after, own={"trioperator"}).find(("spec", "size")) == "stomper"


def test_others_come_first_in_the_same_second() -> None:
    before = obj(spec={})
    entries = (entry("trioperator", 2, "spec.size"), entry("kubectl", 2, "spec.size"))
    assert Attribution(before, obj(*entries, spec={"size": 1}), own={"trioperator"}).find(("spec", "size")) == "kubectl"


@pytest.mark.parametrize("managed", [None, [], "x", [1, {"manager": 7}], [{"fieldsV1": "x", "manager": ""}]])
def test_unreadable_entries_name_nobody(managed: Any) -> None:
    body = {"metadata": {"managedFields": managed}, "spec": {"size": 1}}
    assert Attribution({"metadata": {}}, body).find(("spec", "size")) is None
    assert find_last_manager(body) is None


def test_the_last_manager_is_that_of_the_newest_entry() -> None:
    assert find_last_manager(obj(entry("a", 3), entry("b", 5), entry("c", 4))) == "b"


def test_fields_are_named_as_people_read_them() -> None:
    assert format_field(("metadata", "labels", "app.kubernetes.io/name")) == "metadata.labels[app.kubernetes.io/name]"
    assert format_field(("spec", "size")) == "spec.size"
