"""Further public operators that nothing was changed for before they were tried, in the same table."""

from __future__ import annotations

from typing import Any, Final

import yaml

from tests.world.operators import declare, describe_object, operator
from tests.world.playing import Play

# The API of Pulsar, as far as the operator calls it.
_PULSAR: Final = """
import json, requests

STORED = {}

def send(self, request, **options):
    path = request.url.partition("/admin/v2")[2]
    response, found = requests.Response(), json.loads(request.body) if request.body else None
    response.status_code = 200
    if request.method in ("PUT", "POST"):
        STORED[path], response.status_code = found, 204
    elif request.method == "DELETE":
        response.status_code = 204 if path in STORED else 404
        STORED.pop(path, None)
    elif path.endswith("/runtime"):
        found = {"topicLevelPoliciesEnabled": "true"}
    elif path.startswith("/persistent/") and path.count("/") == 3:
        found = [f"persistent:/{key[11:]}" for key in STORED if key.startswith(path + "/") and key.count("/") == 4]
    elif path in STORED or path.endswith("/permissions"):
        found = STORED.get(path) or {}
    else:
        response.status_code, found = 404, {"reason": "not found"}
    response._content = json.dumps(found).encode()
    return response

requests.Session.send = send
"""


@operator(
    "raiffeisenbankinternational/neuron-operator-application",
    "deepdiff",
    "dollar-ref",
    "dotty-dict",
    "kubernetes",
    "pyhumps",
    "requests",
    native=True,
    apart=("kubernetes<36", "pydantic<2"),
)
async def neuron(play: Play) -> None:
    """Handlers of all kinds of a group, chosen by filters with the operator's memo, an index, storages of its own."""
    play.takes_over = False
    play.environment |= {"PYTHONSAFEPATH": "1", "CLUSTER_NAME": "one", "PULSAR_API_URL": "http://pulsar/admin/v2"}
    run = ("--all-namespaces", "--standalone", str(play.put("pulsar.py", _PULSAR)), "operator.py")
    version = "neuron.isf/v1alpha1"
    kinds = ("NeuronTenant", "NeuronNamespace", "NeuronTopic", "NeuronSchema")
    await play.apply(*(declare("neuron.isf", "v1alpha1", kind, with_status=True) for kind in kinds))
    await play.add_namespaces("web")

    def describe(kind: str, name: str, cluster: str | None = "one", **fields: Any) -> dict[str, Any]:
        named = {"neuronClusterName": cluster} if cluster else {}
        return describe_object(kind, version, name, "web", spec={"tenant": "shop", **named, **fields})

    schema = {"name": "order", "type": "record", "fields": [{"name": "id", "type": "string"}]}
    async with play.running(*run, cwd="operator"):
        await play.apply(describe("NeuronTenant", "shop", settings={"adminRoles": ["me"]}))
        await play.apply(describe("NeuronTenant", "other", "two"), describe("NeuronTenant", "none", None))
        await play.record("tenants created")
        await play.apply(describe("NeuronNamespace", "orders", namespace="orders"))
        await play.settle()
        await play.apply(describe("NeuronTopic", "placed", namespace="orders", topic="placed"))
        await play.settle()
        await play.apply(describe("NeuronSchema", "placed", namespace="orders", topic="placed", schema=schema))
        await play.apply(describe("NeuronTopic", "lost", namespace="nowhere", topic="lost"))
        await play.record("created", quiet=8)
        patch = {"spec": {"lifecyclePolicy": "CleanUpAfterDeletion", "rolePermissions": {"reader": ["consume"]}}}
        await play.cluster.patch("neurontopics", "placed", patch, "web")
        await play.cluster.patch("neurontenants", "none", {"spec": {"neuronClusterName": "one"}}, "web")
        await play.record("changed", quiet=8)
    await play.cluster.patch("neurontopics", "lost", {"spec": {"namespace": "orders"}}, "web")
    async with play.running(*run, cwd="operator"):
        await play.record("changed while it was down", quiet=8)
        await play.cluster.delete("neurontopics", "placed", "web")
        await play.cluster.delete("neurontenants", "shop", "web")
        await play.record("deleted", quiet=8)


