"""Operators of whole applications: web sites, scanners, OpenStack, Keycloak.

As in :mod:`tests.world.operators`, nothing of their code is here.
"""

from __future__ import annotations

from typing import Any, Final

from tests.world.operators import declare, describe_object, operator
from tests.world.playing import Play

# What controllers of Deployments and Services choose: addresses, and names of ReplicaSets and pods.
CHOSEN: Final = (
    r"\b10\.\d+\.\d+\.\d+",
    r'"pod-template-hash": "[^"]*"',
    r"(?<=-)[a-z0-9]{8,10}-[a-z0-9]{5}\b",
    r'(?<="lastUpdateTime": ")[^"]*", "message": "([^"\\]|\\.)*", "reason": "[^"]*',
)


@operator("kooked-ch/operator", "kubernetes", "requests", native=True)
async def kooked(play: Play) -> None:
    play.masks += [*CHOSEN, r'"(MARIADB_ROOT_PASSWORD|MONGODB_ROOT_USER|MONGODB_ROOT_PASSWORD)": "[^"]*"']
    run = ("kooked-kopf.py", "run", "--all-namespaces", "--standalone")
    await play.add_namespaces("apps")
    await play.apply(declare("cert-manager.io", "v1", "ClusterIssuer", "Cluster"))
    await play.apply(declare("cert-manager.io", "v1", "Certificate"))
    await play.apply(*(declare("traefik.containo.us", "v1alpha1", kind) for kind in ("IngressRoute", "Middleware")))

    def describe(**spec: Any) -> dict[str, Any]:
        return describe_object("KookedApp", "kooked.ch/v1", "app", "apps", spec=spec)

    container = {"name": "web", "image": "nginx:1.27", "volumes": [{"name": "data", "mountPath": "/data"}]}
    container["env"] = [{"name": "MODE", "value": "test"}]
    account = {"user": "me", "password": "secret"}
    databases = [account | {"name": "shop", "provider": provider} for provider in ("mariadb", "postgresql", "mongodb")]
    domains = [{"url": f"{name}.example.org", "container": "web", "port": 80} for name in ("one", "two", "three")]
    async with play.executing(*run):
        await play.record("started")  # it has created the definition of its kind
        await play.apply(describe(containers=[container], domains=domains[:1], databases=databases[:2]))
        await play.record("created")
        await play.apply(describe(containers=[container], replicas=2, domains=domains[:2], databases=databases[1:]))
        await play.record("changed")
    await play.apply(describe(containers=[container], domains=domains[1:], databases=databases[1:]))
    async with play.executing(*run):
        await play.record("changed while it was down")
        await play.cluster.delete("kookedapps", "app", "apps")
        await play.record("deleted")


# WordPress' program, as the operator calls it: it records how it is called, and says which plugins are active.
_WP: Final = """#!/usr/bin/env python3
import json, os, pathlib, sys
words = sys.argv[2:]
with open(os.path.join(os.environ["HOME"], "called"), "a") as file:
    print(" ".join(words).replace("\\n", " "), file=file)
state = pathlib.Path(os.environ["HOME"], "plugins.json")
plugins = json.loads(state.read_text()) if state.exists() else {}
if words[0] == "plugin":
    plugins |= {name: {} for name in words[2:]} if words[1] == "activate" else {}
    plugins = plugins if words[1] == "activate" else {n: v for n, v in plugins.items() if n not in words}
    state.write_text(json.dumps(plugins))
elif words[0] == "eval":
    armor = "===== %s WORDPRESS JSON STATUS ====="
    print(armor % "BEGIN", json.dumps({"plugins": plugins, "languages": []}), armor % "END", sep="\\n")
"""
_MARIADB: Final = ("Database", "Grant", "MariaDB", "User")


