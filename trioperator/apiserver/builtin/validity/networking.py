"""Validation of Services, Ingresses and network policies. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...model.metadata import subdomain_problem
from ...model.status_causes import StatusCause, invalid_value, required
from .common import (
    PROTOCOLS,
    check_choice,
    check_label_selector,
    check_port_name,
    check_port_number,
    forbidden_field,
    items,
    named,
)

Object = Mapping[str, Any]

_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
_ADDRESS_TEXT: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def check_service(obj: Object) -> Iterable[StatusCause]:
    spec = obj["spec"]
    ports, is_headless = spec.get("ports") or [], spec.get("clusterIP") == "None"
    if not ports and not is_headless and spec["type"] != "ExternalName":
        yield required("spec.ports")
    if spec["type"] == "ExternalName" and not spec.get("externalName"):
        yield required("spec.externalName")
    if is_headless and spec["type"] in {"LoadBalancer", "NodePort"}:
        text = f"may not be set to 'None' for {spec['type']} services"
        yield invalid_value("spec.clusterIPs[0]", "None", text)
    yield from _check_service_ports(spec)
    yield from check_choice(spec, "spec", "sessionAffinity", ("ClientIP", "None"))
    if (address := spec.get("clusterIP")) and not is_headless and not _is_address(address):
        yield invalid_value("spec.clusterIPs[0]", address, _ADDRESS_TEXT)
    yield from check_choice(spec, "spec", "type", _TYPES)
    status = (obj.get("status") or {}).get("loadBalancer") or {}
    if status.get("ingress") and spec["type"] != "LoadBalancer":
        text = "may only be used when `spec.type` is 'LoadBalancer'"
        yield forbidden_field("status.loadBalancer.ingress", text)


def _check_service_ports(spec: Object) -> Iterable[StatusCause]:
    names, ports = set[str](), spec.get("ports") or []
    for where, port in items(spec, "ports", "spec"):
        if port.get("name") or len(ports) > 1:
            yield from named(where, port.get("name") or "", names)
        yield from check_port_number(f"{where}.port", port.get("port") or 0)
        yield from check_choice(port, where, "protocol", PROTOCOLS)
        yield from _check_port_reference(port.get("targetPort"), f"{where}.targetPort")
    for where, port in items(spec, "ports", "spec"):
        if port.get("nodePort") and spec["type"] == "ClusterIP":
            yield forbidden_field(f"{where}.nodePort", "may not be used when `type` is 'ClusterIP'")
    seen = set[tuple[Any, Any]]()
    for where, port in items(spec, "ports", "spec"):
        identity = (port.get("protocol"), port.get("port"))
        if identity in seen:
            shown = f'"Protocol":"{identity[0]}","AppProtocol":null,"Port":{identity[1]},"TargetPort":0,"NodePort":0'
            yield StatusCause(where, f'Duplicate value: {{"Name":"",{shown}}}', "FieldValueDuplicate")
        seen.add(identity)


def _check_port_reference(port: Any, path: str) -> Iterable[StatusCause]:
    if isinstance(port, str):
        yield from check_port_name(path, port)
    else:
        yield from check_port_number(path, port)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def check_ingress(obj: Object) -> Iterable[StatusCause]:
    spec = obj["spec"]
    if not spec.get("rules") and "defaultBackend" not in spec:
        yield invalid_value("spec", None, "either `defaultBackend` or `rules` must be specified")
    for where, rule in items(spec, "rules", "spec"):
        host = rule.get("host") or ""
        if host and not host.startswith("*.") and (problem := subdomain_problem(host)):
            yield invalid_value(f"{where}.host", host, problem)
        for at, path in items(rule.get("http") or {}, "paths", f"{where}.http"):
            yield from _check_path(path, at)
    if "defaultBackend" in spec:
        yield from _check_backend(spec["defaultBackend"], "spec.defaultBackend")


def _check_path(path: Object, where: str) -> Iterable[StatusCause]:
    kind = path.get("pathType")
    if kind is None:
        yield required(f"{where}.pathType", "pathType must be specified")
    elif kind in {"Exact", "Prefix"} and not (path.get("path") or "").startswith("/"):
        yield invalid_value(f"{where}.path", path.get("path") or "", "must be an absolute path")
    else:
        yield from check_choice(path, where, "pathType", _PATH_TYPES)
    yield from _check_backend(path["backend"], f"{where}.backend")


def _check_backend(backend: Object, path: str) -> Iterable[StatusCause]:
    service = backend.get("service")
    if service is None:
        if "resource" not in backend:
            yield required(path, "resource or service backend is required")
        return
    if not service.get("name"):
        yield required(f"{path}.service.name")
    port = service["port"]
    if not port.get("name") and not port.get("number"):
        yield required(path, "port name or number is required")


def check_network_policy(obj: Object) -> Iterable[StatusCause]:
    spec = obj["spec"]
    yield from check_label_selector(spec["podSelector"], "spec.podSelector")
    for where, name in items(spec, "policyTypes", "spec"):
        yield from check_choice({where: name}, "", where, ("Ingress", "Egress"))
