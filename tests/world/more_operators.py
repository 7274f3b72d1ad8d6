"""More public operators: those that were found after the first ones had been played, without a look at them before.

As in :mod:`tests.world.operators`, nothing of their code is here.
"""

from __future__ import annotations

from typing import Any, Final

import trustme

from tests.world.operators import declare, describe_object, operator
from tests.world.playing import Play


@operator("ideamixes/object-cloner", "dictdiffer", "mergedeep", "pykube-ng", native=True)
async def object_cloner(play: Play) -> None:
    play.environment |= {"OBJECT_CLONER_ALLOWED_OBJECT_KINDS": "v1,ConfigMap v1,Secret"}
    play.masks += [r'"syncedNamespaces": \[[^]]*\]']  # its handlers overwrite it for each other, also under Kopf
    play.patient = True
    run = ("--all-namespaces", "--verbose", "-m", "objectcloner.main")
    version = "object-cloner.ideamix.es/v1"

    def clone(name: str, kind: str, **spec: Any) -> dict[str, Any]:
        source = {"group": "", "version": "v1", "kind": kind}
        return describe_object("ClusterObject", version, name, "here", spec={"sourceObject": source, **spec})

    await play.add_namespaces("here", "aa", "ab", "bb")
    await play.apply("deploy/helm-object-cloner/templates/crd.yaml")
    await play.apply(describe_object("ConfigMap", "v1", "one", "here", data={"key": "1"}))
    await play.apply(describe_object("Secret", "v1", "two", "here", stringData={"key": "1"}))
    async with play.running(*run, cwd="src"):
        await play.apply(clone("one", "ConfigMap", namespacesToInclude=["a.*"]))
        await play.apply(clone("two", "Secret", namespacesToInclude=[".*"], namespacesToExclude=["kube.*", "default"]))
        await play.record("created")
        await play.cluster.patch("configmaps", "one", {"data": {"key": "2"}}, "here")
        await play.record("source changed")
        await play.add_namespaces("ac")
        await play.record("a namespace added")
    async with play.running(*run, cwd="src"):
        await play.record("started again")
        await play.cluster.delete("clusterobjects", "one", "here")
        await play.cluster.delete("secrets", "two", "here")
        # Nothing clones the ConfigMap any more: who sees an event of it after that removes the finalizer.
        play.masks += [r'"finalizers": \["object-cloner.ideamix.es/kopf-finalizer"\]', r'"finalizers": \[\]']
        await play.record("deleted")


@operator("camptocamp/operator-shared-config-manager", "kubernetes")
async def shared_config_manager(play: Play) -> None:
    play.environment |= {"ENVIRONMENT": "test", "INTERVAL": "0.2"}
    run = ("--all-namespaces", "docker/shared_config_manager_operator.py")
    group = "camptocamp.com"
    version = f"{group}/v4"

    def describe_source(name: str, value: str) -> dict[str, Any]:
        spec = {"name": name, "content": {"key": value, "secret": "{secret}"}, "external_secret": {"secret": "name"}}
        labels = {"labels": {"test": "yes"}}
        return describe_object("SharedConfigSourceTest", version, name, "source", metadata=labels, spec=spec)

    await play.add_namespaces("source", "config")
    await play.apply(declare(group, "v4", "SharedConfigConfigTest"), declare(group, "v4", "SharedConfigSourceTest"))
    await play.apply(declare("external-secrets.io", "v1beta1", "ExternalSecret"))
    await play.apply(describe_source("early", "1"))
    spec = {"matchLabels": {"test": "yes"}, "property": "sources", "configmapName": "test.yaml"}
    async with play.running(*run):
        await play.apply(describe_object("SharedConfigConfigTest", version, "plain", "config", spec=spec))
        more = {"outputKind": "ExternalSecret", "secretStoreRef": {"name": "store"}, "externalSecretPrefix": "some"}
        await play.apply(describe_object("SharedConfigConfigTest", version, "secret", "config", spec=spec | more))
        await play.record("created")
        await play.apply(describe_source("later", "1"))
        await play.record("another source created")
        await play.cluster.patch("sharedconfigsourcetests", "early", {"spec": {"content": {"key": "2"}}}, "source")
        await play.record("source changed")
    await play.cluster.delete("sharedconfigsourcetests", "early", "source")
    async with play.running(*run):
        await play.record("source deleted while it was down")
        await play.apply(describe_source("last", "1"))
        await play.record("a source created after the start")
        await play.cluster.delete("sharedconfigsourcetests", "later", "source")
        await play.record("source deleted")
        await play.cluster.delete("sharedconfigconfigtests", "plain", "config")
        await play.record("deleted")


