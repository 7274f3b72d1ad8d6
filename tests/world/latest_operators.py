"""Public operators that nothing was changed for before they were tried: the latest ones, in the same table."""

from __future__ import annotations

import base64
import datetime
import re
from typing import Any, Final

import trustme

from tests.world.operators import declare, describe_object, operator
from tests.world.playing import Play


@operator("failk8s/failk8s-operator", "pykube-ng", native=True)
async def failk8s(play: Play) -> None:
    """Events of Namespaces and Secrets beside handlers of two kinds, which keep the bodies that they are given."""
    play.environment |= {"PYTHONSAFEPATH": "1"}  # its file is called operator.py, as a module of Python
    run = ("--all-namespaces", "--standalone", "operator.py")
    version = "failk8s.dev/v1alpha1"
    await play.add_namespaces("source-secrets", "target-secrets-1")
    await play.apply("secret_copier/resources/secret_copier_config.yaml")
    await play.apply("secret_injector/resources/secret_injector_config.yaml")

    def describe_secret(value: str) -> dict[str, Any]:
        return describe_object("Secret", "v1", "source-secret-1", "source-secrets", data={"key": value})

    def describe_rule(*namespaces: str) -> dict[str, Any]:
        rule: dict[str, Any] = {"sourceSecret": {"name": "source-secret-1", "namespace": "source-secrets"}}
        rule["targetNamespaces"] = {"nameSelector": {"matchNames": [*namespaces]}}
        return {"spec": {"rules": [{**rule, "targetSecret": {"name": "another", "labels": {"copied": "yes"}}}]}}

    await play.apply(describe_secret("MQ=="))
    injected: dict[str, Any] = {"sourceSecrets": {"labelSelector": {"matchLabels": {"source-secret-label-1": "1"}}}}
    injected["serviceAccounts"] = {"nameSelector": {"matchNames": ["builder"]}}
    async with play.running(*run):
        await play.apply(describe_object("ServiceAccount", "v1", "builder", "target-secrets-1"))
        await play.apply("examples/secret-copier-config-1.yaml")
        await play.settle()
        await play.apply(describe_object("SecretInjectorConfig", version, "inject", spec={"rules": [injected]}))
        await play.record("created")
        await play.add_namespaces("target-secrets-2", "target-secrets-3")
        await play.record("namespaces added")
        await play.cluster.patch("secretcopierconfigs", "secret-copier-1", describe_rule("target-secrets-3"))
        await play.record("changed")
    await play.apply(describe_secret("Mg=="))
    async with play.running(*run):
        await play.record("changed while it was down")
        await play.cluster.delete("secretcopierconfigs", "secret-copier-1")
        await play.cluster.delete("secrets", "another", "target-secrets-3")
        await play.settle()
        await play.cluster.patch("namespaces", "target-secrets-3", {"metadata": {"labels": {"more": "yes"}}})
        await play.record("deleted")


# An EST server, as the operator calls it: it knows one authority, and issues what is asked for the second time.
_EST: Final = """
import base64, datetime, requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

ASKED, KEY = set(), ec.generate_private_key(ec.SECP256R1())

def issue():
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "made")]), datetime.datetime(2026, 1, 1)
    made = x509.CertificateBuilder(name, name, KEY.public_key(), 1, now, now + datetime.timedelta(days=9999))
    return made.sign(KEY, hashes.SHA256())

def request(self, method, url, data=None, verify=None, **options):
    response = requests.Response()
    if "unknown" in url:
        raise requests.ConnectionError("there is no such server")
    response.status_code = 200 if method == "GET" or data in ASKED else 202
    ASKED.add(data)
    with open(verify, "rb") as file:
        certificate = x509.load_pem_x509_certificate(file.read()) if method == "GET" else issue()
    response._content = base64.b64encode(pkcs7.serialize_certificates([certificate], Encoding.DER))
    response.headers["Retry-After"] = "2"
    return response

requests.Session.request = request
"""


