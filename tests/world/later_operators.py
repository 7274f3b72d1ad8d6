"""Public operators that were tried after all others, in the same table: nothing was changed for them before."""

from __future__ import annotations

from typing import Any, Final

from tests.world.application_operators import CHOSEN
from tests.world.operators import declare, describe_object, operator
from tests.world.playing import Play


@operator("TheYkk/synator", "kubernetes", native=True)
async def synator(play: Play) -> None:
    """Copies of Secrets and ConfigMaps, by the login that the framework makes, and handlers of the same update."""
    run = ("--all-namespaces", "--standalone", "handlers.py")
    await play.add_namespaces("apps", "one", "two")

    def describe(kind: str, name: str, value: str, **annotations: str) -> dict[str, Any]:
        meta = {"annotations": {f"synator/{key}-namespaces": names for key, names in annotations.items()}}
        meta["annotations"]["synator/sync"] = "yes"
        return describe_object(kind, "v1", name, "apps", metadata=meta, data={"key": value})

    def describe_pod(name: str, reloaded: str) -> dict[str, Any]:
        meta = {"annotations": {"synator/reload": reloaded}}
        spec = {"containers": [{"name": "main", "image": "nginx:1"}]}
        return describe_object("Pod", "v1", name, "apps", metadata=meta, spec=spec)

    async with play.running(*run):
        await play.apply(describe("Secret", "wide", "MQ=="), describe("Secret", "narrow", "MQ==", include="one, none"))
        await play.apply(describe("ConfigMap", "settings", "1", exclude="two"))
        await play.apply(describe_pod("reloaded", "secret:wide"), describe_pod("kept", "configmap:other"))
        await play.record("created")
        await play.add_namespaces("three")
        await play.record("a namespace added")
        await play.apply(describe("Secret", "wide", "Mg=="), describe("ConfigMap", "settings", "2", include="two"))
        await play.record("changed")
    await play.apply(describe("Secret", "narrow", "Mg==", include="two"))
    async with play.running(*run):
        await play.record("changed while it was down")
        await play.cluster.delete("secrets", "wide", "apps")
        await play.cluster.delete("configmaps", "settings", "apps")
        await play.record("deleted")


@operator("mithucste30/maintenance-operator", "kubernetes", native=True)
async def maintenance(play: Play) -> None:
    """One function for two causes of two kinds, whose own writes call it again; a finalizer that nothing needs."""
    play.masks += [CHOSEN[0]]
    play.environment |= {"POD_NAMESPACE": "operator"}
    prefix = "maintenance-operator.mithucste30.io"
    run = ("--all-namespaces", "--standalone", "app/maintenance_operator.py")
    await play.add_namespaces("operator", "web")
    await play.apply(declare("traefik.io", "v1alpha1", "IngressRoute"))
    page = {"page.html": "<html>away</html>"}
    await play.apply(describe_object("ConfigMap", "v1", "maintenance-page-away", "operator", data=page))
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "shop", "port": {"number": 80}}}}
    rules = [{"host": "shop.example.org", "http": {"paths": [path]}}]
    routes = [{"match": "Host(`shop`)", "kind": "Rule", "services": [{"name": "shop", "port": 80}]}]

    def annotate(**annotations: str | None) -> dict[str, Any]:
        return {"metadata": {"annotations": {f"{prefix}/{key}": value for key, value in annotations.items()}}}

    async def change(**annotations: str | None) -> None:
        given = {key.replace("_", "-"): value for key, value in annotations.items()}
        await play.cluster.patch("ingresses", "shop", annotate(**given), "web")
        await play.settle()  # both kinds share what serves the page, which two handlers would create at once
        await play.cluster.patch("ingressroutes", "shop", annotate(**given), "web")

    async with play.running(*run):
        await play.apply(describe_object("Ingress", "networking.k8s.io/v1", "shop", "web", spec={"rules": rules}))
        await play.apply(describe_object("IngressRoute", "traefik.io/v1alpha1", "shop", "web", spec={"routes": routes}))
        await play.record("created")
        await change(enabled="true")
        await play.record("enabled")
        await change(custom_page="away")
        await play.record("another page")
    await play.cluster.patch("ingresses", "shop", annotate(enabled=None), "web")
    async with play.running(*run):
        await play.record("disabled while it was down")
        await play.cluster.patch("ingressroutes", "shop", annotate(enabled="false"), "web")
        await play.record("disabled")
        await play.cluster.delete("ingresses", "shop", "web")
        await play.cluster.delete("ingressroutes", "shop", "web")
        await play.record("deleted")


