"""More public operators, which nobody had looked at before they were played.

As in :mod:`tests.world.operators`, nothing of their code is here.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from tests.world.operators import declare, describe_object, operator
from tests.world.playing import Play

# For how many seconds the servers are away when it restarts them, as it does after it has made their password.
_QUIET = 40


@operator(
    "AngellusMortis/ark-operator",
    "aiofiles",
    "aioshutil",
    "asyncache",
    "asyncer",
    "colorama",
    "cyclopts",
    "environs",
    "gamercon-async",
    "httpx",
    "human-readable",
    "Jinja2",
    "kubernetes_asyncio",
    "pydantic",
    "pydantic-settings",
    "python-json-logger",
    "rich",
    "vdf",
)
async def ark(play: Play) -> None:
    """Handlers that wait for what others have written to the status, and a timer that writes there, too."""
    lib = play.home / "lib"
    (lib / "steam" / "client").mkdir(parents=True)
    (lib / "steam" / "client" / "__init__.py").write_text("class SteamClient: pass\n")
    (lib / "steam" / "client" / "cdn.py").write_text("class CDNClient: pass\n")
    (lib / "ark_operator-1.0.0.dist-info").mkdir()
    (lib / "ark_operator-1.0.0.dist-info" / "METADATA").write_text("Name: ark_operator\nVersion: 1.0.0\n")
    play.environment |= {"PYTHONPATH": str(lib), "ARK_OP_DRY_RUN": "true"}
    play.patient = True
    play.masks += [r'"(last_update|password|[A-Z_]*PASSWORD)": "[^"]*"', r"\b10\.\d+\.\d+\.\d+"]
    run = ("--all-namespaces", "--standalone", "--module", "ark_operator.handlers")
    version, api = "mort.is/v1beta1", "arkclusters"
    await play.apply(declare("mort.is", "v1beta1", "ArkCluster"))
    await play.add_namespaces("games")
    spec = {
        "server": {"maps": ["TheIsland_WP"], "size": "50Gi", "gracefulShutdown": "PT1S"},
        "data": {"size": "50Gi", "persist": False},
    }
    async with play.running(*run, cwd="src"):
        await play.apply(describe_object("ArkCluster", version, "ark", "games", spec=spec))
        await play.until(api, "ark", lambda found: found.get("status", {}).get("ready"), namespace="games")
        await play.record("created", quiet=_QUIET)
        await play.cluster.patch(api, "ark", {"spec": {"service": {"annotations": {"one": "1"}}}}, "games")
        await play.record("changed", quiet=_QUIET)
    await play.cluster.patch(api, "ark", {"spec": {"server": {"size": "60Gi"}}}, "games")
    async with play.running(*run, cwd="src"):
        await play.record("changed while it was down", quiet=_QUIET)
        await play.cluster.delete(api, "ark", "games")
        await play.record("deleted", quiet=_QUIET)


@operator("yannicksiewe/k8s-iam-operator", "flask", "kubernetes", "prometheus-client", ports=(8081,))
async def k8s_iam(play: Play) -> None:
    """An operator in a thread of a program, which ends without it."""
    play.masks += [r'"(token|kubeconfig)": "[^"]*"', r"(?<=-)[a-z0-9]{5}(?=\")"]
    version = "k8sio.auth/v1"
    kinds = ("group", "roles", "users")
    await play.add_namespaces("iam", "development")
    await play.apply(*(f"crd/{kind}_crd.yaml" for kind in kinds))

    def describe(kind: str, name: str, **spec: Any) -> dict[str, Any]:
        return describe_object(kind, version, name, "iam", spec=spec)

    async with play.executing("app", is_module=True):
        await play.apply(describe("Group", "devops", CRoles=[{"clusterRole": "view"}]))
        await play.apply(
            describe("Role", "developer", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])
        )
        bindings = [{"namespace": "development", "clusterRole": "edit"}, {"namespace": "later", "clusterRole": "view"}]
        own = {"labels": {"team": "one"}, "quota": {"pods": "20"}, "networkPolicy": "isolated"}
        await play.apply(describe("User", "alice", type="human", namespaceConfig=own, CRoles=bindings))
        await play.apply(describe("User", "robot", type="serviceAccount", targetNamespace="development"))
        await play.record("created")
        await play.add_namespaces("later")
        await play.record("a namespace added")
        await play.cluster.patch("users.v1.k8sio.auth", "alice", {"spec": {"CRoles": bindings[1:]}}, "iam")
        await play.record("changed")
    await play.cluster.patch("groups.v1.k8sio.auth", "devops", {"spec": {"CRoles": [{"clusterRole": "edit"}]}}, "iam")
    async with play.executing("app", is_module=True):
        await play.record("changed while it was down")
        await play.cluster.delete("users.v1.k8sio.auth", "alice", "iam")
        await play.cluster.delete("groups.v1.k8sio.auth", "devops", "iam")
        await play.record("deleted")


@operator("InformaticsMatters/squonk2-data-manager-jupyter-operator", "kubernetes", native=True)
async def jupyter(play: Play) -> None:
    """Children that are adopted in handlers, of a kind that is served in one of two versions."""
    play.masks += [
        r'\\?"token\\?": \\?"[^"\\]*',
        r"\?token=\w+",
        r"\b10\.\d+\.\d+\.\d+",
        r'"pod-template-hash": "[^"]*"',
    ]
    play.masks += [r"(?<=-)[a-z0-9]{8,10}(-[a-z0-9]{5})?(?=\\?\")"]
    play.environment |= {"INGRESS_DOMAIN": "example.com", "INGRESS_CERT_ISSUER": "letsencrypt"}
    run = ("handlers.py", "--standalone", "--all-namespaces", "--log-format=full")
    await play.apply(declare("squonk.it", "v2", "JupyterNotebook", with_status=True))
    await play.add_namespaces("labs")
    asked = {"notebook": {"interface": "lab"}, "project": {"claimName": "disk", "id": "one"}}

    def describe(name: str, **more: Any) -> dict[str, Any]:
        return describe_object(
            "JupyterNotebook", "squonk.it/v2", name, "labs", spec={"imDataManager": {**asked, **more}}
        )

    async with play.running(*run, cwd="operator"):
        await play.apply(describe("lab"), describe("other", image="jupyter/other:latest"))
        await play.record("created")
        await play.cluster.patch("jupyternotebooks", "lab", {"spec": {"imDataManager": {"image": "new"}}}, "labs")
        await play.record("changed")
    await play.apply(describe("late"))
    async with play.running(*run, cwd="operator"):
        await play.record("created while it was down")
        for name in ("lab", "other", "late"):
            await play.cluster.delete("jupyternotebooks", name, "labs")
        await play.record("deleted")


@operator("rhpds/user-namespace-operator", "inflection", "Jinja2", "kubernetes_asyncio", "str2bool")
async def user_namespaces(play: Play) -> None:
    """Daemons, events of foreign kinds, and handlers, which all share locks; storages in the status."""
    config = yaml.safe_load((play.home / "kubeconfig").read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = "default"
    (play.home / "kubeconfig").write_text(yaml.safe_dump(config))
    play.environment |= {"KOPF_STANDALONE": "true"}
    run = ("--all-namespaces", "--standalone", "--log-format=json", "operator/operator.py")
    foreign = (declare("user.openshift.io", "v1", kind, "Cluster") for kind in ("User", "Group"))
    await play.apply(*foreign, declare("template.openshift.io", "v1", "Template"))
    await play.apply("helm/crds/usernamespaceconfigs.yaml", "helm/crds/usernamespaces.yaml")
    version, domain = "usernamespace.gpte.redhat.com/v1", "user.openshift.io/v1"
    await play.apply(describe_object("User", domain, "alice"), describe_object("User", domain, "bob"))
    await play.apply(describe_object("Group", domain, "staff", users=["alice"]))
    spec: dict[str, Any] = {
        "autocreate": {"enable": True, "when": "'staff' in group_names", "description": "Of {{ user_name }}"},
        "roleBindings": [{"roleName": "admin"}, {"roleName": "view", "when": "'staff' in group_names"}],
        "managementIntervalSeconds": 5,
    }
    async with play.running(*run):
        await play.apply(describe_object("UserNamespaceConfig", version, "default", spec=spec))
        await play.record("created", quiet=8)
        await play.cluster.patch("groups", "staff", {"users": ["alice", "bob"]})
        await play.record("a member added", quiet=8)
        await play.cluster.patch("usernamespaceconfigs", "default", {"spec": {"roleBindings": [{"roleName": "edit"}]}})
        await play.record("changed", quiet=8)
    await play.cluster.patch("usernamespaceconfigs", "default", {"spec": {"roleBindings": [{"roleName": "view"}]}})
    async with play.running(*run):
        await play.record("changed while it was down", quiet=8)
        await play.cluster.delete("users", "bob")
        await play.record("a user deleted", quiet=8)
        await play.cluster.delete("usernamespaceconfigs", "default")
        await play.record("deleted", quiet=8)


# Where it finds its settings and its credentials in a pod.
_IN_POD: Final = """
import builtins, io, os

