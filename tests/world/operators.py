"""Public operators, and what is played with each. Nothing of their code is here: objects, and programs they call.

Each function is the scenario of the operator of its name: it applies its manifests, runs it, and records the states.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, Final

import yaml

from tests.world.playing import Play


@dataclasses.dataclass(frozen=True)
class Operator:
    """A public operator: where it is, what is played, and whether its handlers run natively by the import alone.

    Without a *repository*, it is a package, which is installed by its name. *apart* are requirements that cannot be
    met together with those of the others. Those that listen on the same *ports* are not played at the same time. They
    need this *python*, or a newer one.
    """

    name: str
    repository: str | None
    act: Callable[[Play], Awaitable[None]]
    native: bool = False
    requirements: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    python: tuple[int, int] = (3, 11)


OPERATORS: Final[dict[str, Operator]] = {}


def operator(
    repository: str | None,
    *requirements: str,
    native: bool = False,
    apart: tuple[str, ...] = (),
    ports: tuple[int, ...] = (),
    python: tuple[int, int] = (3, 11),
) -> Callable[[Callable[[Play], Awaitable[None]]], Callable[[Play], Awaitable[None]]]:
    """Return a decorator that adds the scenario of an operator to the table."""

    def register(act: Callable[[Play], Awaitable[None]]) -> Callable[[Play], Awaitable[None]]:
        name = act.__name__.replace("_", "-")
        OPERATORS[name] = Operator(name, repository, act, native, requirements, apart, ports, python)
        return act

    return register


def declare(
    group: str, version: str, kind: str, scope: str = "Namespaced", *, with_status: bool = False
) -> dict[str, Any]:
    """Return the definition of a kind with any fields."""
    plural = f"{kind.lower()}{'' if kind.endswith('s') else 's'}"
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = {"name": version, "served": True, "storage": True, "schema": schema}
    served |= {"subresources": {"status": {}}} if with_status else {}
    spec = {"group": group, "scope": scope, "names": names, "versions": [served]}
    return describe_object("CustomResourceDefinition", "apiextensions.k8s.io/v1", f"{plural}.{group}", spec=spec)


def describe_object(kind: str, version: str, name: str, namespace: str | None = None, **fields: Any) -> dict[str, Any]:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta | fields.pop("metadata", {}), **fields}


@operator("zakkg3/ClusterSecret", "kubernetes", native=True)
async def clustersecret(play: Play) -> None:
    run = ("--all-namespaces", "--standalone", "src/handlers.py")
    version = "clustersecret.io/v1"
    secret = describe_object("ClusterSecret", version, "one", matchNamespace=["a.*"], data={"key": "MQ=="})
    await play.add_namespaces("aa", "ab", "bb")
    await play.apply("yaml/01_crd.yaml")
    async with play.running(*run):
        await play.cluster.create(secret)
        await play.record("created")
        await play.cluster.patch("clustersecrets", "one", {"matchNamespace": ["bb"], "data": {"key": "Mg=="}})
        await play.record("two fields changed at once")
        await play.cluster.patch("clustersecrets", "one", {"data": {"key": "Mw==", "more": "NA=="}})
        await play.record("data changed")
        await play.cluster.create(
            describe_object("ClusterSecret", version, "two", matchNamespace=["n.*"], data={"a": "MQ=="})
        )
        await play.record("another one created")
    await play.cluster.patch("clustersecrets", "one", {"matchNamespace": ["aa", "bb"]})
    async with play.running(*run):
        await play.record("changed while it was down")
        await play.add_namespaces("new")
        await play.record("a namespace added")
        await play.cluster.delete("clustersecrets", "one")
        await play.record("deleted")


_BW: Final = """#!/usr/bin/env python3
import json, os, sys
words = [word for word in sys.argv[1:] if not word.startswith("-")]
state = os.path.join(os.environ["HOME"], "bw-generation")
generation = open(state).read() if os.path.exists(state) else "1"
item = {
    "login": {"username": "me", "password": "secret-" + generation},
    "fields": [{"name": "public_key", "value": "key"}, {"name": "key", "value": "value-" + generation}],
}
data = {"template": {"status": "unlocked"}, "raw": "token", **(item if words[0] == "get" else {})}
print(json.dumps({"success": True, "data": data}))
"""


@operator("Lerentis/bitwarden-crd-operator", "kubernetes", "Jinja2", "schedule", "setuptools<80", native=True)
async def bitwarden_crd_operator(play: Play) -> None:
    play.put("bw", _BW)
    play.environment |= {"BW_HOST": "https://localhost", "BW_SYNC_INTERVAL": "900"}
    files = [f"src/{name}.py" for name in ("bitwardenCrdOperator", "kv", "dockerlogin", "template")]
    run = ("--all-namespaces", *files)
    folder = "charts/bitwarden-crd-operator/crds"
    await play.apply(*(f"{folder}/{name}.yaml" for name in ("bitwarden-secrets", "bitwarden-templates")))
    await play.apply(f"{folder}/registry-credentials.yaml")
    await play.add_namespaces("other")
    async with play.running(*run):
        await play.apply("example.yaml", "example_template.yaml", "example_dockerlogin.yaml")
        await play.record("created", quiet=12)  # its timers begin after 10 seconds
        (play.home / "bw-generation").write_text("2")
        await play.cluster.patch("bitwarden-secrets", "test", {"spec": {"labels": {"app": "changed"}}})
        await play.record("changed")
        await play.cluster.patch("bitwarden-secrets", "test", {"spec": {"name": "renamed"}})
        await play.cluster.patch("bitwarden-secrets", "test-scope", {"spec": {"namespace": "other"}})
        await play.record("renamed and moved")
    await play.cluster.patch("bitwarden-secrets", "test", {"spec": {"annotations": {"more": "yes"}}})
    async with play.running(*run):
        await play.record("changed while it was down", quiet=12)
        for kind, name in (
            ("bitwarden-secrets", "test"),
            ("bitwarden-templates", "test"),
            ("registry-credentials", "test"),
        ):
            await play.cluster.delete(kind, name)
        await play.record("deleted")


@operator("chaostoolkit-incubator/kubernetes-crd", "kubernetes", "jsonpath-ng", "google-auth", "async-timeout")
async def chaostoolkit(play: Play) -> None:
    play.masks += [r"(?<=-)[0-9a-f]{10}\b", r"(?<=-)[a-z0-9]{5}(?=\")"]
    run = ("--namespace", "chaostoolkit-crd", "--standalone", "controller.py")
    await play.add_namespaces("chaostoolkit-crd", "chaostoolkit-run")
    await play.apply("manifests/base/common/crd.yaml")
    config = (play.root / "manifests/base/common/configmap.yaml").read_text()
    await play.cluster.apply(config, "chaostoolkit-crd")
    async with play.running(*run):
        await play.apply("examples/basic.yaml")
        await play.record("created")
        scheduled = describe_object(
            "ChaosToolkitExperiment",
            "chaostoolkit.org/v1",
            "scheduled",
            "chaostoolkit-crd",
            spec={"namespace": "chaostoolkit-run", "schedule": {"kind": "cronJob", "value": "0 0 1 1 *"}},
        )
        await play.cluster.create(scheduled)
        await play.record("a scheduled one created")
    async with play.running(*run):
        await play.record("started again")
        await play.cluster.delete("chaosexperiments", "my-chaos-exp", "chaostoolkit-crd")
        await play.cluster.delete("chaosexperiments", "scheduled", "chaostoolkit-crd")
        await play.record("deleted")


async def prepare_poolboy(play: Play) -> tuple[str, dict[str, Any]]:
    """Apply what poolboy needs, and return the version of its kinds, and a provider that is to be applied."""
    version = "poolboy.gpte.redhat.com/v1"
    users = describe_object("Namespace", "v1", "users", metadata={"annotations": {"openshift.io/requester": "me"}})
    await play.add_namespaces("poolboy")
    await play.apply(users)
    crds = (f"helm/crds/resource{name}s.yaml" for name in ("claim", "handle", "pool", "provider"))
    await play.apply(declare("poolboy.gpte.redhat.com", "v1", "ResourceClaimTest", with_status=True), *crds)
    meta = {"namespace": "users"}
    made = {"apiVersion": version, "kind": "ResourceClaimTest", "metadata": meta, "spec": {"foo": "bar"}}
    spec = {
        "override": made,
        "template": {"enable": True, "definition": {"spec": {"size": 1}}},
        "updateFilters": [{"pathMatch": "/spec/.*"}],
    }
    return version, describe_object("ResourceProvider", version, "test", "poolboy", spec=spec)


@operator(
    "redhat-cop/poolboy",
    "kubernetes_asyncio",
    "inflection",
    "Jinja2",
    "jmespath-community",
    "jsonpointer",
    "pyOpenSSL",
    "python-dateutil",
    "python-string-utils",
    "pytimeparse",
    "StringGenerator",
    apart=("openapi-schema-validator==0.1.5", "jsonschema<4.18"),
)
async def poolboy(play: Play) -> None:
    play.masks += [r"guid-[a-z0-9]{5}", r"(?<=[-\"])[a-z0-9]{5}(?=\")", r'"resourceVersion": "\d+"']
    play.patient = True  # its pool handler's patch of a handle races with the handle's handler, also under Kopf
    play.environment |= {"OPERATOR_NAMESPACE": "poolboy", "MANAGE_CLAIMS_INTERVAL": "2", "MANAGE_HANDLES_INTERVAL": "2"}
    play.environment |= {"MANAGE_POOLS_INTERVAL": "2", "RESOURCE_REFRESH_INTERVAL": "4"}
    run = ("--standalone", "--all-namespaces", "--log-format=json", "operator/operator.py")
    version, provider = await prepare_poolboy(play)
    used = {"provider": {"name": "test"}, "template": {"metadata": {"name": "made"}}}
    claim = describe_object("ResourceClaim", version, "claim", "users", spec={"resources": [used]})
    async with play.running(*run):
        await play.apply(provider)
        await play.settle()
        await play.apply(claim)
        await play.record("claimed", quiet=6)
        await play.cluster.patch("resourceclaimtests", "made", {"spec": {"foo": "drifted"}}, "users")
        await play.record("drifted", quiet=6)
        change = {"spec": {"resources": [used | {"template": {"metadata": {"name": "made"}, "spec": {"size": 2}}}]}}
        await play.cluster.patch("resourceclaims.v1.poolboy.gpte.redhat.com", "claim", change, "users")
        await play.record("changed", quiet=6)
        reference = {"apiVersion": version, "kind": "ResourceProvider", "name": "test", "namespace": "poolboy"}
        pooled = {"provider": reference, "template": {"metadata": {"name": "pooled"}}}
        pool = {"minAvailable": 1, "resources": [pooled]}
        await play.apply(describe_object("ResourcePool", version, "pool", "poolboy", spec=pool))
        await play.record("pooled", quiet=6)
    await play.cluster.delete("resourceclaimtests", "made", "users")
    async with play.running(*run):
        await play.until("resourceclaimtests", "made", bool, namespace="users")
        await play.record("deleted while it was down", quiet=6)
        await play.cluster.delete("resourceclaims.v1.poolboy.gpte.redhat.com", "claim", "users")
        await play.cluster.delete("resourcepools.v1.poolboy.gpte.redhat.com", "pool", "poolboy")
        await play.record("deleted", quiet=6)


@operator(
    "dask/dask-kubernetes", "dask", "distributed", "kr8s", "kubernetes", "kubernetes_asyncio", "pykube-ng", "rich"
)
async def dask_kubernetes(play: Play) -> None:
    play.masks += [
        r"(?<=-)([a-z0-9]{10}|[b-df-hj-np-tv-z2-9]{8,9})(-[a-z0-9]{5})?\b",
        r"\b10\.\d+\.\d+\.\d+",
        r'"pod-template-hash": "[^"]*"',
    ]
    play.masks += [r'"phase": "(Pending|Running)"']  # two of its handlers race for it, under Kopf as well
    run = ("--module", "dask_kubernetes.operator.controller", "--all-namespaces", "--standalone")
    folder = "dask_kubernetes/operator"
    crds = f"{folder}/deployment/helm/dask-kubernetes-operator/crds"
    await play.apply(*(f"{crds}/dask{name}.yaml" for name in ("autoscaler", "cluster", "job", "workergroup")))
    resources = f"{folder}/controller/tests/resources"
    async with play.running(*run):
        await play.apply(f"{resources}/simplecluster.yaml")
        await play.record("created")
        await play.cluster.patch("daskclusters", "simple", {"spec": {"worker": {"replicas": 3}}}, "default")
        await play.record("scaled up")
        await play.apply(f"{resources}/simplejob.yaml")
        await play.record("a job created", quiet=6)
    await play.cluster.patch("daskworkergroups", "simple-default", {"spec": {"worker": {"replicas": 1}}}, "default")
    async with play.running(*run):
        await play.record("scaled down while it was down", quiet=12)
        await play.cluster.delete("daskclusters", "simple", "default")
        await play.record("deleted")


# What the programs of MySQL's operator import of MySQL Shell, which none of them needs to create objects.
_MYSQLSH: Final = """
class Anything:
    def __init__(self, *args, **kwargs): pass
    def __getattr__(self, name): return Anything()
    def __setattr__(self, name, value): pass
    def __setitem__(self, name, value): pass
    def __call__(self, *args, **kwargs): raise Error("there is no server")
