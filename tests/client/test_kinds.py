"""Tests for :mod:`trioperator.client.kinds`."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator._model.body import Body
from trioperator._model.custom_kind import KindInfo, set_kind
from trioperator._model.resource import Resource, Selector
from trioperator.client.kinds import TargetName, parse_kind, parse_target, to_dict

DEPLOYMENTS = Resource(
    "apps", "v1", "deployments", kind="Deployment", singular="deployment", shortcuts=frozenset({"deploy"})
)


class Kr8sLike:
    """As the classes of kr8s and pykube."""

    version = "apps/v1"
    kind = "Deployment"


class ModelLike:
    """As models with the fields of manifests."""

    apiVersion = "apps/v1"  # noqa: N815 -- as in manifests
    kind = "Deployment"


class LightkubeLike:
    """As the resources of lightkube."""

    class _api_info:
        class resource:
            group, version, kind = "apps", "v1", "Deployment"


class Declared:
    """As the classes that declare kinds."""


set_kind(Declared, KindInfo(group="apps", version="v1", kind="Deployment", plural="deployments", singular="deployment"))


class V1Deployment:
    """As the models of the generated clients, which have their names only."""


@pytest.mark.parametrize(
    "args",
    [
        ("deployments",),
        ("deploy",),
        ("Deployment",),
        ("deployments.apps",),
        ("deployments.v1.apps",),
        ("apps/v1", "Deployment"),
        ("apps", "v1", "deployments"),
        (Kr8sLike,),
        (ModelLike,),
        (LightkubeLike,),
        (Declared,),
        (V1Deployment,),
    ],
    ids=str,
)
def test_a_kind_has_many_names(args: tuple[object, ...]) -> None:
    kind = parse_kind(args)
    assert isinstance(kind, Selector)
    assert kind.matches(DEPLOYMENTS)
    assert parse_target((*args, "web")) == TargetName(kind, "web", None)


def test_a_resource_is_a_kind() -> None:
    assert parse_kind((DEPLOYMENTS,)) is DEPLOYMENTS


def is_pod(resource: Resource) -> bool:
    return resource.plural == "pods"


@pytest.mark.parametrize("args", [(), (1,), ("pods", None), (object,), (is_pod,), (Body({}),)])
def test_anything_else_names_no_kind(args: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match="does not name a kind"):
        parse_kind(args)


@pytest.mark.parametrize("args", [(), ("pods",), ("pods", ""), ("pods", 1), ({"kind": "Pod"},), (1,)], ids=repr)
def test_an_object_needs_a_kind_and_a_name(args: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        parse_target(args)


def test_objects_are_not_quoted_as_they_may_be_secret() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "data": {"password": "c2VjcmV0"}}
    for args in ((secret, {"data": {"password": "c2VjcmV0"}}), ("secrets", "x", secret)):
        for parse in (parse_kind, parse_target):
            with pytest.raises(TypeError, match="a dict") as caught:
                parse(args)
            assert "c2VjcmV0" not in str(caught.value)


def test_an_object_names_itself() -> None:
    metadata = {"name": "web", "namespace": "prod"}
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
    for obj in (manifest, Body(manifest)):
        assert parse_target((obj,)) == TargetName(Selector.parse("apps/v1", "Deployment"), "web", "prod", None)
    metadata["uid"] = "1234"
    assert parse_target((manifest,)).uid == "1234"


def test_what_is_sent_is_a_copy() -> None:
    manifest: dict[str, Any] = {"metadata": {"name": "x"}, "items": [{"a": 1}]}
    copied = to_dict(Body(manifest))
    assert copied == manifest
    copied["metadata"]["name"] = copied["items"][0]["a"] = "changed"
    assert manifest == {"metadata": {"name": "x"}, "items": [{"a": 1}]}


def test_what_cannot_be_sent_is_an_error() -> None:
    with pytest.raises(TypeError, match="object is not a Kubernetes object"):
        to_dict(object())
