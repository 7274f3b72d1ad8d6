"""Public operators that were not known while the bridge was written, in the same table as the others."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.world.application_operators import CHOSEN
from tests.world.operators import declare, describe_object, operator
from tests.world.playing import Play


@operator("Emmerson-Miranda/k8s-operator-kopf", "kubernetes", "prometheus-client", ports=(18000,))
async def webapps(play: Play) -> None:
    """Handlers with retries and messages in the status, which count themselves for Prometheus."""
    play.masks += [r"\b10\.\d+\.\d+\.\d+"]
    play.skip("Pod")  # their names are random
    play.environment |= {"METRICS_PORT": "18000", "PYTHONPATH": str(play.root)}
    run = ("--namespace", "web", "-m", "my_operator.operator")
    await play.add_namespaces("web")
    await play.apply("manifests/crd.yaml")

    def describe(name: str, image: str, replicas: int) -> dict[str, Any]:
        spec = {"image": image, "replicas": replicas, "port": 80}
        return describe_object("WebApp", "demo.example.com/v1", name, "web", spec=spec)

    async with play.running(*run):
        await play.apply(describe("one", "nginx:1", 1), describe("two", "nginx:1", 2), describe("three", "nginx:1", 1))
        for name in ("one", "two", "three"):
            await play.until("webapps", name, lambda app: app.get("status", {}).get("message"), namespace="web")
        await play.record("created")
        await play.apply(describe("one", "nginx:2", 2), describe("two", "nginx:1", 1))
        await play.cluster.delete("deployments", "three", "web")
        await play.record("changed")
        await play.cluster.delete("webapps", "two", "web")
        await play.record("deleted")
    await play.apply(describe("one", "nginx:3", 1), describe("four", "nginx:1", 1))
    async with play.running(*run):
        await play.record("started again")
        for name in ("one", "three", "four"):
            await play.cluster.delete("webapps", name, "web")
        await play.record("all deleted")


# Helm, as the operator calls it: a ConfigMap with the values.
_HELM: Final = """#!/usr/bin/env python3
import json, pathlib, sys
values = pathlib.Path(sys.argv[sys.argv.index("--values") + 1]).read_text()
meta = {"name": "values", "namespace": "users"}
print(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"values": values}}))
"""


@operator("redhat-cop/anarchy", "aiofiles", "inflection", "kubernetes_asyncio")
async def anarchy_communes(play: Play) -> None:
    """The state in the status, a finalizer of its own, subprocesses, server-side apply by ``kubernetes_asyncio``."""
    play.put("helm", _HELM)
    play.environment |= {"OPERATOR_NAMESPACE": "operator", "HOSTNAME": "operator"}
    run = ("--namespace", "users", "commune-operator/operator.py")
    await play.add_namespaces("operator", "users")
    await play.apply("helm/crds/anarchycommunes.yaml")
    container = {"name": "main", "image": "quay.io/anarchy:1", "imagePullPolicy": "Always"}
    await play.apply(describe_object("Pod", "v1", "operator", "operator", spec={"containers": [container]}))
    kind = ("AnarchyCommune", "anarchy.gpte.redhat.com/v1")
    async with play.running(*run):
        await play.apply(describe_object(*kind, "one", "users", spec={"replicas": 1}))
        await play.record("created")
        await play.cluster.patch("anarchycommunes", "one", {"spec": {"replicas": 2}}, "users")
        await play.record("changed")
    async with play.running(*run):
        await play.record("started again")
        await play.cluster.delete("anarchycommunes", "one", "users")
        await play.record("deleted")


@operator("awslabs/aws-orbit-workbench", "kubernetes")
async def orbit_podsettings(play: Play) -> None:
    """An index of Namespaces, the state in annotations and in the status, sections of the patch that are assigned."""
    play.environment |= {"IN_CLUSTER_DEPLOYMENT": "no"}
    run = ("--all-namespaces", "--standalone", "orbit_controller/operators/podsetting_operator.py")
    await play.apply(declare("orbit.aws", "v1", "PodSetting", with_status=True))
    await play.apply(declare("kubeflow.org", "v1alpha1", "PodDefault"))

    def describe_user(name: str, team: str) -> dict[str, Any]:
        labels = {"orbit/space": "user", "orbit/team": team}
        return describe_object("Namespace", "v1", name, metadata={"labels": labels})

    def describe_setting(name: str, desc: str, **labels: str) -> dict[str, Any]:
        meta = {"labels": {"orbit/space": "team"} | {f"orbit/{key}": value for key, value in labels.items()}}
        return describe_object("PodSetting", "orbit.aws/v1", name, "red", metadata=meta, spec={"desc": desc})

    await play.add_namespaces("red")
    await play.apply(describe_user("anna", "red"), describe_user("bert", "red"), describe_user("carl", "blue"))
    await play.apply(describe_setting("early", "made before", team="red"))
    async with play.running(*run, cwd="images/orbit-controller/src"):
        await play.apply(describe_setting("one", "some", team="red"), describe_setting("teamless", "some"))
        await play.record("created")
        await play.apply(describe_user("dora", "red"))
        await play.settle()
        await play.apply(describe_setting("two", "some", team="red"))
        await play.cluster.patch("podsettings", "one", {"spec": {"desc": "other"}, "status": None}, "red")
        await play.record("changed")
        await play.cluster.patch("podsettings", "teamless", {"status": None}, "red", subresource="status")
        await play.cluster.patch("podsettings", "teamless", {"spec": {"desc": json.dumps([1])}}, "red")
        await play.record("changed again")
    await play.apply(describe_setting("three", "some", team="red"))
    async with play.running(*run, cwd="images/orbit-controller/src"):
        await play.record("started again")
        for name in ("one", "two", "teamless"):
            await play.cluster.delete("podsettings", name, "red")
        await play.record("deleted")


# What Kopf makes certificates with does not know versions of OpenSSL with two digits, such as 3.0.15.
OPENSSL: Final = """
import re
find = re.search
re.search = lambda pattern, text, *flags: find(pattern, text, *flags) or (
    find(r"(\\d+\\.\\d+\\.\\d+)", text) if str(text).startswith("OpenSSL ") else None
)
"""


@operator("hpcclab/UMS", "certbuilder", "kubernetes", "requests", ports=(30000,))
async def pod_migration(play: Play) -> None:
    """Two operators of one mandatory peering: webhooks that rewrite and protect pods, and events with annotations."""
    play.masks += [*CHOSEN, r'"nodePort": \d+', r'(?<="migration-(host|port)": )"(\\"|[^"])*"']
    play.masks += [r'"name": "(inside|later)-[a-z0-9]{5}"']
    play.skip("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ClusterKopfPeering")
    play.put("sitecustomize.py", OPENSSL)
    play.environment |= {"HOST_NAME": "localhost", "SYNC_HOST": "127.0.0.1", "PYTHONPATH": str(play.home / "bin")}
    await play.apply("deployment/kopf.kubernetes.yml")

    def describe_pod(name: str, **annotations: str) -> dict[str, Any]:
        meta = {
            "labels": {"app": name},
            "annotations": {f"migration-{key}": value for key, value in annotations.items()},
        }
        containers = [
            {"name": f"main{port}", "image": "nginx:1", "ports": [{"containerPort": port}]} for port in (80, 81)
        ]
        return describe_object("Pod", "v1", name, "default", metadata=meta, spec={"containers": containers})

    def running(name: str, *files: str) -> Any:
        return play.running("--all-namespaces", "--verbose", *files, cwd=f"source/migration-{name}")

    async def run(step: str, act: Any) -> None:
        interceptor = running("interceptor", "app/startup.py", "app/injector.py")
        async with interceptor, running("operator", "app/startup.py", "app/pods.py"):
            await act()
            await play.record(step)

    async def create() -> None:
        await play.apply(describe_pod("inside", interface="pind"), describe_pod("bypassed", bypass="True"))

    async def change() -> None:
        # None with "migration-id": the webhooks deny the operator's own writes of it with 401, which ends Kopf.
        await play.apply(describe_pod("later", interface="dind"))
        await play.cluster.delete("pods", "bypassed", "default")

    await run("created", create)
    await run("changed", change)


@operator("jamalshahverdiev/kubernetes-python-operators", "kubernetes", native=True)
async def istio_delegators(play: Play) -> None:
    """Sync handlers without arguments but ``kwargs``, of two kinds, which write objects of a third."""
    folder = "istio-delegate-sidecar-authorizationpolicy/app-delegate"
    play.environment |= {"PYTHONSAFEPATH": "1"}  # its file is called operator.py, as a module of Python
    await play.apply(f"{folder}/k8s/crd-delegator.yaml", f"{folder}/k8s/crd-istiopolicymanagers.yaml")
    await play.apply(declare("networking.istio.io", "v1alpha3", "VirtualService"))
    await play.apply(declare("networking.istio.io", "v1alpha3", "Sidecar"))
    await play.apply(declare("security.istio.io", "v1beta1", "AuthorizationPolicy"))
    await play.add_namespaces("products", "reviews")
    async with play.running("operator.py", cwd=folder):
        await play.apply(*(f"{folder}/k8s/{name}-delegator.yaml" for name in ("productpage", "review")))
        await play.apply(f"{folder}/k8s/products-istiopolicymanager.yaml")
        await play.record("created")
        await play.cluster.patch("delegators", "productpage-delegator", {"spec": {"uriprefix": "/other"}}, "default")
        await play.cluster.patch(
            "istiopolicymanagers", "products-istio-policy-manager", {"spec": {"egressHosts": ["a/*"]}}, "products"
        )
        await play.record("changed")
    await play.cluster.patch("delegators", "productpage-delegator", {"spec": {"uriprefix": "/third"}}, "default")
    async with play.running("operator.py", cwd=folder):
        await play.record("changed while it was down")
        await play.cluster.delete("delegators", "productpage-delegator", "default")
        await play.cluster.delete("istiopolicymanagers", "products-istio-policy-manager", "products")
        await play.record("deleted")


# Airflow, as the operator calls it: what it stores is in a file. The chart's values are not rendered: it has none.
_AIRFLOW: Final = """
import http.server, json, os, pathlib, sys, threading

