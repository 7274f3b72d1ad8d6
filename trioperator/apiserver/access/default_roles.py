"""Default roles and bindings of every cluster, without the roles of controllers.

In the table a role starts an unindented line, followed by the role that it is aggregated to, if any. Each of its rules
is a line with verbs, groups and resources, or with verbs, ``url`` and paths. A line that is indented further continues
the previous one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ..model.user import AUTHENTICATED, MASTERS, UNAUTHENTICATED
from ..store.state import State

_GROUP: Final = "rbac.authorization.k8s.io"
_WORDS: Final = {
    "core": [""],
    "read": ["get", "list", "watch"],
    "write": ["create", "delete", "deletecollection", "patch", "update"],
    "all": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
}
_ROLES: Final = """
cluster-admin
  * * *
  * url *
system:aggregate-to-admin admin
  create authorization.k8s.io localsubjectaccessreviews
  all rbac.authorization.k8s.io rolebindings,roles
system:aggregate-to-edit edit
  read core pods/attach,pods/exec,pods/portforward,pods/proxy,secrets,services/proxy
  impersonate core serviceaccounts
  write core pods,pods/attach,pods/exec,pods/portforward,pods/proxy
  create core pods/eviction
  write core configmaps,persistentvolumeclaims,replicationcontrollers,replicationcontrollers/scale,
    secrets,serviceaccounts,services,services/proxy
  create core serviceaccounts/token
  write core,events.k8s.io events
  write apps daemonsets,deployments,deployments/rollback,deployments/scale,replicasets,replicasets/scale,
    statefulsets,statefulsets/scale
  write autoscaling horizontalpodautoscalers
  write batch cronjobs,jobs
  write extensions daemonsets,deployments,deployments/rollback,deployments/scale,ingresses,networkpolicies,
    replicasets,replicasets/scale,replicationcontrollers/scale
  write policy poddisruptionbudgets
  write networking.k8s.io ingresses,networkpolicies
  all coordination.k8s.io leases
  write resource.k8s.io resourceclaims,resourceclaimtemplates
system:aggregate-to-view view
  read core configmaps,endpoints,persistentvolumeclaims,persistentvolumeclaims/status,pods,
    replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/status
  read core bindings,limitranges,namespaces/status,pods/log,pods/status,replicationcontrollers/status,
    resourcequotas,resourcequotas/status
  read core namespaces
  read core,events.k8s.io events
  read discovery.k8s.io endpointslices
  read apps controllerrevisions,daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,
    replicasets,replicasets/scale,replicasets/status,statefulsets,statefulsets/scale,statefulsets/status
  read autoscaling horizontalpodautoscalers,horizontalpodautoscalers/status
  read batch cronjobs,cronjobs/status,jobs,jobs/status
  read extensions daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,ingresses,
    ingresses/status,networkpolicies,replicasets,replicasets/scale,replicasets/status,replicationcontrollers/scale
  read policy poddisruptionbudgets,poddisruptionbudgets/status
  read networking.k8s.io ingresses,ingresses/status,networkpolicies
  read resource.k8s.io resourceclaims,resourceclaims/status,resourceclaimtemplates
system:auth-delegator
  create authentication.k8s.io tokenreviews
  create authorization.k8s.io subjectaccessreviews
system:basic-user
  create authorization.k8s.io selfsubjectaccessreviews,selfsubjectrulesreviews
  create authentication.k8s.io selfsubjectreviews
system:discovery
  get url /api,/api/*,/apis,/apis/*,/healthz,/livez,/openapi,/openapi/*,/readyz,/version,/version/
system:monitoring
  get url /flagz,/healthz,/healthz/*,/livez,/livez/*,/metrics,/metrics/slis,/readyz,/readyz/*,/statusz
  get core nodes/metrics
system:public-info-viewer
  get url /healthz,/livez,/readyz,/version,/version/
"""
_AGGREGATES: Final = {"admin": (), "edit": ("admin",), "view": ("edit",)}  # with the roles that aggregate them in turn
_BINDINGS: Final = {
    "cluster-admin": (MASTERS,),
    "system:basic-user": (AUTHENTICATED,),
    "system:discovery": (AUTHENTICATED,),
    "system:monitoring": ("system:monitoring",),
    "system:public-info-viewer": (AUTHENTICATED, UNAUTHENTICATED),
}


def store_default_roles(state: State) -> None:
    """Store the default roles and bindings that do not exist."""
    for plural, obj in (*_roles(), *_bindings()):
        table = state.store.table((_GROUP, plural))
        name = obj["metadata"]["name"]
        if name not in table.objects:
            obj["metadata"] |= {"uid": state.uid(), "creationTimestamp": state.timestamp()}
            state.store.put(table, name, obj)


def _roles() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, aims in _AGGREGATES.items():
        rule = {"clusterRoleSelectors": [{"matchLabels": {_label(name): "true"}}]}
        yield "clusterroles", {**_object("ClusterRole", name, aims), "aggregationRule": rule, "rules": None}
    lines = _ROLES.strip().replace(",\n    ", ",").splitlines()
    for at, line in enumerate(lines):
        if not line.startswith(" "):
            name, *own_aims = line.split()
            role = _object("ClusterRole", name, own_aims)
            yield "clusterroles", {**role, "rules": [_rule(text) for text in _block(lines, at + 1)]}


def _block(lines: list[str], start: int) -> Iterator[str]:
    for line in lines[start:]:
        if not line.startswith(" "):
            return
        yield line


def _rule(line: str) -> dict[str, Any]:
    verbs, group, names = line.split()
    if group == "url":
        return {"verbs": _words(verbs), "nonResourceURLs": _words(names)}
    return {"verbs": _words(verbs), "apiGroups": _words(group), "resources": _words(names)}


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") for word in _WORDS.get(part, [part])]


def _bindings() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, groups in _BINDINGS.items():
        subjects = [{"kind": "Group", "apiGroup": _GROUP, "name": group} for group in groups]
        ref = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name}
        binding = _object("ClusterRoleBinding", name, ())
        yield "clusterrolebindings", {**binding, "subjects": subjects, "roleRef": ref}


def _label(role: str) -> str:
    return f"rbac.authorization.k8s.io/aggregate-to-{role}"


def _object(kind: str, name: str, aims: Iterable[str]) -> dict[str, Any]:
    meta = {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults", **{_label(aim): "true" for aim in aims}},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }
    return {"kind": kind, "apiVersion": f"{_GROUP}/v1", "metadata": meta}