@operator(
    "mitre/est-operator",
    "cryptography",
    "kubernetes",
    "pem",
    "pylddwrap",
    "pyOpenSSL",
    "python-dateutil",
    "requests",
    native=True,
)
async def est(play: Play) -> None:
    """Children of children, results in the status that others wait for, delays that its server asks for, events."""
    play.masks += [r'"certificate": "[^"]*"']
    run = ("--all-namespaces", "--standalone", str(play.put("est.py", _EST)), "est-operator.py")
    cert_manager, group = "cert-manager.io/v1", "est.mitre.org"
    authority = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    play.masks += [re.escape(authority)]
    await play.apply(*(f"manifests/crds/bases/{group}_{kind}.yaml" for kind in ("estissuers", "estorders")))
    await play.apply("manifests/crds/bases/est.mitre.org_estclusterissuers.yaml")
    await play.apply(declare("cert-manager.io", "v1", "Certificate"))
    await play.apply(declare("cert-manager.io", "v1", "CertificateRequest", with_status=True))
    await play.add_namespaces("est-operator", "web")
    data = {"username": "bWU=", "password": "c2VjcmV0"}
    for namespace in ("est-operator", "web"):
        secret = describe_object("Secret", "v1", "login", namespace, data=data)
        await play.apply({**secret, "type": "kubernetes.io/basic-auth"})

    def describe_issuer(kind: str, name: str, namespace: str | None, host: str) -> dict[str, Any]:
        spec = {"host": host, "cacert": authority, "secretName": "login"}
        return describe_object(kind, f"{group}/v1alpha1", name, namespace, spec=spec)

    async def ask(name: str, kind: str, issuer: str) -> None:
        """Create a Certificate and its request, as cert-manager does."""
        certificate = describe_object("Certificate", cert_manager, name, "web", spec={"secretName": name})
        owner = await play.cluster.create(certificate)
        meta = {"ownerReferences": [{key: owner[key] for key in ("apiVersion", "kind")} | {"name": name}]}
        meta["ownerReferences"][0]["uid"] = owner["metadata"]["uid"]
        spec = {"issuerRef": {"group": group, "kind": kind, "name": issuer}, "request": "MQ=="}
        await play.apply(describe_object("CertificateRequest", cert_manager, name, "web", metadata=meta, spec=spec))

    async with play.running(*run):
        await play.apply(describe_issuer("EstIssuer", "near", "web", "localhost"))
        await play.apply(describe_issuer("EstIssuer", "none", "web", "unknown"))
        await play.record("issuers created")
        await ask("one", "EstIssuer", "near")
        await play.record("asked", quiet=6)
    await play.apply(describe_issuer("EstClusterIssuer", "wide", None, "localhost"))
    async with play.running(*run):
        await play.record("started again", quiet=6)
        await ask("two", "EstClusterIssuer", "wide")
        await ask("three", "EstIssuer", "none")
        await play.record("asked again", quiet=6)
        for name in ("one", "three"):
            await play.cluster.delete("certificates", name, "web")
        await play.record("deleted")


@operator(
    "kubetimer/kubetimer@f3f647e08d16b3b0a51a9ba3e9db532ec387aa00",  # newer ones need Python 3.14
    "apscheduler>=3.11.2",
    "kubernetes",
    "pydantic",
    "pydantic-settings",
    "structlog",
    "uvloop",
    ports=(8080,),
)
async def kubetimer(play: Play) -> None:
    """A scheduler on its asyncio loop, which is uvloop's, an executor of its own, names of fields with dots."""
    play.environment |= {"KUBETIMER_LOG_LEVEL": "DEBUG"}
    await play.add_namespaces("web")

    def annotate(ttl: str | None) -> dict[str, Any]:
        return {"metadata": {"annotations": {"kubetimer.io/ttl": ttl}}}

    def describe(name: str, ttl: str | None) -> dict[str, Any]:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "nginx:1"}]}}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        return describe_object("Deployment", "apps/v1", name, "web", spec=spec, **(annotate(ttl) if ttl else {}))

    def soon(seconds: float = 4) -> str:
        return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)).isoformat()

    never, past = "2100-01-01T00:00:00+00:00", "2020-01-01T00:00:00+00:00"
    play.masks += [r'"kubetimer\.io/ttl": "<time>"', r'"observedGeneration": \d+']
    async with play.executing("kubetimer.main", is_module=True):
        for name, ttl in (("kept", never), ("odd", "tomorrow"), ("plain", None), ("gone", past), ("soon", soon())):
            await play.apply(describe(name, ttl))
        await play.record("created", quiet=8)
        await play.cluster.patch("deployments", "plain", annotate(never), "web")
        await play.cluster.patch("deployments", "kept", annotate(soon()), "web")
        await play.cluster.patch("deployments", "odd", annotate(None), "web")
        await play.record("changed", quiet=8)
    await play.apply(describe("meanwhile", past), describe("later", soon(15)), describe("other", never))
    async with play.executing("kubetimer.main", is_module=True):
        await play.record("started again")
        await play.cluster.patch("deployments", "plain", annotate(None), "web")
        await play.cluster.patch("deployments", "other", annotate("nonsense"), "web")
        await play.record("a timer removed, and one due", quiet=18)
        await play.cluster.delete("deployments", "other", "web")
        await play.record("deleted")