STORE, LOCK = pathlib.Path(os.environ["HOME"], "airflow.json"), threading.Lock()

class Handler(http.server.BaseHTTPRequestHandler):
    def handle_any(self):
        length = int(self.headers.get("Content-Length") or 0)
        sent = json.loads(self.rfile.read(length) or b"{}")
        _, _, _, kind, *name = self.path.partition("?")[0].split("/")
        with LOCK:
            stored = json.loads(STORE.read_text()) if STORE.exists() else {}
            key = f"{kind}/{name[0] if name else sent.get('name') or sent.get('key') or sent.get('connection_id')}"
            status, found = 200, stored.get(key)
            if self.command == "POST" and key in stored:
                status = 409
            elif self.command in ("PATCH", "DELETE") and key not in stored:
                status = 404
            elif sent.get("description") == "unacceptable":
                status = 400
            elif self.command == "DELETE":
                del stored[key]
            else:
                stored[key] = {**stored.get(key, {}), **sent}
            STORE.write_text(json.dumps(stored, sort_keys=True))
        body = json.dumps(sent if status == 200 else {"title": "no", "status": status, "type": "about:blank"}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_PATCH = do_DELETE = do_GET = handle_any
    def log_message(self, *args): pass

if any("main.py" in word for word in sys.orig_argv):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 18080), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
"""


@operator(
    "DrFaust92/airflow-k8s-operator",
    "apache-airflow-client==2.10.0",
    "kubernetes",
    "prometheus-client",
    "pydantic",
    "requests",
    ports=(9000, 18080),
    native=True,
)
async def airflow(play: Play) -> None:
    """One function as a timer and three handlers, a retried deletion that is given up, storages of its own."""
    play.put("sitecustomize.py", _AIRFLOW)
    play.environment |= {"PYTHONPATH": str(play.home / "bin"), "AIRFLOW_HOST": "http://127.0.0.1:18080"}
    play.environment |= {"AIRFLOW_ACCESS_TOKEN": "secret", "OPERATOR_RECONCILE_INTERVAL": "600"}
    play.environment |= {"OPERATOR_RECONCILE_INTERVAL_DELAY": "1"}
    play.takes_over = False
    # A timer and a handler of creation race to say what is wrong.
    play.masks += [r"'(Date|Audit-Id)': '[^']*'", r'(?<="message": ")(create|update)(?= failed)']
    run = ("-A", "main.py")
    version = "airflow.drfaust92/v1beta1"
    kinds = ("connection", "pool", "variable")
    await play.apply(*(f"chart/airflow-k8s-operator-crds/templates/{kind}.yaml" for kind in kinds))

    def describe(kind: str, name: str, **spec: Any) -> dict[str, Any]:
        return describe_object(kind, version, name, "default", spec=spec)

    async def record(step: str) -> None:
        await play.record(step)
        store = play.home / "airflow.json"
        play.states[f"{step}: Airflow"] = [store.read_text()] if store.exists() else []

    async with play.running(*run):
        await play.apply(*(f"tests/{kind}.yaml" for kind in kinds))
        secret = {"name": "missing", "key": "value"}
        await play.apply(
            describe("Variable", "broken", secretRef=secret),
            describe("Pool", "wrong", slots=1, description="unacceptable"),
        )
        await record("created")
        await play.apply("tests/variable-updated.yaml", "tests/pool-updated.yaml")
        (play.home / "airflow.json").write_text('{"variables/adopted-variable": {"value": "before"}}')
        await play.apply("tests/variable-adopt.yaml")
        await record("changed, and lost in Airflow")
    await play.cluster.patch("pools", "example-pool", {"spec": {"slots": 7}}, "default")
    await play.apply(describe_object("Secret", "v1", "missing", "default", stringData={"value": "found"}))
    play.patient = True  # the Secret that a handler has missed is there now: it is called again within a minute
    async with play.running(*run):
        await record("changed while it was down")
        for kind, name in (
            ("variables", "example-variable"),
            ("pools", "example-pool"),
            ("connections", "example-connection"),
        ):
            await play.cluster.delete(f"{kind}.airflow.drfaust92", name, "default")
        await record("deleted")


@operator(
    "SwissDataScienceCenter/amalthea@0.24.0",
    "boto3",
    "dataconf",
    "expiringdict",
    "Jinja2",
    "json-merge-patch",
    "jsonpatch",
    "kubernetes",
    "prometheus-client",
    "python-json-logger",
    "uvloop",
    ports=(8080, 18765),
)
async def amalthea(play: Play) -> None:
    """A registry of its own in ``kopf.operator()`` on uvloop, events of seven kinds of children and of Events."""
    play.masks += [*CHOSEN, r'"(current|update)Revision": "[^"]*"', r'"jupyterServerCookieSecret": "[^"]*"']
    play.masks += [r'"controller-revision-hash": "[^"]*"']
    play.environment |= {"NAMESPACES": "sessions", "JUPYTER_SERVER_RESOURCE_CHECK_ENABLED": "false"}
    play.environment |= {"METRICS_ENABLED": "true", "METRICS_PORT": "18765"}
    main = play.root / "controller" / "main.py"
    # As newer versions of Kopf need it: otherwise, it runs with a service account only.
    main.write_text(main.read_text().replace("login_with_kubeconfig()", "login_with_kubeconfig(**kwargs)"))
    await play.add_namespaces("sessions")
    await play.apply("manifests/crd.yaml")

    def describe(name: str, **server: Any) -> dict[str, Any]:
        spec = {"routing": {"host": f"{name}.example.org"}, "auth": {"token": "secret"}, "jupyterServer": server}
        return describe_object("JupyterServer", "amalthea.dev/v1alpha1", name, "sessions", spec=spec)

    async with play.executing("controller.main", is_module=True):
        await play.apply(describe("one"), describe("two", hibernated=False))
        await play.record("created")
        await play.cluster.patch("jupyterservers", "two", {"spec": {"jupyterServer": {"hibernated": True}}}, "sessions")
        await play.record("hibernated")
        resources = {"requests": {"memory": "1Gi"}}
        await play.cluster.patch(
            "jupyterservers", "one", {"spec": {"jupyterServer": {"resources": resources}}}, "sessions"
        )
        await play.record("resized")
    await play.cluster.patch("jupyterservers", "two", {"spec": {"jupyterServer": {"hibernated": False}}}, "sessions")
    async with play.executing("controller.main", is_module=True):
        await play.record("woken while it was down")
        await play.cluster.delete("jupyterservers", "one", "sessions")
        await play.record("deleted")


@operator(
    "ykbytes/kubesynapse.ai",
    "alembic",
    "croniter",
    "httpx",
    "kubernetes",
    "nats-py",
    "opentelemetry-exporter-otlp-proto-grpc",
    "opentelemetry-sdk",
    "psycopg[binary]",
    "pydantic",
    "python-json-logger",
    "sqlalchemy",
    ports=(18081,),
)
async def kubesynapse(play: Play) -> None:
    """Nine kinds, whose handlers take arguments with defaults; signal handlers, a server and threads of its own."""
    play.masks += [*CHOSEN, r'(?<=run_id": )"[^"]*"', r"(?<=-)[0-9a-f]{8,12}\b", r'"data": \{[^}]*\}']
    play.masks += [r'"observedGeneration": \d+']  # of an agent that cannot be made, and is retried all the time
    play.masks += [r'(?<=hash": )"[^"]*"']
    play.environment |= {"STATE_DB_ENABLED": "false", "DATABASE_URL": "sqlite://", "OPERATOR_HEALTH_PORT": "18081"}
    play.environment |= {"NATS_URL": "nats://127.0.0.1:9", "GATEWAY_URL": "http://127.0.0.1:9", "JSON_LOGS": "false"}
    play.environment |= {"WORKER_TRACE_ENABLED": "false", "OPERATOR_NAMESPACE": "synapse"}
    run = ("--all-namespaces", "--standalone", "operator/main.py")
    folder = "charts/kubesynapse/crds"
    await play.add_namespaces("synapse", "agents")
    names: tuple[str, ...] = (
        "agentapproval",
        "agentincident",
        "agentpolicy",
        "agenttenant",
        "agentworkflow",
        "aiagent",
    )
    names += ("connectorplugin", "mcpconnection", "observationpolicy", "observationreport", "observationtarget")
    await play.apply(*(f"{folder}/{name}-crd.yaml" for name in (*names, "webhookreceiver", "workflowtrigger")))
    version = "kubesynapse.ai/v1alpha1"
    play.environment |= {"PYTHONSAFEPATH": "1"}  # its folder is called as a module of Python

    def tenant(name: str, pods: int) -> dict[str, Any]:
        spec = {
            "tenantName": name,
            "namespace": f"tenant-{name}",
            "resourceQuota": {"maxPods": pods},
            "adminUsers": ["me"],
        }
        return describe_object("AgentTenant", version, name, spec=spec)

    async with play.running(*run):
        await play.apply(
            tenant("one", 1), tenant("bad", 1) | {"spec": {"tenantName": "bad", "namespace": "kube-system"}}
        )
        await play.apply(
            describe_object("WebhookReceiver", version, "hook", "agents", spec={"secretRef": "agents/one#key"})
        )
        await play.apply(
            describe_object(
                "AIAgent", version, "agent", "agents", spec={"model": "gpt-4", "runtime": {"kind": "opencode"}}
            )
        )
        await play.apply(describe_object("AgentPolicy", version, "policy", "agents", spec={"allowedModels": ["gpt-4"]}))
        approval = describe_object(
            "AgentApproval", version, "approval", "agents", spec={"workflowName": "flow", "stepName": "a"}
        )
        steps = [{"name": "a", "agentRef": "agent", "prompt": "Say"}]
        await play.apply(
            describe_object("AgentWorkflow", version, "flow", "agents", spec={"steps": steps, "input": "x"})
        )
        await play.record("created")
        play.states["refused"] = [await play.refusal(approval)]
        await play.apply(tenant("one", 2))
        await play.cluster.patch("aiagents", "agent", {"spec": {"model": "gpt-5"}}, "agents")
        await play.record("changed")
    await play.apply(tenant("one", 3))
    async with play.running(*run):
        await play.record("started again")
        await play.cluster.delete("agenttenants", "one")
        await play.cluster.delete("aiagents", "agent", "agents")
        await play.cluster.delete("webhookreceivers", "hook", "agents")
        await play.record("deleted")


@operator(
    "mohamedEmad23/Kube-Sentient-Aegis",
    "aiohttp",
    "cryptography",
    "httpx",
    "Jinja2",
    "kubernetes",
    "langchain-community",
    "langchain-core",
    "langgraph",
    "ollama",
    "opentelemetry-api",
    "opentelemetry-instrumentation-httpx",
    "opentelemetry-sdk",
    "prometheus-client",
    "pydantic",
    "pydantic-settings",
    "python-jose[cryptography]",
    "rich",
    "structlog",
    "tenacity",
    "typer",
    ports=(18090, 18091),
)
async def aegis(play: Play) -> None:
    """Settings made by hand for ``kopf.run()``, five indices, daemons by a field's value, tasks of its own."""
    play.masks += [*CHOSEN, r'"observedGeneration": \d+']
    # A handler of one field of the status reads another one, which the controller of Deployments writes a little later.
    play.masks += [r'(?<="aegis.io/desired-replicas": "1", )("aegis.io/incident-detected": "<time>", )?']
    play.environment |= {"PYTHONPATH": str(play.root / "src"), "OBS_PROMETHEUS_PORT": "18090", "SHADOW_ENABLED": "true"}
    await play.add_namespaces("apps")
    await play.apply("deploy/helm/aegis/crds/incident-crd.yaml")
    await play.apply(declare("core.k8sgpt.ai", "v1alpha1", "Result"))

    def deploy(name: str, image: str, **annotations: str) -> dict[str, Any]:
        meta = {"annotations": {f"aegis.io/{key.replace('_', '-')}": value for key, value in annotations.items()}}
        template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": image}]}}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
        return describe_object("Deployment", "apps/v1", name, "apps", metadata=meta, spec=spec)

    async with play.executing("aegis.k8s_operator.main", "--namespace", "apps", "--verbose", is_module=True):
        await play.apply(deploy("plain", "nginx:1"), deploy("watched", "nginx:1", monitor="enabled"))
        await play.apply(deploy("shadowed", "nginx:1", shadow_testing="enabled"))
        container = {"name": "main", "image": "nginx:1"}
        meta = {"annotations": {"aegis.io/monitor": "enabled"}}
        await play.apply(describe_object("Pod", "v1", "pod", "apps", metadata=meta, spec={"containers": [container]}))
        await play.record("created")
        await play.apply(deploy("watched", "nginx:2", monitor="enabled"))
        await play.record("changed")
    await play.apply(deploy("later", "nginx:1", shadow_testing="enabled", monitor="enabled"))
    async with play.executing("aegis.k8s_operator.main", "--namespace", "apps", "--verbose", is_module=True):
        await play.record("started again")
        for name in ("watched", "shadowed", "later"):
            await play.cluster.delete("deployments", name, "apps")
        await play.record("deleted")


