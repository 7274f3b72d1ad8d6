"""Public operators with admission webhooks, which are asked for reviews, in the same table as the others.

Nothing resolves the names of their Services: reviews are sent to their ports on this machine.
"""

from __future__ import annotations

import pathlib
from typing import Any, Final

import trustme

from tests.world.application_operators import prepare_keycloak
from tests.world.held_out_operators import OPENSSL
from tests.world.operators import OPERATORS, declare, describe_object, operator
from tests.world.playing import Play
from tests.world.reviews import review


def describe_pod(name: str, *images: str, **meta: Any) -> dict[str, Any]:
    containers = [{"name": f"main{number}", "image": image} for number, image in enumerate(images)]
    return describe_object("Pod", "v1", name, "apps", metadata=meta, spec={"containers": containers})


def provide_certificates(play: Play, *files: str) -> None:
    """Let files of the checkout find their certificates, and their port, where this machine has them."""
    authority = trustme.CA()
    made = authority.issue_cert("localhost")
    play.put("ca.crt", authority.cert_pem.bytes().decode())
    play.put("tls.crt", "".join(pem.bytes().decode() for pem in made.cert_chain_pems))
    play.put("tls.key", made.private_key_pem.bytes().decode())
    for file in files:
        path = pathlib.Path(play.root, file)
        text = path.read_text().replace('"/certs/', f'"{play.home / "bin"}/').replace("port=443", "port=19443")
        text = text.replace("/tmp/k8s-webhook-server/serving-certs", str(play.home / "bin"))
        text = text.replace("WebhookAutoServer", "WebhookServer")  # it asks the API server over TLS for its cluster
        path.write_text(text)


_ORBIT: Final = "images/orbit-controller/src"


@operator("awslabs/aws-orbit-workbench", "boto3", "jsonpath-ng", "kubernetes", ports=(19443,), native=True)
async def orbit_webhooks(play: Play) -> None:
    """Two operators, whose mutating handlers read indices, write objects, and escape names themselves."""
    folder = "orbit_controller/webhooks"
    files = [f"{folder}/{name}_pod_webhook.py" for name in ("imagereplication", "podsetting")]
    provide_certificates(play, *(f"{_ORBIT}/{file}" for file in files))
    play.masks += [r"image-replication-[a-z0-9]{5}"]
    play.takes_over = False
    play.environment |= {"IN_CLUSTER_DEPLOYMENT": "no", "REPO_HOST": "registry", "REPO_PREFIX": "orbit"}
    await play.apply(declare("orbit.aws", "v1", "ImageReplication", with_status=True))
    await play.apply(declare("orbit.aws", "v1", "PodSetting", with_status=True))
    await play.add_namespaces("orbit-system")
    await play.apply(describe_object("Namespace", "v1", "apps", metadata={"labels": {"orbit/team": "red"}}))
    url = "https://localhost:19443"
    async with play.running("--all-namespaces", "--standalone", files[0], cwd=_ORBIT):
        await review(play, f"{url}/update-pod-images", describe_pod("one", "nginx:1", "registry/some:1"))
        annotated = describe_pod("two", "nginx:1", "other:2", annotations={"kept": "yes"})
        await review(play, f"{url}/update-pod-images", annotated)
        await review(play, f"{url}/update-pod-images", describe_pod("dry", "third:1"), dryRun=True)
        await play.record("images replicated")
        for made in [obj for obj in play.cluster.objects() if obj["kind"] == "ImageReplication"]:
            status = {"status": {"replication": {"replicationStatus": "Complete"}}}
            place = (made["metadata"]["name"], status, "orbit-system")
            await play.cluster.patch("imagereplications", *place, subresource="status")
        await play.settle()
        await review(play, f"{url}/update-pod-images", describe_pod("four", "nginx:1"))
        await play.record("images found")
    selector = {"podSelector": {"matchLabels": {"app": "notebook"}}, "containerSelector": {"regex": "main0"}}
    env = [{"name": "SOME", "value": "thing"}]
    one = {**selector, "env": env, "labels": {"orbit/x": "y"}, "annotations": {"a.b/c": "d"}, "image": "jupyter:1"}
    two = {**selector, "volumes": [{"name": "data", "emptyDir": {}}], "nodeSelector": {"a.b/c": "d"}}
    broken = {**selector, "containerSelector": {"regex": "["}}
    labels = {"labels": {"orbit/space": "team", "orbit/team": "red"}}
    async with play.running("--all-namespaces", "--standalone", files[1], cwd=_ORBIT):
        await review(play, f"{url}/apply-pod-settings", describe_pod("none", "nginx:1", labels={"app": "notebook"}))
        for name, spec in (("one", one), ("two", two)):
            await play.apply(describe_object("PodSetting", "orbit.aws/v1", name, "apps", metadata=labels, spec=spec))
            await play.settle()  # the order of two that are indexed at once is open
        pod = describe_pod("five", "nginx:1", "nginx:2", labels={"app": "notebook"}, annotations={"e/f": "g"})
        await review(play, f"{url}/apply-pod-settings", pod)
        await review(play, f"{url}/apply-pod-settings", describe_pod("six", "nginx:1", labels={"app": "other"}))
        await play.apply(
            describe_object("PodSetting", "orbit.aws/v1", "one", "apps", metadata=labels, spec=broken),
        )
        await play.cluster.delete("podsettings", "two", "apps")
        await play.settle()
        await review(play, f"{url}/apply-pod-settings", pod)
        await play.record("settings applied")


