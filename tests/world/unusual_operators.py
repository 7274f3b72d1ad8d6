"""Public operators that use what few others do, in the same table as the others."""

from __future__ import annotations

from typing import Any, Final

import httpx

from tests.world.application_operators import CHOSEN
from tests.world.held_out_operators import OPENSSL
from tests.world.operators import declare, describe_object, operator
from tests.world.playing import Play
from tests.world.reviews import review

_PROBES: Final = "http://127.0.0.1:18099/healthz"


@operator("illallangi/tubesync-controller", "Jinja2", "kubernetes", "more-itertools", ports=(18099,))
async def tubesync(play: Play) -> None:
    """Twenty functions for three causes each, which wait for each other by statuses and indices, shown by probes."""
    play.patient = True
    play.masks += [*CHOSEN, r'"processed": "[^"]*"', r'"observedGeneration": \d+']
    play.masks += [r'"status": "Waiting[^"]*"']  # handlers that nothing makes wait any more may be asked last
    run = ("--all-namespaces", "--liveness", _PROBES, "-m", "tubesync-controller")
    group = "controllers.illallangi.enterprises"
    await play.add_namespaces("tube", "other")  # one for each, as those of a namespace share objects, and race for them
    await play.apply("crd.yaml", declare(group, "v1", "DNSRPZRecord"), declare("cert-manager.io", "v1", "Certificate"))

    def describe(host: str, **changed: Any) -> dict[str, Any]:
        cert = {"issuerKind": "Issuer", "issuerName": "some", "organization": "some"}
        spec: dict[str, Any] = {"hostName": host, "domainName": "example.org", "uriPath": f"/{host}", "cert": cert}
        spec |= {"backup": {"claimName": "backup"}, "data": {"claimName": "data"}}
        spec |= {"persistence": {"storageClassName": "standard"}}
        namespace = "tube" if host == "one" else "other"
        return describe_object("TubeSync", f"{group}/v1", host, namespace, spec=spec | changed)

    async def record(step: str) -> None:
        await play.record(step)
        async with httpx.AsyncClient() as client:
            found = (await client.get(_PROBES)).json()
        indexed = {key: value.get("tube", ()) for key, value in found.items() if isinstance(value, dict)}
        lines = [
            f"{key}: {sorted(each if isinstance(each, str) else each['metadata']['name'] for each in value)}"
            for key, value in indexed.items()
        ]
        play.states[f"{step}: probes"] = sorted(lines)

    async with play.running(*run):
        await play.apply(describe("one"))
        await record("created")
        await play.apply(describe("one", uriPath="/other"), describe("two"))
        await record("changed, and another one created")
        await play.cluster.delete("configmaps", "tubesync-one-application", "tube")
    await play.apply(describe("two", domainName="example.com"))
    async with play.running(*run):
        await record("started again")
        await play.cluster.delete("tubesyncs", "one", "tube")
        await record("deleted")


# Keycloak and the service of datasets, as the operator asks them: one dataset is not for everybody.
_CHAIMELEON: Final = """
import http.server, json, os, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def handle_any(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        status, found = 200, {"access_token": "secret", "gid": 2000}
        if self.path.endswith("datasetAccessCheck"):
            denied = [name for name in json.loads(sent)["datasets"] if name == "forbidden"]
            status, found = (403, denied) if denied else (204, None)
        elif "/datasetAccess/" in self.path:
            status = {"POST": 201, "DELETE": 204}[self.command]
            with open(os.path.join(os.environ["HOME"], "accesses"), "a") as file:
                file.write(f"{self.command} {json.loads(sent)['datasets'] if sent else ''}\\n")
        elif self.path.endswith("/unknown"):
            status = 404
        body = b"" if status == 204 else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = do_PUT = do_DELETE = handle_any
    def log_message(self, *args): pass

if any("chaimeleon" in word for word in sys.orig_argv):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 18088), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
"""