# UptimeRobot's API, as the operator calls it: what it stores is in a file, by the name of each object.
_UPTIMEROBOT: Final = """
import json, os, pathlib, threading

STORE, LOCK = pathlib.Path(os.environ["HOME"], "uptimerobot.json"), threading.Lock()
KINDS = {"monitor": "monitor", "psp": "psp", "m_window": "mwindow", "alert_contact": "alertcontact"}

class UptimeRobot:
    def __init__(self, api_key): pass
    def get_account_details(self): return {"stat": "ok"}
    def __getattr__(self, name):
        verb, _, kind = name.partition("_")
        def call(identifier=None, **fields):
            with LOCK:
                stored = json.loads(STORE.read_text()) if STORE.exists() else {}
                key = identifier or f"{kind}-{fields['friendly_name']}"
                if verb != "new" and key not in stored:
                    return {"stat": "fail", "error": {"type": "not_found"}}
                if verb == "delete":
                    del stored[key]
                else:
                    stored[key] = {**stored.get(key, {}), **fields}
                STORE.write_text(json.dumps(stored, sort_keys=True))
            found = {"id": key}
            return {"stat": "ok", KINDS[kind]: found, kind: found}
        return call
"""


@operator("brennerm/uptimerobot-operator", "kubernetes", native=True)
async def uptimerobot(play: Play) -> None:
    """Kinds that it declares itself at startup, results in the status, which handlers read, and adopted children."""
    (play.home / "lib").mkdir()
    (play.home / "lib" / "uptimerobotpy.py").write_text(_UPTIMEROBOT)
    play.environment |= {"PYTHONPATH": str(play.home / "lib"), "UPTIMEROBOT_API_KEY": "key"}
    run = ("--all-namespaces", "--standalone", "ur_operator/handlers.py")
    version = "uroperator.brennerm.github.io/v1beta1"
    examples = [f"example-manifests/{name}.yml" for name in ("psp", "alert_contact", "maintenance_window", "ingress")]

    def describe(name: str, **spec: Any) -> dict[str, Any]:
        return describe_object("UptimeRobotMonitor", version, name, "default", spec={"type": "HTTPS", **spec})

    def describe_rules(*hosts: str) -> dict[str, Any]:
        backend = {"service": {"name": "service1", "port": {"number": 80}}}
        http = {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}
        return {"spec": {"rules": [{"host": host, "http": http} for host in hosts]}}

    async def record(step: str) -> None:
        await play.record(step)
        store = play.home / "uptimerobot.json"
        play.states[f"{step}: UptimeRobot"] = [store.read_text()] if store.exists() else []

    async with play.running(*run):
        await play.apply(*examples, "example-manifests/monitor_for_password_protected_page.yml")
        await play.apply(describe("plain", url="https://example.org"))
        await record("created")
        await play.apply(describe("plain", url="https://example.net", type="PING"))
        await play.cluster.patch("ingresses", "my-ingress", describe_rules("a.example.org", "b.example.org"), "default")
        await play.cluster.patch("maintenancewindows", "my-maintenance-window", {"spec": {"duration": 60}}, "default")
        await play.cluster.patch("alertcontacts", "my-alert-contact", {"spec": {"value": "bar@foo.com"}}, "default")
        await record("changed")
    await play.cluster.patch("ingresses", "my-ingress", describe_rules("b.example.org"), "default")
    await play.cluster.patch("uptimerobotmonitors", "my-custom-monitor", {"spec": {"interval": 300}}, "default")
    await play.cluster.delete("alertcontacts", "my-alert-contact", "default")
    async with play.running(*run):
        await record("changed while it was down")
        await play.cluster.delete("ingresses", "my-ingress", "default")
        await play.cluster.delete("uptimerobotmonitors", "plain", "default")
        await play.cluster.delete("maintenancewindows", "my-maintenance-window", "default")
        await record("deleted")