@operator(
    "redhat-gpte/replik8s",
    "aiofiles",
    "aiohttp",
    "aioshutil",
    "filelock",
    "inflection",
    "kubernetes_asyncio",
    "pytimeparse",
)
async def replik8s(play: Play) -> None:
    """Watches of its own in tasks that handlers start and await, daemons that swallow their cancellation."""
    data = play.home / "data"
    play.masks += [str(play.home)]
    play.environment |= {"OPERATOR_NAMESPACE": "backup", "DATA_DIR": str(data)}
    run = ("--namespace=backup", "--standalone", "--log-format=json", "operator/operator.py")
    await play.apply("helm/replik8s/crds/replicationsources.yaml", declare("shop.example.com", "v1", "Order"))
    await play.add_namespaces("backup", "web")
    await play.apply(describe_object("ConfigMap", "v1", "one", "web", data={"key": "1"}))
    await play.apply(describe_object("Order", "shop.example.com/v1", "first", "web", spec={}))

    def describe(*kinds: tuple[str, str], **fields: Any) -> dict[str, Any]:
        watched = [{"apiVersion": version, "kind": kind, "namespace": "web"} for version, kind in kinds]
        return {"spec": {"resources": watched, "refreshInterval": "4", **fields}}

    def list_files() -> list[str]:
        return sorted(str(path.relative_to(data)) for path in data.glob("*/*/latest/**/*.json"))

    version, both = "replik8s.rhpds.redhat.com/v1", (("v1", "ConfigMap"), ("shop.example.com/v1", "Order"))
    source = describe_object("ReplicationSource", version, "web", "backup", **describe(both[0], replicateLocal=True))
    async with play.running(*run):
        await play.apply(source, describe_object("ReplicationSource", version, "odd", "backup", **describe()))
        await play.record("created", quiet=12)
        await play.cluster.patch("replicationsources", "web", describe(*both), "backup")
        await play.apply(describe_object("ConfigMap", "v1", "two", "web", data={"key": "2"}))
        await play.record("changed", quiet=12)
        play.states["files"] = list_files()
    await play.cluster.delete("configmaps", "one", "web")
    await play.cluster.patch("replicationsources", "web", describe(both[1]), "backup")
    async with play.running(*run):
        await play.record("changed while it was down", quiet=12)
        await play.cluster.delete("replicationsources", "web", "backup")
        await play.record("deleted", quiet=12)
        play.states["files that are left"] = list_files()


_BWS: Final = """#!/usr/bin/env python3
import json, os, sys
value = json.dumps({"server": "db", "port": 5432, "tls.key": "k"})
named = os.path.exists(os.path.join(os.environ["HOME"], "changed"))
secrets = [("token", "new" if named else "first"), ("auth", value), ("list", "[1, 2]")]
found = [{"id": key, "key": key, "projectId": "p1", "value": value} for key, value in secrets]
print(json.dumps([{"id": "p1", "name": "shop"}] if "project" in sys.argv else found))
"""


