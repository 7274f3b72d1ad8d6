"""Public operators that were found last, in the same table as the others."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.world.operators import declare, describe_object, operator
from tests.world.playing import Play

_BABYLON: Final = "babylon.gpte.redhat.com"


@operator("pyToshka/wazuh-agent-kubernetes-operator", "Jinja2", "kubernetes", "pykube-ng", native=True)
async def wazuh_agents(play: Play) -> None:
    """Children adopted by their context, deleted and created again in a handler, a cleanup that blocks."""
    play.skip("Pod")  # their names are random
    crd = declare("opennix.io", "v1", "WazuhAgent")
    crd["metadata"]["name"], crd["spec"]["names"]["plural"] = "wazuh-agent.opennix.io", "wazuh-agent"
    await play.apply(crd)
    await play.add_namespaces("wazuh")

    def describe(name: str, **changes: str) -> dict[str, Any]:
        fields = ("image_url", "manager_host", "worker_host", "api_username", "api_password", "group")
        spec = {"name": name, "image_tag": "1", "memory_limits": "512Mi", "cpu_limits": "200m"}
        return describe_object(
            "WazuhAgent", "opennix.io/v1", name, "wazuh", spec=dict.fromkeys(fields, "some") | spec | changes
        )

    async with play.running("--all-namespaces", "main.py"):
        await play.apply(describe("one"), describe("two"))
        await play.record("created")
        await play.apply(describe("one", image_tag="2"), describe("two", api_password="other"))
        await play.record("changed")
    await play.apply(describe("one", image_tag="3"))
    async with play.running("--all-namespaces", "main.py"):
        await play.record("changed while it was down")
        await play.cluster.delete("wazuh-agent", "one", "wazuh")
        await play.record("deleted")


# What the operator imports to decrypt: each text is its own secret.
_PYRAGE: Final = """
class x25519:
    class Identity:
        @staticmethod
        def from_str(key): return key

def decrypt(secret, identities):
    return b"-".join([*(identity.encode() for identity in identities), secret])
"""


@operator("VeeeneX/kubernetes-operators-in-python", "kubernetes", native=True)
async def age_secrets(play: Play) -> None:
    """Handlers that are retried until what they need is there, and ``kubernetes`` without a login."""
    play.put("pyrage.py", _PYRAGE)
    play.environment |= {"PYTHONPATH": str(play.home / "bin")}
    play.patient = True
    crd = (play.root / "operator/manifests/crd.yaml").read_text()
    # It lacks a field that the operator reads.
    field = "properties:\n                secretName"
    await play.apply(crd.replace(field, f"x-kubernetes-preserve-unknown-fields: true\n              {field}"))

    def describe(name: str, key: str) -> dict[str, Any]:
        spec = {"secretName": f"made-by-{name}", "secretKey": "key", "secret": "ENC[c2VjcmV0]", "ageSecretRef": key}
        return describe_object("AgeSecret", "pyvo.io/v1", name, "default", spec=spec)

    def describe_key(name: str) -> dict[str, Any]:
        return describe_object("Secret", "v1", name, "default", stringData={"secretKey": name})

    run = ("--namespace", "default", "operator/operator.solution.py")
    await play.apply(describe_key("first"))
    async with play.running(*run):
        await play.apply(describe("one", "first"), describe("two", "second"))
        await play.until("secrets", "made-by-one", bool, namespace="default")
        await play.apply(describe_key("second"))
        await play.record("created")
        await play.cluster.delete("agesecrets", "one", "default")
        await play.record("deleted")
    await play.apply(describe("three", "first"))
    async with play.running(*run):
        await play.record("created while it was down")


@operator("redhat-cop/babylon", "inflection", "kubernetes_asyncio", apart=("pydantic<2",))
async def babylon_workshops(play: Play) -> None:
    """Daemons beside handlers that write to their own object, and statuses that another kind's handlers write."""
    play.masks += [r'(?<=/workshop-id)(\\?": ?\\?")[a-z0-9]{6}', r"(?<=/workshop/)[a-z0-9]{6}"]
    play.masks += [r"(?<=item-)[a-z0-9]{5}\b", r"(?<='Date': ')[^']*"]
    play.environment |= {"WORKSHOP_BASE_URL": "https://workshops.example.com"}
    run = ("--all-namespaces", "--standalone", "workshop-manager/operator/operator.py")
    for kind in ("Workshop", "WorkshopProvision", "WorkshopUserAssignment", "MultiWorkshop", "CatalogItem"):
        await play.apply(declare(_BABYLON, "v1", kind, with_status=True))
    for kind in ("ResourceClaim", "ResourceProvider", "ResourcePool"):
        await play.apply(declare("poolboy.gpte.redhat.com", "v1", kind, with_status=True))
    await play.add_namespaces("users", "catalog", "poolboy")
    provider: dict[str, Any] = {"spec": {"override": {}, "template": {"definition": {}}}}
    await play.apply(describe_object("ResourceProvider", "poolboy.gpte.redhat.com/v1", "item", "poolboy", **provider))
    item: dict[str, Any] = {"spec": {"parameters": [], "resources": [{"provider": {"name": "test"}}]}}
    await play.apply(describe_object("CatalogItem", f"{_BABYLON}/v1", "item", "catalog", **item))

    def describe(name: str, **spec: Any) -> dict[str, Any]:
        return describe_object("Workshop", f"{_BABYLON}/v1", name, "users", spec={"multiuserServices": False} | spec)

    def provide(name: str, workshop: str, count: int) -> dict[str, Any]:
        spec = {"catalogItem": {"name": "item", "namespace": "catalog"}, "count": count, "concurrency": 2}
        return describe_object(
            "WorkshopProvision",
            f"{_BABYLON}/v1",
            name,
            "users",
            spec=spec | {"workshopName": workshop, "startDelay": 3, "parameters": {}},
        )

    async with play.running(*run):
        await play.apply(describe("one"), describe("two", multiuserServices=True))
        await play.record("created")
        await play.apply(provide("first", "one", 2))
        await play.record("provided", quiet=7)
        await play.apply(describe("one", lifespan={"end": "2099-01-01T00:00:00Z"}))
        await play.record("changed", quiet=7)
    async with play.running(*run):
        await play.record("started again", quiet=7)
        await play.cluster.delete("workshopprovisions", "first", "users")
        await play.cluster.delete("workshops", "two", "users")
        await play.record("deleted", quiet=7)