class Error(Exception):
    code = 2003
globals = Anything()
def __getattr__(name): return Anything()
def connect_dba(*args): raise Error("there is no server")
"""


@operator("mysql/mysql-operator", "kubernetes")
async def mysql_operator(play: Play) -> None:
    (play.home / "lib").mkdir()
    (play.home / "lib" / "mysqlsh.py").write_text(_MYSQLSH)
    play.environment |= {"PYTHONPATH": str(play.home / "lib"), "MYSQL_OPERATOR_K8S_CLUSTER_DOMAIN": "cluster.local"}
    play.masks += [r'"(rootPassword|clusterAdminPassword|routerPassword|backupPassword|[a-zA-Z]*[uU]sername)": "[^"]*"']
    play.masks += [r"\b10\.\d+\.\d+\.\d+", r"mycluster-router-[a-z0-9]+(-[a-z0-9]+)?", r'"pod-template-hash": "[^"]*"']
    play.masks += [r'"server(_id_base|IdBase)": "?\d+"?', r"server_id=\d+", r"baseServerId[^,}]*"]
    play.skip("ClusterKopfPeering", "KopfPeering")
    await play.add_namespaces("mysql-operator")
    await play.apply("deploy/deploy-crds.yaml")
    await play.apply(describe_object("ClusterKopfPeering", "zalando.org/v1", "mysql-operator"))
    secret = describe_object("Secret", "v1", "mypwds", "default", stringData={"rootUser": "root", "rootHost": "%"})
    secret["stringData"]["rootPassword"] = "secret"
    await play.apply(secret)
    async with play.executing("mysqloperator", "operator", is_module=True):
        await play.apply("samples/sample-cluster.yaml")
        await play.record("created", quiet=6)
        await play.cluster.patch("innodbclusters", "mycluster", {"spec": {"router": {"instances": 2}}}, "default")
        await play.record("router changed", quiet=6)
    async with play.executing("mysqloperator", "operator", is_module=True):
        await play.cluster.patch("innodbclusters", "mycluster", {"spec": {"instances": 5}}, "default")
        await play.record("started again, and changed", quiet=6)
        await play.cluster.delete("innodbclusters", "mycluster", "default")
        await play.record("deleted", quiet=6)


# The programs that make keystores: what they write is compared, and is always the same here.
_KEYTOOL: Final = """#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in -keystore|-destkeystore|-out) echo store > "$2";; esac
  shift