@operator("rhpds/bitwarden-k8s-secrets-manager", "kubernetes_asyncio")
async def bitwarden_secrets_manager(play: Play) -> None:
    """Objects that handlers keep in caches, and a daemon that syncs what they mark; programs run by asyncio."""
    play.put("bws", _BWS)
    run = ("--all-namespaces", "--standalone", "--log-format=json", "operator/operator.py")
    await play.apply("helm/crds/bitwardensyncconfigs.yaml", "helm/crds/bitwardensyncsecret.yaml")
    await play.add_namespaces("vault", "web")
    domain = "bitwarden-k8s-secrets-manager.demo.redhat.com"

    def choose(**sources: dict[str, Any]) -> dict[str, Any]:
        return {"data": sources, "labels": {"app": {"value": "shop"}}}

    token, auth = {"secret": "token", "project": "shop"}, {"secret": "auth", "key": "server"}
    secrets = [{"name": "token", "namespace": "web", **choose(token=token)}, {"name": "auth", **choose(server=auth)}]
    secrets.append({"name": "odd", **choose(value={"secret": "none"})})
    spec = {"accessTokenSecret": {"name": "access"}, "syncInterval": 10, "secrets": secrets}
    single = {"config": {"name": "default", "namespace": "vault"}, **choose(port={"secret": "auth", "key": "port"})}
    async with play.running(*run):
        await play.apply(describe_object("Secret", "v1", "access", "vault", data={"token": "MQ=="}))
        await play.apply(describe_object("BitwardenSyncConfig", f"{domain}/v1", "default", "vault", spec=spec))
        await play.record("created", quiet=12)
        await play.apply(describe_object("BitwardenSyncSecret", f"{domain}/v1", "single", "web", spec=single))
        await play.record("one more", quiet=12)
        (play.home / "changed").touch()
        await play.cluster.patch("bitwardensyncconfigs", "default", {"spec": {"secrets": secrets[:1]}}, "vault")
        await play.record("changed", quiet=12)
    await play.cluster.patch("bitwardensyncsecrets", "single", {"spec": choose(all={"secret": "list"})}, "web")
    await play.cluster.patch("bitwardensyncconfigs", "default", {"spec": {"secrets": secrets[:2]}}, "vault")
    async with play.running(*run):
        await play.record("changed while it was down", quiet=12)
        await play.cluster.delete("bitwardensyncsecrets", "single", "web")
        await play.cluster.delete("bitwardensyncconfigs", "default", "vault")
        await play.record("deleted", quiet=12)


