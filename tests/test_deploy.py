"""The manifests for deployment, tried: an operator with the rights of its service account, and with one less."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
import trio
import yaml
from typer.testing import CliRunner

import trioperator
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.apiserver.model.user import ANONYMOUS
from trioperator.cli.root import app as command

ROOT = pathlib.Path(__file__).parents[1]
# Folders in deploy/, with the options and the files of `trioperator manifests` that make the same.
OVERLAYS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "overlays/cluster-wide": ((), ("main.py",)),
    "overlays/namespaced": (("-ntrioperator",), ("main.py",)),
    "overlays/ha": (("--replicas=2", "--leader-elect"), ("main.py",)),
    "overlays/webhooks": ((), ("main.py", "webhooks.py")),
    "monitoring": (("--metrics", "--alerts"), ("main.py",)),
}
ROBOT = "system:serviceaccount:trioperator:trioperator"
EXAMPLE = {
    "apiVersion": "kopf.dev/v1",
    "kind": "KopfExample",
    "metadata": {"name": "one", "namespace": "default"},
    "spec": {"field": "value"},
}


def manifests() -> list[dict[str, Any]]:
    names = ("namespace", "crds", "serviceaccount", "rbac")
    return [obj for name in names for obj in yaml.safe_load_all((ROOT / f"deploy/base/{name}.yaml").read_text())]


class Deployment:
    """Run an operator as the service account of the deployment."""

    def __init__(self, cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
        self.cluster = cluster
        self.registry = trioperator.OperatorRegistry()
        self.settings = trioperator.OperatorSettings()
        self.namespaces: list[str] = []
        self._caplog = caplog

    async def token(self) -> str:
        async with self.cluster.client() as client:
            path = "/api/v1/namespaces/trioperator/serviceaccounts/trioperator/token"
            response = await client.post(path, json={"spec": {"expirationSeconds": 7200}})
            return str(response.json()["status"]["token"])

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await trioperator.operator(
            registry=self.registry,
            settings=self.settings,
            namespaces=self.namespaces,
            clusterwide=not self.namespaces,
            transport=self.cluster.transport(user=ANONYMOUS),
            connection=trioperator.ConnectionInfo(server="http://cluster", token=await self.token()),
            task_status=task_status,
        )

    async def take_away(self, resource: str, verb: str) -> None:
        """Take one verb for one resource out of the rules."""
        role = await self.cluster.get("clusterroles", "trioperator")
        for rule in role["rules"]:
            if rule["resources"] == [resource]:
                rule["verbs"].remove(verb)
        await self.cluster.replace({**role, "rules": [rule for rule in role["rules"] if rule["verbs"]]})

    async def restrict(self) -> None:
        """Run with ``-n``, for which one more rule is needed."""
        self.namespaces = ["def*"]
        role = await self.cluster.get("clusterroles", "trioperator")
        rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}
        await self.cluster.replace({**role, "rules": [*role["rules"], rule]})

    def forbidden(self) -> list[tuple[str, str]]:
        """Return what the service account was not allowed: verbs and resources."""
        records = self.cluster.requests.select(user=ROBOT, status=403)
        return sorted({(record.verb, f"{record.resource}/{record.subresource}".rstrip("/")) for record in records})

    def said(self, text: str) -> list[str]:
        """Return the warnings and errors in which the text is."""
        records = [record for record in self._caplog.records if record.levelno >= logging.WARNING]
        return [record.getMessage() for record in records if text in record.getMessage()]


@pytest.fixture
async def deployment(caplog: pytest.LogCaptureFixture) -> Deployment:
    cluster = Cluster(clock=wall_now, seed=0, authorization="rbac")
    await cluster.apply(manifests())
    return Deployment(cluster, caplog)


async def live(deployment: Deployment, *, pause: float = 10) -> list[str]:
    """Create, change and delete an object while the operator runs, and *pause* after each; return what was handled."""
    handled: list[str] = []

    @trioperator.on.create("kopf.dev", "v1", "kopfexamples", registry=deployment.registry)
    @trioperator.on.update("kopf.dev", "v1", "kopfexamples", registry=deployment.registry)
    @trioperator.on.delete("kopf.dev", "v1", "kopfexamples", registry=deployment.registry)
    async def handle(reason: str, body: trioperator.Body) -> str | None:
        handled.append(str(reason))
        trioperator.info(body, reason="Handled", message="The same again.")
        if reason != "delete":
            return str(reason)
        # Somebody changes the object at the same time, and it has to be looked at again.
        await deployment.cluster.patch("kex", "one", {"metadata": {"labels": {"in": "between"}}})
        return None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(deployment.run)
        await trio.sleep(30)
        await deployment.cluster.apply(EXAMPLE)
        await trio.sleep(pause)
        await deployment.cluster.patch("kex", "one", {"spec": {"field": "other"}})
        await trio.sleep(pause)
        await deployment.cluster.delete("kex", "one")
        await trio.sleep(pause)
        nursery.cancel_scope.cancel(reason="it has been seen enough")
    return handled


async def test_the_deployment_has_all_rights_that_it_needs(
    deployment: Deployment, autojump_clock: trio.testing.MockClock
) -> None:
    assert await live(deployment) == ["create", "update", "delete"]
    assert await deployment.cluster.list("kex") == []
    assert deployment.forbidden() == []
    assert {record.user for record in deployment.cluster.requests} == {"kubernetes-admin", ROBOT}
    assert deployment.said("") == []


@pytest.mark.parametrize(
    ("resource", "verb", "handled"),
    [
        ("kopfexamples", "list", []),
        ("kopfexamples", "watch", ["create", "update", "delete"]),
        ("kopfexamples", "patch", []),
        ("kopfexamples", "get", ["create", "update", "delete"]),
        ("kopfexamples/status", "patch", ["create", "delete"]),
        ("namespaces", "list", []),
        ("namespaces", "watch", ["create", "update", "delete"]),
        ("events", "create", ["create", "update", "delete"]),
        ("events", "patch", ["create", "update", "delete"]),
        ("customresourcedefinitions", "list", ["create", "update", "delete"]),
        ("customresourcedefinitions", "watch", ["create", "update", "delete"]),
    ],
)
async def test_a_missing_permission_is_logged(
    deployment: Deployment, autojump_clock: trio.testing.MockClock, resource: str, verb: str, handled: list[str]
) -> None:
    if resource == "namespaces":
        await deployment.restrict()
    await deployment.take_away(resource, verb)
    pause = (
        60 if (resource, verb) == ("kopfexamples", "watch") else 10
    )  # lists in place of watches are half a minute apart
    assert list(dict.fromkeys(await live(deployment, pause=pause))) == handled
    plural, _, subresource = resource.partition("/")
    group = {"events": "", "namespaces": "", "customresourcedefinitions": "apiextensions.k8s.io"}.get(
        plural, "kopf.dev"
    )
    shown = f"{plural}.{group}" if group else plural
    assert deployment.forbidden() == [(verb, f"{shown}/{subresource}" if subresource else shown)]
    assert deployment.said(f'User "{ROBOT}" cannot {verb} resource "{resource}" in API group "{group}"')


async def test_an_operator_without_any_permission_logs_that(
    deployment: Deployment, autojump_clock: trio.testing.MockClock
) -> None:
    await deployment.cluster.delete("clusterrolebindings", "trioperator")
    assert await live(deployment) == []
    assert deployment.said(f'User "{ROBOT}" cannot list resource "customresourcedefinitions"')


async def test_an_operator_for_some_namespaces_needs_one_more_rule(
    deployment: Deployment, autojump_clock: trio.testing.MockClock
) -> None:
    await deployment.restrict()
    assert await live(deployment) == ["create", "update", "delete"]
    assert deployment.forbidden() == []
    assert deployment.said("") == []


# The pod.


def read_manifest(name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "base" / f"{name}.yaml").read_text())
    return manifest


async def test_all_manifests_are_accepted_as_they_are() -> None:
    cluster = Cluster(clock=wall_now, seed=0)
    names = read_manifest("kustomization")["resources"]
    assert sorted(names) == sorted(
        path.name for path in (ROOT / "deploy" / "base").iterdir() if path.name != "kustomization.yaml"
    )
    async with cluster.client() as client:
        for name in names:
            for manifest in yaml.safe_load_all((ROOT / "deploy" / "base" / name).read_text()):
                await cluster.apply(manifest)
        response = await client.get("/apis/apps/v1/namespaces/trioperator/deployments/trioperator")
    assert response.json()["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"]


def test_nothing_in_the_cluster_may_connect_to_the_pod() -> None:
    policy = read_manifest("networkpolicy")["spec"]
    pod = read_manifest("deployment")["spec"]["template"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress"]
    assert "ingress" not in policy


def make_manifests(*options: str, files: Sequence[str] = ("main.py",)) -> list[dict[str, Any]]:
    """Return what `trioperator manifests` prints for the operator of the image."""
    registry, handlers = trioperator.get_default_registry(), logging.root.handlers[:]
    path, modules = sys.path[:], set(sys.modules)
    trioperator.set_default_registry(trioperator.OperatorRegistry())
    try:
        with contextlib.chdir(ROOT / "deploy" / "operator"):
            result = CliRunner().invoke(command, ["manifests", *files, "--crds=../../examples/crd.yaml", *options])
    finally:
        trioperator.set_default_registry(registry)
        logging.root.handlers[:], sys.path[:] = handlers, path
        for name in sys.modules.keys() - modules:
            if name.startswith("__trioperator_script_"):
                del sys.modules[name]
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.stdout))


def sort(manifests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return manifests in an order that does not depend on who made them."""
    manifests = list(manifests)
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            [container] = manifest["spec"]["template"]["spec"]["containers"]
            container["ports"].sort(key=lambda port: port["name"])
        if manifest["kind"] in ("Role", "ClusterRole"):
            manifest["rules"].sort(key=str)
    return sorted(manifests, key=lambda manifest: (manifest["kind"], manifest["metadata"]["name"]))