# Twingate's API, as the operator calls it: an object is what was sent, with the other fields that are read of it.
_TWINGATE: Final = """
import base64, json, os, pathlib, re, sys, threading

STORE, LOCK = pathlib.Path(os.environ["HOME"], "twingate.json"), threading.Lock()
TIMES = {"createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z"}

def make_entity(key, sent):
    found = {**TIMES, "isVisible": True, "isBrowserShortcutEnabled": False, "alias": None, "tags": [], **sent}
    found["id"] = base64.b64encode(key.encode()).decode()
    found["address"] = {"type": "DNS", "value": sent.get("address")}
    found["remoteNetwork"] = {"id": sent.get("remoteNetworkId")}
    policy = sent.get("securityPolicyId")
    return {**found, "securityPolicy": policy and {"id": policy}}

def answer(query, sent):
    field = re.search(r"(?:mutation|query) [^{]*\\{\\s*(\\w+)", query)[1]
    kind, verb = re.fullmatch(r"(.*?)(Create|Update|Delete|GenerateTokens|Add|Remove|)", field).groups()
    with LOCK:
        stored = json.loads(STORE.read_text()) if STORE.exists() else {}
        if verb in ("Add", "Remove"):
            stored[f"access {sent['resourceId']}"] = {"verb": verb, **sent}
        elif verb == "Create":
            key = f"{kind}:{sent['name']}"
            stored[base64.b64encode(key.encode()).decode()] = {"key": key, **sent}
        elif sent.get("id") in stored and verb == "Update":
            stored[sent["id"]] |= sent
        elif verb == "Delete":
            stored.pop(sent["id"], None)
        STORE.write_text(json.dumps(stored, sort_keys=True))
        named = [each for each in stored.values() if each.get("key", "").partition(":")[2] == sent.get("name")]
        known = stored.get(sent.get("id"), named[0] if named else {})
    entity = make_entity(known["key"], known) if "key" in known else None
    if not verb:
        return {field: entity and {"__typename": "NetworkResource", **entity}}
    tokens = {"accessToken": "access", "refreshToken": "refresh"}
    return {field: {"ok": True, "error": None, "entity": entity, "connectorTokens": tokens}}

def send(self, request, **options):
    import requests
    response = requests.Response()
    response.status_code, response.request, response.url = 200, request, request.url
    if request.method == "POST":
        asked = json.loads(request.body)
        response._content = json.dumps({"data": answer(asked["query"], asked.get("variables") or {})}).encode()
        response.headers["Content-Type"] = "application/json"
    return response

if any("main.py" in word for word in sys.orig_argv):
    import requests.adapters
    requests.adapters.HTTPAdapter.send = send
"""