# The name of the API server is looked up before anything else.
_NAMES: Final = """
import socket
look_up = socket.getaddrinfo
socket.getaddrinfo = lambda host, *args, **kwargs: look_up(
    "localhost" if host == "kubernetes.default.svc" else host, *args, **kwargs
)
"""


@operator("educates/educates-training-platform", "bcrypt", "pykube-ng", ports=(8080,))
async def educates_secrets_manager(play: Play) -> None:
    play.put("sitecustomize.py", _NAMES)
    play.environment |= {"PYTHONPATH": str(play.home / "bin")}
    packages = "carvel-packages/installer/bundle/config/ytt/_ytt_lib/packages/educates/10-secrets-manager"
    await play.apply(
        *(f"{packages}/01-crds-secret{name}.yaml" for name in ("copier", "exporter", "importer", "injector"))
    )
    version = "secrets.educates.dev/v1beta1"
    source = {"name": "one", "namespace": "here"}
    rule = {"sourceSecret": source, "targetNamespaces": {"nameSelector": {"matchNames": ["a*"]}}}
    await play.add_namespaces("here", "aa", "bb")
    await play.apply(describe_object("Secret", "v1", "one", "here", stringData={"key": "1"}))
    async with play.executing("main.py", cwd="secrets-manager"):
        await play.apply(describe_object("SecretCopier", version, "copier", spec={"rules": [rule]}))
        selector = {"nameSelector": {"matchNames": ["one"]}}
        injection = {"sourceSecrets": selector, "serviceAccounts": {"nameSelector": {"matchNames": ["default"]}}}
        await play.apply(describe_object("SecretInjector", version, "injector", spec={"rules": [injection]}))
        await play.record("created")
        await play.add_namespaces("ab")
        await play.record("a namespace added")
        await play.cluster.patch("secrets", "one", {"stringData": {"key": "2"}}, "here")
        await play.record("source changed")
        exported = {"rules": [{"targetNamespaces": {"nameSelector": {"matchNames": ["bb"]}}}]}
        await play.apply(describe_object("SecretExporter", version, "one", "here", spec=exported))
        await play.apply(describe_object("SecretImporter", version, "one", "bb", spec={"sourceNamespaces": {}}))
        await play.record("exported")
    await play.cluster.patch("secrets", "one", {"stringData": {"key": "3"}}, "here")
    async with play.executing("main.py", cwd="secrets-manager"):
        await play.record("changed while it was down")
        await play.cluster.delete("secretcopiers", "copier")
        await play.record("deleted")