done
"""


@operator("lsst-sqre/strimzi-registry-operator", "kubernetes", "structlog", "async-timeout", native=True)
async def strimzi_registry_operator(play: Play) -> None:
    play.put("keytool", _KEYTOOL)
    play.put("openssl", _KEYTOOL)
    play.environment |= {"SSR_NAMESPACE": "events", "SSR_CLUSTER_NAME": "events", "PYTHONPATH": str(play.root / "src")}
    play.masks += [r'"(trust|key)store_password": "[^"]*"', r"\b10\.\d+\.\d+\.\d+"]
    play.masks += [r"registry-[a-z0-9]{8,10}(-[a-z0-9]{5})?", r'"pod-template-hash": "[^"]*"']
    # By the bridge, these are as under Kopf, too; natively, there are other writes before them.
    play.masks += [r'"strimziregistryoperator\.roundtable\.lsst\.codes/[A-Za-z]+Version": "\d+"']
    run = ("--standalone", "--module", "strimziregistryoperator.handlers", "--namespace", "events")
    labels = {"strimzi.io/cluster": "events"}
    tls = {"name": "tls", "type": "internal"}
    address = {"name": "tls", "type": "tls", "addresses": [{"host": "kafka", "port": 9093}]}
    kafka = describe_object(
        "Kafka",
        "kafka.strimzi.io/v1beta2",
        "events",
        "events",
        spec={"kafka": {"listeners": [tls]}},
        status={"listeners": [address]},
    )
    certificates = describe_object("Secret", "v1", "events-cluster-ca-cert", "events", metadata={"labels": labels})
    user = describe_object("Secret", "v1", "registry", "events", metadata={"labels": labels})
    await play.add_namespaces("events")
    await play.apply("manifests/registry-crd.yaml")
    await play.apply(*(declare("kafka.strimzi.io", "v1beta2", kind) for kind in ("Kafka", "KafkaUser")))
    await play.apply(kafka, certificates | {"data": {"ca.crt": "MQ=="}})
    await play.apply(user | {"data": dict.fromkeys(("ca.crt", "user.crt", "user.key"), "MQ==")})
    spec = {"strimziVersion": "v1beta2", "listener": "tls"}
    version, meta = "roundtable.lsst.codes/v1beta1", {"labels": labels}
    registry = describe_object("StrimziSchemaRegistry", version, "registry", "events", metadata=meta, spec=spec)
    prefix = "strimziregistryoperator.roundtable.lsst.codes"

    async def change(name: str, data: dict[str, str], annotation: str) -> None:
        """Change a Secret, and wait until the operator has seen it: it imports its client library first."""
        found = await play.cluster.patch("secrets", name, {"data": data}, "events")
        seen = (f"{prefix}/{annotation}", found["metadata"]["resourceVersion"])
        await play.until(
            "secrets", "registry-jks", lambda jks: seen in jks["metadata"]["annotations"].items(), namespace="events"
        )

    async with play.running(*run):
        await play.apply(registry)
        await play.until("services", "registry", bool, namespace="events")
        await play.record("created")
        await change("events-cluster-ca-cert", {"ca.crt": "Mg=="}, "caSecretVersion")
        await play.record("CA changed", quiet=6)
    async with play.running(*run):
        await play.record("started again", quiet=6)
        await change("registry", {"user.key": "Mw=="}, "clientSecretVersion")
        await play.record("key changed", quiet=6)
        await play.cluster.delete("strimzischemaregistries", "registry", "events")
        await play.record("deleted", quiet=6)


@operator(
    "azimuth-cloud/azimuth-schedule-operator",
    "aiohttp",
    "easykube",
    "httpx",
    "kube-custom-resource",
    "pydantic",
    ports=(8000, 8080),
)
async def azimuth_schedule_operator(play: Play) -> None:
    play.environment |= {"AZIMUTH_SCHEDULE_CHECK_INTERVAL_SECONDS": "2"}
    play.add_certificate()  # its client library knows no tokens
    version = "scheduling.azimuth.stackhpc.com/v1alpha1"
    await play.add_namespaces("users")
    await play.apply(*(describe_object("ConfigMap", "v1", name, "users", data={}) for name in ("soon", "later")))
    async with play.executing("azimuth_schedule_operator", is_module=True):
        pass  # it defines its kinds, and ends unless they are served at once, to be started again
    play.costs.clear()
    async with play.executing("azimuth_schedule_operator", is_module=True):
        for name, time in (("soon", "2020-01-01T00:00:00Z"), ("later", "2100-01-01T00:00:00Z")):
            spec = {"ref": {"apiVersion": "v1", "kind": "ConfigMap", "name": name}, "notAfter": time}
            await play.apply(describe_object("Schedule", version, name, "users", spec=spec))
        await play.record("created")
    async with play.executing("azimuth_schedule_operator", is_module=True):
        await play.cluster.patch("schedules", "later", {"spec": {"notAfter": "2020-01-01T00:00:00Z"}}, "users")
        await play.record("started again, and changed")
        await play.cluster.delete("schedules", "soon", "users")
        await play.cluster.delete("schedules", "later", "users")
        await play.record("deleted")


@operator("gefyrahq/gefyra", "click", "python-decouple", "python-statemachine", apart=("kubernetes<37",))
async def gefyra(play: Play) -> None:
    play.masks += [
        r"\b10\.\d+\.\d+\.\d+",
        r'token(?:\\)?": ?(?:\\)?"[^"\\]*',
        r'"name": "[0-9a-z]{8,}"',
        r'"(time|expires)": "[^"]*"',
    ]
    play.environment |= {"GEFYRA_OPERATOR_RECONCILIATION_INTERVAL": "2"}
    run = ("--all-namespaces", "main.py")
    version, api = "gefyra.dev/v1", "gefyraclients"
    await play.add_namespaces("gefyra")
    async with play.running(*run, cwd="operator"):
        await play.record("started", quiet=6)  # it has created its definitions and its StatefulSet
        for name, fields in (("one", {}), ("two", {"sunset": "2020-01-01T00:00:00Z"})):
            client = describe_object("gefyraclient", version, name, "gefyra", provider="stowaway", **fields)
            await play.apply(client)
        await play.record("clients created", quiet=6)
    await play.cluster.patch(api, "one", {"providerParameter": {"subnet": "192.168.99.0/24"}}, "gefyra")
    async with play.running(*run, cwd="operator"):
        await play.record("started again, and changed", quiet=6)
        await play.cluster.delete(api, "one", "gefyra")
        await play.record("deleted", quiet=6)


# Prefect's server, as its observer sees it: it records what it is told, and knows no flow run.
_PREFECT: Final = """
import os, signal
import prefect_kubernetes.observer as observer
from prefect.exceptions import ObjectNotFound