# Trivy, as the operator calls it: one image of which it knows nothing, and a hole in another one.
_TRIVY: Final = """#!/usr/bin/env python3
import json, sys
if "unknown" in sys.argv[-1]:
    sys.exit("MANIFEST_UNKNOWN")
found = [{"Severity": "HIGH"}] * (2 if "holes" in sys.argv[-1] else 0)
print(json.dumps({"Results": [{"Vulnerabilities": found}]}))
"""


@operator(
    "devopstales/trivy-operator",
    "certbuilder",
    "certvalidator",
    "croniter",
    "kubernetes",
    "oscrypto",
    "pyOpenSSL",
    "requests",
    "six",
    "validators",
    ports=(9115, 19443),
    native=True,
)
async def trivy_webhook(play: Play) -> None:
    """A sync handler of pods, which runs a program; its configuration is managed, and the API server asks it."""
    play.put("sitecustomize.py", OPENSSL)
    play.put("trivy", _TRIVY)
    play.environment |= {"ADMISSION_CONTROLLER": "true", "SERVICE_ACCOUNT": "scanner"}
    play.environment |= {"PYTHONPATH": str(play.home / "bin")}
    provide_certificates(play, "trivy-operator.py")
    play.skip("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    await play.add_namespaces("trivy-operator", "apps")
    await play.apply(*(f"deploy/helm/crds/{kind}.yaml" for kind in ("ClusterScanner", "NamespaceScanner")))
    for step in ("started", "started again"):
        async with play.running("--all-namespaces", "--standalone", "trivy-operator.py"):
            allowed = {"trivy.security.devopstales.io/high": "2"}
            pods = [
                describe_pod("fine", "nginx:1"),
                describe_pod("bad", "nginx:1", "holes:1"),
                describe_pod("vague", "unknown:1"),
                describe_pod("known", "holes:1", annotations=allowed),
            ]
            play.states[f"{step}: refused"] = [await play.refusal(pod) for pod in pods]
            await play.record(step)


@operator("gefyrahq/gefyra", "click", "python-decouple", "python-statemachine", apart=("kubernetes<37",), ports=(9443,))
async def gefyra_webhook(play: Play) -> None:
    """Async handlers of three kinds that read differences, and errors that none of them expects."""
    play.watches, play.environment = False, play.environment | {"OP_MODE": "Webhook"}
    # What was unexpected is in the log only, as the page about Kopf says.
    play.masks += [r""""message": "('unknown' is|\(404\)|The webhook has failed)(\\.|[^"\\])*\""""]
    version, url = "gefyra.dev/v1", "https://localhost:9443"
    await play.add_namespaces("gefyra", "apps")
    await play.apply(*(declare("gefyra.dev", "v1", f"gefyra{kind}") for kind in ("bridge", "bridgemount", "client")))
    client = describe_object("gefyraclient", version, "one", "gefyra", provider="stowaway", state="CREATING")
    subnet = {"providerParameter": {"subnet": "192.168.99.0/24"}}
    bridge = describe_object("gefyrabridge", version, "one", "gefyra", provider="carrier", target="pod")
    mount = describe_object("gefyrabridgemount", version, "one", "gefyra", provider="carrier2mount", target="none")
    mount |= {"targetNamespace": "apps", "targetContainer": "main"}
    async with play.running("--all-namespaces", "main.py", cwd="operator"):
        created: list[dict[str, Any]] = [{}, subnet, {"sunset": "some day"}, {"provider": "unknown"}, {"check": True}]
        for changed in created:
            await review(play, f"{url}/client-parameters", client | changed)
        updated: list[dict[str, Any]] = [
            subnet,
            {"state": "WAITING"} | subnet,
            {"providerParameter": {"subnet": "wrong"}},
        ]
        for changed in updated:
            await review(play, f"{url}/client-parameters", client | changed, old=client)
        for changed in ({}, {"destinationIP": "10.0.0.1"}, {"destinationIP": "10.0.0.1", "targetNamespace": "apps"}):
            await review(play, f"{url}/bridge-parameters", bridge | changed)
        bridges: list[dict[str, Any]] = [{"target": "other"}, {"portMappings": ["80:80"]}, {"state": "ACTIVE"}]
        for changed in bridges:
            await review(play, f"{url}/bridge-parameters", bridge | changed, old=bridge)
        await review(play, f"{url}/mount-parameters", mount)
        await review(play, f"{url}/mount-parameters", mount | {"target": "other"}, old=mount)
        await review(play, f"{url}/mount-parameters", mount | {"state": "ACTIVE"}, old=mount)
        await play.record("reviewed")


# The client of Vault, which keeps nothing.
_HVAC: Final = """
class Some(dict):
    def __getattr__(self, name): return Some()
    def __call__(self, *args, **kwargs): return Some()
    def __missing__(self, key): return Some()
Client = Some
"""


@operator("tmforum-oda/oda-canvas", "certbuilder", "cryptography", "kubernetes", "oscrypto", ports=(9443,))
async def oda_secrets(play: Play) -> None:
    """Async handlers that write to the status of owners, a managed configuration with a Service, a peering.

    Their pods are only denied here: they get a sidecar in the list of the body itself, which Kopf forgets to patch.
    """
    folder = "source/operators/TMFOP007-Secrets-Management/vault/docker"
    (play.home / "lib" / "hvac").mkdir(parents=True)
    (play.home / "lib" / "hvac" / "__init__.py").write_text(_HVAC)
    (play.home / "lib" / "hvac" / "exceptions.py").write_text("class InvalidPath(Exception): pass\n")
    play.put("sitecustomize.py", OPENSSL)
    play.environment |= {"PYTHONPATH": f"{play.home / 'lib'}:{play.home / 'bin'}", "HVAC_TOKEN": "secret"}
    play.environment |= {"WEBHOOK_SERVICE_NAME": "hook", "WEBHOOK_SERVICE_NAMESPACE": "canvas"}
    play.masks += [r'"caBundle": "[^"]*"']
    play.skip("ValidatingWebhookConfiguration")  # Kopf creates one without any webhook
    group = "oda.tmforum.org"
    version, url = f"{group}/v1", "https://localhost:9443"
    await play.add_namespaces("canvas", "apps")
    await play.apply(*(declare(group, "v1", kind) for kind in ("Component", "SecretsManagement")))
    status = {"securitySecretsManagement": {"ready": False}}
    await play.apply(describe_object("Component", version, "shop", "apps", spec={}, status=status))
    labels = {f"{group}/secretsmanagement": "sidecar", f"{group}/componentName": "shop"}
    selector = {"name": "shop-*", "namespace": "apps", "serviceaccount": "default"}
    spec = {"sideCar": {"port": 5000}, "podSelector": selector}
    async with play.running("--all-namespaces", "secretsmanagementOperatorHC.py", cwd=folder):
        for name in ("shop-early", "other"):
            await review(play, f"{url}/podmutate", describe_pod(name, "nginx:1", labels=labels))
        await play.apply(describe_object("SecretsManagement", version, "shop", "apps", spec=spec))
        await play.record("created")
        await review(play, f"{url}/podmutate", describe_pod("other", "nginx:1", labels=labels))
        guest = describe_pod("shop-one", "nginx:1", labels=labels)
        guest["spec"]["serviceAccountName"] = "guest"
        await review(play, f"{url}/podmutate", guest)
        await review(play, f"{url}/podmutate", describe_pod("unlabelled", "nginx:1"))
        made = describe_object("Deployment", "apps/v1", "shop", "apps", metadata={"labels": labels})
        await review(play, f"{url}/deploymentmutate", made | {"spec": {"template": {"spec": {}}}})
        await review(play, f"{url}/deploymentmutate", made | {"spec": {}})
        await play.record("reviewed")
    async with play.running("--all-namespaces", "secretsmanagementOperatorHC.py", cwd=folder):
        await play.record("started again")
        await play.cluster.delete("secretsmanagements", "shop", "apps")
        await play.record("deleted")


@operator(
    "vriesdemichael/keycloak-operator",
    *OPERATORS["keycloak"].requirements,
    ports=(8080, 8081, 19445),
    python=(3, 13),
)
async def keycloak_webhooks(play: Play) -> None:
    """Async handlers of three kinds, which give specs to Pydantic, and count objects."""
    provide_certificates(play, "src/keycloak_operator/operator.py")
    prepare_keycloak(play)
    play.environment |= {"ENABLE_WEBHOOKS": "true", "WEBHOOK_PORT": "19445"}
    kinds = ("keycloak", "keycloakclient", "keycloakrealm")
    await play.add_namespaces("keycloak")
    await play.apply(*(f"charts/keycloak-operator/crds/{kind}-crd.yaml" for kind in kinds))
    await play.apply("charts/keycloak-operator/crds/kopf-peering-crds.yaml")
    version, url = "vriesdemichael.github.io/v1", "https://localhost:19445"
    database: dict[str, Any] = {"type": "postgresql", "host": "localhost", "database": "app", "username": "app"}
    database["passwordSecret"] = {"name": "database", "key": "password"}
    keycloaks: list[dict[str, Any]] = [
        {"database": database},
        {"database": {"type": "unknown"}},
        {"database": database, "image": "keycloak:latest", "upgradePolicy": {"strategy": "Recreate"}},
        {},
    ]
    reference = {"namespace": "keycloak"}
    realms: list[dict[str, Any]] = [
        {"realmName": "one", "operatorRef": reference},
        {"realmName": "one", "operatorRef": reference, "displayName": "${env.SECRET}"},
        {"realmName": 1, "operatorRef": reference},
        {"realmName": "one", "operatorRef": {"namespace": "other"}},
    ]
    clients: list[dict[str, Any]] = [
        {"clientId": "one", "realmRef": {"name": "one", "namespace": "keycloak"}},
        {"clientId": "", "realmRef": {"name": "one", "namespace": "keycloak"}},
    ]
    async with play.executing("keycloak_operator.operator", is_module=True):
        for kind, specs in (("Keycloak", keycloaks), ("KeycloakRealm", realms), ("KeycloakClient", clients)):
            webhook = f"{url}/validate-{kind.removeprefix('Keycloak').lower() or 'keycloak'}"
            for spec in specs:
                await review(play, webhook, describe_object(kind, version, "one", "keycloak", spec=spec))
        realm = describe_object("KeycloakRealm", version, "one", "keycloak", spec=realms[0])
        await play.apply(realm)
        client = describe_object("KeycloakClient", version, "one", "keycloak", spec=clients[0])
        await review(play, f"{url}/validate-client", client)
        await review(play, f"{url}/validate-realm", realm | {"spec": realms[1]}, old=realm)
        await play.record("reviewed")
