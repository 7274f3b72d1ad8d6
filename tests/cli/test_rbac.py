"""Tests for :mod:`trioperator.cli.rbac`: the command that prints roles."""

from __future__ import annotations

import logging
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import trio
import yaml
from typer.testing import CliRunner, Result

import trioperator
from tests.coordination.peers import peering_crd
from tests.runtime.conftest import CRD
from trioperator.apiserver import Cluster, serve_cluster, write_kubeconfig
from trioperator.cli.failures import USAGE_ERROR
from trioperator.cli.root import app as command

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
Invoke: TypeAlias = Callable[..., Result]

APP = """
import trioperator

@trioperator.on.create("widgets")
def create_fn(**_):
    pass
"""

WEBHOOKS = """
import trioperator

@trioperator.on.validate("widgets")
@trioperator.on.convert("widgets", from_="v1", to="v2")
def handle(**_):
    pass
"""


DECLARED = """
import msgspec
import trioperator
from trioperator import crds

@crds.kind("example.org/v1", namespaced=False)
class Tenant(msgspec.Struct):
    spec: dict[str, str]

@trioperator.on.create(Tenant)
def create_fn(**_):
    pass
"""

LEADING = """
@trioperator.on.startup()
def configure(settings, **_):
    settings.leadership.enabled = True
"""


@pytest.fixture
def app(tmp_path: pathlib.Path) -> str:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "crds.yaml").write_text(yaml.safe_dump_all([CRD, peering_crd(), peering_crd(clusterwide=False)]))
    return "app.py"


@pytest.fixture
def invoke(
    app: str, restored_modules: None, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> Iterator[Invoke]:
    """Return a function that runs the command in this process, in the directory of the files."""
    monkeypatch.chdir(tmp_path)
    registry, handlers = trioperator.get_default_registry(), logging.root.handlers[:]

    def invoke(*args: str) -> Result:
        trioperator.set_default_registry(trioperator.OperatorRegistry())
        return CliRunner().invoke(command, args)

    yield invoke
    trioperator.set_default_registry(registry)
    logging.root.handlers[:] = handlers


def load(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.stdout))


def granted(role: dict[str, Any]) -> dict[str, str]:
    """Return the verbs for each resource of a role."""
    return {
        f"{resource} {' '.join(rule.get('resourceNames', ()))}".rstrip(): " ".join(rule["verbs"])
        for rule in role["rules"]
        for resource in rule["resources"]
    }


def test_the_role_for_the_whole_cluster_is_printed(run: Run, app: str) -> None:
    result = run("rbac", "--embedded", "--apply", "crds.yaml", app)
    [role] = yaml.safe_load_all(result.stdout)
    assert (role["kind"], role["metadata"]) == ("ClusterRole", {"name": "trioperator"})
    assert granted(role) == {
        "events": "create patch",
        "customresourcedefinitions": "list watch",
        "widgets": "get list watch patch",
        "widgets/status": "patch",
        "clusterkopfpeerings": "list watch",
        "clusterkopfpeerings default": "patch",
    }
    assert result.stderr == ""


def test_options_remove_and_add_rules(invoke: Invoke, app: str) -> None:
    options = ["--standalone", "--no-events", "--no-scanning", "--name=my", "--service-account=ops/robot"]
    result = invoke("rbac", "--embedded", "--apply", "crds.yaml", *options, "--leader-elect", "-na", "-nb", app)
    roles = load(result)
    assert [(role["kind"], role["metadata"]["namespace"]) for role in roles] == [
        (kind, namespace) for namespace in ("a", "b", "ops") for kind in ("Role", "RoleBinding")
    ]
    assert {role["metadata"]["name"] for role in roles} == {"my"}
    assert granted(roles[0]) == granted(roles[2]) == {"widgets": "get list watch patch", "widgets/status": "patch"}
    assert granted(roles[4]) == {"leases": "create", "leases trioperator": "get update"}
    assert roles[5]["subjects"] == [{"kind": "ServiceAccount", "name": "robot", "namespace": "ops"}]