@operator(
    "Twingate/kubernetes-operator",
    "croniter",
    "gql[requests]",
    "kubernetes",
    "orjson",
    "pendulum",
    "pydantic",
    "pydantic-settings",
    "requests",
    "semantic-version",
    "tenacity",
    native=True,
)
async def twingate(play: Play) -> None:
    """Indices that field handlers read, timers, a memo from the startup, storages and a finalizer of its own."""
    google = play.home / "lib" / "google" / "cloud"
    google.mkdir(parents=True)
    (google / "artifactregistry_v1.py").touch()
    (play.home / "lib" / "sitecustomize.py").write_text(_TWINGATE)
    play.environment |= {"PYTHONPATH": str(play.home / "lib"), "TWINGATE_API_KEY": "key", "TWINGATE_NETWORK": "test"}
    play.environment |= {"TWINGATE_REMOTE_NETWORK_ID": "UmVtb3RlTmV0d29yazox", "CONNECTOR_RECONCILER_INTERVAL": "3600"}
    for kind in ("GROUP", "RESOURCE"):  # so that each step lasts until their timers have been called
        play.environment |= {f"{kind}_RECONCILER_INIT_DELAY": "5", f"{kind}_RECONCILER_IDLE": "5"}
    play.takes_over = False
    play.masks += [*CHOSEN, r'"(ts|created_at|updated_at)": "[^"]*"']
    run = ("--all-namespaces", "--standalone", "main.py")
    kinds = ("twingateconnector", "twingategroup", "twingateresourceaccesses", "twingateresources")
    crds = (*kinds, "twingategateway", "twingatecertificateauthority")
    await play.apply(*(f"deploy/twingate-operator/crds/twingate.com.{kind}.yaml" for kind in crds))
    await play.add_namespaces("apps")

    def describe(kind: str, name: str, /, **spec: Any) -> dict[str, Any]:
        return describe_object(kind, "twingate.com/v1beta", name, "apps", spec=spec)

    def describe_service(port: int, **annotations: str) -> dict[str, Any]:
        given = {f"resource.twingate.com/{key}": value for key, value in annotations.items()}
        meta = {"annotations": {"resource.twingate.com": "true", **given}, "labels": {"app": "web"}}
        spec = {"ports": [{"port": port}], "selector": {"app": "web"}}
        return describe_object("Service", "v1", "web", "apps", metadata=meta, spec=spec)

    def is_synchronized(access: Any) -> bool:  # by a timer that is called after a minute
        return access is not None and "twingate_resource_access_sync" in access.get("status", {})

    async def record(step: str) -> None:
        await play.record(step, quiet=8)
        store = play.home / "twingate.json"
        play.states[f"{step}: Twingate"] = [store.read_text()] if store.exists() else []

    access = {"resourceRef": {"name": "shop", "namespace": "apps"}, "groupRef": {"name": "staff", "namespace": "apps"}}
    async with play.running(*run):
        await play.apply(describe("TwingateGroup", "staff", name="Staff"))
        await play.apply(describe("TwingateResource", "shop", name="Shop", address="shop.local"))
        await play.apply(describe("TwingateConnector", "gate", name="gate"))
        await play.apply(describe_service(80))
        await play.settle()
        await play.apply(describe("TwingateResourceAccess", "staff-shop", **access))
        await record("created")
        await play.cluster.patch("twingateresources", "shop", {"spec": {"address": "store.local"}}, "apps")
        await play.cluster.patch("twingateconnectors", "gate", {"spec": {"logLevel": 5}}, "apps")
        await play.apply(describe_service(8080, alias="web.local"))
        await record("changed")
        await play.until("twingateresourceaccesses", "staff-shop", is_synchronized, namespace="apps")
        await play.cluster.patch("twingateresources", "shop", {"spec": {"id": "UmVzb3VyY2U6OQ=="}}, "apps")
        await record("another id")
        annotations = {"metadata": {"annotations": {"resource.twingate.com": None}}}
        await play.cluster.patch("services", "web", annotations, "apps")
        await record("an annotation removed")
    await play.cluster.patch("twingategroups", "staff", {"spec": {"name": "Crew"}}, "apps")
    async with play.running(*run):
        await record("changed while it was down")
        for kind, name in (
            ("twingateresourceaccesses", "staff-shop"),
            ("twingateresources", "shop"),
            ("twingategroups", "staff"),
            ("twingateconnectors", "gate"),
        ):
            await play.cluster.delete(kind, name, "apps")
        await record("deleted")
