"""Tests for :mod:`trioperator.cli.deployment`: the command that makes a kustomize base."""

from __future__ import annotations

import importlib.util
import logging
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import trio
import trio.testing
import yaml
from typer.testing import CliRunner, Result

import trioperator
from tests.runtime.conftest import CRD, PLAIN_CRD
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.apiserver.model.user import ANONYMOUS
from trioperator.cli.failures import USAGE_ERROR
from trioperator.cli.root import app as command

Invoke: TypeAlias = Callable[..., Result]

APP = """
import trioperator

handled = []

@trioperator.on.create("widgets")
@trioperator.on.delete("widgets")
async def handle(name, reason, patch, **_):
    handled.append(str(reason))
    patch.status["seen"] = name
"""

WEBHOOKS = """
import trioperator

@trioperator.on.validate("widgets")
@trioperator.on.convert("widgets", from_="v1", to="v2")
async def handle(**_): ...
"""


TYPED = """
import msgspec
import trioperator
from trioperator import crds

@crds.kind("example.com/v1")
class Gadget(msgspec.Struct):
    spec: dict[str, str]

@trioperator.on.create(Gadget)
async def create(**_): ...
"""


@pytest.fixture
def invoke(restored_modules: None, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[Invoke]:
    """Return a function that runs the command in this process, in the directory of the files."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "hooks.py").write_text(WEBHOOKS)
    (tmp_path / "crds.yaml").write_text(yaml.safe_dump(CRD))
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(PLAIN_CRD))
    monkeypatch.chdir(tmp_path)
    registry, handlers = trioperator.get_default_registry(), logging.root.handlers[:]

    def invoke(*args: str) -> Result:
        trioperator.set_default_registry(trioperator.OperatorRegistry())
        return CliRunner().invoke(command, ["manifests", *args])

    yield invoke
    trioperator.set_default_registry(registry)
    logging.root.handlers[:] = handlers


def load(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.stdout))


def test_the_manifests_are_printed_in_the_order_of_applying(invoke: Invoke) -> None:
    objects = load(invoke("app.py", "--crds=crds.yaml", "--image=registry.example.com/it:1", "--name=it"))
    assert [each["kind"] for each in objects] == [
        "Namespace",
        "CustomResourceDefinition",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "NetworkPolicy",
        "Deployment",
    ]
    assert objects[1] == CRD
    [container] = objects[-1]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/it:1"
    assert objects[0]["metadata"]["name"] == objects[-1]["metadata"]["namespace"] == "it"


def test_kinds_that_classes_declare_are_among_the_crds(invoke: Invoke, tmp_path: pathlib.Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    objects = load(invoke("typed.py"))
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "CustomResourceDefinition"] == [
        "gadgets.example.com"
    ]
    [role] = [each for each in objects if each["kind"] == "ClusterRole"]
    assert any("gadgets" in rule["resources"] for rule in role["rules"])
    other = CliRunner().invoke(command, ["crds", "typed.py"]).stdout
    (tmp_path / "given.yaml").write_text(other)
    kinds = [each["kind"] for each in load(invoke("typed.py", "--other-crds=given.yaml"))]
    assert "CustomResourceDefinition" not in kinds


def test_a_base_is_written_and_the_same_the_next_time(invoke: Invoke, tmp_path: pathlib.Path) -> None:
    options = ("hooks.py", "--crds=crds.yaml", "--replicas=2", "--leader-elect", "--metrics", "-o", "base")
    first = invoke(*options)
    assert first.exit_code == 0
    assert "11 of 11 files in base have changed: kustomization.yaml, namespace.yaml, crds.yaml" in first.stderr
    files = {path.name: path.read_bytes() for path in (tmp_path / "base").iterdir()}
    resources = yaml.safe_load(files["kustomization.yaml"])["resources"]
    assert sorted([*resources, "kustomization.yaml"]) == sorted(files)
    assert len(files) == 11
    again = invoke(*options)
    assert "0 of 11 files in base have changed." in again.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "base").iterdir()} == files


def test_metrics_without_the_prometheus_operator_are_a_service_with_annotations(invoke: Invoke) -> None:
    objects = load(invoke("app.py", "--crds=crds.yaml", "--metrics", "--no-service-monitor"))
    assert "ServiceMonitor" not in {each["kind"] for each in objects}
    [service] = [each for each in objects if each["kind"] == "Service"]
    assert service["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "8080",
        "prometheus.io/path": "/metrics",
    }


def test_alerts_without_the_prometheus_operator_are_a_file_that_is_not_applied(
    invoke: Invoke, tmp_path: pathlib.Path
) -> None:
    options = ("app.py", "--crds=crds.yaml", "--metrics", "--alerts")
    assert "PrometheusRule" in {each["kind"] for each in load(invoke(*options))}
    assert invoke(*options, "--no-service-monitor").exit_code == 2
    assert invoke(*options, "--no-service-monitor", "--output=base").exit_code == 0
    [group] = yaml.safe_load((tmp_path / "base" / "alerts.rules.yaml").read_text())["groups"]
    assert group["name"] == "trioperator"
    assert "alerts" not in (tmp_path / "base" / "kustomization.yaml").read_text()


def test_definitions_are_printed_as_they_are_written(invoke: Invoke, tmp_path: pathlib.Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    assert invoke("typed.py", "-o", "base").exit_code == 0
    printed = CliRunner().invoke(command, ["crds", "typed.py"])
    assert printed.stdout == (tmp_path / "base" / "crds.yaml").read_text()


def test_changed_files_are_kept_without_force(invoke: Invoke, tmp_path: pathlib.Path) -> None:
    options = ("app.py", "--crds=crds.yaml", "-o", "base")
    assert invoke(*options, "--replicas=2", "--leader-elect").exit_code == 0
    (tmp_path / "base" / "rbac.yaml").write_text("# mine\n")
    refused = invoke(*options)
    assert refused.exit_code == USAGE_ERROR
    assert "rbac.yaml" in refused.stderr
    assert (tmp_path / "base" / "rbac.yaml").read_text() == "# mine\n"
    forced = invoke(*options, "--force")
    assert forced.exit_code == 0
    assert "base/poddisruptionbudget.yaml is no longer part of the base: delete it." in forced.stderr
    assert yaml.safe_load((tmp_path / "base" / "deployment.yaml").read_text())["spec"]["replicas"] == 1


def test_kinds_of_others_are_known_but_not_included(invoke: Invoke, tmp_path: pathlib.Path) -> None:
    (tmp_path / "app.py").write_text(APP.replace("widgets", "gadgets"))
    assert "The group and the plural of the resource gadgets are not known" in invoke("app.py").stderr
    objects = load(invoke("app.py", "--other-crds=other.yaml"))
    assert "CustomResourceDefinition" not in {each["kind"] for each in objects}
    [role] = [each for each in objects if each["kind"] == "ClusterRole"]
    assert {"apiGroups": ["example.com"], "resources": ["gadgets"], "verbs": ["get", "list", "watch", "patch"]} in role[
        "rules"
    ]


def test_webhooks_are_registered_in_the_manifests_or_by_the_operator(invoke: Invoke) -> None:
    options = ("hooks.py", "--crds=crds.yaml")
    own = {each["kind"]: each for each in load(invoke(*options))}
    assert own["CustomResourceDefinition"]["spec"]["conversion"]["strategy"] == "Webhook"
    assert own["ValidatingWebhookConfiguration"]["webhooks"][0]["name"] == "handle.trioperator.trioperator"
    assert "admissionregistration.k8s.io" not in str(own["ClusterRole"])
    managed = {
        each["kind"]: each
        for each in load(
            invoke(
                *options, "--managed=x.y", "--managed-conversions", "--ca-secret=trioperator/ca", "--pod-namespace=n"
            )
        )
    }
    assert managed["CustomResourceDefinition"]["metadata"] == CRD["metadata"]
    service = managed["CustomResourceDefinition"]["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
    assert service["port"] == 9443
    assert not managed.keys() & {"ValidatingWebhookConfiguration", "Certificate", "Issuer"}
    assert {"Service", "Role"} <= managed.keys()
    assert "x.y" in str(managed["ClusterRole"])


@pytest.mark.parametrize(
    ("persistent", "options", "warning"),
    [
        ("", [], "Webhook 'check' is removed from the managed configuration when the operator stops"),
        ("persistent=True", [], ""),
        ("persistent=False", [], ""),
        ("", ["--leader-elect", "--replicas=2"], ""),
        ("", ["--shards=2", "--replicas=2"], ""),
    ],
)
def test_webhooks_that_do_not_outlive_restarts_are_warned_of(
    invoke: Invoke, tmp_path: pathlib.Path, persistent: str, options: list[str], warning: str
) -> None:
    source = f"import trioperator\n\n@trioperator.on.validate('widgets', {persistent})\ndef check(**_): pass\n"
    (tmp_path / "app.py").write_text(source)
    result = invoke("app.py", "--crds=crds.yaml", "--managed=hooks.example.com", *options)
    assert result.exit_code == 0
    assert warning in result.stderr
    assert bool(warning) is ("Webhook" in result.stderr)
    assert "Webhook" not in invoke("app.py", "--crds=crds.yaml", *options).stderr  # they are in the manifests then


@pytest.mark.parametrize("options", [["--leader-elect"], ["--leader-elect", "--replicas=2"], ["--shards=2"]])
def test_deployments_in_which_a_replica_removes_the_webhooks_of_all_are_refused(
    invoke: Invoke, tmp_path: pathlib.Path, options: list[str]
) -> None:
    handlers = "".join(
        f"@trioperator.on.validate('widgets', persistent=False)\ndef check_{name}(**_): pass\n" for name in "ab"
    )
    (tmp_path / "app.py").write_text(f"import trioperator\n\n{handlers}")
    result = invoke("app.py", "--crds=crds.yaml", "--managed=hooks.example.com", "-o", "deploy", *options)
    assert result.exit_code == USAGE_ERROR
    for name in "ab":  # all of them are named at once
        assert f"Webhook 'check_{name}' has persistent=False: each replica that stops removes it" in result.stderr
    assert "Leave the option out" in result.stderr
    assert not (tmp_path / "deploy").exists()
    assert invoke("app.py", "--crds=crds.yaml", *options).exit_code == 0  # nothing is removed: they are manifests


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (["admission.managed = 'hooks.example.com'"], ["--leader-elect"]),
        (["leadership.enabled = True"], ["--managed=hooks.example.com"]),
        (["admission.managed = 'hooks.example.com'", "leadership.shards = 2"], []),
    ],
)
def test_deployments_are_refused_by_the_settings_that_an_operator_assigns_too(
    invoke: Invoke, tmp_path: pathlib.Path, settings: list[str], options: list[str]
) -> None:
    lines = "".join(f"    settings.{line}\n" for line in settings)
    handlers = "@trioperator.on.validate('widgets', persistent=False)\ndef check(**_): pass\n"
    startup = f"@trioperator.on.startup()\ndef configure(settings, **_):\n{lines}"
    (tmp_path / "app.py").write_text(f"import trioperator\n\n{startup}\n{handlers}")
    result = invoke("app.py", "--crds=crds.yaml", *options)
    assert result.exit_code == USAGE_ERROR
    assert "Webhook 'check' has persistent=False: each replica that stops removes it" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "pass files or modules"),
        (["app.py", "-A", "-na"], "not both"),
        (["app.py", "--force"], "it requires -o"),
        (["app.py", "--ca-secret=a/b"], "it requires --managed"),
        (["app.py", "--replicas=2"], "pass --leader-elect or --shards"),
        (["app.py", "--name=It"], "The name 'It' is invalid"),
        (["app.py", "--rule=get"], "it must be VERBS:KINDS"),
        (["app.py", "--crds=missing.yaml"], "Cannot read the manifests in missing.yaml"),
        (["app.py", "--crds=app.py"], "not valid YAML"),
        (["app.py", "--crds=kind.yaml"], "Secret it (document 1 of kind.yaml) is not a CustomResourceDefinition"),
        (["missing.py"], "Cannot read the file missing.py"),
    ],
)
def test_wrong_input_is_explained(invoke: Invoke, tmp_path: pathlib.Path, options: list[str], message: str) -> None:
    (tmp_path / "kind.yaml").write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: it}\n")
    result = invoke(*options)
    assert result.exit_code == USAGE_ERROR
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("scope", ["--all-namespaces", "--namespace=def*", "--namespace=default"])
async def test_the_operator_does_nothing_that_its_manifests_forbid(
    invoke: Invoke,
    scope: str,
    tmp_path: pathlib.Path,
    autojump_clock: trio.testing.MockClock,
) -> None:
    objects = load(await trio.to_thread.run_sync(invoke, "app.py", "--crds=crds.yaml", scope, "--leader-elect"))
    cluster = Cluster(clock=wall_now, seed=0, authorization="rbac")
    await cluster.apply(objects)
    robot = "system:serviceaccount:trioperator:trioperator"
    async with cluster.client() as client:
        path = "/api/v1/namespaces/trioperator/serviceaccounts/trioperator/token"
        token = (await client.post(path, json={"spec": {"expirationSeconds": 7200}})).json()["status"]["token"]
    settings = trioperator.OperatorSettings()
    settings.leadership.enabled, settings.leadership.namespace = True, "trioperator"
    registry = trioperator.OperatorRegistry()
    handled = await trio.to_thread.run_sync(load_handlers, tmp_path / "app.py", registry)
    patterns = [value for name, _, value in [scope.partition("=")] if value]
    async with trio.open_nursery() as nursery:

        async def operate() -> None:
            await trioperator.operator(
                registry=registry,
                settings=settings,
                standalone=True,
                namespaces=patterns,
                clusterwide=not patterns,
                transport=cluster.transport(user=ANONYMOUS),
                connection=trioperator.ConnectionInfo(server="http://cluster", token=token),
            )

        nursery.start_soon(operate)
        await trio.sleep(30)
        await cluster.apply(
            {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one", "namespace": "default"}}
        )
        await trio.sleep(10)
        assert (await cluster.get("widgets", "one"))["status"]["seen"] == "one"
        await cluster.delete("widgets", "one")
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert handled == ["create", "delete"]
    assert cluster.requests.select(user=robot, status=403) == []
    assert cluster.requests.select(user=robot, verb="update", status=200)  # the lease


def load_handlers(file: pathlib.Path, registry: trioperator.OperatorRegistry) -> list[str]:
    """Import a file, with its handlers in the registry; return the list of what is handled."""
    trioperator.set_default_registry(registry)
    spec = importlib.util.spec_from_file_location("app_of_manifests", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handled: list[str] = module.handled
    return handled