@operator(
    "chaimeleon-eu/k8s-chaimeleon-operator", "kubernetes", "pykube-ng", "requests", ports=(18088, 19444), native=True
)
async def chaimeleon(play: Play) -> None:
    """One sync function as several webhooks with parameters, which fills a patch step by step; causes of jobs."""
    (play.home / "lib" / "guacli").mkdir(parents=True)
    (play.home / "lib" / "guacli" / "guacamoleClient.py").touch()
    play.put("sitecustomize.py", OPENSSL + _CHAIMELEON)
    play.environment |= {"PYTHONPATH": f"{play.home / 'bin'}:{play.home / 'lib'}", "K8S_USER_PREFIX": "oidc:"}
    for name in ("KEYCLOAK_CLIENT", "KEYCLOAK_CLIENT_SECRET", "KEYCLOAK_REALM"):
        play.environment[name] = "some"
    url = "http://127.0.0.1:18088"
    play.environment |= {"KEYCLOAK_ENDPOINT": url, "DATASET_SERVICE_ENDPOINT": f"{url}/"}
    play.environment |= {"OPERATOR_SERVICE_ACCOUNT_NAMESPACE": "operator", "OPERATOR_SERVICE_ACCOUNT_NAME": "operator"}
    play.environment |= {"CHAIMELEON_OPERATOR_SERVICE_HOST": "localhost", "CHAIMELEON_OPERATOR_SERVICE_PORT": "19444"}
    play.environment["INTERNAL_IMAGE_REPOSITORY_CHECK"] = "harbor/"
    play.masks += [*CHOSEN]
    play.skip("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Pod")
    await play.add_namespaces("user-me", "user-unknown", "apps")

    def deploy(name: str, namespace: str, image: str, **annotations: str) -> dict[str, Any]:
        meta = {"annotations": {f"chaimeleon.eu/{key}": value for key, value in annotations.items()}}
        container = {"name": "main", "image": image}
        pod = {"containers": [container, {**container, "name": "b"}], "securityContext": {}}
        template = {"metadata": {"labels": {"app": name}}, "spec": pod}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
        return describe_object("Deployment", "apps/v1", name, namespace, metadata=meta, spec=spec)

    image = "harbor/library/some:1"
    asked = [
        deploy("fine", "user-me", image, datasetsIDs="a, b", toolName="analytic-engine"),
        deploy("home", "user-me", image, toolName="other", persistentHomeMountPoint="/home/me"),
        deploy("nameless", "user-me", image, datasetsIDs=""),
        deploy("foreign", "user-me", "nginx:1", toolName="other"),
        deploy("denied", "user-me", image, datasetsIDs="forbidden", toolName="other"),
        deploy("lost", "user-unknown", image, datasetsIDs="a", toolName="other"),
        deploy("plain", "apps", "nginx:1"),
    ]
    async with play.running("--all-namespaces", "--standalone", "chaimeleon-operator.py"):
        for each in asked:
            await review(play, "https://localhost:19444/mutate_deployment_fn", each)
        play.states["refused"] = [await play.refusal(each) for each in asked]
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": image}]}}
        job = describe_object("Job", "batch/v1", "job", "user-me", spec={"template": template})
        annotations = {"chaimeleon.eu/jobResourcesFlavor": "no-gpu", "chaimeleon.eu/datasetsIDs": "a"}
        job["metadata"]["annotations"] = annotations
        wrong = {**job, "metadata": {**job["metadata"], "annotations": {"chaimeleon.eu/jobResourcesFlavor": "huge"}}}
        play.states["jobs"] = [await play.refusal(wrong), await play.refusal(job)]
        await play.record("created")
    async with play.running("--all-namespaces", "--standalone", "chaimeleon-operator.py"):
        await play.record("started again")
        await play.cluster.delete("deployments", "fine", "user-me")
        await play.cluster.delete("jobs", "job", "user-me")
        await play.record("deleted")
        play.states["accesses"] = (play.home / "accesses").read_text().splitlines()