def test_the_base_is_what_the_command_makes(tmp_path: pathlib.Path) -> None:
    make_manifests(f"--output={tmp_path}")
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    base = {path.name: path.read_text() for path in (ROOT / "deploy" / "base").iterdir()}
    how = "in deploy/operator, run `trioperator manifests main.py --crds ../../examples/crd.yaml -o ../base --force`"
    assert base == made, how


@pytest.mark.e2e  # kubectl has kustomize
@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_is_what_the_command_makes_with_options(name: str) -> None:
    options, files = OVERLAYS[name]
    kubectl = pathlib.Path(os.environ["KUBEBUILDER_ASSETS"], "kubectl")
    built = subprocess.run([kubectl, "kustomize", ROOT / "deploy" / name], capture_output=True, text=True, check=True)
    assert sort(yaml.safe_load_all(built.stdout)) == sort(make_manifests(*options, files=files))


# The chart.

CHART: dict[str, Sequence[str]] = {
    "overlays/cluster-wide": (),
    "overlays/namespaced": ("--set=namespaces={trioperator}",),
    "overlays/ha": ("--set=replicas=2,leaderElection=true",),
    "overlays/webhooks": ("--set=webhooks.enabled=true",),
    "monitoring": ("--set=metrics.enabled=true,alerts.enabled=true",),
}
HELM = shutil.which("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason="install helm")


def template(*options: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    chart = [HELM, "template", "trioperator", str(ROOT / "deploy/chart"), "--namespace=trioperator", "--include-crds"]
    version = "--kube-version=1.34"  # a helm that was built without its flags takes an old one
    return subprocess.run([*chart, version, *options], capture_output=True, text=True, check=False)


def test_the_values_of_the_chart_are_those_of_the_base() -> None:
    chart = ROOT / "deploy" / "chart"
    values = yaml.safe_load((chart / "values.yaml").read_text())
    assert (chart / "crds" / "crds.yaml").read_text() == (ROOT / "deploy" / "base" / "crds.yaml").read_text()
    role = next(obj for obj in manifests() if obj["kind"] == "ClusterRole")
    granted = [rule for rule in role["rules"] if rule["apiGroups"] == ["kopf.dev"]]
    assert values["rules"] == granted
    hooks = yaml.safe_load_all((ROOT / "deploy" / "overlays" / "webhooks" / "webhooks.yaml").read_text())
    [hook] = next(obj for obj in hooks if "webhooks" in obj)["webhooks"]
    name = hook.pop("name").partition(".")[0]
    assert hook.pop("clientConfig")["service"]["path"] == f"/{name}"
    assert values["webhooks"]["validating"] == {name: hook}
    schema = json.loads((chart / "values.schema.json").read_text())
    assert values.keys() | {"global"} == schema["properties"].keys()
    base = yaml.safe_load((ROOT / "deploy/base/deployment.yaml").read_text())
    assert values["resources"] == base["spec"]["template"]["spec"]["containers"][0]["resources"]


@needs_helm
@pytest.mark.parametrize("name", CHART)
def test_the_chart_is_what_the_command_makes(name: str) -> None:
    rendered = template(*CHART[name], "--no-hooks")
    assert rendered.returncode == 0, rendered.stderr
    objects = [obj for obj in yaml.safe_load_all(rendered.stdout) if obj]
    for obj in objects:
        for label in ("helm.sh/chart", "app.kubernetes.io/managed-by"):
            obj["metadata"].get("labels", {}).pop(label, None)
        if obj["kind"] == "Deployment":
            assert obj["spec"]["template"]["spec"]["containers"][0].pop("imagePullPolicy") == "IfNotPresent"
    options, files = OVERLAYS[name]
    made = make_manifests("--no-create-namespace", *options, files=files)
    assert sort(objects) == sort(made)


def test_the_alerts_of_the_chart_are_those_of_the_command() -> None:
    [made] = [obj for obj in make_manifests("--metrics", "--alerts") if obj["kind"] == "PrometheusRule"]
    path = ROOT / "deploy/chart/files/alerts.yaml"
    how = "in deploy/operator, run `trioperator manifests main.py --metrics --alerts --no-service-monitor -o /tmp/x`"
    assert yaml.safe_load(path.read_text()) == made["spec"], f"{how}, and copy alerts.rules.yaml"


@needs_helm
def test_the_alerts_of_a_release_are_about_its_own_metrics() -> None:
    runbooks = "https://docs.example.com/runs"
    options = f"--set=metrics.enabled=true,alerts.enabled=true,name=hub,alerts.runbooks={runbooks}"
    rendered = list(yaml.safe_load_all(template(options, "--namespace=there").stdout))
    made = make_manifests("--metrics", "--alerts", "--name=hub", "--pod-namespace=there", f"--runbooks={runbooks}")
    specs = [[obj["spec"] for obj in objects if obj["kind"] == "PrometheusRule"] for objects in (rendered, made)]
    assert specs[0] == specs[1] != []
    refused = template("--set=alerts.enabled=true")
    assert refused.returncode == 1
    assert "set metrics.enabled, too" in refused.stderr


@needs_helm
def test_the_chart_refuses_replicas_without_a_lease_and_grants_the_leases_of_shards() -> None:
    refused = template("--set=replicas=2")
    assert refused.returncode == 1
    assert "set leaderElection or shards, too" in refused.stderr
    made = make_manifests("--no-create-namespace", "--shards=3", "--replicas=2", "-na", "-nb")
    rendered = template("--set=replicas=2,shards=3,namespaces={a,b}", "--no-hooks")
    texts: list[list[dict[str, Any]]] = [list(filter(None, yaml.safe_load_all(rendered.stdout))), made]
    roles = [
        [(obj["metadata"]["namespace"], obj["rules"]) for obj in sort(each) if obj["kind"] == "Role"] for each in texts
    ]
    assert sorted(roles[0]) == sorted(roles[1])
    assert len(roles[0]) == 3


@needs_helm
def test_the_chart_takes_names_that_yaml_would_read_as_something_else() -> None:
    options = [option for options in CHART.values() for option in options]
    rendered = template(*options, "--set-string=name=on", "--set-string=namespaces={123}", "--namespace=123")
    assert rendered.returncode == 0, rendered.stderr
    read, texts = (list(yaml.load_all(rendered.stdout, loader)) for loader in (yaml.SafeLoader, yaml.BaseLoader))
    values = [pair for pair in zip(scalars(read), scalars(texts), strict=True) if pair[1] in ("on", "123")]
    assert len(values) > 50
    assert [pair for pair in values if pair[0] != pair[1]] == []


def scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from scalars(each)
    else:
        yield value


@needs_helm
def test_the_chart_stops_the_operator_and_releases_its_objects_before_it_is_deleted() -> None:
    rendered = template("--set=leaderElection=true,namespaces={a,b},webhooks.enabled=true")
    objects = [obj for obj in yaml.safe_load_all(rendered.stdout) if obj]
    hooks = [obj for obj in objects if "helm.sh/hook" in obj["metadata"].get("annotations", {})]
    assert [obj["kind"] for obj in hooks] == ["Role", "RoleBinding", "Job"]
    [container] = hooks[2]["spec"]["template"]["spec"]["containers"]
    place = "trioperator/trioperator"
    options = ["--yes", f"--stop={place}", f"--lease={place}", "--namespace=a", "--namespace=b"]
    assert container["args"] == [*options, "main.py"]
    parsed = CliRunner().invoke(command, ["uninstall", *options, "--help"])
    assert parsed.exit_code == 0
    assert "helm.sh/hook" not in template("--set=uninstall.enabled=false").stdout


# Monitoring.


def test_the_dashboard_shows_documented_metrics_only_and_most_of_them() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "monitoring.md").read_text(), re.M))
    dashboard = json.loads((ROOT / "deploy/monitoring/dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    shown = {
        name.removesuffix("_bucket").removesuffix("_count")
        for expression in expressions
        for name in re.findall(
            r"\b(?:controller_runtime|workqueue|rest_client|leader_election|certwatcher|trioperator)_\w+", expression
        )
    }
    assert shown <= documented
    assert len(documented - shown) <= 2
    assert all(expression.count("(") == expression.count(")") for expression in expressions)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_ports_of_the_manifests_fit_together() -> None:
    folder = ROOT / "deploy/monitoring"
    patch, service, monitor, policy = (
        yaml.safe_load((folder / f"{name}.yaml").read_text())
        for name in ("deployment-patch", "service", "servicemonitor", "networkpolicy-patch")
    )
    base = yaml.safe_load((ROOT / "deploy/base/deployment.yaml").read_text())
    [container] = patch["spec"]["template"]["spec"]["containers"]
    [plain] = base["spec"]["template"]["spec"]["containers"]
    [port] = container["ports"]
    assert container["name"] == plain["name"]
    *_, arguments = yaml.safe_load((folder / "kustomization.yaml").read_text())["patches"]
    assert f":{port['containerPort']}{monitor['spec']['endpoints'][0]['path']}" in arguments["patch"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"] == policy["spec"]["ingress"][0]["ports"][0]["port"]
    assert service["spec"]["ports"][0]["name"] == monitor["spec"]["endpoints"][0]["port"]
    assert service["metadata"]["labels"].items() >= monitor["spec"]["selector"]["matchLabels"].items()
    assert service["spec"]["selector"] == base["spec"]["selector"]["matchLabels"]
    [health] = plain["ports"]
    assert plain["livenessProbe"]["httpGet"] == {"path": "/livez", "port": health["name"]}
    assert plain["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": health["name"]}
    assert f"--health=http://0.0.0.0:{health['containerPort']}" in plain["args"]