@operator(
    "rhpds/user-group-operator",
    "aiohttp",
    "Jinja2",
    "jmespath",
    "kubernetes_asyncio",
    "ldap3",
    "simple-salesforce",
    "str2bool",
)
async def user_groups(play: Play) -> None:
    """Events of foreign kinds that create objects of its own, whose handlers write to the foreign ones, with locks."""
    config = yaml.safe_load((play.home / "kubeconfig").read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = "default"
    (play.home / "kubeconfig").write_text(yaml.safe_dump(config))
    run = ("--all-namespaces", "--standalone", "operator/operator.py")
    domain = "user.openshift.io/v1"
    await play.apply(*(declare("user.openshift.io", "v1", kind, "Cluster") for kind in ("User", "Group")))
    identities = declare("user.openshift.io", "v1", "Identity", "Cluster")
    identities["spec"]["names"]["plural"], identities["metadata"]["name"] = "identities", "identities.user.openshift.io"
    await play.apply(identities, declare("oauth.openshift.io", "v1", "OAuthAccessToken", "Cluster"))
    await play.apply("helm/crds/usergroupconfigs.yaml", "helm/crds/usergroupmembers.yaml")

    async def add(name: str, email: str) -> None:
        extra: dict[str, Any] = {"extra": {"email": email}, "providerName": "sso", "providerUserName": name}
        await play.apply(describe_object("Identity", domain, f"sso.{name}", **extra))
        await play.apply(describe_object("User", domain, name, identities=[f"sso.{name}"]))

    own, prefixes = "usergroup.pfe.redhat.com/v1", {"enable": True, "prefix": "mail."}
    spec = {"identityProviderGroups": {"enable": True}, "emailDomainGroups": prefixes, "refreshInterval": 10}
    await add("alice", "alice@example.com")
    async with play.running(*run):
        await play.apply(describe_object("UserGroupConfig", own, "default", spec=spec))
        await play.record("created", quiet=12)
        await add("bob", "bob@example.com")  # a group lists its users in the order in which they were handled
        await play.until("groups", "identity-provider.sso", lambda group: "bob" in group["users"])
        await add("carol", "carol@example.org")
        await play.record("users added", quiet=12)
        await play.cluster.patch("usergroupconfigs", "default", {"spec": {"identityProviderGroups": {"enable": False}}})
        await play.record("changed", quiet=12)
    await play.cluster.delete("users", "bob")
    await add("dave", "dave@example.org")
    async with play.running(*run):
        await play.record("changed while it was down", quiet=12)
        await play.cluster.delete("users", "carol")
        await play.record("a user deleted", quiet=12)
        await play.cluster.delete("usergroupconfigs", "default")
        await play.record("deleted", quiet=12)


# Google's client: one machine exists from the start, and long waits are short.
_CLOUD: Final = """
import asyncio, sys, types

class NotFound(Exception):
    pass

class Machines:
    names = {"gcp-temp-rack-1"}
    def list(self, **options):
        return [types.SimpleNamespace(name=name) for name in sorted(self.names)]
    def get(self, request):
        if request.name not in self.names:
            raise NotFound()
    def delete(self, request):
        self.names.discard(request.name)
        return types.SimpleNamespace(name="done")

def describe(**options):
    return types.SimpleNamespace(**{**options, "name": options.get("instance")})

status = types.SimpleNamespace(DONE=1)
operations = types.SimpleNamespace(get=lambda request: types.SimpleNamespace(status=1, error=None))
compute = types.ModuleType("google.cloud.compute_v1")
compute.__dict__.update(InstancesClient=Machines, ZoneOperationsClient=lambda: operations)
compute.Operation = types.SimpleNamespace(Status=status)
compute.__getattr__ = lambda name: describe
errors = types.ModuleType("google.api_core.exceptions")
errors.NotFound, errors.GoogleAPIError = NotFound, NotFound
for name in ("google", "google.cloud", "google.api_core"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["google.cloud"].compute_v1 = sys.modules["google.cloud.compute_v1"] = compute
sys.modules["google.api_core"].exceptions = sys.modules["google.api_core.exceptions"] = errors
sleep = asyncio.sleep
asyncio.sleep = lambda delay, result=None: sleep(4 if delay == 300 else delay, result)
"""


@operator(
    "mizuamedesu/hybrid-node-operator",
    "cryptography",
    "kubernetes",
    "python-dateutil",
    "python-json-logger",
    ports=(8080,),
)
async def node_failover(play: Play) -> None:
    """Tasks that startup and other handlers leave behind, writes to the status by others, a peering of its own."""
    (play.home / "lib").mkdir()
    (play.home / "lib" / "sitecustomize.py").write_text(_CLOUD)
    names = ("PROJECT_ID", "ZONE", "MACHINE_TYPE", "NETWORK", "SUBNET", "IMAGE_PROJECT", "IMAGE_NAME")
    play.environment |= {f"GCP_{name}": "one" for name in names}
    play.environment |= {"K8S_API_SERVER": "localhost", "RECONCILIATION_INTERVAL_SECONDS": "3"}
    play.environment |= {"PYTHONPATH": str(play.home / "lib"), "NODE_FLAPPING_GRACE_SECONDS": "2"}
    play.skip("ClusterKopfPeering")
    await play.apply("deploy/crd.yaml", "deploy/kopf-peering-crd.yaml")
    await play.settle()
    await play.apply("deploy/kopf-peering.yaml")

    async def add(name: str, kind: str, ready: str) -> None:
        await play.apply(describe_object("Node", "v1", name, metadata={"labels": {"node-type": kind}}, spec={}))
        await set_ready(name, ready)

    async def set_ready(name: str, ready: str) -> None:
        conditions = {"status": {"conditions": [{"type": "Ready", "status": ready}]}}
        await play.cluster.patch("nodes", name, conditions, subresource="status")

    await add("rack-1", "onpremise", "True")
    await add("gcp-temp-rack-1", "new", "True")
    async with play.executing("node_operator.main", is_module=True):
        await play.record("started", quiet=8)
        await set_ready("rack-1", "False")
        await play.record("a node failed", quiet=12)
        await set_ready("rack-1", "True")
        await play.record("it is back", quiet=24)
    await add("rack-2", "onpremise", "True")
    async with play.executing("node_operator.main", is_module=True):
        await play.record("started again", quiet=8)
        await play.cluster.delete("nodes", "rack-2")
        await play.cluster.delete("nodefailovers", "rack-1")
        await play.record("deleted", quiet=8)


@operator("Mahislami/k8s-namespace-security-operator", "kubernetes")
async def namespace_security(play: Play) -> None:
    """Events of many kinds, two of which do not exist, and of none of its own; tasks that wait for threads."""
    play.environment |= {
        "DIRTY_FLUSH_SECONDS": "3",
        "DIRTY_WORKER_INTERVAL_SECONDS": "1",
        "WATCH_NAMESPACES": "web,shop",
    }
    run = ("--all-namespaces", "--standalone", "app/operator.py")
    folder = "charts/namespace-security-operator/crds"
    kinds = ("namespacesecurityreport", "securityfinding", "securitypolicyprofile", "securityremediation")
    await play.apply(*(f"{folder}/{kind}-crd.yaml" for kind in kinds))
    await play.add_namespaces("web")

    def describe(image: str) -> dict[str, Any]:
        labels, container = {"app": "web"}, {"name": "main", "image": image, "securityContext": {"runAsUser": 0}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "hostNetwork": True}}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        return describe_object("Deployment", "apps/v1", "web", "web", spec=spec)

    async with play.running(*run):
        await play.record("started", quiet=8)
        await play.apply(
            describe("nginx:latest"), describe_object("ConfigMap", "v1", "one", "web", data={"password": "1"})
        )
        await play.record("created", quiet=8)
        await play.add_namespaces("shop")
        await play.cluster.delete("configmaps", "one", "web")
        await play.record("changed", quiet=8)
    await play.apply(describe("nginx:1.25"))
    async with play.running(*run):
        await play.record("changed while it was down", quiet=8)
        await play.cluster.delete("deployments", "web", "web")
        await play.record("deleted", quiet=8)