@operator("hepapi/hpa-prescaler-controller", "kubernetes", "python-dateutil", "requests")
async def hpa_prescaler(play: Play) -> None:
    play.environment |= {"LOOP_INTERVAL_SECS": "1", "LOOP_INITAL_DELAY_SECS": "1", "GRACE_TIME_DELTA_MINS": "30"}
    play.environment |= {"RELEASE_NAMESPACE": "default"}
    play.patient = True
    run = ("--standalone", "--all-namespaces", "src/hpa_prescaler.py")
    version = "hepapi.com/v1"

    def prescale(name: str, time: str) -> dict[str, Any]:
        spec = {"argocdAppName": "app", "timeStart": time, "targetProfileName": "some"}
        return describe_object("HpaPrescaler", version, name, "default", spec=spec)

    await play.apply("deploy/crds/HpaPrescaler.yaml", "deploy/crds/HpaPrescalerProfile.yaml")

    async def record(step: str) -> None:
        """Record a step when each object has changed once more: Kopf releases one whose daemon has ended only then."""
        await play.settle(4)
        for obj in play.cluster.objects():
            if obj["kind"] == "HpaPrescaler":
                labels = {"metadata": {"labels": {"after": step.replace(" ", "-")}}}
                await play.cluster.patch("hpaprescalers", obj["metadata"]["name"], labels, "default")
        await play.record(step, quiet=4)

    async with play.running(*run):
        await play.apply(prescale("past", "2020-01-01T00:00:00Z"), prescale("future", "2100-01-01T00:00:00Z"))
        await record("created")
        await play.cluster.patch("hpaprescalers", "future", {"spec": {"timeStart": "2020-01-01T00:00:00Z"}}, "default")
        await record("changed")
    await play.cluster.apply(prescale("later", "2100-01-01T00:00:00Z"))
    async with play.running(*run):
        await record("started again")
        await play.cluster.delete("hpaprescalers", "past", "default")
        await play.cluster.delete("hpaprescalers", "later", "default")
        await record("deleted")


@operator("seemethere/devservers", "kubernetes", "rich")
async def devservers(play: Play) -> None:
    play.environment |= {"DEVSERVER_EXPIRATION_INTERVAL": "1", "DEVSERVER_FLAVOR_RECONCILIATION_INTERVAL": "1"}
    play.environment |= {"DEVSERVER_WORKER_LIMIT": "5"}
    play.masks += [r'"ssh_host_[a-z0-9_.]+": "[^"]*"', r"\b10\.\d+\.\d+\.\d+", r'"pod-template-hash": "[^"]*"']
    play.masks += [r"(?<=-)[a-z0-9]{10}-[a-z0-9]{5}\b"]
    run = ("--all-namespaces", "--module", "devservers.operator.operator")
    version = "devserver.io/v1"
    await play.apply(*(f"crds/devserver.io_devserver{kind}s.yaml" for kind in ("", "flavor", "user")))

    def serve(name: str, **spec: Any) -> dict[str, Any]:
        spec = {"flavor": "small", "ssh": {"publicKey": "key"}, "lifecycle": {"timeToLive": "4h"}} | spec
        return describe_object("DevServer", version, name, "default", spec=spec)

    async with play.running(*run, cwd="src"):
        resources = {"limits": {"cpu": "1"}}
        for name in ("small", "large"):
            flavor = {"default": True, "resources": resources}
            await play.apply(describe_object("DevServerFlavor", version, name, spec=flavor))
            await play.settle()
        await play.apply("examples/users/test-user.yaml")
        await play.apply(serve("one", enableSSH=True), serve("unknown", flavor="other"))
        await play.apply(
            serve("short", lifecycle={"timeToLive": "4s"}), serve("wrong", lifecycle={"timeToLive": "200h"})
        )
        await play.record("created", quiet=6)
        await play.cluster.patch("devservers", "one", {"spec": {"image": "other"}}, "default")
        await play.record("changed")
    await play.cluster.patch("devservers", "one", {"spec": {"image": "another"}}, "default")
    async with play.running(*run, cwd="src"):
        await play.record("changed while it was down")
        await play.cluster.delete("devservers", "one", "default")
        await play.cluster.delete("devserverusers", "test-user")
        await play.record("deleted")


