"""Public operators that use what few others use, in the same table: operators in operators, storages of their own."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import urllib.error
import urllib.request
from typing import Any, Final

import trio
import trustme
import yaml

from tests.world.operators import declare, describe_object, operator
from tests.world.playing import Play

_LOOKUP: Final = "http://127.0.0.1:8080"


def _ask(path: str, token: str | None = None, **sent: str) -> Any:
    """Return what the lookup service answers: JSON, or the number of an error."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = json.dumps(sent).encode() if sent else None
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{_LOOKUP}{path}", data, headers), timeout=10) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        return error.code


def _look_up(*paths: str) -> list[str]:
    """Return what the service knows, as a client whose password may have changed."""
    answers = [_ask("/login", username="me", password=password) for password in ("password-1", "password-2")]
    tokens = [answer["access_token"] for answer in answers if isinstance(answer, dict)]
    known = {path: _ask(f"/api/v1/{path}", tokens[0]) for path in paths} if tokens else {}
    return [f"logins: {[answer if isinstance(answer, int) else 'yes' for answer in answers]}"] + [
        re.sub(r'"uid": "[^"]*"', "<…>", f"{path}: {json.dumps(found, sort_keys=True)}")
        for path, found in known.items()
    ]


@operator("educates/educates-training-platform", "bcrypt", "PyJWT", "pykube-ng", "wrapt", ports=(8080, 8081))
async def educates_lookup(play: Play) -> None:
    """A daemon in a thread runs one operator more for each cluster, with a registry and a login of its own."""
    folder = "carvel-packages/installer/bundle/config/ytt/_ytt_lib/packages/educates/_ytt_lib/lookup-service/upstream"
    await play.apply(*(f"{folder}/crd-{kind}config.yaml" for kind in ("client", "cluster", "tenant")))
    training = "training.educates.dev"
    for kind in ("TrainingPortal", "WorkshopEnvironment", "WorkshopSession"):
        await play.apply(declare(training, "v1beta1", kind, "Cluster"))
    await play.add_namespaces("educates-config")
    play.masks += [r'"config": "[^"]*"']  # authorities and tokens are random
    version, place = "lookup.educates.dev/v1beta1", "educates-config"
    kubeconfig = yaml.safe_load((play.home / "kubeconfig").read_text())
    for each in kubeconfig["clusters"]:  # the service wants an authority, also where none is needed
        authority = trustme.CA().cert_pem.bytes()
        each["cluster"].setdefault("certificate-authority-data", base64.b64encode(authority).decode())

    def describe_secret(name: str) -> dict[str, Any]:
        return describe_object(
            "Secret", "v1", name, place, type="Opaque", stringData={"config": json.dumps(kubeconfig)}
        )

    def describe_cluster(name: str, secret: str) -> dict[str, Any]:
        spec = {
            "labels": [{"name": "of", "value": name}],
            "credentials": {"kubeconfig": {"secretRef": {"name": secret}}},
        }
        return describe_object("ClusterConfig", version, name, place, spec=spec)

    def describe_client(password: str) -> dict[str, Any]:
        spec = {"client": {"password": password}, "user": "me", "roles": ["admin"], "tenants": ["all"]}
        return describe_object("ClientConfig", version, "me", place, spec=spec)

    def describe_portal(name: str, **labels: str) -> dict[str, Any]:
        phase = {"phase": "Running", "url": f"https://{name}.example.com"}
        found = [{"name": key, "value": value} for key, value in labels.items()]
        return describe_object(
            "TrainingPortal",
            f"{training}/v1beta1",
            name,
            spec={"portal": {"labels": found}},
            status={"educates": phase},
        )

    async def record(step: str, *paths: str) -> None:
        await play.record(step)
        with contextlib.suppress(OSError):
            play.states[f"{step}: the service"] = await trio.to_thread.run_sync(_look_up, *paths)

    portals = ("clusters", "tenants", "clusters/one/portals", "clusters/two/portals", "tenants/all/portals")
    async with play.executing("service.main", cwd="lookup-service", is_module=True):
        await play.apply(describe_client("password-1"), describe_secret("one"), describe_cluster("one", "one"))
        await play.apply(describe_object("TenantConfig", version, "all", place, spec={}))
        await play.apply(describe_cluster("two", "late"), describe_portal("a", tier="gold"))
        await record("created", *portals)
        await play.apply(describe_secret("late"))
        play.patient = True
        await record("its Secret created", *portals)
        await play.apply(describe_portal("b"), describe_portal("a", tier="silver"), describe_client("password-2"))
        await record("changed", *portals)
        await play.cluster.delete("clusterconfigs", "one", place)
        await play.cluster.delete("trainingportals", "b")
        await record("deleted", *portals)
    async with play.executing("service.main", cwd="lookup-service", is_module=True):
        await record("started again", *portals)
        await play.cluster.delete("clusterconfigs", "two", place)
        await play.cluster.delete("clientconfigs", "me", place)
        await record("all deleted", *portals)