def test_shards_need_a_lease_each_and_one_for_their_members(invoke: Invoke, app: str) -> None:
    options = ["--standalone", "--no-events", "--no-scanning", "--shards=2", "--lease=ops/it", "-na"]
    [_, role] = load(invoke("rbac", "--embedded", "--apply", "crds.yaml", *options, app))
    assert role["metadata"]["namespace"] == "ops"
    assert granted(role) == {"leases": "create", "leases it-0 it-1": "get update", "leases it-members": "patch"}


def test_webhooks_need_what_is_managed(invoke: Invoke, app: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / app).write_text(WEBHOOKS)
    options = ("--embedded", "--apply", "crds.yaml", "--no-events", "--standalone", app)
    [role] = load(invoke("rbac", *options))
    assert granted(role) == {"customresourcedefinitions": "list watch"}
    [role] = load(invoke("rbac", "--managed", "hooks.example.com", "--managed-conversions", *options))
    assert granted(role) == {
        "customresourcedefinitions": "list watch",
        "customresourcedefinitions widgets.example.com": "get patch",
        "mutatingwebhookconfigurations": "create",
        "validatingwebhookconfigurations": "create",
        "mutatingwebhookconfigurations hooks.example.com": "get list watch patch",
        "validatingwebhookconfigurations hooks.example.com": "get list watch patch",
    }


def test_a_secret_for_the_ca_is_in_its_namespace(invoke: Invoke, app: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / app).write_text(WEBHOOKS)
    options = ("--embedded", "--apply", "crds.yaml", "--ca-secret", "ops/webhook-ca", app)
    roles = load(invoke("rbac", *options))
    assert [(role["kind"], role["metadata"].get("namespace")) for role in roles] == [
        ("ClusterRole", None),
        ("Role", "ops"),
    ]
    assert granted(roles[1]) == {"secrets": "create", "secrets webhook-ca": "get patch"}


def test_rights_that_handlers_declare_are_printed(invoke: Invoke, tmp_path: pathlib.Path) -> None:
    (tmp_path / "rights.py").write_text(
        "import trioperator\n\n"
        "@trioperator.on.create('widgets', rights=['create,patch:jobs.batch'])\n"
        "def create(**_): pass\n\n"
        "@trioperator.on.startup(rights=['get:secrets'])\n"
        "def startup(**_): pass\n"
    )
    options = ("--embedded", "--apply=crds.yaml", "--no-events", "--no-scanning", "--standalone")
    [role] = load(invoke("rbac", *options, "rights.py"))
    assert granted(role)["jobs"] == "create patch"
    assert granted(role)["secrets"] == "get"


def test_rules_for_clients_are_added(invoke: Invoke, app: str) -> None:
    rules = [
        "--rule=create,delete:pods,deployments.apps",
        "--rule=get:pods/log,nodes",
        "--rule=patch:widgets.example.com",
    ]
    bare = ["--standalone", "--no-events", "--no-scanning", "--embedded", "--apply=crds.yaml"]
    [cluster, role] = load(invoke("rbac", *bare, *rules, "-na", app))
    assert granted(cluster) == {"nodes": "get"}
    assert granted(role) == {
        "pods": "create delete",
        "pods/log": "get",
        "deployments": "create delete",
        "widgets": "get list watch patch",
        "widgets/status": "patch",
    }


def test_patterns_of_namespaces_lead_to_a_cluster_role(invoke: Invoke, app: str) -> None:
    [role] = load(invoke("rbac", "--embedded", "--apply", "crds.yaml", "-n", "team-*", "-P", "mine", app))
    assert role["kind"] == "ClusterRole"
    assert granted(role)["namespaces"] == "list watch"
    assert granted(role)["kopfpeerings mine"] == "patch"


