"""How single cells of built-in kinds are filled, where a value at a path is not all of it. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from .column_values import find, join, since

__all__ = [
    "address",
    "claim",
    "completions",
    "endpoints",
    "event_count",
    "event_source",
    "external_ip",
    "first_seen",
    "hosts",
    "ingress_address",
    "involved",
    "job_duration",
    "job_status",
    "last_seen",
    "node_roles",
    "node_status",
    "param",
    "parameters",
    "phase",
    "quota",
    "role",
    "service_ports",
    "slice_endpoints",
    "slice_ports",
    "storage_class_name",
    "targets",
]

Object: TypeAlias = Mapping[str, Any]
Cell: TypeAlias = Callable[[Object, datetime.datetime], Any]


def external_ip(obj: Object, now: datetime.datetime) -> str:
    """Show where a Service is reached from outside."""
    spec = obj.get("spec") or {}
    ips = list(spec.get("externalIPs") or ())
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName") or "")
    if spec.get("type") == "LoadBalancer":
        found = [item.get("ip") or item.get("hostname") for item in find(obj, "status.loadBalancer.ingress") or ()]
        return join([*found, *ips], default="<pending>")
    return join(ips)


def service_ports(obj: Object, now: datetime.datetime) -> str:
    """Show the ports of a Service."""

    def show(port: Object) -> str:
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        return f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"

    return join(map(show, find(obj, "spec.ports") or ()))


def endpoints(obj: Object, now: datetime.datetime) -> str:
    """Show the first three addresses with their ports."""
    found = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in obj.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or ({"port": ""},)
    ]
    return join(found[:3]) + (f" + {len(found) - 3} more..." if len(found) > 3 else "")


def node_status(obj: Object, now: datetime.datetime) -> str:
    """Show whether a node is ready, and takes Pods."""
    ready = next((c for c in find(obj, "status.conditions") or () if c.get("type") == "Ready"), None)
    status = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if find(obj, "spec.unschedulable") else status


def node_roles(obj: Object, now: datetime.datetime) -> str:
    """Show the roles of a node, by its labels."""
    prefix, roles = "node-role.kubernetes.io/", set()
    for key, value in (obj["metadata"].get("labels") or {}).items():
        if key.startswith(prefix) and key != prefix:
            roles.add(key.removeprefix(prefix))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return join(sorted(roles))


def address(type: str) -> Cell:
    """Show the address of a node of a type."""

    def cell(obj: Object, now: datetime.datetime) -> str:
        addresses = find(obj, "status.addresses") or ()
        return next((str(item.get("address")) for item in addresses if item.get("type") == type), "<none>")

    return cell


def phase(obj: Object, now: datetime.datetime) -> str:
    """Show the phase of a volume or claim, while it is not being deleted."""
    return "Terminating" if "deletionTimestamp" in obj["metadata"] else str(find(obj, "status.phase") or "")


def claim(obj: Object, now: datetime.datetime) -> str:
    """Show which claim a volume is bound to."""
    claim = find(obj, "spec.claimRef")
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def involved(obj: Object, now: datetime.datetime) -> str:
    """Show what an Event is about."""
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    return f"{str(about.get('kind') or '').lower()}/{about.get('name') or ''}"


def last_seen(obj: Object, now: datetime.datetime) -> str:
    """Show when an Event has happened last."""
    series = find(obj, "series.lastObservedTime")
    seen = series or obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp") or obj.get("eventTime")
    return since(seen, now)


def first_seen(obj: Object, now: datetime.datetime) -> str:
    """Show when an Event has happened first."""
    return since(obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime"), now)


def event_count(obj: Object, now: datetime.datetime) -> int:
    """Show how often an Event has happened."""
    return int(find(obj, "series.count") or obj.get("count") or obj.get("deprecatedCount") or 1)


def event_source(obj: Object, now: datetime.datetime) -> str:
    """Show who has reported an Event."""
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    parts = (source.get("component") or obj.get("reportingComponent"), source.get("host"))
    return ", ".join(part for part in parts if part)


def quota(is_limit: bool) -> Cell:
    """Show what is used of what a quota allows: limits, or the rest."""

    def cell(obj: Object, now: datetime.datetime) -> str:
        hard, used = find(obj, "status.hard") or {}, find(obj, "status.used") or {}
        names = sorted(name for name in hard if name.startswith("limits.") is is_limit)
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return cell


def job_status(obj: Object, now: datetime.datetime) -> str:
    """Show what has become of a Job."""
    order = {"Complete": 0, "Failed": 0, "Suspended": 1, "FailureTarget": 2, "SuccessCriteriaMet": 3}
    found = [c["type"] for c in find(obj, "status.conditions") or () if c.get("status") == "True"]
    known = sorted((kind for kind in found if kind in order), key=lambda kind: order[kind])
    if known:
        return str(known[0])
    return "Terminating" if "deletionTimestamp" in obj["metadata"] else "Running"


def completions(obj: Object, now: datetime.datetime) -> str:
    """Show how many Pods of a Job have ended well."""
    done, spec = find(obj, "status.succeeded") or 0, obj.get("spec") or {}
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def job_duration(obj: Object, now: datetime.datetime) -> str:
    """Show how long a Job has been running, or has run."""
    status = obj.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = status.get("completionTime")
    return since(status["startTime"], datetime.datetime.fromisoformat(end) if end else now)


def hosts(obj: Object, now: datetime.datetime) -> str:
    """Show the first three hosts of an Ingress."""
    hosts = list(dict.fromkeys(rule["host"] for rule in find(obj, "spec.rules") or () if rule.get("host")))
    return ",".join(hosts[:3]) + (f" + {len(hosts) - 3} more..." if len(hosts) > 3 else "") if hosts else "*"


def ingress_address(obj: Object, now: datetime.datetime) -> str:
    """Show where an Ingress is reached."""
    points = find(obj, "status.loadBalancer.ingress") or ()
    return ",".join(str(point.get("ip") or point.get("hostname")) for point in points)


def parameters(obj: Object, now: datetime.datetime) -> str:
    """Show the object with the parameters of an IngressClass."""
    found = find(obj, "spec.parameters")
    if not found:
        return "<none>"
    group = f".{found['apiGroup']}" if found.get("apiGroup") else ""
    return f"{found.get('kind')}{group}/{found.get('name')}"


def targets(obj: Object, now: datetime.datetime) -> str:
    """Show what an autoscaler aims at; what it has measured is unknown, as nobody measures here."""
    spec, shown = obj.get("spec") or {}, []
    current = {
        find(m, "resource.name"): find(m, "resource.current") or {} for m in find(obj, "status.currentMetrics") or ()
    }
    for metric in spec.get("metrics") or ():
        name, target = find(metric, "resource.name"), find(metric, "resource.target") or {}
        if name is None:
            shown.append("<unknown>")
        elif target.get("averageUtilization") is not None:
            measured = current.get(name, {}).get("averageUtilization")
            known = "<unknown>" if measured is None else f"{measured}%"
            shown.append(f"{name}: {known}/{target['averageUtilization']}%")
        else:
            shown.append(
                f"{name}: {current.get(name, {}).get('averageValue', '<unknown>')}/{target.get('averageValue')}"
            )
    if spec.get("targetCPUUtilizationPercentage") is not None:
        shown.append(f"cpu: <unknown>/{spec['targetCPUUtilizationPercentage']}%")
    return join(shown[:3], glue=", ") + (f" + {len(shown) - 3} more..." if len(shown) > 3 else "")


def storage_class_name(obj: Object, now: datetime.datetime) -> str:
    """Show the name of a storage class, and whether it is the default one."""
    mark = (obj["metadata"].get("annotations") or {}).get("storageclass.kubernetes.io/is-default-class")
    return f"{obj['metadata']['name']} (default)" if mark == "true" else str(obj["metadata"]["name"])


def role(obj: Object, now: datetime.datetime) -> str:
    """Show the role of a binding."""
    return f"{find(obj, 'roleRef.kind')}/{find(obj, 'roleRef.name')}"


def param(path: str) -> Cell:
    """Show a reference of an admission policy to its parameters."""

    def cell(obj: Object, now: datetime.datetime) -> str:
        found = find(obj, path)
        if not found:
            return "<unset>"
        if "kind" in found:
            return f"{found.get('apiVersion')}/{found['kind']}"
        name = found.get("name") or "*"
        return f"{found['namespace']}/{name}" if found.get("namespace") else name

    return cell


def slice_ports(obj: Object, now: datetime.datetime) -> str:
    """Show the ports of a slice."""
    return join([str(port.get("port") or "*") for port in obj.get("ports") or ()], default="<unset>")


def slice_endpoints(obj: Object, now: datetime.datetime) -> str:
    """Show the first three addresses of a slice."""
    found = [address for item in obj.get("endpoints") or () for address in item.get("addresses") or ()]
    more = f" + {len(found) - 3} more..." if len(found) > 3 else ""
    return join(found[:3], default="<unset>") + more