@operator("epfl-si/wp-operator", "requests", apart=("kubernetes<36",), native=True)
async def wp_operator(play: Play) -> None:
    play.put("wp", _WP)
    play.put("php", "#!/bin/sh\necho WordPress successfully installed\n")
    play.masks += [r'"password": "[^"]*"', r"WP_DB_PASSWORD +[^;]*", CHOSEN[0]]
    play.masks += [r'"control-plane\.alpha\.kubernetes\.io/leader": "(\\"|[^"])*"']
    play.environment |= {"KUBERNETES_NAMESPACE": "sites"}
    run = ("wp_operator.py", "run", "--standalone", "--", "--php=php")
    await play.add_namespaces("sites")
    (crd,) = (text for text in (play.root / "WordPressSite-crd.yaml").read_text().split("\n---") if "kind:" in text)
    await play.apply("\n" + crd.partition("\n  conversion:")[0])
    await play.apply(declare("route.openshift.io", "v1", "Route"))
    await play.apply(*(declare("k8s.mariadb.com", "v1alpha1", kind, with_status=True) for kind in _MARIADB))
    database = describe_object(
        "MariaDB", "k8s.mariadb.com/v1alpha1", "db", "sites", metadata={"labels": {"wp-auto-allocate": "yes"}}, spec={}
    )
    (found,) = await play.cluster.apply(database)
    owner = {"apiVersion": database["apiVersion"], "kind": "MariaDB", "name": "db", "uid": found["metadata"]["uid"]}
    port = {"name": "mariadb", "port": 3306}
    await play.apply(
        describe_object(
            "Service", "v1", "mariadb", "sites", metadata={"ownerReferences": [owner]}, spec={"ports": [port]}
        )
    )

    def describe(**plugins: Any) -> dict[str, Any]:
        wordpress = {"title": "Site", "tagline": "A site", "theme": "wp-theme-2018", "plugins": plugins}
        spec = {"hostname": "www.example.org", "path": "/site", "wordpress": wordpress}
        spec["owner"] = {"epfl": {"unitId": 1}}
        return describe_object("WordpressSite", "wordpress.epfl.ch/v2", "site", "sites", spec=spec)

    async def record(step: str) -> None:
        await play.record(step)  # no longer: the leader renews its lock each five seconds
        called = play.home / "called"
        # Each call once: by the bridge, field handlers see what others have changed meanwhile once more.
        play.states[f"{step}: programs"] = sorted({*called.read_text().splitlines()}) if called.exists() else []

    ready = {"status": {"conditions": [{"type": "Ready", "message": "Created"}]}}
    option = {"wp_options": [{"name": "color", "value": "red"}]}
    async with play.executing(*run):
        await play.apply(describe(one=option))
        for kind, name in (("databases", "wp-db-site"), ("users", "wp-db-user-site"), ("grants", "wp-db-grant-site")):
            await play.until(kind, name, bool, namespace="sites")
            await play.cluster.patch(f"{kind}.k8s.mariadb.com", name, ready, "sites", subresource="status")
        await play.until("routes", "wp-route-site", bool, namespace="sites")
        await record("created")
        await play.apply(describe(one=option, two={}))
        await record("a plugin added")
    removed = {"spec": {"wordpress": {"plugins": {"one": None}}}}
    await play.cluster.patch("wordpresssites", "site", removed, "sites")
    async with play.executing(*run):
        await record("a plugin removed while it was down")
        await play.cluster.delete("wordpresssites", "site", "sites")
        await record("deleted")


@operator(
    "devopstales/trivy-operator",
    "croniter",
    "kubernetes",
    "pyOpenSSL",
    "requests",
    "six",
    "validators",
    ports=(9115,),
    native=True,
)
async def trivy_operator(play: Play) -> None:
    play.put("trivy", "#!/bin/sh\n")
    play.masks += [r"(?<=scanner-)[a-z0-9]{5}\b"]
    play.environment |= {"SERVICE_ACCOUNT": "scanner"}
    run = ("--all-namespaces", "--standalone", "trivy-operator.py")
    version, api = "trivy-operator.devopstales.io/v1", "cluster-scanners"
    await play.add_namespaces("trivy-operator", "apps")
    await play.apply(*(f"deploy/helm/crds/{kind}.yaml" for kind in ("ClusterScanner", "NamespaceScanner")))
    async with play.running(*run):
        await play.apply(describe_object("ClusterScanner", version, "nodes", spec={"scanProfileName": "cis-1.23"}))
        # One that is right would keep the event loop from then on, as its handler sleeps.
        await play.apply(describe_object("NamespaceScanner", version, "vague", "apps", spec={"crontab": "*/5 * * * *"}))
        await play.until("daemonsets", "kube-bech-scanner", bool, namespace="trivy-operator")  # its client loads slowly
        await play.record("created")
        await play.cluster.patch(api, "nodes", {"spec": {"scanProfileName": "other"}})
        await play.record("changed")
    await play.cluster.delete("daemonsets", "kube-bech-scanner", "trivy-operator")
    async with play.running(*run):
        await play.until("daemonsets", "kube-bech-scanner", bool, namespace="trivy-operator")
        await play.record("started again")
        await play.cluster.delete(api, "nodes")
        await play.cluster.delete("namespace-scanners", "vague", "apps")
        await play.record("deleted")