@operator("tmforum-oda/oda-canvas", "kubernetes", native=False)
async def oda_api_management(play: Play) -> None:
    """Results and fields of one status that sync and async handlers write, events of EndpointSlices of other owners."""
    folder = "source/operators/TMFOP002-API-Management/istio"
    play.environment |= {"COMPONENT_NAMESPACE": "components"}
    play.masks += [*CHOSEN]
    run = ("--namespace", "components", "apiOperatorIstio.py")
    group = "oda.tmforum.org"
    await play.add_namespaces("components")
    await play.apply(*(declare(group, "v1", kind, with_status=True) for kind in ("ExposedAPI", "Component")))
    await play.apply(
        declare("networking.istio.io", "v1beta1", "VirtualService"),
        declare("monitoring.coreos.com", "v1", "ServiceMonitor"),
    )
    labels = {f"{group}/componentName": "one"}
    (owner,) = await play.cluster.apply(describe_object("Component", f"{group}/v1", "one", "components", spec={}))
    reference = {"apiVersion": f"{group}/v1", "kind": "Component", "name": "one", "uid": owner["metadata"]["uid"]}

    def expose(name: str, path: str, kind: str = "openapi") -> dict[str, Any]:
        meta = {"labels": labels, "ownerReferences": [reference]}
        spec = {"name": name, "path": path, "port": 8080, "implementation": name, "apiType": kind}
        spec |= {"specification": [{"url": "https://localhost/swagger.json"}], "segment": "coreFunction"}
        return describe_object("ExposedAPI", f"{group}/v1", name, "components", metadata=meta, spec=spec)

    def serve(name: str) -> dict[str, Any]:
        spec = {"ports": [{"port": 8080}], "selector": {"app": name}}
        return describe_object("Service", "v1", name, "components", metadata={"labels": {"app": name}}, spec=spec)

    async with play.running(*run, cwd=folder):
        await play.apply(expose("catalog", "/catalog"), expose("metrics", "/metrics", "prometheus"))
        await play.record("created")
        pod = {"containers": [{"name": "main", "image": "nginx:1"}]}
        await play.apply(serve("catalog"))
        await play.apply(
            describe_object("Pod", "v1", "catalog", "components", metadata={"labels": {"app": "catalog"}}, spec=pod)
        )
        await play.record("implemented")
        await play.apply(expose("catalog", "/other"))
        await play.record("changed")
    await play.apply(expose("metrics", "/third", "prometheus"))
    async with play.running(*run, cwd=folder):
        await play.record("changed while it was down")
        await play.cluster.delete("exposedapis", "catalog", "components")
        await play.record("deleted")