@operator("TU-Wien-dataLAB/config-server-operator", "kubernetes", native=True)
async def config_server(play: Play) -> None:
    """Handlers of two kinds that are named in the singular, and that change the same child."""
    play.masks += [r"\b10\.\d+\.\d+\.\d+", r'"pod-template-hash": "[^"]*"', r'(?<=-)[a-z0-9]{8,10}-[a-z0-9]{5}(?=[">])']
    run = ("--all-namespaces", "--standalone", "opr/operator.py")
    folder, version = "chart/config-server-operator/crds", "datalab.tuwien.ac.at/v1"
    await play.apply(f"{folder}/configservers.yaml", f"{folder}/keyvaluepairs.yaml")
    await play.add_namespaces("web")

    def describe_pair(name: str, value: Any, config: str = "main") -> dict[str, Any]:
        spec = {"config": config, "key": name, "value": {"is": value}}
        return describe_object("KeyValuePair", version, name, "web", spec=spec)

    spec = {"image": "main:1", "imagePullPolicy": "IfNotPresent", "containerPort": 80, "configMountPath": "/var"}
    async with play.running(*run):
        await play.apply(describe_pair("early", 1), describe_pair("lost", 1, "none"))
        await play.settle()
        await play.apply(describe_object("ConfigServer", version, "main", "web", spec=spec))
        await play.settle()
        await play.apply(describe_pair("late", 2))
        await play.record("created")
        await play.cluster.patch("keyvaluepairs", "late", {"spec": {"value": {"is": 3}}}, "web")
        await play.record("changed")
    await play.cluster.patch("keyvaluepairs", "early", {"spec": {"key": "other"}}, "web")
    async with play.running(*run):
        await play.record("changed while it was down")
        await play.cluster.delete("keyvaluepairs", "late", "web")
        await play.record("a pair deleted")
        await play.cluster.delete("configservers", "main", "web")
        await play.record("deleted")