if "app.py" in " ".join(__import__("sys").orig_argv):
    import kubernetes.config
    kubernetes.config.load_incluster_config = kubernetes.config.load_kube_config
    opened = builtins.open
    def open_settings(path, *args, **options):
        found = os.environ["SETTINGS"] if path == "/config/settings.yaml" else path
        return opened(found, *args, **options)
    builtins.open = open_settings
"""
_SETTINGS: Final = {
    "interval": 3,
    "initialDelay": 2,
    "cleanupFinalizers": True,
    "dryRun": False,
    "protectedNamespaces": ["default", "kube-system", "kube-public", "kube-node-lease"],
    "ignoredResouces": [
        {"apiGroup": "", "kind": "ConfigMap", "nameRegExp": "^kube-root-ca.crt$"},
        {"apiGroup": "", "kind": "ServiceAccount", "nameRegExp": "^default$"},
        {"apiGroup": None, "kind": "ConfigMap", "nameRegExp": "^kube-root-ca.crt$"},
        {"apiGroup": None, "kind": "ServiceAccount", "nameRegExp": "^default$"},
    ],
}


@operator("rgeraskin/remove-empty-ns-operator", "kubernetes", native=True)
async def empty_namespaces(play: Play) -> None:
    """A timer that changes the metadata that it was given, and a cleanup that removes the framework's finalizer."""
    (play.home / "lib").mkdir()
    (play.home / "lib" / "sitecustomize.py").write_text(_IN_POD)
    play.patient = True  # its timer deletes the namespace, and Kopf sees up to a minute later that it has ended
    settings = play.put("settings.yaml", yaml.safe_dump(_SETTINGS))
    play.environment |= {"PYTHONPATH": str(play.home / "lib"), "SETTINGS": str(settings)}
    run = ("--all-namespaces", "--standalone", "app.py")
    await play.add_namespaces("full", "other")
    await play.apply(describe_object("ConfigMap", "v1", "one", "full", data={}))
    await play.apply(describe_object("Secret", "v1", "two", "other", data={}))
    async with play.running(*run, cwd="src"):
        await play.record("started", quiet=12)
        await play.cluster.delete("configmaps", "one", "full")
        await play.record("emptied", quiet=12)
    await play.cluster.delete("secrets", "two", "other")
    async with play.running(*run, cwd="src"):
        await play.record("emptied while it was down", quiet=12)