# Helm, as the operator calls it: it knows no releases, and writes down the values that it was told.
_HELM: Final = """#!/usr/bin/env python3
import json, os, pathlib, sys
words = [word for word in sys.argv[1:] if not word.startswith("-")]
chart = {"apiVersion": "v2", "name": "chart", "version": "1.0.0"}
if words[0] == "version":
    print("v3.14.0", end="")
elif words[0] == "show":
    print(json.dumps(chart))
elif words[0] == "upgrade":
    values = pathlib.Path(os.environ["HOME"], "values")
    values.mkdir(exist_ok=True)
    (values / words[1]).write_text(sys.stdin.read())
    info = {"status": "deployed", "last_deployed": "2026-01-01T00:00:00Z", "description": "done"}
    release = {"name": words[1], "namespace": "users", "version": 1, "info": info, "chart": {"metadata": chart}}
    print(json.dumps(release | {"manifest": ""}))
else:
    sys.exit("Error: release: not found")
"""
_CAPI_KINDS: Final = (
    ("cluster.x-k8s.io", "v1beta1", "Cluster"),
    ("cluster.x-k8s.io", "v1beta1", "Machine"),
    ("controlplane.cluster.x-k8s.io", "v1beta1", "KubeadmControlPlane"),
    ("infrastructure.cluster.x-k8s.io", "v1", "OpenStackMachine"),
    ("addons.stackhpc.com", "v1alpha1", "HelmRelease"),
    ("addons.stackhpc.com", "v1alpha1", "Manifests"),
    ("kustomize.toolkit.fluxcd.io", "v1", "Kustomization"),
    ("scheduling.azimuth.stackhpc.com", "v1alpha1", "Lease"),
    ("identity.azimuth.stackhpc.com", "v1alpha1", "Realm"),
    ("identity.azimuth.stackhpc.com", "v1alpha1", "Platform"),
    ("identity.azimuth.stackhpc.com", "v1alpha1", "OIDCClient"),
)


@operator(
    "azimuth-cloud/azimuth-capi-operator",
    "aiohttp",
    "configomatic[yaml]",
    "easykube",
    "easysemver",
    "httpx",
    "Jinja2",
    "kube-custom-resource",
    "pydantic",
    "pyhelm3",
    ports=(8000, 8080, 8443),
)
async def azimuth_capi_operator(play: Play) -> None:
    play.put("helm", _HELM)
    play.add_certificate()  # its client library knows no tokens
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    chain = [*certificate.cert_chain_pems, authority.cert_pem]
    webhook = {"MANAGED": "true", "HOST": "localhost"}
    webhook["CERTFILE"] = str(play.put("cert.pem", "".join(pem.bytes().decode() for pem in chain)))
    webhook["KEYFILE"] = str(play.put("key.pem", certificate.private_key_pem.bytes().decode()))
    play.environment |= {f"AZIMUTH_CAPI__WEBHOOK__{name}": value for name, value in webhook.items()}
    play.environment |= {"AZIMUTH_CAPI__CAPI_HELM__CHART_NAME": str(play.home)}
    play.masks += [r'"key": "[^"]*"']  # it is random
    play.skip("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")  # Kopf always creates both
    play.patient = True  # its handlers write with the version that they have read, and fail if another one has written
    await play.add_namespaces("users")
    await play.apply(*(declare(*kind) for kind in _CAPI_KINDS))
    identity, version = "identity.azimuth.stackhpc.com/v1alpha1", "azimuth.stackhpc.com/v1alpha1"
    await play.apply(describe_object("Realm", identity, "realm", "users", status={"phase": "Ready"}))
    await play.apply(describe_object("Secret", "v1", "credentials", "users", data={}))
    values = {"kubernetesVersion": "1.30.0", "machineImageId": "image"}

    def describe_template(name: str, kubernetes: str) -> dict[str, Any]:
        spec = {"label": name, "description": "some", "values": values | {"kubernetesVersion": kubernetes}}
        return describe_object("ClusterTemplate", version, name, spec=spec)

    def describe_cluster(name: str, template: str) -> dict[str, Any]:
        spec = {"label": name, "templateName": template, "cloudCredentialsSecretName": "credentials"}
        return describe_object("Cluster", version, name, "users", spec=spec | {"controlPlaneMachineSize": "small"})

    async def record(step: str) -> None:
        await play.record(step)
        files = sorted((play.home / "values").glob("*"))
        play.states[f"{step}: values"] = [f"{path.name}: {path.read_text()}" for path in files]

    clusters = "clusters.v1alpha1.azimuth.stackhpc.com"
    labels = {"capi.stackhpc.com/cluster": "one"}
    async with play.executing("azimuth_capi", is_module=True):
        await play.apply(describe_template("old", "1.30.0"), describe_template("new", "1.31.0"))
        await play.apply(describe_template("far", "1.33.0"), describe_cluster("one", "old"))
        await record("created")
        refused = [
            await play.refusal(describe_cluster("two", "unknown")),
            await play.refusal(describe_cluster("one", "far")),
        ]
        play.states["refused"] = [*refused, await play.refusal(None, "clustertemplates", "old")]
        await play.cluster.patch(clusters, "one", {"spec": {"templateName": "new"}}, "users")
        status = {"phase": "Provisioned", "conditions": [{"type": "Ready", "status": "True"}]}
        capi = describe_object("Cluster", "cluster.x-k8s.io/v1beta1", "one", "users", metadata={"labels": labels})
        await play.apply(capi | {"spec": {}, "status": status})
        await record("upgraded")
    async with play.executing("azimuth_capi", is_module=True):
        await record("started again")
        await play.cluster.delete("clusters.v1beta1.cluster.x-k8s.io", "one", "users")
        await play.cluster.delete(clusters, "one", "users")
        await record("deleted")