class Reply:
    def json(self): return {"events": []}

class Server:
    async def __aenter__(self): return self
    async def __aexit__(self, *args): pass
    async def request(self, *args, **kwargs): return Reply()
    async def read_flow_run(self, *args, **kwargs): raise ObjectNotFound(None)
    async def emit(self, event):
        with open(os.environ["EVENTS"], "a") as file:
            print(event.event, event.resource.name, sorted(event.resource), file=file)

observer.get_client = observer.get_events_client = Server
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
observer.start_observer()
signal.sigwait({signal.SIGTERM})
observer.stop_observer()
"""


@operator(None, "prefect-kubernetes")
async def prefect_kubernetes(play: Play) -> None:
    events = play.home / "events"
    play.environment |= {"EVENTS": str(events), "PREFECT_HOME": str(play.home), "PREFECT_LOGGING_LEVEL": "INFO"}
    script = play.put("observe.py", _PREFECT)
    play.masks += [r"\brun-[a-z0-9]{5}\b"]
    labels = {"prefect.io/flow-run-id": "5e9a5b4e-3f5c-4c0e-9a3d-0d3c2c2f1a11"}
    containers = [{"name": "prefect-job", "image": "prefect"}]

    async def record(step: str) -> None:
        await play.record(step)
        play.states[f"{step}: events"] = sorted(events.read_text().splitlines()) if events.exists() else []

    async with play.executing(str(script)):
        for name, more in (("flow", labels), ("other", {})):
            spec = {"containers": containers}
            await play.apply(describe_object("Pod", "v1", name, "default", metadata={"labels": more}, spec=spec))
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers, "restartPolicy": "Never"}}
        await play.apply(
            describe_object(
                "Job", "batch/v1", "run", "default", metadata={"labels": labels}, spec={"template": template}
            )
        )
        await record("created")
        await play.cluster.patch("pods", "flow", {"metadata": {"labels": {"more": "yes"}}}, "default")
        await record("changed")
    await play.apply(
        describe_object("Pod", "v1", "later", "default", metadata={"labels": labels}, spec={"containers": containers})
    )
    async with play.executing(str(script)):
        await record("started again")
        await play.cluster.delete("pods", "flow", "default")
        await record("deleted")


@operator(
    "crate/crate-operator",
    "aiohttp",
    "aiopg",
    "bitmath",
    "httpx",
    "python-json-logger",
    "verlib2",
    "wrapt",
    apart=("kubernetes_asyncio==31.1.0",),  # those of newer ones ask for tokens in coroutines
)
async def crate_operator(play: Play) -> None:
    play.environment |= {f"CRATEDB_OPERATOR_{name}": value for name, value in _CRATE.items()}
    play.environment |= {"CRATEDB_OPERATOR_KUBECONFIG": str(play.home / "kubeconfig")}
    play.masks += [r'"(password|token|keystore[^"]*|truststore[^"]*)": "[^"]*"', r'"tls[^"]*": "[^"]*"']
    play.masks += [r'"(ca|key|crt)[^"]*": "[^"]*"', r"\b10\.\d+\.\d+\.\d+", r"-[a-z0-9]{10}-[a-z0-9]{5}\b"]
    # Its last sub-handler is retried for ever, as nothing runs in the pods: how often differs. Meanwhile, Kopf does not
    # call timers with idle=, which say that CrateDB cannot be reached.
    play.masks += [r'"operator\.cloud\.crate\.io/cluster_create(\.bootstrap)?": "([^"\\]|\\.)*"', r'"started": \d+']
    play.masks += [r'("crateDBStatus": \{[^}]*\}, )?"subhandlerStartedAt"']
    play.masks += [r'"(healthCheckN|n)odePort": \d+', r"'Date': '[^']*'"]
    run = ("--standalone", "--all-namespaces", "crate/operator/main.py")
    await play.add_namespaces("cratedb")
    await play.apply("deploy/crd.yaml")
    resources = {"limits": {"cpu": 1, "memory": "1Gi"}, "heapRatio": 0.25}
    resources["disk"] = {"count": 1, "size": "16GiB", "storageClass": "default"}
    spec = {
        "cluster": {"imageRegistry": "crate", "name": "my-cluster", "version": "5.10.1"},
        "nodes": {"data": [{"name": "hot", "replicas": 1, "resources": resources}]},
    }
    async with play.running(*run):
        await play.apply(describe_object("CrateDB", "cloud.crate.io/v1", "one", "cratedb", spec=spec))
        await play.record("created", quiet=8)
        change = {"spec": {"cluster": {"allowedCIDRs": ["192.168.0.0/16"]}}}
        await play.cluster.patch("cratedbs", "one", change, "cratedb")
        await play.record("changed", quiet=8)
    async with play.running(*run):
        await play.record("started again", quiet=8)
        await play.cluster.delete("cratedbs", "one", "cratedb")
        await play.record("deleted", quiet=8)


_CRATE: Final = {
    "JMX_EXPORTER_VERSION": "1.0.0",
    "TESTING": "true",
    "DEBUG_VOLUME_STORAGE_CLASS": "default",
    "DEBUG_VOLUME_SIZE": "2GiB",
    "BOOTSTRAP_RETRY_DELAY": "2",
    "LOG_LEVEL": "INFO",
}


@operator("djkormo/k8s-kopf-examples", "environs", "kubernetes")
async def k8s_kopf_examples(play: Play) -> None:
    play.environment |= {"LOOP_INTERVAL": "5", "EXCLUDED_NAMESPACES": "kube-system,default"}
    project, limits = (f"kopf-example-{name}-operator" for name in ("project", "limitrange-np"))
    play.masks += [r"\b10\.\d+\.\d+\.\d+"]
    await play.add_namespaces("project-operator", "limitrange-np-operator")
    await play.apply(f"{project}/crd/crd.yaml")
    run = ("--standalone", "--all-namespaces", f"{project}/app/kopf_operator.py")
    async with play.running(*run):
        await play.apply(f"{project}/test/project.yaml")
        await play.until("resourcequotas", "my-namespace", bool, namespace="my-namespace")
        await play.record("project: created", quiet=6)
        change = {"spec": {"resourcequotapods": "20"}, "metadata": {"labels": {"more": "yes"}}}
        await play.cluster.patch("projects", "my-namespace", change, "project-operator")
        await play.record("project: changed", quiet=6)
    async with play.running(*run):
        await play.record("project: started again", quiet=6)
        await play.cluster.delete("projects", "my-namespace", "project-operator")
        await play.record("project: deleted", quiet=6)
    for name in [obj["metadata"]["name"] for obj in play.cluster.objects() if obj["kind"] == "Namespace"]:
        # Its timer expects annotations: else, it fails unless a handler that fails has stored that it has.
        await play.cluster.patch("namespaces", name, {"metadata": {"annotations": {"some": "thing"}}})
    async with play.running("--standalone", "--all-namespaces", f"{limits}/app/kopf_operator.py"):
        for made in yaml.safe_load_all((play.root / limits / "test/namespace-limitrange-np-1.yaml").read_text()):
            await play.apply({**made, "metadata": {**made["metadata"], "annotations": {"some": "thing"}}})
        await play.record("limits: a namespace created", quiet=12)
