"""What ``kubectl get`` shows of the built-in kinds: their columns, and how cells are filled. Pure.

Names, types, priorities and texts are those of the real server.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from .builtin_column_values import (
    address,
    claim,
    completions,
    endpoints,
    event_count,
    event_source,
    external_ip,
    first_seen,
    hosts,
    ingress_address,
    involved,
    job_duration,
    job_status,
    last_seen,
    node_roles,
    node_status,
    param,
    parameters,
    phase,
    quota,
    role,
    service_ports,
    slice_endpoints,
    slice_ports,
    storage_class_name,
    targets,
)
from .column_values import (
    access_modes,
    age,
    at,
    containers,
    count,
    find,
    images,
    label_selector,
    labels,
    owner,
    ratio,
    since,
    subjects,
)
from .pod_column_values import pod_ready, pod_restarts, pod_status, readiness_gates

__all__ = ["BuiltinColumn", "builtin_columns"]

Object: TypeAlias = Mapping[str, Any]
Cell: TypeAlias = Callable[[Object, datetime.datetime], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class BuiltinColumn:
    """One column: those with a priority above 0 are for wide tables."""

    name: str
    cell: Cell
    type: str = "string"
    priority: int = 0
    format: str = ""


Columns: TypeAlias = tuple[BuiltinColumn, ...]
_C = BuiltinColumn


def builtin_columns(resource: tuple[str, str]) -> Columns:
    """Give the columns of a built-in kind, by its group and plural name."""
    return _COLUMNS.get(resource, (_NAME, _AGE))


def _wide(*columns: BuiltinColumn) -> Columns:
    return tuple(dataclasses.replace(column, priority=1) for column in columns)


_NAME: Final = _C("Name", at("metadata.name"), format="name")
_AGE: Final = _C("Age", age)
_CREATED: Final = _C("Created At", at("metadata.creationTimestamp"), "date")
_RUN: Final = _wide(_C("Containers", containers("spec.template")), _C("Images", images("spec.template")))
_SELECTED: Final = (*_RUN, *_wide(_C("Selector", label_selector("spec.selector"))))
_EVENT: Final[Columns] = (
    _C("Last Seen", last_seen),
    _C("Type", at("type")),
    _C("Reason", at("reason")),
    _C("Object", involved),
    *_wide(_C("Subobject", at("involvedObject.fieldPath", "regarding.fieldPath")), _C("Source", event_source)),
    _C("Message", lambda obj, now: str(obj.get("message") or obj.get("note") or "").strip()),
    *_wide(
        _C("First Seen", first_seen),
        _C("Count", event_count),
        _C("Name", at("metadata.name"), format="name"),
    ),
)
_BINDING: Final[Columns] = (
    _NAME,
    _C("Role", role),
    _AGE,
    *_wide(
        _C("Users", subjects("User")),
        _C("Groups", subjects("Group")),
        _C("ServiceAccounts", subjects("ServiceAccount")),
    ),
)
_READY: Final = ratio("status.readyReplicas", "spec.replicas")
_WEBHOOKS: Final[Columns] = (_NAME, _C("Webhooks", count("webhooks"), "integer"), _AGE)
_POLICY_BINDING: Final[Columns] = (
    _NAME,
    _C("PolicyName", at("spec.policyName")),
    _C("ParamRef", param("spec.paramRef")),
    _AGE,
)


def _named(*columns: BuiltinColumn) -> Columns:
    """Put the columns between the name and the age."""
    return (_NAME, *columns, _AGE)


_COLUMNS: Final[Mapping[tuple[str, str], Columns]] = {
    ("", "configmaps"): _named(_C("Data", count("data", "binaryData"))),
    ("", "endpoints"): _named(_C("Endpoints", endpoints)),
    ("", "events"): _EVENT,
    ("", "limitranges"): (_NAME, _CREATED),
    ("", "namespaces"): _named(_C("Status", at("status.phase"))),
    ("", "nodes"): (
        *_named(_C("Status", node_status), _C("Roles", node_roles)),
        _C("Version", at("status.nodeInfo.kubeletVersion")),
        *_wide(
            _C("Internal-IP", address("InternalIP")),
            _C("External-IP", address("ExternalIP")),
            _C("OS-Image", at("status.nodeInfo.osImage", default="<unknown>")),
            _C("Kernel-Version", at("status.nodeInfo.kernelVersion", default="<unknown>")),
            _C("Container-Runtime", at("status.nodeInfo.containerRuntimeVersion", default="<unknown>")),
        ),
    ),
    ("", "persistentvolumeclaims"): (
        *_named(
            _C("Status", phase),
            _C("Volume", at("spec.volumeName")),
            _C("Capacity", at("status.capacity.storage")),
            _C("Access Modes", access_modes("status.accessModes")),
            _C("StorageClass", at("spec.storageClassName")),
            _C("VolumeAttributesClass", at("spec.volumeAttributesClassName", default="<unset>")),
        ),
        *_wide(_C("VolumeMode", at("spec.volumeMode", default="<unset>"))),
    ),
    ("", "persistentvolumes"): (
        *_named(
            _C("Capacity", at("spec.capacity.storage")),
            _C("Access Modes", access_modes("spec.accessModes")),
            _C("Reclaim Policy", at("spec.persistentVolumeReclaimPolicy")),
            _C("Status", phase),
            _C("Claim", claim),
            _C("StorageClass", at("spec.storageClassName")),
            _C("VolumeAttributesClass", at("spec.volumeAttributesClassName", default="<unset>")),
            _C("Reason", at("status.reason")),
        ),
        *_wide(_C("VolumeMode", at("spec.volumeMode", default="<unset>"))),
    ),
    ("", "pods"): (
        *_named(_C("Ready", pod_ready), _C("Status", pod_status), _C("Restarts", pod_restarts)),
        *_wide(
            _C("IP", at("status.podIP", default="<none>")),
            _C("Node", at("spec.nodeName", default="<none>")),
            _C("Nominated Node", at("status.nominatedNodeName", default="<none>")),
            _C("Readiness Gates", readiness_gates),
        ),
    ),
    ("", "podtemplates"): (
        _NAME,
        _C("Containers", containers("template")),
        _C("Images", images("template")),
        _C("Pod Labels", labels("template.metadata.labels")),
    ),
    ("", "replicationcontrollers"): (
        *_named(
            _C("Desired", at("spec.replicas", default=0), "integer"),
            _C("Current", at("status.replicas", default=0), "integer"),
            _C("Ready", at("status.readyReplicas", default=0), "integer"),
        ),
        *_RUN,
        *_wide(_C("Selector", labels("spec.selector"))),
    ),
    ("", "resourcequotas"): (_NAME, _C("Request", quota(False)), _C("Limit", quota(True)), _AGE),
    ("", "secrets"): _named(_C("Type", at("type")), _C("Data", count("data"))),
    ("", "services"): (
        *_named(
            _C("Type", at("spec.type")),
            _C("Cluster-IP", at("spec.clusterIP", default="<none>")),
            _C("External-IP", external_ip),
            _C("Port(s)", service_ports),
        ),
        *_wide(_C("Selector", labels("spec.selector"))),
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): _named(
        _C("Mutations", count("spec.mutations"), "integer"), _C("ParamKind", param("spec.paramKind"))
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): _POLICY_BINDING,
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): _named(
        _C("Validations", count("spec.validations"), "integer"), _C("ParamKind", param("spec.paramKind"))
    ),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): _POLICY_BINDING,
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): _WEBHOOKS,
    ("apiextensions.k8s.io", "customresourcedefinitions"): (_NAME, _CREATED),
    ("apps", "controllerrevisions"): _named(_C("Controller", owner), _C("Revision", at("revision"))),
    ("apps", "daemonsets"): (
        *_named(
            _C("Desired", at("status.desiredNumberScheduled", default=0), "integer"),
            _C("Current", at("status.currentNumberScheduled", default=0), "integer"),
            _C("Ready", at("status.numberReady", default=0), "integer"),
            _C("Up-to-date", at("status.updatedNumberScheduled", default=0), "integer"),
            _C("Available", at("status.numberAvailable", default=0), "integer"),
            _C("Node Selector", labels("spec.template.spec.nodeSelector")),
        ),
        *_SELECTED,
    ),
    ("apps", "deployments"): (
        *_named(
            _C("Ready", _READY),
            _C("Up-to-date", at("status.updatedReplicas", default=0)),
            _C("Available", at("status.availableReplicas", default=0)),
        ),
        *_SELECTED,
    ),
    ("apps", "replicasets"): (
        *_named(
            _C("Desired", at("spec.replicas", default=0), "integer"),
            _C("Current", at("status.replicas", default=0), "integer"),
            _C("Ready", at("status.readyReplicas", default=0), "integer"),
        ),
        *_SELECTED,
    ),
    ("apps", "statefulsets"): (*_named(_C("Ready", _READY)), *_RUN),
    ("autoscaling", "horizontalpodautoscalers"): _named(
        _C(
            "Reference",
            lambda obj, now: f"{find(obj, 'spec.scaleTargetRef.kind')}/{find(obj, 'spec.scaleTargetRef.name')}",
        ),
        _C("Targets", targets),
        _C("MinPods", lambda obj, now: str(find(obj, "spec.minReplicas") or "<unset>")),
        _C("MaxPods", at("spec.maxReplicas")),
        _C("Replicas", at("status.currentReplicas", default=0)),
    ),
    ("batch", "cronjobs"): (
        *_named(
            _C("Schedule", at("spec.schedule")),
            _C("Timezone", at("spec.timeZone", default="<none>")),
            _C("Suspend", lambda obj, now: str(bool(find(obj, "spec.suspend"))), "boolean"),
            _C("Active", count("status.active"), "integer"),
            _C("Last Schedule", lambda obj, now: since(find(obj, "status.lastScheduleTime"), now, default="<none>")),
        ),
        *_wide(
            _C("Containers", containers("spec.jobTemplate.spec.template")),
            _C("Images", images("spec.jobTemplate.spec.template")),
            _C("Selector", label_selector("spec.jobTemplate.spec.selector")),
        ),
    ),
    ("batch", "jobs"): (
        *_named(_C("Status", job_status), _C("Completions", completions), _C("Duration", job_duration)),
        *_SELECTED,
    ),
    ("coordination.k8s.io", "leases"): _named(_C("Holder", at("spec.holderIdentity"))),
    ("discovery.k8s.io", "endpointslices"): _named(
        _C("AddressType", at("addressType")), _C("Ports", slice_ports), _C("Endpoints", slice_endpoints)
    ),
    ("events.k8s.io", "events"): _EVENT,
    ("networking.k8s.io", "ingressclasses"): _named(
        _C("Controller", at("spec.controller")), _C("Parameters", parameters)
    ),
    ("networking.k8s.io", "ingresses"): _named(
        _C("Class", at("spec.ingressClassName", default="<none>")),
        _C("Hosts", hosts),
        _C("Address", ingress_address),
        _C("Ports", lambda obj, now: "80, 443" if find(obj, "spec.tls") else "80"),
    ),
    ("networking.k8s.io", "networkpolicies"): _named(_C("Pod-Selector", label_selector("spec.podSelector"))),
    ("node.k8s.io", "runtimeclasses"): _named(_C("Handler", at("handler"))),
    ("policy", "poddisruptionbudgets"): _named(
        _C("Min Available", at("spec.minAvailable", default="N/A")),
        _C("Max Unavailable", at("spec.maxUnavailable", default="N/A")),
        _C("Allowed Disruptions", at("status.disruptionsAllowed", default=0), "integer"),
    ),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _BINDING,
    ("rbac.authorization.k8s.io", "clusterroles"): (_NAME, _CREATED),
    ("rbac.authorization.k8s.io", "rolebindings"): _BINDING,
    ("rbac.authorization.k8s.io", "roles"): (_NAME, _CREATED),
    ("scheduling.k8s.io", "priorityclasses"): (
        *_named(
            _C("Value", at("value", default=0), "integer"),
            _C("Global-Default", at("globalDefault", default=False), "boolean"),
        ),
        _C("PreemptionPolicy", at("preemptionPolicy")),
    ),
    ("storage.k8s.io", "csistoragecapacities"): (_NAME, _CREATED),
    ("storage.k8s.io", "storageclasses"): (
        _C("Name", storage_class_name, format="name"),
        _C("Provisioner", at("provisioner")),
        _C("ReclaimPolicy", at("reclaimPolicy")),
        _C("VolumeBindingMode", at("volumeBindingMode")),
        _C("AllowVolumeExpansion", at("allowVolumeExpansion", default=False)),
        _AGE,
    ),
}