_ODA_KINDS: Final = (
    "Component",
    "DependentAPI",
    "ExposedAPI",
    "IdentityConfig",
    "PublishedNotification",
    "SecretsManagement",
    "SubscribedNotification",
)


@operator("tmforum-oda/oda-canvas", "kubernetes", python=(3, 12))
async def oda_component_management(play: Play) -> None:
    folder = "source/operators/TMFOP001-Component-Management/component-management"
    play.environment |= {"COMPONENT_NAMESPACE": "components"}
    run = ("--namespace", "components", "componentOperator.py")
    group = "oda.tmforum.org"
    version = f"{group}/v1"
    play.masks += [r"\b10\.\d+\.\d+\.\d+"]

    def expose(name: str, path: str) -> dict[str, Any]:
        api = {"name": name, "id": name, "apiType": "openapi", "implementation": "service", "port": 8080}
        return api | {"path": path, "specification": [{"url": f"https://localhost/{name}_v4.0.0_swagger.json"}]}

    core = {"exposedAPIs": [expose("catalog", "/catalog")], "dependentAPIs": [expose("party", "/party")]}
    security = {"canvasSystemRole": "Admin", "exposedAPIs": [expose("partyrole", "/role")], "dependentAPIs": []}
    spec: dict[str, Any] = {"id": "TMFC001", "name": "some", "version": "1.0.0", "coreFunction": core}
    spec |= {"managementFunction": {"exposedAPIs": [], "dependentAPIs": []}, "securityFunction": security}
    spec |= {"eventNotification": {"publishedEvents": [], "subscribedEvents": []}}
    labels = {"labels": {f"{group}/componentName": "one"}}
    await play.add_namespaces("components")
    await play.apply(*(declare(group, "v1", kind, with_status=kind != "Component") for kind in _ODA_KINDS))
    port = {"port": 80, "protocol": "TCP", "targetPort": 80}
    async with play.running(*run, cwd=folder):
        await play.apply(describe_object("Component", version, "one", "components", metadata=labels, spec=spec))
        await play.record("created", quiet=6)
        service = describe_object("Service", "v1", "service", "components", metadata=labels, spec={"ports": [port]})
        await play.apply(service, describe_object("ConfigMap", "v1", "settings", "components", metadata=labels))
        await play.record("children adopted", quiet=6)
        for name in ("one-catalog-v4", "one-partyrole-v4"):
            status = {"apiStatus": {"url": "https://localhost", "name": name, "ready": True}}
            status["implementation"] = {"ready": True}
            await play.cluster.patch("exposedapis", name, {"status": status}, "components", subresource="status")
        await play.record("APIs ready", quiet=6)
        core["exposedAPIs"] = [expose("catalog", "/other"), expose("order", "/order")]
        await play.cluster.patch("components", "one", {"spec": spec}, "components")
        await play.record("changed", quiet=6)
    core["exposedAPIs"] = [expose("order", "/order")]
    await play.cluster.patch("components", "one", {"spec": spec}, "components")
    async with play.running(*run, cwd=folder):
        await play.record("changed while it was down", quiet=6)
        await play.cluster.delete("components", "one", "components")
        await play.record("deleted", quiet=6)
