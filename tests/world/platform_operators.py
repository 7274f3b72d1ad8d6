"""Operators of platforms: who may use what is provided, and what is installed on clusters."""

from __future__ import annotations

from typing import Any, Final

from tests.world.operators import declare, describe_object, operator
from tests.world.playing import Play

_GROUP: Final = "babylon.gpte.redhat.com"


@operator("redhat-cop/babylon", "inflection", "kubernetes_asyncio")
async def babylon_service_access(play: Play) -> None:
    run = ("--all-namespaces", "--standalone", "service-access-manager/operator/operator.py")
    version = f"{_GROUP}/v1"
    for kind in ("ServiceAccessConfig", "Workshop", "SelfPacedLab", "WorkshopProvision", "WorkshopUserAssignment"):
        await play.apply(declare(_GROUP, "v1", kind, with_status=True))
    plural = declare(_GROUP, "v1", "ServiceAccess")
    plural["metadata"]["name"], plural["spec"]["names"]["plural"] = f"serviceaccesses.{_GROUP}", "serviceaccesses"
    await play.apply(plural, declare("poolboy.gpte.redhat.com", "v1", "ResourceClaim", with_status=True))
    await play.apply(declare("user.openshift.io", "v1", "User", "Cluster"))
    await play.apply(declare("usernamespace.gpte.redhat.com", "v1", "UserNamespace", "Cluster"))
    await play.add_namespaces("users", "user-ann", "user-bob")
    for name in ("ann", "bob"):
        await play.apply(describe_object("User", "user.openshift.io/v1", name))
        user = await play.cluster.get("users", name)
        labels = {"usernamespace.gpte.redhat.com/user-uid": user["metadata"]["uid"]}
        await play.apply(
            describe_object(
                "UserNamespace", "usernamespace.gpte.redhat.com/v1", f"user-{name}", metadata={"labels": labels}
            )
        )

    def grant(name: str, kind: str, target: str, *users: str) -> dict[str, Any]:
        spec = {"kind": kind, "name": target, "users": [{"name": user} for user in users]}
        return describe_object("ServiceAccessConfig", version, name, "users", spec=spec)

    await play.apply(describe_object("ResourceClaim", "poolboy.gpte.redhat.com/v1", "claim", "users", spec={}))
    await play.apply(describe_object("Workshop", version, "workshop", "users", spec={}))
    async with play.running(*run):
        await play.apply(grant("one", "ResourceClaim", "claim", "ann"))
        await play.apply(grant("two", "Workshop", "workshop", "ann", "nobody"))
        await play.apply(grant("lost", "ResourceClaim", "missing", "ann"))
        await play.record("created")
        await play.apply(grant("one", "ResourceClaim", "claim", "ann", "bob"))
        await play.record("changed")
        await play.cluster.delete("serviceaccessconfigs", "two", "users")
        await play.record("deleted")
    await play.cluster.delete("roles", "one", "users")
    async with play.running(*run):
        await play.record("started again")
        await play.cluster.delete("serviceaccessconfigs", "one", "users")
        await play.record("all deleted")


@operator(
    "azimuth-cloud/cluster-api-addon-provider",
    "configomatic[yaml]",
    "easykube",
    "Jinja2",
    "kube-custom-resource",
    "pydantic",
    "pyhelm3",
)
async def capi_addon_provider(play: Play) -> None:
    """Addons of clusters that are not ready, and paused ones: those that are installed would need Helm."""
    play.add_certificate()
    play.environment |= {"CAPI_ADDON_PROVIDER__TEMPORARY_ERROR_DELAY": "3600"}
    run = ("--all-namespaces", "--module", "capi_addons.operator")
    group, infra = "cluster.x-k8s.io", "infrastructure.example.com"
    await play.apply(declare(group, "v1beta1", "Cluster", with_status=True), declare(infra, "v1", "TestCluster"))
    await play.add_namespaces("clusters")

    def addon(name: str, cluster: str, config_map: str) -> dict[str, Any]:
        sources = [{"configMap": {"name": config_map}}]
        spec = {"clusterName": cluster, "targetNamespace": "default", "paused": True, "manifestSources": sources}
        return describe_object("Manifests", "addons.stackhpc.com/v1alpha1", name, "clusters", spec=spec)

    def config(key: str) -> dict[str, Any]:
        return describe_object("ConfigMap", "v1", "config", "clusters", data={"key": key})

    await play.apply(config("1"), describe_object("Secret", "v1", "cloud", "clusters", stringData={"key": "1"}))
    for name in ("ready", "unready"):
        ref = {"apiVersion": f"{infra}/v1", "kind": "TestCluster", "name": name}
        await play.apply(
            describe_object("TestCluster", f"{infra}/v1", name, "clusters", spec={"identityRef": {"name": "cloud"}}),
            describe_object("Cluster", f"{group}/v1beta1", name, "clusters", spec={"infrastructureRef": ref}),
        )
    for name, phase, ready in (("ready", "Provisioned", "True"), ("unready", "Provisioning", "False")):
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
        await play.cluster.patch("clusters", name, {"status": status}, "clusters", subresource="status")
    async with play.running(*run):
        pass  # it defines its kinds, and ends unless they are served at once, to be started again
    play.costs.clear()
    async with play.running(*run):
        await play.apply(addon("one", "ready", "config"), addon("two", "unready", "config"))
        await play.apply(addon("three", "ready", "missing"))
        await play.record("created")
        await play.apply(config("2"))
        await play.record("configuration changed")
        await play.cluster.delete("manifests", "two", "clusters")
        await play.record("deleted")
    await play.cluster.patch("secrets", "cloud", {"stringData": {"key": "2"}}, "clusters")
    async with play.running(*run):
        await play.record("started again")
        await play.cluster.delete("configmaps", "config", "clusters")
        await play.record("configuration deleted")
        await play.cluster.delete("clusters", "ready", "clusters")
        await play.record("all deleted")