# The inventory of services, as the operator asks it.
_INVENTORY: Final = """
import http.server, json, os, pathlib, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = pathlib.Path(os.environ["HOME"], "services.json")
        body = path.read_bytes() if path.exists() else b"[]"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
if any("oauth2Envoyfilter" in word for word in sys.orig_argv):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 18638), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
"""


@operator("tmforum-oda/oda-canvas", "Jinja2", "kubernetes", "requests", ports=(18638,))
async def oda_oauth2(play: Play) -> None:
    """An async timer that blocks, a counter in the memo, a peering of its own that is not there."""
    folder = "source/operators/TMFOP008-OAuth2-Config/envoy-filter/docker/src"
    play.put("sitecustomize.py", _INVENTORY)
    play.environment |= {"PYTHONPATH": f"{play.home / 'bin'}:{play.root / folder}"}
    play.environment |= {"CANVAS_INFO_ENDPOINT": "http://127.0.0.1:18638"}
    for kind, version in (("EnvoyFilter", "v1alpha3"), ("DestinationRule", "v1")):
        await play.apply(declare("networking.istio.io", version, kind))
    entries, plural = declare("networking.istio.io", "v1", "ServiceEntry"), "serviceentries"
    entries["metadata"]["name"], entries["spec"]["names"]["plural"] = f"{plural}.networking.istio.io", plural
    await play.apply(entries, declare("oda.tmforum.org", "v1", "DependentAPI", with_status=True))
    await play.add_namespaces("components")
    known = {"client_id": "me", "client_secret": "secret"}
    await play.apply(describe_object("Secret", "v1", "one-secret", "components", stringData=known))

    def serve(*names: str) -> None:
        services = []
        for number, name in enumerate(names):
            values = {"componentName": "one", "dependencyName": name, "url": f"https://{name}.example.com/api"}
            values["OAS Specification"] = "x"
            found = [{"name": key, "value": value} for key, value in values.items()]
            services.append({"id": str(number), "state": "active", "serviceCharacteristic": found})
        (play.home / "services.json").write_text(json.dumps(services))

    meta = {"labels": {"oda.tmforum.org/componentName": "one"}}
    run = ("--all-namespaces", f"{folder}/oauth2EnvoyfilterOperator.py")
    serve("first")
    async with play.running(*run):
        version, spec = "oda.tmforum.org/v1", {"name": "dep"}
        await play.apply(describe_object("DependentAPI", version, "dep", "components", metadata=meta, spec=spec))
        await play.record("created")
    serve("first", "second")
    async with play.running(*run):
        await play.record("started again")
        await play.cluster.delete("dependentapis", "dep", "components")
        await play.record("deleted")


@operator("tmforum-oda/oda-canvas", "kubernetes", native=True)
async def oda_apig(play: Play) -> None:
    """Results of two handlers of one function, a deletion with limited retries."""
    play.environment |= {"MOCK_ALL": "mocked"}
    run = ("--all-namespaces", "source/operators/TMFOP002-API-Management/whalecloud-apim/apiOperatorApig.py")
    await play.apply(declare("oda.tmforum.org", "v1beta4", "ExposedAPI", with_status=True))

    def describe(name: str, path: str) -> dict[str, Any]:
        spec = {"path": path, "specification": "s", "implementation": "i", "port": 80}
        return describe_object("ExposedAPI", "oda.tmforum.org/v1beta4", name, "default", spec=spec)

    async with play.running(*run):
        await play.apply(describe("one", "/one"), describe("two", "/two"))
        await play.record("created")
        await play.apply(describe("one", "/other"))
        await play.cluster.delete("exposedapis", "two", "default")
        await play.record("changed")
    await play.apply(describe("one", "/third"))
    async with play.running(*run):
        await play.record("changed while it was down")
        await play.cluster.delete("exposedapis", "one", "default")
        await play.record("deleted")