@operator("ChickenBites/mtxmediak8s", "kubernetes", native=True)
async def media_streams(play: Play) -> None:
    """A daemon in a thread that sleeps for half a minute between two looks at its flag, beside a timer."""
    play.patient = True
    play.environment |= {"OPERATOR_NAMESPACE": "media"}
    play.masks += [r"\b10\.\d+\.\d+\.\d+", r'"pod-template-hash": "[^"]*"', r'(?<=-)[a-z0-9]{8,10}-[a-z0-9]{5}(?=[">])']
    run = ("--all-namespaces", "--standalone", "operator/main.py")
    await play.apply("deploy/crd-streamset.yaml")
    await play.add_namespaces("media", "web")

    def describe(*names: str) -> dict[str, Any]:
        return {"spec": {"urls": [f"http://{name}.m3u8" for name in names], "instanceSize": 2}}

    version = "media.example.com/v1alpha1"
    async with play.running(*run):
        await play.apply(describe_object("StreamSet", version, "main", "media", **describe("a", "b", "c")))
        await play.apply(describe_object("StreamSet", version, "other", "web", **describe("a")))
        await play.record("created")
        await play.cluster.patch("streamsets", "main", describe("d"), "media")
        await play.record("changed")
    await play.cluster.patch("streamsets", "main", describe("d", "e", "f", "g", "h"), "media")
    async with play.running(*run):
        await play.record("changed while it was down")
        await play.cluster.delete("streamsets", "main", "media")
        await play.record("deleted")


# What is posted succeeds, unless it says otherwise.
_POSTED: Final = """
import types, requests

def post(url, data, headers):
    return types.SimpleNamespace(status_code=200, text=data, ok="broken" not in data)

requests.post = post
"""


@operator("joshuagrisham-karolinska/openehr-definitions-operator", "requests", native=True)
async def definitions(play: Play) -> None:
    """Handlers of ConfigMaps with a label, an update handler of a field with its new value, texts as results."""
    play.environment |= {"OPENEHR_API_BASEURL": "http://openehr/", "PYTHONSAFEPATH": "1"}
    if play.mode != "native":  # where it would have to be a number
        play.environment["FAILURE_BACKOFF"] = "3"
    run = ("--all-namespaces", "--standalone", str(play.put("posting.py", _POSTED)), "src/operator.py")
    await play.add_namespaces("ehrbase")
    label = "openehr.org/definitiontype"

    def describe(name: str, kind: str | None, **data: str) -> dict[str, Any]:
        labels = {label: kind} if kind else {}
        return describe_object("ConfigMap", "v1", name, "ehrbase", metadata={"labels": labels}, data=data)

    async with play.running(*run):
        await play.apply("test-cm.yaml", describe("plain", None, one="1"), describe("bad", "query", one="1"))
        await play.apply(describe("broken", "template-adl2", one="broken"))
        await play.record("created", quiet=8)
        await play.cluster.patch("configmaps", "test", {"data": {"test1": "other"}}, "ehrbase")
        await play.cluster.patch("configmaps", "plain", {"metadata": {"labels": {label: "template-adl2"}}}, "ehrbase")
        await play.record("changed", quiet=8)
    await play.cluster.patch("configmaps", "test", {"data": None}, "ehrbase")
    await play.cluster.patch("configmaps", "plain", {"data": {"one": "2"}}, "ehrbase")
    async with play.running(*run):
        await play.record("changed while it was down", quiet=8)
        for name in ("test", "plain", "bad"):
            await play.cluster.delete("configmaps", name, "ehrbase")
        await play.record("deleted", quiet=8)


