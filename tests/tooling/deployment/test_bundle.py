"""Tests for :mod:`trioperator._tooling.deployment.bundle`: the rules of OLM's validators, one by one."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import trioperator
from tests.runtime.conftest import CRD
from trioperator._model.resource import Resource
from trioperator._model.rights import Rule
from trioperator._tooling.deployment.base import OperatorParts
from trioperator._tooling.deployment.bundle import BundleOptions, make_annotations, make_bundle, make_dockerfile
from trioperator._tooling.deployment.options import DeploymentOptions
from trioperator._tooling.permissions import Permissions
from trioperator.errors import ConfigError

OPTIONS = DeploymentOptions(name="it", namespace="it", image="registry.example.com/it:1", files=("app.py",))
BUNDLE = BundleOptions(version="1.2.3")
WIDGETS = Resource("example.com", "v1", "widgets", "Widget", "widget", namespaced=True)
WATCHING = Rule("example.com", "widgets", frozenset({"list", "watch"}))
EVENTS = Rule("", "events", frozenset({"create", "patch"}))
SCANNING = Rule("apiextensions.k8s.io", "customresourcedefinitions", frozenset({"list", "watch"}))
PERMISSIONS = Permissions((SCANNING,), {"it": (WATCHING, EVENTS), "default": (EVENTS,)})
EXAMPLE = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one"}}


def make_parts(*, converts: bool = False, validates: bool = False) -> OperatorParts:
    registry = trioperator.OperatorRegistry()

    async def handle(**_: Any) -> None:
        pass

    if validates:
        options: dict[str, Any] = {"timeout": 5, "namespace_selector": {"matchLabels": {"a": "b"}}}
        trioperator.on.validate("widgets", id="Check/It", registry=registry, **options)(handle)
        trioperator.on.mutate("widgets", id="change", registry=registry)(handle)
    if converts:
        trioperator.on.convert("widgets", from_="v1", to="v2", registry=registry)(handle)
    return OperatorParts(
        permissions=PERMISSIONS,
        definitions=[CRD],
        resources=[WIDGETS],
        admission=registry.admission_handlers(),
        conversion=registry.conversion_handlers(),
    )


def make(
    parts: OperatorParts | None = None, *, options: DeploymentOptions = OPTIONS, bundle: BundleOptions = BUNDLE
) -> dict[str, Any]:
    return make_bundle(options, bundle, parts or make_parts(), examples=[EXAMPLE])


def make_service_version(parts: OperatorParts | None = None, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = make(parts, **options)["manifests/it.clusterserviceversion.yaml"]
    return found


def test_the_name_has_the_package_and_the_version() -> None:
    bundle = BundleOptions(version="1.2.3-RC.1+x", replaces="1.2.2")
    service_version = make_service_version(bundle=bundle)
    assert service_version["metadata"]["name"] == "it.v1.2.3-rc.1-x"
    assert service_version["spec"]["version"] == "1.2.3-RC.1+x"
    assert service_version["spec"]["replaces"] == "it.v1.2.2"
    with pytest.raises(ConfigError, match="too long"):
        make_service_version(bundle=BundleOptions(version=f"1.2.3-{'x' * 60}"))


def test_all_crds_of_the_bundle_are_owned_and_owned_ones_are_in_it() -> None:
    definition = copy.deepcopy(CRD)
    old = {**definition["spec"]["versions"][0], "name": "v0", "served": False, "storage": False}
    new = {**definition["spec"]["versions"][0], "name": "v2", "storage": False}
    definition["spec"]["versions"] += [old, new]
    parts = OperatorParts(permissions=PERMISSIONS, definitions=[definition])
    bundle = make(parts)
    assert bundle["manifests/example.com_widgets.yaml"] == definition
    owned = bundle["manifests/it.clusterserviceversion.yaml"]["spec"]["customresourcedefinitions"]["owned"]
    assert [(each["name"], each["version"], each["kind"]) for each in owned] == [
        ("widgets.example.com", "v1", "Widget"),
        ("widgets.example.com", "v2", "Widget"),
    ]
    assert all(each["displayName"] and each["description"] for each in owned)


def test_examples_are_json() -> None:
    annotations = make_service_version()["metadata"]["annotations"]
    assert json.loads(annotations["alm-examples"]) == [EXAMPLE]
    assert annotations["capabilities"] == "Basic Install"
    assert annotations["containerImage"] == "registry.example.com/it:1"


def test_mandatory_fields_are_set() -> None:
    spec = make_service_version()["spec"]
    assert (spec["displayName"], spec["provider"], spec["minKubeVersion"]) == ("it", {"name": "it"}, "1.25.0")
    assert spec["description"]
    named = BundleOptions(version="1.2.3", display_name="It", description="Does it.", provider="We")
    spec = make_service_version(bundle=named)["spec"]
    assert (spec["displayName"], spec["description"], spec["provider"]) == ("It", "Does it.", {"name": "We"})


@pytest.mark.parametrize("converts", [False, True])
def test_conversions_are_for_all_namespaces_only(converts: bool) -> None:
    spec = make_service_version(make_parts(converts=converts))["spec"]
    modes = {mode["type"]: mode["supported"] for mode in spec["installModes"]}
    assert modes == {
        "OwnNamespace": not converts,
        "SingleNamespace": not converts,
        "MultiNamespace": False,
        "AllNamespaces": True,
    }
    webhooks = spec.get("webhookdefinitions", [])
    assert [webhook["conversionCRDs"] for webhook in webhooks] == [["widgets.example.com"]] * converts
    assert [webhook["webhookPath"] for webhook in webhooks] == ["/convert"] * converts


def test_the_operator_handles_the_namespaces_that_it_is_installed_for() -> None:
    install = make_service_version()["spec"]["install"]
    assert install["strategy"] == "deployment"
    [deployment] = install["spec"]["deployments"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == "app.py"
    assert not any(argument.startswith(("--all-namespaces", "--namespace")) for argument in container["args"])
    env = {each["name"]: each for each in container["env"]}
    source = env["TRIOPERATOR_RUN_NAMESPACES"]["valueFrom"]
    assert source == {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}}


def test_rights_in_these_namespaces_are_told_from_those_in_the_cluster() -> None:
    spec = make_service_version()["spec"]["install"]["spec"]
    [namespaced], [cluster] = spec["permissions"], spec["clusterPermissions"]
    account = spec["deployments"][0]["spec"]["template"]["spec"]["serviceAccountName"]
    assert namespaced["serviceAccountName"] == cluster["serviceAccountName"] == account
    assert [rule["resources"] for rule in namespaced["rules"]] == [["widgets"], ["events"]]
    # The events of cluster-scoped objects are in the namespace `default`.
    assert [rule["resources"] for rule in cluster["rules"]] == [["customresourcedefinitions"], ["events"]]


def test_there_is_no_account_and_no_namespace_in_the_bundle() -> None:
    options = DeploymentOptions(name="it", namespace="it", replicas=2, leader_elect=True, prometheus="monitoring")
    bundle = make(options=options)
    assert {content["kind"] for content in bundle.values()} == {
        "ClusterServiceVersion",
        "CustomResourceDefinition",
        "PodDisruptionBudget",
        "Service",
        "ServiceMonitor",
    }
    assert not any("namespace" in content["metadata"] for content in bundle.values())


def test_webhooks_are_described_as_olm_needs_them() -> None:
    spec = make_service_version(make_parts(validates=True))["spec"]
    validating, mutating = spec["webhookdefinitions"]
    assert validating == {
        "generateName": "check.it.it.it",
        "type": "ValidatingAdmissionWebhook",
        "deploymentName": "it",
        "containerPort": 443,
        "targetPort": 9443,
        "webhookPath": "/check.it",
        "rules": [
            {
                "apiGroups": ["example.com"],
                "apiVersions": ["v1"],
                "resources": ["widgets"],
                "operations": ["*"],
                "scope": "*",
            }
        ],
        "admissionReviewVersions": ["v1", "v1beta1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "objectSelector": {},
        "timeoutSeconds": 5,
    }
    assert (mutating["type"], mutating["reinvocationPolicy"]) == ("MutatingAdmissionWebhook", "Never")
    [deployment] = spec["install"]["spec"]["deployments"]
    assert deployment["name"] == validating["deploymentName"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "CERTIFICATES", "value": "/tmp/k8s-webhook-server/serving-certs"} in container["env"]
    assert validating["targetPort"] in [port["containerPort"] for port in container["ports"]]


def test_the_image_has_the_annotations_as_labels() -> None:
    annotations = make_annotations(OPTIONS, BundleOptions(version="1.2.3", channels=("stable", "candidate")))
    prefix = "operators.operatorframework.io.bundle"
    assert annotations == {
        f"{prefix}.mediatype.v1": "registry+v1",
        f"{prefix}.manifests.v1": "manifests/",
        f"{prefix}.metadata.v1": "metadata/",
        f"{prefix}.package.v1": "it",
        f"{prefix}.channels.v1": "stable,candidate",
        f"{prefix}.channel.default.v1": "stable",
    }
    lines = make_dockerfile(annotations).splitlines()
    assert lines[0] == "FROM scratch"
    assert [line for line in lines if line.startswith("LABEL")] == [f"LABEL {k}={v}" for k, v in annotations.items()]
    assert lines[-2:] == ["COPY manifests /manifests/", "COPY metadata /metadata/"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": "1.2"}, "The version '1.2' is invalid"),
        ({"version": "v1.2.3"}, "The version 'v1.2.3' is invalid"),
        ({"version": "1.2.3", "replaces": "x"}, "The version 'x' is invalid"),
        ({"version": "1.2.3", "min_kube_version": "1.25"}, "The version '1.25' is invalid"),
        ({"version": "1.2.3", "channels": ("A",)}, "The channel 'A' is invalid"),
        ({"version": "1.2.3", "channels": ()}, "The channel '' is invalid"),
    ],
)
def test_wrong_options_are_explained(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BundleOptions(**options)
