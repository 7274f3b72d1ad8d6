"""Validation of Pods and Pod templates. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from trioperator._model.quantities import quantity_value

from ...model.metadata import check_key, subdomain_problem
from ...model.status_causes import StatusCause, invalid_value, required
from .common import (
    PROTOCOLS,
    check_choice,
    check_not_negative,
    check_port_name,
    check_port_number,
    duplicate,
    forbidden_field,
    items,
    named,
)

Object = Mapping[str, Any]

_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_TERMINATION_POLICIES: Final = ("File", "FallbackToLogsOnError")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_STANDARD_RESOURCES: Final = ("cpu", "ephemeral-storage", "memory")
_ENVIRONMENT: Final = re.compile(r"[ -<>-~]+")
_ENVIRONMENT_TEXT: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"
)
_SOURCES_TEXT: Final = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
)
# Required fields of volume sources.
_SOURCE_NAMES: Final = {"configMap": "name", "persistentVolumeClaim": "claimName", "secret": "secretName"}


def check_pod(pod: Object) -> Iterable[StatusCause]:
    return check_pod_spec(pod["spec"], "spec")


def check_pod_spec(spec: Object, path: str) -> Iterable[StatusCause]:
    volumes = set[str]()
    yield from _check_volumes(spec, path, volumes)
    names = set[str]()
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    for field in ("containers", "initContainers"):
        for where, container in items(spec, field, path):
            yield from _check_container(container, where, names, volumes)
    yield from check_choice(spec, path, "restartPolicy", _RESTART_POLICIES)
    yield from check_choice(spec, path, "dnsPolicy", _DNS_POLICIES)
    for key in spec.get("nodeSelector") or ():
        yield from check_key(f"{path}.nodeSelector", key)
    for field in ("serviceAccountName", "nodeName"):
        if (name := spec.get(field)) and (problem := subdomain_problem(name)):
            yield invalid_value(f"{path}.{field}", name, problem)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2**31:
        yield invalid_value(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")


def _check_volumes(spec: Object, path: str, names: set[str]) -> Iterable[StatusCause]:
    for where, volume in items(spec, "volumes", path):
        sources = [field for field in volume if field != "name"]
        for source in sorted(sources, key=_source_rank)[1:]:
            yield forbidden_field(f"{where}.{source}", "may not specify more than 1 volume type")
        for source in sources[:1]:
            field = _SOURCE_NAMES.get(source)
            if field and not volume[source].get(field):
                yield required(f"{where}.{source}.{field}")
        yield from named(where, volume.get("name") or "", names)


def _source_rank(source: str) -> int:
    order = ("emptyDir", "hostPath", "secret", "nfs", "persistentVolumeClaim", "configMap", "projected", "csi")
    return order.index(source) if source in order else len(order)


# -- containers ----------------------------------------------------------------------------------------------------


def _check_container(container: Object, path: str, names: set[str], volumes: set[str]) -> Iterable[StatusCause]:
    name = container.get("name") or ""
    yield from named(path, name, set())
    image = container.get("image") or ""
    if not image:
        yield required(f"{path}.image")
    elif image.strip() != image:
        yield invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from check_choice(container, path, "terminationMessagePolicy", _TERMINATION_POLICIES)
    yield from _check_ports(container, path)
    yield from _check_environment(container, path)
    yield from _check_mounts(container, path, volumes)
    yield from check_choice(container, path, "imagePullPolicy", _PULL_POLICIES)
    yield from _check_resources(container.get("resources") or {}, f"{path}.resources")
    if name and name in names:
        yield duplicate(f"{path}.name", name)
    names.add(name)
    for field in _PROBES:
        if (probe := container.get(field)) is not None:
            yield from _check_probe(probe, f"{path}.{field}")


def _check_ports(container: Object, path: str) -> Iterable[StatusCause]:
    names = set[str]()
    for where, port in items(container, "ports", path):
        name = port.get("name") or ""
        if name:
            yield from check_port_name(f"{where}.name", name)
            if name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
        if not port.get("containerPort"):
            yield required(f"{where}.containerPort")
        else:
            yield from check_port_number(f"{where}.containerPort", port["containerPort"])
        if "hostPort" in port:
            yield from check_port_number(f"{where}.hostPort", port["hostPort"] or 1)
        yield from check_choice(port, where, "protocol", PROTOCOLS)


def _check_environment(container: Object, path: str) -> Iterable[StatusCause]:
    for where, variable in items(container, "env", path):
        name, source = variable.get("name") or "", variable.get("valueFrom")
        if not name:
            yield required(f"{where}.name")
        elif not _ENVIRONMENT.fullmatch(name):
            yield invalid_value(f"{where}.name", name, _ENVIRONMENT_TEXT)
        if source is not None and not source:
            yield invalid_value(f"{where}.valueFrom", "", _SOURCES_TEXT)
        elif source is not None and variable.get("value"):
            yield invalid_value(f"{where}.valueFrom", "", "may not be specified when `value` is not empty")
        elif source is not None and len(source) > 1:
            yield invalid_value(f"{where}.valueFrom", "", "may not have more than one field specified at a time")
    for _, source in items(container, "envFrom", path):
        references = {"configMapRef", "secretRef"} & set(source)
        if not references:
            text = "must specify one of: `configMapRef` or `secretRef`"
            yield invalid_value(f"{path}.envFrom", "", text)
        elif len(references) > 1:
            yield invalid_value(f"{path}.envFrom", "", "may not have more than one field specified at a time")


def _check_mounts(container: Object, path: str, volumes: set[str]) -> Iterable[StatusCause]:
    places = set[str]()
    for where, mount in items(container, "volumeMounts", path):
        name, place = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{where}.name")
        if name not in volumes:
            yield StatusCause(f"{where}.name", f'Not found: "{name}"', "FieldValueNotFound")
        if not place:
            yield required(f"{where}.mountPath")
        elif place in places:
            yield invalid_value(f"{where}.mountPath", place, "must be unique")
        places.add(place)


def _check_probe(probe: Object, path: str) -> Iterable[StatusCause]:
    handlers = [field for field in ("exec", "httpGet", "tcpSocket", "grpc") if field in probe]
    for field in handlers[1:]:
        yield forbidden_field(f"{path}.{field}", "may not specify more than 1 handler type")
    if not handlers:
        yield required(path, "must specify a handler type")
    elif handlers[0] == "exec" and not probe["exec"].get("command"):
        yield required(f"{path}.exec.command")
    elif handlers[0] != "exec":
        yield from check_port_number(f"{path}.{handlers[0]}.port", probe[handlers[0]].get("port", 0))
    fields = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
    yield from check_not_negative(probe, path, *fields)


def _check_resources(resources: Object, path: str) -> Iterable[StatusCause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _check_amount(name, amount, f"{path}.{field}[{name}]")
            limit = limits.get(name)
            if field == "requests" and limit is not None and quantity_value(amount) > quantity_value(limit):
                text = f"must be less than or equal to {name} limit of {limit}"
                yield invalid_value(f"{path}.requests", amount, text)


def _check_amount(name: str, amount: str, path: str) -> Iterable[StatusCause]:
    if "/" in name:
        yield from check_key(path, name)
    elif name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
        yield invalid_value(path, name, "must be a standard resource type or fully qualified")
        yield invalid_value(path, name, "must be a standard resource for containers")
    if quantity_value(amount) < 0:
        yield invalid_value(path, amount, "must be greater than or equal to 0")