@operator("chximn/jwt-manager", "kubernetes", "python-jose[cryptography]", "pytz", native=True)
async def jwt_manager(play: Play) -> None:
    """Update handlers of one kind that write the children of another; a timer; ``kubernetes`` without a login."""
    group = "k8s.chximn.pro"
    play.environment |= {"PYTHONSAFEPATH": "1", "API_GROUP": group, "API_GROUP_VERSION": "v1"}
    play.environment |= {"JWT_CRD": "jwts", "JWT_SIGNER_CRD": "jwt-signers"}
    play.masks += [r'(?<="token": )"[^"]*"', r'(?<=/last-signing-time": )"[^"]*"']
    run = ("--all-namespaces", "--standalone", "operator.py")
    signers = declare(group, "v1", "JWTSigner")
    signers["spec"]["names"]["plural"], signers["metadata"]["name"] = "jwt-signers", f"jwt-signers.{group}"
    await play.apply(declare(group, "v1", "JWT"), signers)
    await play.add_namespaces("web")

    def describe(kind: str, name: str, **spec: Any) -> dict[str, Any]:
        return describe_object(kind, f"{group}/v1", name, "web", spec=spec)

    def describe_token(name: str, signer: str = "main", **expiry: int) -> dict[str, Any]:
        return describe("JWT", name, signer=signer, data={"sub": name}, secretName=f"{name}-token", expiryTime=expiry)

    key = {"secret": {"name": "key", "namespace": "web", "key": "k"}}
    async with play.running(*run, cwd="operator"):
        await play.apply(describe_object("Secret", "v1", "key", "web", data={"k": "c2VjcmV0"}))
        await play.apply(describe("JWTSigner", "main", algorithm="HS256", key=key))
        await play.apply(describe_token("one", days=1), describe_token("lost", "none", days=1), describe_token("odd"))
        await play.record("created")
        await play.cluster.patch("jwts", "one", {"spec": {"secretName": "other"}}, "web")
        await play.cluster.patch("jwt-signers", "main", {"spec": {"algorithm": "HS512"}}, "web")
        await play.record("changed")
    await play.apply(describe_token("two", hours=1, minutes=1))
    await play.cluster.patch("jwt-signers", "main", {"spec": {"key": {"value": "plain"}}}, "web")
    async with play.running(*run, cwd="operator"):
        await play.record("changed while it was down")
        for name in ("one", "two"):
            await play.cluster.delete("jwts", name, "web")
        await play.record("deleted")


# Where it finds its templates in a pod.
_TEMPLATES: Final = """
import os

scandir = os.scandir
os.scandir = lambda path: scandir(os.environ["TEMPLATES"] if path == "/templates" else path)
"""


@operator("heilerich/kf-pvc-operator", native=True, apart=("kubernetes<36",))
async def volumes(play: Play) -> None:
    """A timer of Namespaces and its filter, both with the operator's memo, a field of the status, its own login."""
    templates = play.home / "templates"
    templates.mkdir()
    play.environment |= {"PYTHONSAFEPATH": "1", "TEMPLATES": str(templates), "NAMESPACE_SELECTOR": "team=one"}
    play.masks += [r'"resourceVersion": "\d+"']  # a volume names that of its claim
    run = ("--all-namespaces", "--standalone", str(play.put("templates.py", _TEMPLATES)), "src/operator.py")

    def write(**data: str) -> None:
        found = describe_object("ConfigMap", "v1", "defaults", metadata={"labels": {"made": "yes"}}, data=data)
        (templates / "one.yaml").write_text(yaml.safe_dump(found))

    def describe_claim(name: str, **annotations: str) -> dict[str, Any]:
        spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
        meta = {"annotations": {key.replace("_", "/"): value for key, value in annotations.items()}}
        return describe_object("PersistentVolumeClaim", "v1", name, "web", metadata=meta, spec=spec)

    write(a="1")
    await play.apply(describe_object("Namespace", "v1", "web", metadata={"labels": {"team": "one"}}))
    await play.add_namespaces("other")
    async with play.running(*run):
        await play.apply(describe_claim("shared", **{"nail.science_nfs-pv": "nfs.example.com/data"}))
        await play.record("created", quiet=12)
        await play.cluster.patch("namespaces", "other", {"metadata": {"labels": {"team": "one"}}})
        await play.cluster.patch("configmaps", "defaults", {"data": {"a": "2"}}, "web")
        await play.record("changed", quiet=12)
    write(a="1", b="2")
    await play.cluster.delete("persistentvolumeclaims", "shared", "web")
    async with play.running(*run):
        await play.record("changed while it was down", quiet=12)
        await play.cluster.patch("namespaces", "web", {"metadata": {"labels": {"team": None}}})
        await play.cluster.delete("configmaps", "defaults", "web")
        await play.record("withdrawn", quiet=12)