_OPENSTACK: Final = (
    ("ClusterMaintenanceRequest", "Cluster"),
    ("ClusterWorkloadLock", "Cluster"),
    ("NodeDeletionRequest", "Cluster"),
    ("NodeDisableNotification", "Cluster"),
    ("NodeMaintenanceRequest", "Cluster"),
    ("NodeWorkloadLock", "Cluster"),
    ("OpenStackDeployment", "Namespaced"),
    ("OpenStackDeploymentStatus", "Namespaced"),
)

# Its configuration is where its package would be installed.
_CONFIGURE: Final = "import rockoon.settings\nsys.prefix = before\n"


@operator(
    "Mirantis/rockoon",
    "dacite",
    "deepmerge",
    "falcon",
    "filelock",
    "Jinja2",
    "jsonpath-ng",
    "jsonschema",
    "keystoneauth1",
    "marshmallow-dataclass",
    "openstacksdk",
    "opensearch-py",
    "pbr",
    "pykube-ng",
    "websocket-client",
    ports=(32768,),
)
async def rockoon(play: Play) -> None:
    logging = play.put("logging.conf", "{version: 1, disable_existing_loggers: false}")
    play.environment |= {"OSCTL_LOGGING_CONF_FILE": str(logging), "OSCTL_HEARTBEAT_INTERVAL": "2"}
    play.environment |= {"PBR_VERSION": "1.0.0"}
    play.environment |= {"OSCTL_OS_DEPLOYMENT_NAMESPACE": "openstack", "NODE_IP": "localhost"}
    play.skip("KopfPeering")
    config = play.put("config.py", f"import sys\nsys.prefix, before = {str(play.root)!r}, sys.prefix\n{_CONFIGURE}")
    controllers = ("node", "maintenance", "configmaps", "openstackdeploymentstatus", "probe")
    modules = [option for name in controllers for option in ("-m", f"rockoon.controllers.{name}")]
    run = ("--all-namespaces", "--standalone", "-L", "http://localhost:32768/healthz", str(config), *modules)
    group = "lcm.mirantis.com"
    version, api = f"{group}/v1alpha1", "nodemaintenancerequests"
    await play.add_namespaces("openstack")
    await play.apply(declare("zalando.org", "v1", "KopfPeering"))
    await play.apply(*(declare(group, "v1alpha1", kind, scope, with_status=True) for kind, scope in _OPENSTACK))
    await play.apply(describe_object("KopfPeering", "zalando.org/v1", "rockoon.osdpl", "openstack"))

    def describe_node(name: str, **labels: str) -> dict[str, Any]:
        meta = {"labels": labels, "annotations": {"some": "thing"}}
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        return describe_object("Node", "v1", name, metadata=meta, spec={}, status=status)

    async with play.running(*run):
        await play.apply(describe_node("one", **{"openstack-compute-node": "enabled"}), describe_node("two"))
        await play.record("nodes created")
        request = {"nodeName": "one", "scope": "os"}
        await play.apply(describe_object("NodeMaintenanceRequest", version, "one", spec=request))
        await play.record("maintenance")
        await play.apply(
            describe_object("OpenStackDeployment", version, "cloud", "openstack", spec={"preset": "compute"})
        )
        watched = {"labels": {"openstack.lcm.mirantis.com/watch": "true"}}
        await play.apply(describe_object("ConfigMap", "v1", "some", "openstack", metadata=watched, data={"key": "1"}))
        await play.record("a deployment created")
        await play.apply(describe_object("ConfigMap", "v1", "some", "openstack", metadata=watched, data={"key": "2"}))
        await play.record("changed")
    await play.cluster.patch("nodes", "two", {"metadata": {"labels": {"openstack-gateway": "enabled"}}})
    await play.cluster.delete("openstackdeployments", "cloud", "openstack")
    async with play.running(*run):
        await play.record("changed while it was down")
        await play.cluster.delete(api, "one")
        await play.cluster.delete("nodes", "two")
        await play.cluster.delete("configmaps", "some", "openstack")
        await play.record("deleted")


