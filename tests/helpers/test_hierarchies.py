"""Tests for :mod:`trioperator.helpers.hierarchies`."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._handling.arguments.context import current_cause
from trioperator._model.body import Body
from trioperator._model.patch import apply_merge
from trioperator.helpers.hierarchies import (
    adjust_namespace,
    adopt,
    append_owner_reference,
    disown,
    harmonize_naming,
    label,
    remove_owner_reference,
    unlabel,
)

OWNER: dict[str, Any] = {
    "apiVersion": "kopf.dev/v1",
    "kind": "KopfExample",
    "metadata": {
        "name": "kopf-example-1",
        "namespace": "default",
        "uid": "6b931859-5d50-4b5c-956b-ea2fed0d1058",
        "labels": {"somelabel": "somevalue"},
    },
}
OTHER: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "uid": "u-2"}}

REFERENCE = {
    "controller": True,
    "blockOwnerDeletion": True,
    "apiVersion": "kopf.dev/v1",
    "kind": "KopfExample",
    "name": "kopf-example-1",
    "uid": "6b931859-5d50-4b5c-956b-ea2fed0d1058",
}
NODE_REFERENCE = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "u-2"}


@dataclasses.dataclass
class Cause:
    body: Body


@contextlib.contextmanager
def handling(owner: dict[str, Any]) -> Iterator[None]:
    token = current_cause.set(Cause(Body(owner)))
    try:
        yield
    finally:
        current_cause.reset(token)


@pytest.fixture
def handled() -> Iterator[None]:
    with handling(OWNER):
        yield


GUESSING: list[Callable[..., None]] = [
    adjust_namespace,
    adopt,
    append_owner_reference,
    disown,
    harmonize_naming,
    label,
    remove_owner_reference,
    unlabel,
]


@pytest.mark.parametrize("fn", GUESSING)
def test_outside_of_handlers_the_owner_must_be_given(fn: Callable[..., None]) -> None:
    with pytest.raises(LookupError, match="explicitly"):
        fn([{}])


@pytest.mark.parametrize("fn", GUESSING)
def test_passing_none_is_the_same_as_passing_nothing(fn: Callable[..., None], handled: None) -> None:
    start = {"metadata": {"labels": {"somelabel": "somevalue"}, "ownerReferences": [REFERENCE]}}
    one: dict[str, Any] = {"metadata": {**start["metadata"]}}
    two: dict[str, Any] = {"metadata": {**start["metadata"]}}
    fn(one)
    fn(two, None)
    assert one == two


@pytest.mark.parametrize("fn", GUESSING)
@pytest.mark.parametrize("wrong", ["a string", 123, Body({}), b"bytes", object()])
def test_anything_but_a_changeable_object_is_an_error(fn: Callable[..., None], wrong: Any, handled: None) -> None:
    with pytest.raises(TypeError, match=f"{type(wrong).__name__} is not a Kubernetes object"):
        fn([{}, wrong])


@pytest.mark.parametrize("fn", [append_owner_reference, remove_owner_reference, adopt, label])
def test_wrong_objects_are_errors_even_if_there_is_nothing_to_add(fn: Callable[..., None]) -> None:
    with pytest.raises(TypeError, match="K8s object class is not supported"):
        fn(object(), {})


def test_objects_may_be_nested_iterables_and_any_mutable_mapping(handled: None) -> None:
    objs: list[Any] = [{"kind": "Job"}, collections.UserDict(kind="Pod"), collections.OrderedDict(kind="Service")]
    adopt(iter([objs[0], (objs[1], None, [objs[2]])]))
    for obj in objs:
        assert obj["metadata"] == {
            "ownerReferences": [REFERENCE],
            "generateName": "kopf-example-1-",
            "namespace": "default",
            "labels": {"somelabel": "somevalue"},
        }


class TestOwnerReferences:
    def test_they_are_appended_once_for_each_owner(self, handled: None) -> None:
        obj: dict[str, Any] = {}
        append_owner_reference(obj)
        append_owner_reference(obj, OWNER, controller=False)
        append_owner_reference(obj, OTHER, controller=False, block_owner_deletion=False)
        assert obj["metadata"]["ownerReferences"] == [
            REFERENCE,
            {**NODE_REFERENCE, "controller": False, "blockOwnerDeletion": False},
        ]

    def test_only_those_of_the_owner_are_removed(self) -> None:
        obj: dict[str, Any] = {}
        append_owner_reference(obj, OWNER)
        append_owner_reference(obj, OTHER)
        remove_owner_reference(obj, OWNER)
        assert [ref["uid"] for ref in obj["metadata"]["ownerReferences"]] == ["u-2"]

    def test_removing_the_last_one_leaves_an_empty_list_so_that_merge_patches_remove_it_too(self) -> None:
        obj: dict[str, Any] = {"kind": "Job"}
        append_owner_reference(obj, OWNER)
        stored = copy.deepcopy(obj)
        remove_owner_reference(obj, OWNER)
        assert obj == {"kind": "Job", "metadata": {"ownerReferences": []}}
        assert apply_merge(stored, obj) == obj

    def test_removing_one_that_does_not_exist_changes_nothing(self) -> None:
        obj: dict[str, Any] = {"kind": "Job"}
        remove_owner_reference(obj, OWNER)
        assert obj == {"kind": "Job"}

    @pytest.mark.parametrize("gone", ["apiVersion", "kind", "name", "uid"])
    def test_an_owner_that_is_not_in_the_cluster_is_an_error(self, gone: str) -> None:
        metadata = {key: value for key, value in OWNER["metadata"].items() if key != gone}
        owner = {key: value for key, value in OWNER.items() if key != gone} | {"metadata": metadata}
        with pytest.raises(ValueError, match=rf"no (metadata\.)?{gone}: "):
            append_owner_reference({}, owner)

    def test_removing_for_an_owner_without_uid_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="uid"):
            remove_owner_reference({}, {"kind": "Node"})


class TestLabels:
    def test_given_ones_are_added_where_there_are_none(self) -> None:
        obj: dict[str, Any] = {"metadata": {"labels": {"a": "kept"}}}
        label(obj, {"a": "1", "b": "2"})
        assert obj["metadata"]["labels"] == {"a": "kept", "b": "2"}

    @pytest.mark.parametrize(("force", "value"), [(True, "1"), (False, "0")])
    def test_force_is_the_old_name_of_forced(self, force: bool, value: str) -> None:
        obj: dict[str, Any] = {"metadata": {"labels": {"a": "0"}}}
        with pytest.warns(DeprecationWarning, match=r"label\(force=...\) is deprecated: use forced="):
            label(obj, {"a": "1"}, force=force)
        assert obj["metadata"]["labels"] == {"a": value}

    def test_forced_ones_replace_others(self) -> None:
        obj: dict[str, Any] = {"metadata": {"labels": {"a": "old", "c": "kept"}}}
        label(obj, {"a": "1"}, forced=True)
        assert obj["metadata"]["labels"] == {"a": "1", "c": "kept"}

    def test_the_owners_are_the_default(self, handled: None) -> None:
        obj: dict[str, Any] = {}
        label(obj)
        assert obj == {"metadata": {"labels": {"somelabel": "somevalue"}}}

    def test_an_empty_mapping_changes_nothing(self, handled: None) -> None:
        obj: dict[str, Any] = {}
        label(obj, {})
        unlabel(obj, {})
        assert obj == {}

    @pytest.mark.parametrize("nested", ["spec.template", ["spec.template"], [("spec", "template")]])
    def test_nested_objects_are_labelled_where_they_exist(self, nested: Any) -> None:
        job: dict[str, Any] = {"kind": "Job"}
        deployment: dict[str, Any] = {"kind": "Deployment", "spec": {"template": {}}}
        label([job, deployment], {"a": "1"}, nested=nested)
        assert job == {"kind": "Job", "metadata": {"labels": {"a": "1"}}}
        assert deployment["spec"]["template"] == {"metadata": {"labels": {"a": "1"}}}

    def test_each_object_of_a_nested_list_is_labelled(self) -> None:
        obj: dict[str, Any] = {"spec": {"volumeClaimTemplates": [{}, {"metadata": None}]}}
        label(obj, {"a": "1"}, nested=["spec.volumeClaimTemplates", "spec.volumeClaimTemplates.sub", "spec.nothing"])
        assert obj["spec"]["volumeClaimTemplates"] == [{"metadata": {"labels": {"a": "1"}}}] * 2

    def test_those_of_a_mapping_are_removed_by_name_and_value(self) -> None:
        obj: dict[str, Any] = {"metadata": {"labels": {"a": "1", "b": "2"}}}
        unlabel(obj, {"a": "1", "b": "3"})
        assert obj["metadata"]["labels"] == {"b": "2"}

    def test_those_of_a_list_are_removed_by_name(self) -> None:
        obj: dict[str, Any] = {"metadata": {"labels": {"a": "1", "b": "2"}}}
        obj["spec"] = {"metadata": {"labels": {"b": "2"}}}
        unlabel(obj, ["b"], nested="spec")
        assert obj == {"metadata": {"labels": {"a": "1"}}, "spec": {"metadata": {}}}


class TestNames:
    def test_the_owners_name_is_a_prefix(self, handled: None) -> None:
        obj: dict[str, Any] = {}
        harmonize_naming(obj)
        assert obj == {"metadata": {"generateName": "kopf-example-1-"}}

    def test_strict_ones_are_exact(self, handled: None) -> None:
        obj: dict[str, Any] = {}
        harmonize_naming(obj, strict=True)
        assert obj == {"metadata": {"name": "kopf-example-1"}}

    @pytest.mark.parametrize("strict", [True, False])
    @pytest.mark.parametrize("key", ["name", "generateName"])
    def test_existing_names_are_kept(self, key: str, strict: bool) -> None:
        obj: dict[str, Any] = {"metadata": {key: "mine"}}
        harmonize_naming(obj, "other", strict=strict)
        assert obj == {"metadata": {key: "mine"}}

    @pytest.mark.parametrize("key", ["name", "generateName"])
    def test_forced_ones_replace_names_and_prefixes(self, key: str) -> None:
        exact: dict[str, Any] = {"metadata": {key: "mine"}}
        harmonize_naming(exact, "other", strict=True, forced=True)
        assert exact == {"metadata": {"name": "other"}}
        prefixed: dict[str, Any] = {"metadata": {key: "mine"}}
        harmonize_naming(prefixed, "other", forced=True)
        assert prefixed == {"metadata": {"generateName": "other-"}}


class TestNamespaces:
    def test_the_owners_is_the_default(self, handled: None) -> None:
        objs: list[dict[str, Any]] = [{}, {"metadata": {"namespace": "mine"}}]
        adjust_namespace(objs)
        assert objs == [{"metadata": {"namespace": "default"}}, {"metadata": {"namespace": "mine"}}]

    def test_a_forced_one_replaces_others(self) -> None:
        obj: dict[str, Any] = {"metadata": {"namespace": "mine"}}
        adjust_namespace(obj, "other", forced=True)
        assert obj == {"metadata": {"namespace": "other"}}

    def test_an_owner_without_one_changes_nothing(self) -> None:
        obj: dict[str, Any] = {"metadata": {"namespace": "mine"}}
        with handling(OTHER):
            adjust_namespace([obj], forced=True)
            adopt([obj], forced=True)
        assert obj["metadata"]["namespace"] == "mine"


class TestAdoption:
    def test_flags_are_passed_on(self, handled: None) -> None:
        obj: dict[str, Any] = {
            "metadata": {"name": "mine", "namespace": "mine", "labels": {"somelabel": "mine"}},
            "spec": {"template": {}},
        }
        adopt(obj, strict=True, forced=True, nested="spec.template")
        assert obj == {
            "metadata": {
                "ownerReferences": [REFERENCE],
                "name": "kopf-example-1",
                "namespace": "default",
                "labels": {"somelabel": "somevalue"},
            },
            "spec": {"template": {"metadata": {"labels": {"somelabel": "somevalue"}}}},
        }

    def test_disowning_keeps_what_identifies_the_object(self) -> None:
        obj: dict[str, Any] = {"metadata": {"labels": {"own": "label"}}, "spec": {"template": {}}}
        adopt(obj, OWNER, nested="spec.template")
        disown(obj, OWNER, nested="spec.template")
        assert obj == {
            "metadata": {
                "labels": {"own": "label"},
                "ownerReferences": [],
                "generateName": "kopf-example-1-",
                "namespace": "default",
            },
            "spec": {"template": {"metadata": {}}},
        }

    @given(st.fixed_dictionaries({}, optional={key: st.sampled_from(["x", "y"]) for key in ("name", "namespace")}))
    def test_adopting_again_changes_nothing(self, metadata: dict[str, str]) -> None:
        obj: dict[str, Any] = {"metadata": {**metadata}}
        adopt(obj, OWNER)
        once = {**obj, "metadata": {**obj["metadata"]}}
        adopt(obj, OWNER)
        assert obj == once


class TestClients:
    """Objects of client libraries, of those that are installed."""

    def test_pykube_objects_are_changed(self) -> None:
        objects = pytest.importorskip("pykube.objects")
        derived = type("Mine", (objects.NamespacedAPIObject,), {})  # as users do it, in their own modules
        pod, mine = objects.Pod(None, {}), derived(None, {"metadata": {}})
        adopt([pod, mine], OWNER)
        for obj in (pod.obj, mine.obj):
            assert obj["metadata"]["ownerReferences"] == [REFERENCE]
            assert obj["metadata"]["generateName"] == "kopf-example-1-"

    def test_pykube_objects_are_owners(self) -> None:
        objects = pytest.importorskip("pykube.objects")
        obj: dict[str, Any] = {}
        adopt(obj, objects.Pod(None, OWNER))
        assert obj["metadata"]["ownerReferences"] == [REFERENCE]

    @pytest.mark.parametrize("package", ["kubernetes", "kubernetes_asyncio"])
    def test_kubernetes_models_are_changed(self, package: str) -> None:
        client = pytest.importorskip(f"{package}.client")
        template = client.V1PodTemplateSpec()
        spec = client.V1DeploymentSpec(selector=client.V1LabelSelector(match_labels={}), template=template)
        obj = client.V1Deployment(metadata=client.V1ObjectMeta(labels={"own": "label"}), spec=spec)
        bare = client.V1Pod()
        adopt([obj, bare], OWNER, nested="spec.template")
        for metadata in (obj.metadata, bare.metadata):
            assert isinstance(metadata.owner_references[0], client.V1OwnerReference)
            assert metadata.owner_references[0].to_dict() == {
                name: REFERENCE[field] for name, field in client.V1OwnerReference.attribute_map.items()
            }
            assert metadata.namespace == "default"
            assert metadata.generate_name == "kopf-example-1-"
            assert metadata.name is None
        assert obj.metadata.labels == {"own": "label", "somelabel": "somevalue"}
        assert obj.spec.template.metadata.labels == {"somelabel": "somevalue"}
        disown([obj, bare], OWNER, nested="spec.template")
        assert obj.metadata.labels == {"own": "label"}
        assert not bare.metadata.labels
        assert not obj.metadata.owner_references
        assert not obj.spec.template.metadata.labels

    @pytest.mark.parametrize("package", ["kubernetes", "kubernetes_asyncio"])
    def test_kubernetes_models_are_owners(self, package: str) -> None:
        client = pytest.importorskip(f"{package}.client")
        metadata = client.V1ObjectMeta(**OWNER["metadata"])
        obj: dict[str, Any] = {}
        adopt(obj, client.V1Pod(api_version="kopf.dev/v1", kind="KopfExample", metadata=metadata), strict=True)
        assert obj["metadata"]["ownerReferences"] == [REFERENCE]
        assert obj["metadata"]["labels"] == {"somelabel": "somevalue"}

    def test_lightkube_models_are_changed(self) -> None:
        resources = pytest.importorskip("lightkube.resources.core_v1")
        meta = importlib.import_module("lightkube.models.meta_v1")
        generic = importlib.import_module("lightkube.generic_resource")
        mine = generic.create_namespaced_resource("kopf.dev", "v1", "Mine", "mines")
        objs = [resources.Pod(), resources.Pod(metadata=meta.ObjectMeta(name="kept")), mine(metadata=meta.ObjectMeta())]
        adopt(objs, OWNER, strict=True)
        assert [obj.metadata.name for obj in objs] == ["kopf-example-1", "kept", "kopf-example-1"]
        for obj in objs:
            assert [ref.to_dict() for ref in obj.metadata.ownerReferences] == [REFERENCE]
            assert obj.metadata.labels == {"somelabel": "somevalue"}
        child: dict[str, Any] = {}
        append_owner_reference(child, resources.Pod.from_dict(OWNER))
        assert child["metadata"]["ownerReferences"] == [REFERENCE | {"apiVersion": "v1", "kind": "Pod"}]

    def test_kr8s_objects_are_changed(self) -> None:
        objects = pytest.importorskip("kr8s.asyncio.objects")
        pod = objects.Pod({"metadata": {"name": "kept"}})
        adopt(pod, OWNER)
        assert pod.raw["metadata"]["ownerReferences"] == [REFERENCE]
        assert pod.raw["metadata"]["name"] == "kept"
        assert pod.labels == {"somelabel": "somevalue"}