@operator("kubeic-operator/kubeic-operator", "kubernetes", "prometheus-client", ports=(19090,))
async def kubeic(play: Play) -> None:
    """Storages that store nothing, and no finalizer: namespaces are created at each event, and never resumed."""
    await play.apply("config/crd/imageauditpolicy.yaml")
    play.environment |= {"OPERATOR_NAMESPACE": "kubeic-operator", "METRICS_PORT": "19090", "PYTHONPATH": str(play.root)}
    play.masks += [r"\b10\.\d+\.\d+\.\d+", r'"pod-template-hash": "[^"]*"', r"(?<=-)[a-z0-9]{8,10}-[a-z0-9]{5}\b"]
    run = ("--all-namespaces", "--standalone", "kubeic_operator/main.py")
    await play.add_namespaces("kubeic-operator", "one")

    def describe_policy(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
        return describe_object("ImageAuditPolicy", "imageaudit.kubeic.io/v1alpha1", name, namespace, spec=spec)

    def describe_namespace(name: str, **labels: str) -> dict[str, Any]:
        return describe_object("Namespace", "v1", name, metadata={"labels": labels})

    async with play.running(*run):
        await play.record("started")
        await play.apply(describe_namespace("two"), describe_namespace("three", audit="disabled"))
        await play.apply(describe_policy("cluster-defaults", "kubeic-operator", availability={"intervalMinutes": 7}))
        await play.record("created")
        await play.apply(describe_namespace("three", audit="enabled"), describe_namespace("two", audit="disabled"))
        await play.apply(describe_policy("own", "one", availability={"intervalMinutes": 3}))
        await play.record("changed")
        await play.cluster.delete("imageauditpolicies", "own", "one")
        await play.record("deleted")
    await play.cluster.delete("deployments", "kubeic-checker", "three")
    async with play.running(*run):
        await play.record("started again")
        await play.cluster.delete("namespaces", "two")
        await play.cluster.delete("imageauditpolicies", "cluster-defaults", "kubeic-operator")
        await play.record("all deleted")


@operator("kawaja/oaat-operator", "pykube-ng")
async def oaat(play: Play) -> None:
    """The memo in the status, timers that a handler switches by annotations, ``any_()`` of callbacks, pods' phases."""
    play.masks += [r"(?<=item1-)[a-z0-9]{5}\b"]
    play.takes_over = False
    play.environment |= {"PYTHONPATH": str(play.root)}
    run = ("--all-namespaces", "--standalone", "oaatoperator/handlers.py")
    await play.apply("manifests/01-oaat-operator-crd.yaml")

    def describe_group(name: str, **spec: Any) -> dict[str, Any]:
        spec = {"frequency": "5m", "oaatType": "oaattest", "oaatItems": ["item1"]} | spec
        return describe_object("OaatGroup", "kawaja.net/v1", name, "default", spec=spec)

    async def set_phase(phase: str, step: str) -> None:
        for pod in [obj for obj in play.cluster.objects() if obj["kind"] == "Pod"]:
            status: dict[str, Any] = {"phase": phase}
            if phase == "Succeeded":
                ended = {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z"}
                status |= {"containerStatuses": [_describe_ended(ended)]}
            await play.cluster.patch(
                "pods", pod["metadata"]["name"], {"status": status}, "default", subresource="status"
            )
        await play.record(step)

    async with play.running(*run):
        await play.apply("manifests/sample-oaat-type.yaml", describe_group("one"), describe_group("none", oaatItems=[]))
        await play.apply(describe_group("lost", oaatType="missing"))
        await play.record("created")
        await play.apply(describe_group("one", frequency="10m"))
        await play.record("changed")
        await play.until("oaatgroups", "one", lambda obj: "running" in str(obj["status"]), namespace="default")
        await play.record("a pod started")
        await set_phase("Running", "it runs")
    play.patient = True  # its timer deletes the pod, and Kopf sees up to a minute later that it has ended
    async with play.running(*run):
        await play.record("started again")
        await set_phase("Succeeded", "it has succeeded")
        for name in ("one", "none", "lost"):
            await play.cluster.delete("oaatgroups", name, "default")
        await play.record("deleted")


def _describe_ended(ended: dict[str, Any]) -> dict[str, Any]:
    image = {"image": "busybox", "imageID": "busybox"}
    return {"name": "test", "ready": False, "restartCount": 0, "state": {"terminated": ended}} | image


# Flink, as the operator asks it: jobs run at once, and what was sent is in a file.
_FLINK: Final = """
import http.server, json, os, pathlib, sys, threading

STORE, LOCK = pathlib.Path(os.environ["HOME"], "flink.json"), threading.Lock()

class Handler(http.server.BaseHTTPRequestHandler):
    def handle_any(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        words = self.path.strip("/").split("/")
        with LOCK:
            stored = json.loads(STORE.read_text()) if STORE.exists() else {"jobs": {}, "files": {}}
            status, found = self.answer(words, sent, stored["jobs"], stored["files"])
            STORE.write_text(json.dumps(stored, sort_keys=True))
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def answer(self, words, sent, jobs, files):
        if words[:2] == ["v1", "python_udf"]:
            if self.command == "POST":
                files[words[2]] = sent
                return 201, {}
            return (200 if words[2] in files else 404), {}
        if words[0] == "v1":
            name = next(each["pipeline.name"] for each in json.loads(sent)["sqlsettings"] if "pipeline.name" in each)
            job = f"job-{sum(each['name'] == name for each in jobs.values())}-{name.replace('/', '-')}"
            jobs[job] = {"name": name, "state": "RUNNING", "sent": json.loads(sent)}
            return 200, {"jobid": job}
        if words == ["jobs"]:
            return 200, {"jobs": [{"id": job, "status": each["state"]} for job, each in jobs.items()]}
        job = jobs.get(words[1])
        if job is None:
            return 404, {}
        if self.command == "PATCH":
            job["state"] = "CANCELED"
            return 202, {}
        if words[2:] == ["stop"]:
            job["state"] = "FINISHED"
            return 202, {"request-id": "trigger"}
        if words[2:3] == ["savepoints"]:
            return 200, {"status": {"id": "SUCCESSFUL"}, "operation": {"location": "file:///savepoint"}}
        return 200, {"name": job["name"], "state": job["state"]}
    do_GET = do_POST = do_PATCH = handle_any
    def log_message(self, *args): pass

if any("beamsql" in word for word in sys.orig_argv):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 18090), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
"""


@operator("IndustryFusion/DigitalTwin", "pytimeparse", "requests", ports=(18090,))
async def flink_statements(play: Play) -> None:
    """Three indices in a timer, which goes through states, a deletion in attempts, two files with the same names."""
    play.put("sitecustomize.py", _FLINK)
    folder, url = "FlinkSqlServicesOperator", "http://127.0.0.1:18090"
    play.environment |= {"PYTHONPATH": f"{play.home / 'bin'}:{play.root / folder}"}
    play.environment |= {"IFF_FLINK_REST": url, "IFF_FLINK_SQL_GATEWAY": url, "TIMER_INTERVAL": "5"}
    play.environment |= {"TIMER_BACKOFF_TEMPORARY_FAILURE_INTERVAL": "4"}
    play.masks += [r'(?<="(created|updated)On": )"[^"]*"', r'(?<="monitoredOn": )"[^"]*"']
    play.patient = True
    group = "industry-fusion.com"
    run = ("--all-namespaces", "--standalone", "beamsqlstatementsetoperator.py", "flinkpythonudfoperator.py")
    await play.apply(f"{folder}/kubernetes/crd.yml")
    await play.add_namespaces("iff")

    def describe_table(name: str) -> dict[str, Any]:
        kafka = {"topic": name, "properties": {"bootstrap.servers": "kafka:9092"}, "scan.startup.mode": "latest-offset"}
        spec = {"name": name, "connector": "kafka", "fields": [{"aid": "STRING"}, {"value": "STRING"}], "kafka": kafka}
        return describe_object(
            "BeamSqlTable", f"{group}/v1alpha3", name, "iff", spec=spec | {"value": {"format": "json"}}
        )

    def describe_set(name: str, *tables: str, **spec: Any) -> dict[str, Any]:
        return describe_object(
            "BeamSqlStatementSet", f"{group}/v1alpha4", name, "iff", spec={"tables": list(tables)} | spec
        )

    def describe_function(text: str) -> dict[str, Any]:
        spec = {"filename": "some", "version": "v1", "class": text}
        return describe_object("flinkpythonudf", f"{group}/v1alpha1", "some", "iff", spec=spec)

    async def wait_for_state(name: str, state: str) -> None:
        await play.until(
            f"beamsqlstatementsets.v1alpha4.{group}",
            name,
            lambda obj: obj["status"].get("state") == state,
            namespace="iff",
        )

    async def record(step: str) -> None:
        await play.record(step)
        play.states[f"{step}: Flink"] = [(play.home / "flink.json").read_text()]

    statements = describe_object("ConfigMap", "v1", "statements", "iff", data={"0": "insert into b select * from a;"})
    async with play.running(*run, cwd=folder):
        await play.apply(describe_table("a"), statements, describe_function("pass"))
        await play.apply(
            describe_set("one", "a", sqlstatements=["insert into b select * from a;"]),
            describe_set("two", "a", "late", sqlstatementmaps=["iff/statements"], updateStrategy="savepoint"),
        )
        await wait_for_state("one", "RUNNING")
        await record("created")
        await play.apply(describe_table("late"))
        await wait_for_state("two", "RUNNING")
        await record("its table created")
        await play.apply(
            describe_set("one", "a", "late", sqlstatements=["insert into c select * from a;"]),
            describe_set("two", "a", sqlstatementmaps=["iff/statements"], updateStrategy="savepoint"),
            describe_function("return"),
        )
        await play.settle()
        for name in ("one", "two"):
            await wait_for_state(name, "RUNNING")
        await record("changed")
    await play.cluster.apply(describe_set("one", "a", sqlstatements=["insert into d select * from a;"]))
    async with play.running(*run, cwd=folder):
        await play.settle()
        await wait_for_state("one", "RUNNING")
        await record("changed while it was down")
        for name in ("one", "two"):
            await play.cluster.delete(f"beamsqlstatementsets.v1alpha4.{group}", name, "iff")
        await play.cluster.delete("flinkpythonudfs", "some", "iff")
        await record("deleted")