# A database that answers, which is all that the operator asks of it.
_ASYNCPG: Final = """
class Connection:
    async def fetchval(self, query): return 1
    async def close(self): pass
async def connect(**options): return Connection()
"""


def prepare_keycloak(play: Play) -> None:
    """Set what any run of the operator needs."""
    play.masks += [*CHOSEN, r'"(password|generation)": "[^"]*"', r'"observedGeneration": \d+']
    play.skip("ClusterKopfPeering", "KopfPeering")
    play.environment |= {"OPERATOR_INSTANCE_ID": "one", "POD_NAMESPACE": "keycloak", "OPERATOR_NAMESPACE": "keycloak"}
    play.environment |= {"KEYCLOAK_OPERATOR_NAMESPACES": "keycloak"}
    (play.home / "lib").mkdir()
    (play.home / "lib" / "asyncpg.py").write_text(_ASYNCPG)
    play.environment |= {"PYTHONPATH": f"{play.home / 'lib'}:{play.root / 'src'}"}


@operator(
    "vriesdemichael/keycloak-operator",
    "aiobreaker",
    "aiohttp",
    "httpx",
    "kubernetes",
    "opentelemetry-exporter-otlp",
    "opentelemetry-instrumentation-aiohttp-client",
    "opentelemetry-instrumentation-httpx",
    "opentelemetry-sdk",
    "prometheus-client",
    "pydantic",
    "pydantic-settings",
    ports=(8080, 8081),
    python=(3, 13),  # by its own words 3.14, but it runs
)
async def keycloak(play: Play) -> None:
    prepare_keycloak(play)
    play.environment |= {"ENABLE_WEBHOOKS": "false"}
    kinds = ("keycloak", "keycloakclient", "keycloakrealm")
    await play.add_namespaces("keycloak")
    await play.apply(*(f"charts/keycloak-operator/crds/{kind}-crd.yaml" for kind in kinds))
    await play.apply("charts/keycloak-operator/crds/kopf-peering-crds.yaml")
    await play.apply(describe_object("Secret", "v1", "database", "keycloak", stringData={"password": "secret"}))
    version, api = "vriesdemichael.github.io/v1", "keycloaks"
    database = {"type": "postgresql", "host": "localhost", "port": 5432, "database": "app", "username": "app"}
    database["passwordSecret"] = {"name": "database", "key": "password"}
    spec = {"replicas": 1, "image": "quay.io/keycloak/keycloak:26.0.0", "database": database}
    realm = {"realmName": "one", "operatorRef": {"namespace": "keycloak"}}
    async with play.executing("keycloak_operator.operator", is_module=True):
        await play.apply(describe_object("Keycloak", version, "keycloak", "keycloak", spec=spec))
        await play.record("created", quiet=12)
        await play.apply(describe_object("KeycloakRealm", version, "one", "keycloak", spec=realm))
        await play.cluster.patch(api, "keycloak", {"spec": {"replicas": 2}}, "keycloak")
        await play.record("changed", quiet=12)
    async with play.executing("keycloak_operator.operator", is_module=True):
        await play.record("started again", quiet=12)
        await play.cluster.delete("keycloakrealms", "one", "keycloak")
        await play.cluster.delete(api, "keycloak", "keycloak")
        await play.record("deleted", quiet=12)