async def test_kinds_are_looked_up_in_the_cluster(
    cluster: Cluster, app: str, environment: dict[str, str], tmp_path: pathlib.Path, nursery: trio.Nursery
) -> None:
    await cluster.apply(CRD)
    url = str(await nursery.start(serve_cluster, cluster))
    write_kubeconfig(str(tmp_path / "kubeconfig"), cluster.kubeconfig(url))
    done = await trio.run_process(
        [sys.executable, "-m", "trioperator", "rbac", "-P", "mine", app],
        env={**environment, "KUBECONFIG": str(tmp_path / "kubeconfig")},
        cwd=tmp_path,
        capture_stdout=True,
        capture_stderr=True,
    )
    role = yaml.safe_load(done.stdout)
    assert granted(role)["widgets"] == "get list watch patch"
    assert b"The cluster has no kind of peering objects" in done.stderr
    nursery.cancel_scope.cancel()


async def test_kinds_that_classes_declare_need_not_be_in_the_cluster_yet(
    cluster: Cluster, environment: dict[str, str], tmp_path: pathlib.Path, nursery: trio.Nursery
) -> None:
    (tmp_path / "app.py").write_text(DECLARED)
    url = str(await nursery.start(serve_cluster, cluster))
    write_kubeconfig(str(tmp_path / "kubeconfig"), cluster.kubeconfig(url))
    done = await trio.run_process(
        [sys.executable, "-m", "trioperator", "rbac", "-n", "default", "--standalone", "app.py"],
        env={**environment, "KUBECONFIG": str(tmp_path / "kubeconfig")},
        cwd=tmp_path,
        capture_stdout=True,
        capture_stderr=True,
    )
    assert done.stderr == b""
    [role] = [each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "ClusterRole"]
    assert granted(role)["tenants"] == "get list watch patch"  # it is not namespaced, and has no status
    assert "tenants/status" not in granted(role)
    nursery.cancel_scope.cancel()


def test_settings_that_need_rights_are_told_if_their_options_are_missing(
    invoke: Invoke, app: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / app).write_text(APP + LEADING)
    result = invoke("rbac", "--embedded", "--apply", "crds.yaml", app)
    text = "app.py:10 assigns settings.leadership.enabled: pass --leader-elect, or the role lacks the rights for it."
    assert text in result.output.replace("\n# ", " ")
    result = invoke("rbac", "--embedded", "--apply", "crds.yaml", "--leader-elect", "--lease=ops/mine", app)
    assert "assigns" not in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "pass files or modules"),
        (["app.py", "-A", "-na"], "not both"),
        (["app.py", "--apply=crds.yaml"], "it requires --embedded"),
        (["app.py", "--lease=ops/mine"], "it requires --leader-elect or --shards"),
        (["app.py", "--embedded", "--leader-elect"], "pass NAMESPACE/NAME"),
        (["app.py", "--embedded", "--service-account=robot"], "pass NAMESPACE/NAME"),
        (["app.py", "--embedded", "--name=a/b"], "the API server takes no such name"),
        (["app.py", "--embedded", "--name="], "the API server takes no such name"),
        (["app.py", "--embedded"], "The group and the plural of the resource widgets are not known"),
        (["app.py", "--rule=fetch:pods"], "'fetch' is no verb: did you mean"),
        (["app.py", "--rule=get"], "it must be VERBS:KINDS"),
        (["app.py", "--rule=get:Pod"], "'Pod': a kind is PLURAL"),
        (["app.py", "--rule=get:pods/"], "'pods/': a kind is PLURAL"),
        (["missing.py", "--embedded"], "Cannot read the file missing.py"),
    ],
)
def test_wrong_input_is_explained(invoke: Invoke, app: str, options: list[str], message: str) -> None:
    result = invoke("rbac", *options)
    assert result.exit_code == USAGE_ERROR
    assert message in result.stderr
    assert result.stdout == ""


def test_roles_for_all_kinds_say_that_they_include_secrets(invoke: Invoke, tmp_path: pathlib.Path) -> None:
    (tmp_path / "all.py").write_text(
        "import trioperator\n\n@trioperator.on.event(trioperator.EVERYTHING)\ndef see(**_): pass\n"
    )
    printed = invoke("rbac", "--embedded", "--no-events", "--no-scanning", "--standalone", "all.py")
    assert re.search(r"^# .* the role allows to read all of them, Secrets included\.$", printed.stdout, re.MULTILINE)
    assert granted(load(printed)[0])["*"] == "list watch"
