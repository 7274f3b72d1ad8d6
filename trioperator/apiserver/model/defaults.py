"""Defaults of built-in kinds, by type: see the API reference. Pure.

Empty fields that are always present (``resources: {}``) come from the schemas, all other defaults from here. Types are
identified by group, version and name. Functions change the freshly decoded object in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Object = dict[str, Any]

_RBAC: Final = "rbac.authorization.k8s.io"
_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_WEBHOOK: Final = {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10}
_CONTAINER: Final = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_MODE: Final = {"defaultMode": 0o644}
_TRANSITION: Final = {"lastTransitionTime": None}
_PROBED_TRANSITION: Final = {**_TRANSITION, "lastProbeTime": None}
_PORT: Final = {"protocol": "TCP"}

_VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "admissionregistration.v1.MutatingWebhook": {**_WEBHOOK, "reinvocationPolicy": "Never"},
    "admissionregistration.v1.RuleWithOperations": {"scope": "*"},
    "admissionregistration.v1.ServiceReference": {"port": 443},
    "admissionregistration.v1.ValidatingWebhook": _WEBHOOK,
    "apiregistration.v1.ServiceReference": {"port": 443},
    "apps.v1.DaemonSetSpec": {"revisionHistoryLimit": 10},
    "apps.v1.DaemonSetCondition": _TRANSITION,
    "apps.v1.DeploymentCondition": {**_TRANSITION, "lastUpdateTime": None},
    "apps.v1.DeploymentSpec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
    "apps.v1.ReplicaSetCondition": _TRANSITION,
    "apps.v1.ReplicaSetSpec": {"replicas": 1},
    "apps.v1.StatefulSetCondition": _TRANSITION,
    "apps.v1.StatefulSetSpec": {"replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10},
    "autoscaling.v1.HorizontalPodAutoscalerSpec": {"minReplicas": 1},
    "autoscaling.v2.HorizontalPodAutoscalerSpec": {"minReplicas": 1},
    "autoscaling.v2.HorizontalPodAutoscalerStatus": {"currentMetrics": None},
    "autoscaling.v2.HorizontalPodAutoscalerCondition": _TRANSITION,
    "batch.v1.CronJobSpec": {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "batch.v1.JobCondition": _PROBED_TRANSITION,
    "core.v1.ConfigMapVolumeSource": _MODE,
    "core.v1.ContainerStateRunning": {"startedAt": None},
    "core.v1.ContainerStateTerminated": {"startedAt": None, "finishedAt": None},
    "core.v1.ContainerPort": _PORT,
    "core.v1.DownwardAPIVolumeSource": _MODE,
    "core.v1.EndpointPort": _PORT,
    "core.v1.Event": {"firstTimestamp": None, "lastTimestamp": None, "eventTime": None},
    "core.v1.HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    "core.v1.HostPathVolumeSource": {"type": ""},
    "core.v1.ISCSIVolumeSource": {"iscsiInterface": "default"},
    "core.v1.ObjectFieldSelector": {"apiVersion": "v1"},
    "core.v1.PersistentVolumeClaimCondition": _PROBED_TRANSITION,
    "core.v1.PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    "core.v1.PersistentVolumeClaimStatus": {"phase": "Pending"},
    "core.v1.PersistentVolumeSpec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
    "core.v1.PersistentVolumeStatus": {"phase": "Pending"},
    "core.v1.NamespaceCondition": _TRANSITION,
    "core.v1.NodeCondition": {**_TRANSITION, "lastHeartbeatTime": None},
    "core.v1.NamespaceStatus": {"phase": "Active"},
    "core.v1.PodCondition": _PROBED_TRANSITION,
    "core.v1.PodSpec": {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
    },
    "core.v1.PodStatus": {"phase": "Pending"},
    "core.v1.Probe": _PROBE,
    "core.v1.ProjectedVolumeSource": _MODE,
    "core.v1.ReplicationControllerCondition": _TRANSITION,
    "core.v1.ReplicationControllerSpec": {"replicas": 1},
    "core.v1.ResourceFieldSelector": {"divisor": "0"},
    "core.v1.Secret": {"type": "Opaque"},
    "core.v1.SecretVolumeSource": _MODE,
    "core.v1.ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    "core.v1.ServicePort": _PORT,
    "core.v1.ServiceSpec": {"sessionAffinity": "None", "type": "ClusterIP"},
    "discovery.v1.EndpointPort": {"name": "", "protocol": "TCP"},
    "events.v1.Event": {"deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None, "eventTime": None},
    "networking.v1.NetworkPolicyPort": _PORT,
    "rbac.v1.ClusterRole": {"rules": None},
    "rbac.v1.Role": {"rules": None},
    "scheduling.v1.PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    "storage.v1.CSIDriverSpec": {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
    },
    "storage.v1.StorageClass": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
}


def fill_defaults(type_name: str) -> Callable[[Object], None] | None:
    """Return the function that sets the defaults of the type in place; None if the type has none."""
    values, derive = _VALUES.get(type_name, {}), _DERIVED.get(type_name)
    if not values and derive is None:
        return None

    def fill(obj: Object) -> None:
        for field, value in values.items():
            obj.setdefault(field, value)
        if derive is not None:
            derive(obj)

    return fill


# -- Pods ----------------------------------------------------------------------------------------------------------


def _container(container: Object) -> None:
    image = str(container.get("image") or "")
    tag = image.rpartition("/")[2].partition(":")[2]
    is_newest = tag in {"", "latest"} and "@" not in image
    for field, value in _CONTAINER.items():
        container.setdefault(field, value)
    container.setdefault("imagePullPolicy", "Always" if is_newest else "IfNotPresent")


def _volume(volume: Object) -> None:
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}


def _pod_spec(spec: Object) -> None:
    spec.setdefault("securityContext", {})
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]


def _pod(pod: Object) -> None:
    spec = pod["spec"]
    spec.setdefault("enableServiceLinks", True)
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container["resources"]
        if "limits" in resources:
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
        for port in container.get("ports") or () if spec.get("hostNetwork") else ():
            port.setdefault("hostPort", port.get("containerPort"))


# -- workloads ----------------------------------------------------------------------------------------------------


def _rolling_updates(**defaults: str | int) -> Callable[[Object], None]:
    """Return the function that sets the defaults of a strategy of updates."""

    def fill(strategy: Object) -> None:
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy["rollingUpdate"] = {**defaults, **(strategy.get("rollingUpdate") or {})}

    return fill


def _stateful_set(spec: Object) -> None:
    policy = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    spec["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Retain", "whenScaled": "Retain", **policy}
    for claim in spec.get("volumeClaimTemplates") or ():
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("apiVersion", "v1")


def _replication_controller(controller: Object) -> None:
    if not controller["spec"].get("minReadySeconds"):
        controller["spec"].pop("minReadySeconds", None)  # in the schema, but not in responses
    labels = (controller["spec"].get("template") or {}).get("metadata", {}).get("labels")
    if labels:
        controller["spec"].setdefault("selector", labels)
        controller["metadata"].setdefault("labels", labels)


def _job(job: Object) -> None:
    spec = job["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")


# -- scaling -------------------------------------------------------------------------------------------------------

_CPU: Final = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
_SCALE_UP: Final = (("Pods", 4), ("Percent", 100))
_SCALE_DOWN: Final = (("Percent", 100),)


def _autoscaler(spec: Object) -> None:
    spec.setdefault("metrics", [{"type": "Resource", "resource": _CPU}])
    behavior = spec.get("behavior")
    if behavior is not None:
        scale_up = {"stabilizationWindowSeconds": 0, **_scaling_rules(_SCALE_UP)}
        behavior["scaleUp"] = {**scale_up, **(behavior.get("scaleUp") or {})}
        behavior["scaleDown"] = {**_scaling_rules(_SCALE_DOWN), **(behavior.get("scaleDown") or {})}


def _scaling_rules(policies: tuple[tuple[str, int], ...]) -> Object:
    items = [{"type": name, "value": value, "periodSeconds": 15} for name, value in policies]
    return {"selectPolicy": "Max", "policies": items}


# -- others --------------------------------------------------------------------------------------------------------


def _service(spec: Object) -> None:
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    for port in spec.get("ports") or ():
        port["targetPort"] = port.get("targetPort") or port.get("port")
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": 10800}})
    if spec["type"] == "ExternalName":
        return
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec["type"] in {"LoadBalancer", "NodePort"}:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _balancer_ingress(ingress: Object) -> None:
    if ingress.get("ip"):
        ingress.setdefault("ipMode", "VIP")


def _webhook(webhook: Object) -> None:
    webhook.setdefault("namespaceSelector", {})
    webhook.setdefault("objectSelector", {})


def _network_policy(spec: Object) -> None:
    spec.setdefault("policyTypes", ["Ingress", *(["Egress"] if spec.get("egress") else [])])


def _subject(subject: Object) -> None:
    if subject.get("kind") in {"Group", "User"}:
        subject.setdefault("apiGroup", _RBAC)


def _role_ref(ref: Object) -> None:
    ref["apiGroup"] = ref.get("apiGroup") or _RBAC


def _limit_range_item(item: Object) -> None:
    if item.get("type") == "Container" and item.get("max"):
        item["default"] = {**item["max"], **(item.get("default") or {})}
    if item.get("type") == "Container" and item.get("default"):
        requests = {**item["default"], **(item.get("min") or {}), **(item.get("defaultRequest") or {})}
        item["defaultRequest"] = requests


def _flow_schema(spec: Object) -> None:
    spec["matchingPrecedence"] = spec["matchingPrecedence"] or 1000


def _driver(spec: Object) -> None:
    spec.setdefault("volumeLifecycleModes", ["Persistent"])


_DERIVED: Final[Mapping[str, Callable[[Object], None]]] = {
    "admissionregistration.v1.MutatingWebhook": _webhook,
    "admissionregistration.v1.ValidatingWebhook": _webhook,
    "apps.v1.DaemonSetUpdateStrategy": _rolling_updates(maxUnavailable=1, maxSurge=0),
    "apps.v1.DeploymentStrategy": _rolling_updates(maxUnavailable="25%", maxSurge="25%"),
    "apps.v1.StatefulSetSpec": _stateful_set,
    "apps.v1.StatefulSetUpdateStrategy": _rolling_updates(partition=0),
    "autoscaling.v2.HorizontalPodAutoscalerSpec": _autoscaler,
    "batch.v1.Job": _job,
    "core.v1.Container": _container,
    "core.v1.EphemeralContainer": _container,
    "core.v1.LimitRangeItem": _limit_range_item,
    "core.v1.LoadBalancerIngress": _balancer_ingress,
    "core.v1.Pod": _pod,
    "core.v1.PodSpec": _pod_spec,
    "core.v1.ReplicationController": _replication_controller,
    "core.v1.ServiceSpec": _service,
    "core.v1.Volume": _volume,
    "flowcontrol.v1.FlowSchemaSpec": _flow_schema,
    "networking.v1.NetworkPolicySpec": _network_policy,
    "rbac.v1.RoleRef": _role_ref,
    "rbac.v1.Subject": _subject,
    "storage.v1.CSIDriverSpec": _driver,
}
